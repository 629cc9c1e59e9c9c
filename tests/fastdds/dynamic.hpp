// Types and values as words, by the dynamic types of Fast DDS 2.

#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fastcdr/Cdr.h>
#include <fastcdr/FastBuffer.h>
#include <fastrtps/types/DynamicData.h>
#include <fastrtps/types/DynamicDataFactory.h>
#include <fastrtps/types/DynamicPubSubType.h>
#include <fastrtps/types/DynamicTypeBuilder.h>
#include <fastrtps/types/DynamicTypeBuilderFactory.h>
#include <fastrtps/types/DynamicTypeBuilderPtr.h>
#include <fastrtps/types/DynamicTypeMember.h>
#include <fastrtps/types/DynamicTypePtr.h>
#include <fastrtps/types/MemberDescriptor.h>
#include <fastrtps/types/TypeDescriptor.h>
#include <fastrtps/utils/md5.h>

namespace types = eprosima::fastrtps::types;
using Type = types::DynamicType_ptr;
using types::MemberId;
using types::ReturnCode_t;

inline void check(bool done, const std::string& what)
{
    if (!done)
    {
        throw std::runtime_error(what);
    }
}

class Words
{
public:

    explicit Words(const std::string& line)
        : in_(line)
    {
    }

    bool more()
    {
        return (in_ >> std::ws).good();
    }

    std::string next()
    {
        std::string word;
        check(static_cast<bool>(in_ >> word), "a word is missing");
        return word;
    }

    int64_t number()
    {
        return std::stoll(next());
    }

    std::string text()
    {
        const std::string word = next();
        std::string text;
        for (size_t i = 1; i < word.size(); ++i)
        {
            if (word[i] == '%')
            {
                text += static_cast<char>(std::stoi(word.substr(i + 1, 2), nullptr, 16));
                i += 2;
            }
            else
            {
                text += word[i];
            }
        }
        return text;
    }

private:

    std::istringstream in_;
};

inline types::DynamicTypeBuilderFactory& factory()
{
    return *types::DynamicTypeBuilderFactory::get_instance();
}

inline Type read_type(Words& words);

inline Type read_struct(Words& words)
{
    const std::string name = words.text(), extensibility = words.next();
    check(words.next() == "nobase", "these dynamic types lose what is inherited");
    types::DynamicTypeBuilder* builder = factory().create_struct_builder();
    builder->set_name(name);
    builder->apply_annotation("extensibility", "value", extensibility == "final" ? "FINAL" : "APPENDABLE");
    for (int64_t left = words.number(); left > 0; --left)
    {
        const std::string member = words.text();
        const auto id = static_cast<MemberId>(words.number());
        const bool key = words.next() == "key";
        builder->add_member(id, member, read_type(words));
        if (key)
        {
            builder->apply_annotation_to_member(id, "key", "value", "true");
        }
    }
    return builder->build();
}

inline Type read_union(Words& words)
{
    const std::string name = words.text();
    types::DynamicTypeBuilder* builder = factory().create_union_builder(read_type(words));
    builder->set_name(name);
    for (int64_t left = words.number(); left > 0; --left)
    {
        const std::string member = words.text();
        const auto id = static_cast<MemberId>(words.number());
        const bool is_default = words.next() == "default";
        std::vector<uint64_t> labels(static_cast<size_t>(words.number()));
        std::generate(labels.begin(), labels.end(), [&] { return static_cast<uint64_t>(words.number()); });
        builder->add_member(id, member, read_type(words), "", labels, is_default);
    }
    return builder->build();
}

inline Type read_type(Words& words)
{
    static const std::map<std::string, types::TypeKind> primitives = {
        {"boolean", types::TK_BOOLEAN}, {"octet", types::TK_BYTE}, {"short", types::TK_INT16},
        {"unsigned_short", types::TK_UINT16}, {"long", types::TK_INT32}, {"unsigned_long", types::TK_UINT32},
        {"long_long", types::TK_INT64}, {"unsigned_long_long", types::TK_UINT64}, {"float", types::TK_FLOAT32},
        {"double", types::TK_FLOAT64}, {"long_double", types::TK_FLOAT128}, {"char", types::TK_CHAR8}};
    const std::string kind = words.next();
    if (primitives.count(kind) != 0)
    {
        return factory().get_primitive_type(primitives.at(kind));
    }
    if (kind == "string")
    {
        const auto bound = static_cast<uint32_t>(words.number());
        return bound == 0 ? factory().create_string_type() : factory().create_string_type(bound);
    }
    if (kind == "sequence")
    {
        const auto bound = static_cast<uint32_t>(words.number());
        const Type element = read_type(words);
        return (bound == 0 ? factory().create_sequence_builder(element)
               : factory().create_sequence_builder(element, bound))->build();
    }
    if (kind == "array")
    {
        std::vector<uint32_t> dimensions(static_cast<size_t>(words.number()));
        for (uint32_t& dimension : dimensions)
        {
            dimension = static_cast<uint32_t>(words.number());
        }
        return factory().create_array_builder(read_type(words), dimensions)->build();
    }
    if (kind == "map")
    {
        const auto bound = static_cast<uint32_t>(words.number());
        const Type key = read_type(words), value = read_type(words);
        return (bound == 0 ? factory().create_map_builder(key, value)
               : factory().create_map_builder(key, value, bound))->build();
    }
    if (kind == "enum")
    {
        types::DynamicTypeBuilder* builder = factory().create_enum_builder();
        builder->set_name(words.text());
        for (int64_t left = words.number(); left > 0; --left)
        {
            const std::string literal = words.text();
            builder->add_empty_member(static_cast<uint32_t>(words.number()), literal);
        }
        return builder->build();
    }
    if (kind == "bitmask")
    {
        const std::string name = words.text();
        auto* builder = factory().create_bitmask_builder(static_cast<uint32_t>(words.number()));
        builder->set_name(name);
        for (int64_t left = words.number(); left > 0; --left)
        {
            const std::string flag = words.text();
            const auto position = static_cast<MemberId>(words.number());
            builder->add_member(position, flag, factory().create_bool_type());
        }
        return builder->build();
    }
    if (kind == "alias")
    {
        const std::string name = words.text();
        return factory().create_alias_builder(read_type(words), name)->build();
    }
    if (kind == "union")
    {
        return read_union(words);
    }
    check(kind == "struct", "no such type: " + kind);
    return read_struct(words);
}

class Data
{
public:

    explicit Data(const Type& type)
        : data_(types::DynamicDataFactory::get_instance()->create_data(type))
    {
    }

    ~Data()
    {
        types::DynamicDataFactory::get_instance()->delete_data(data_);
    }

    types::DynamicData* get()
    {
        return data_;
    }

private:

    types::DynamicData* data_;
};

inline Type resolved(Type type)
{
    while (type->get_kind() == types::TK_ALIAS)
    {
        type = type->get_descriptor()->get_base_type();
    }
    return type;
}

inline std::vector<const types::MemberDescriptor*> members_of(const Type& type)
{
    std::map<MemberId, types::DynamicTypeMember*> members;
    type->get_all_members(members);
    std::vector<const types::MemberDescriptor*> found;
    for (auto& each : members)
    {
        found.push_back(each.second->get_descriptor());
    }
    return found;
}

inline const types::MemberDescriptor* branch(const Type& type, uint64_t label)
{
    const types::MemberDescriptor* taken = nullptr;
    for (const types::MemberDescriptor* each : members_of(type))
    {
        const std::vector<uint64_t> labels = each->get_union_labels();
        if (std::find(labels.begin(), labels.end(), label) != labels.end())
        {
            return each;
        }
        taken = each->is_default_union_value() ? each : taken;
    }
    return taken;
}

inline void read_value(Words& words, types::DynamicData* data, const Type& of);

// A member or an element.
inline void read_part(Words& words, types::DynamicData* data, MemberId id, const Type& of)
{
    const Type type = resolved(of);
    switch (type->get_kind())
    {
        case types::TK_BOOLEAN: data->set_bool_value(words.number() != 0, id); return;
        case types::TK_BYTE: data->set_byte_value(static_cast<types::octet>(words.number()), id); return;
        case types::TK_CHAR8: data->set_char8_value(static_cast<char>(words.number()), id); return;
        case types::TK_INT16: data->set_int16_value(static_cast<int16_t>(words.number()), id); return;
        case types::TK_UINT16: data->set_uint16_value(static_cast<uint16_t>(words.number()), id); return;
        case types::TK_INT32: data->set_int32_value(static_cast<int32_t>(words.number()), id); return;
        case types::TK_UINT32: data->set_uint32_value(static_cast<uint32_t>(words.number()), id); return;
        case types::TK_INT64: data->set_int64_value(words.number(), id); return;
        case types::TK_UINT64: data->set_uint64_value(std::stoull(words.next()), id); return;
        case types::TK_FLOAT32: data->set_float32_value(std::stof(words.next()), id); return;
        case types::TK_FLOAT64: data->set_float64_value(std::strtod(words.next().c_str(), nullptr), id); return;
        case types::TK_FLOAT128: data->set_float128_value(std::stold(words.next()), id); return;
        case types::TK_STRING8: data->set_string_value(words.text(), id); return;
        case types::TK_ENUM: data->set_enum_value(static_cast<uint32_t>(words.number()), id); return;
        default: break;
    }
    types::DynamicData* part = data->loan_value(id);
    check(part != nullptr, "no such part");
    read_value(words, part, type);
    data->return_loaned_value(part);
}

inline void read_value(Words& words, types::DynamicData* data, const Type& of)
{
    const Type type = resolved(of);
    const types::TypeDescriptor* descriptor = type->get_descriptor();
    switch (type->get_kind())
    {
        case types::TK_STRUCTURE:
            for (const types::MemberDescriptor* member : members_of(type))
            {
                read_part(words, data, member->get_id(), member->get_type());
            }
            return;
        case types::TK_UNION:
        {
            const types::MemberDescriptor* member = branch(type, static_cast<uint64_t>(words.number()));
            read_part(words, data, member->get_id(), member->get_type());
            return;
        }
        case types::TK_BITMASK:
            data->set_bitmask_value(std::stoull(words.next()));
            return;
        case types::TK_SEQUENCE:
            for (int64_t left = words.number(); left > 0; --left)
            {
                MemberId id;
                check(data->insert_sequence_data(id) == ReturnCode_t::RETCODE_OK, "no room in a sequence");
                read_part(words, data, id, descriptor->get_element_type());
            }
            return;
        case types::TK_ARRAY:
            for (uint32_t i = 0; i < descriptor->get_total_bounds(); ++i)
            {
                read_part(words, data, i, descriptor->get_element_type());
            }
            return;
        case types::TK_MAP:
            for (int64_t left = words.number(); left > 0; --left)
            {
                Data key(descriptor->get_key_element_type());
                read_part(words, key.get(), MEMBER_ID_INVALID, descriptor->get_key_element_type());
                MemberId key_id, value_id;
                data->insert_map_data(key.get(), key_id, value_id);
                read_part(words, data, value_id, descriptor->get_element_type());
            }
            return;
        default:
            throw std::runtime_error("no value of this kind");
    }
}

template<typename ... Values>
void print(std::string& out, const char* format, Values... values)
{
    char text[64];
    std::snprintf(text, sizeof text, format, values ...);
    out += text;
    out += ' ';
}

inline void write_value(std::string& out, types::DynamicData* data, const Type& of);

inline void write_part(std::string& out, types::DynamicData* data, MemberId id, const Type& of)
{
    const Type type = resolved(of);
    switch (type->get_kind())
    {
        case types::TK_BOOLEAN: print(out, "%d", data->get_bool_value(id) ? 1 : 0); return;
        case types::TK_BYTE: print(out, "%d", data->get_byte_value(id)); return;
        case types::TK_CHAR8: print(out, "%d", data->get_char8_value(id)); return;
        case types::TK_INT16: print(out, "%d", data->get_int16_value(id)); return;
        case types::TK_UINT16: print(out, "%d", data->get_uint16_value(id)); return;
        case types::TK_INT32: print(out, "%d", data->get_int32_value(id)); return;
        case types::TK_UINT32: print(out, "%u", data->get_uint32_value(id)); return;
        case types::TK_INT64: print(out, "%lld", static_cast<long long>(data->get_int64_value(id))); return;
        case types::TK_UINT64: print(out, "%llu", static_cast<unsigned long long>(data->get_uint64_value(id))); return;
        case types::TK_FLOAT32: print(out, "%a", static_cast<double>(data->get_float32_value(id))); return;
        case types::TK_FLOAT64: print(out, "%a", data->get_float64_value(id)); return;
        case types::TK_FLOAT128: print(out, "%a", static_cast<double>(data->get_float128_value(id))); return;
        case types::TK_ENUM:
        {
            uint32_t value;
            data->get_enum_value(value, id);
            print(out, "%d", static_cast<int32_t>(value));
            return;
        }
        case types::TK_STRING8:
            out += '\'';
            for (const char c : data->get_string_value(id))
            {
                char hex[4];
                std::snprintf(hex, sizeof hex, "%%%02x", static_cast<unsigned char>(c));
                out += hex;
            }
            out += ' ';
            return;
        default: break;
    }
    types::DynamicData* part = data->loan_value(id);
    check(part != nullptr, "no such part");
    write_value(out, part, type);
    data->return_loaned_value(part);
}

inline void write_value(std::string& out, types::DynamicData* data, const Type& of)
{
    const Type type = resolved(of);
    const types::TypeDescriptor* descriptor = type->get_descriptor();
    switch (type->get_kind())
    {
        case types::TK_STRUCTURE:
            for (const types::MemberDescriptor* member : members_of(type))
            {
                write_part(out, data, member->get_id(), member->get_type());
            }
            return;
        case types::TK_UNION:
        {
            const uint64_t label = data->get_union_label();
            print(out, "%lld", static_cast<long long>(label));
            const types::MemberDescriptor* member = branch(type, label);
            write_part(out, data, member->get_id(), member->get_type());
            return;
        }
        case types::TK_BITMASK:
            print(out, "%llu", static_cast<unsigned long long>(data->get_bitmask_value()));
            return;
        case types::TK_SEQUENCE:
            print(out, "%u", data->get_item_count());
            for (uint32_t i = 0; i < data->get_item_count(); ++i)
            {
                write_part(out, data, i, descriptor->get_element_type());
            }
            return;
        case types::TK_ARRAY:
            for (uint32_t i = 0; i < descriptor->get_total_bounds(); ++i)
            {
                write_part(out, data, i, descriptor->get_element_type());
            }
            return;
        case types::TK_MAP:
            print(out, "%u", data->get_item_count());
            for (uint32_t i = 0; i < data->get_item_count(); ++i)
            {
                write_part(out, data, 2 * i, descriptor->get_key_element_type());
                write_part(out, data, 2 * i + 1, descriptor->get_element_type());
            }
            return;
        default:
            throw std::runtime_error("no value of this kind");
    }
}

// The dynamic types of 2.9 have the key of all instances be zero.
class Keyed : public types::DynamicPubSubType
{
public:

    using types::DynamicPubSubType::DynamicPubSubType;

    bool getKey(void* sample, eprosima::fastrtps::rtps::InstanceHandle_t* handle, bool force_md5) override
    {
        auto* data = static_cast<types::DynamicData*>(sample);
        char zeros[1024] = {};  // padding is part of what is hashed
        eprosima::fastcdr::FastBuffer buffer(zeros, sizeof zeros);
        eprosima::fastcdr::Cdr cdr(buffer, eprosima::fastcdr::Cdr::BIG_ENDIANNESS);
        bool bounded = true;
        for (const types::MemberDescriptor* member : members_of(GetDynamicType()))
        {
            if (!member->annotation_is_key())
            {
                continue;
            }
            switch (member->get_kind())
            {
                case types::TK_INT32: cdr << data->get_int32_value(member->get_id()); break;
                case types::TK_UINT32: cdr << data->get_uint32_value(member->get_id()); break;
                case types::TK_STRING8: cdr << data->get_string_value(member->get_id()); bounded = false; break;
                default: return false;
            }
        }
        MD5 md5;
        md5.update(cdr.getBufferPointer(), static_cast<unsigned int>(cdr.getSerializedDataLength()));
        md5.finalize();
        const bool plain = bounded && !force_md5 && cdr.getSerializedDataLength() <= 16;
        for (size_t i = 0; i < 16; ++i)
        {
            handle->value[i] = plain ? static_cast<unsigned char>(zeros[i]) : md5.digest[i];
        }
        return true;
    }
};

inline types::DynamicPubSubType* new_type_support(const Type& type, const std::string& name)
{
    auto* support = new Keyed(type);
    support->setName(name.c_str());
    return support;
}
