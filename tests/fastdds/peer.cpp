// A Fast DDS 2 participant for the tests: a command a line on standard input, one line of answer to each.
//
// A command is words; a text in it is percent-encoded behind an apostrophe. Types and values are words as well, in the
// order of IDL and of XCDR (tests/fastdds/words.py writes them), so any type that dynamic types can do can be had.
// It speaks UDPv4 on 127.0.0.1 alone: no shared memory, no data sharing. It ends with its standard input.

#include "dynamic.hpp"

#include <iostream>
#include <vector>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/log/Log.hpp>
#include <fastdds/dds/log/StdoutErrConsumer.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/publisher/qos/DataWriterQos.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/subscriber/qos/DataReaderQos.hpp>
#include <fastdds/dds/topic/ContentFilteredTopic.hpp>
#include <fastdds/dds/topic/Topic.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>

using namespace eprosima::fastdds::dds;
using eprosima::fastdds::rtps::UDPv4TransportDescriptor;

class Peer
{
public:

    explicit Peer(uint32_t domain)
    {
        DomainParticipantQos qos = PARTICIPANT_QOS_DEFAULT;
        auto udp = std::make_shared<UDPv4TransportDescriptor>();
        udp->interfaceWhiteList.push_back("127.0.0.1");
        qos.transport().use_builtin_transports = false;
        qos.transport().user_transports.push_back(udp);
        participant_ = DomainParticipantFactory::get_instance()->create_participant(domain, qos);
        check(participant_ != nullptr, "no participant");
        publisher_ = participant_->create_publisher(PUBLISHER_QOS_DEFAULT);
        subscriber_ = participant_->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
    }

    std::string obey(Words& words)
    {
        const std::string command = words.next();
        if (command == "type")
        {
            return define(words);
        }
        const std::string topic = words.text();
        if (command == "writer")
        {
            return writer(topic, words);
        }
        if (command == "reader")
        {
            return reader(topic, words);
        }
        if (command == "delete")
        {
            return remove(topic);
        }
        if (command == "write" || command == "dispose" || command == "unregister")
        {
            return write(command, topic, words);
        }
        if (command == "take")
        {
            return take(topic);
        }
        if (command == "matched")
        {
            return std::to_string(matched(topic));
        }
        if (command == "acknowledged")
        {
            const eprosima::fastrtps::Duration_t wait{static_cast<int32_t>(words.number()), 0u};
            const bool all = writers_.at(topic)->wait_for_acknowledgments(wait) == ReturnCode_t::RETCODE_OK;
            return all ? "true" : "false";
        }
        throw std::runtime_error("no such command: " + command);
    }

private:

    // type NAME announced|silent TYPE
    std::string define(Words& words)
    {
        const std::string name = words.text();
        const bool announced = words.next() == "announced";
        Type type = read_type(words);
        TypeSupport support(new_type_support(type, name));
        support->auto_fill_type_object(announced);
        support->auto_fill_type_information(announced);
        check(participant_->register_type(support, name) == ReturnCode_t::RETCODE_OK, "type not registered");
        types_[name] = type;
        return "true";
    }

    // writer TOPIC TYPE QOS [USER_DATA]
    std::string writer(const std::string& topic, Words& words)
    {
        Topic* described = find_topic(topic, words.text());
        DataWriterQos qos = DATAWRITER_QOS_DEFAULT;
        read_qos(words, qos);
        qos.data_sharing().off();
        qos.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;  // fragments need it
        if (words.more())
        {
            const std::string data = words.text();
            qos.user_data().data_vec(std::vector<uint8_t>(data.begin(), data.end()));
        }
        writers_[topic] = publisher_->create_datawriter(described, qos);
        check(writers_[topic] != nullptr, "no writer");
        return "true";
    }

    // reader TOPIC TYPE QOS [EXPRESSION PARAMETER ...]
    std::string reader(const std::string& topic, Words& words)
    {
        TopicDescription* described = find_topic(topic, words.text());
        DataReaderQos qos = DATAREADER_QOS_DEFAULT;
        read_qos(words, qos);
        qos.data_sharing().off();
        if (words.more())
        {
            const std::string expression = words.text();
            std::vector<std::string> parameters;
            while (words.more())
            {
                parameters.push_back(words.text());
            }
            described = participant_->create_contentfilteredtopic(
                topic + " filtered", topics_.at(topic), expression, parameters);
            check(described != nullptr, "no content-filtered topic");
        }
        readers_[topic] = subscriber_->create_datareader(described, qos);
        check(readers_[topic] != nullptr, "no reader");
        return "true";
    }

    std::string remove(const std::string& topic)
    {
        if (writers_.count(topic) != 0)
        {
            publisher_->delete_datawriter(writers_.at(topic));
            writers_.erase(topic);
        }
        if (readers_.count(topic) != 0)
        {
            subscriber_->delete_datareader(readers_.at(topic));
            readers_.erase(topic);
        }
        return "true";
    }

    // write|dispose|unregister TOPIC VALUE ...
    std::string write(const std::string& how, const std::string& topic, Words& words)
    {
        DataWriter* writer = writers_.at(topic);
        const Type type = types_.at(writer->get_topic()->get_type_name());
        while (words.more())
        {
            Data sample(type);
            read_value(words, sample.get(), type);
            ReturnCode_t done;
            if (how == "write")
            {
                done = writer->write(sample.get(), HANDLE_NIL);
            }
            else if (how == "dispose")
            {
                done = writer->dispose(sample.get(), HANDLE_NIL);
            }
            else
            {
                done = writer->unregister_instance(sample.get(), HANDLE_NIL);
            }
            check(done == ReturnCode_t::RETCODE_OK, "not written: " + std::to_string(done()));
        }
        return "true";
    }

    // What there is, as [state, value] each.
    std::string take(const std::string& topic)
    {
        DataReader* reader = readers_.at(topic);
        const Type type = types_.at(reader->get_topicdescription()->get_type_name());
        std::string answer = "[";
        while (true)
        {
            Data sample(type);
            SampleInfo info;
            if (reader->take_next_sample(sample.get(), &info) != ReturnCode_t::RETCODE_OK)
            {
                return answer + "]";
            }
            const bool alive = info.instance_state == ALIVE_INSTANCE_STATE;
            const bool disposed = info.instance_state == NOT_ALIVE_DISPOSED_INSTANCE_STATE;
            answer += answer.size() > 1 ? ",[\"" : "[\"";
            answer += alive ? "ALIVE" : disposed ? "DISPOSED" : "NO_WRITERS";
            answer += "\",\"";
            if (info.valid_data)
            {
                write_value(answer, sample.get(), type);
            }
            answer += "\"]";
        }
    }

    int32_t matched(const std::string& topic)
    {
        if (writers_.count(topic) != 0)
        {
            PublicationMatchedStatus status;
            writers_.at(topic)->get_publication_matched_status(status);
            return status.current_count;
        }
        SubscriptionMatchedStatus status;
        readers_.at(topic)->get_subscription_matched_status(status);
        return status.current_count;
    }

    // reliable|best_effort volatile|transient_local HISTORY_DEPTH (0: all)
    template<typename Qos>
    static void read_qos(Words& words, Qos& qos)
    {
        qos.reliability().kind =
                words.next() == "reliable" ? RELIABLE_RELIABILITY_QOS : BEST_EFFORT_RELIABILITY_QOS;
        qos.durability().kind =
                words.next() == "transient_local" ? TRANSIENT_LOCAL_DURABILITY_QOS : VOLATILE_DURABILITY_QOS;
        const auto depth = static_cast<int32_t>(words.number());
        qos.history().kind = depth == 0 ? KEEP_ALL_HISTORY_QOS : KEEP_LAST_HISTORY_QOS;
        qos.history().depth = depth == 0 ? 1 : depth;
        qos.resource_limits().max_samples = 0;  // no limits
        qos.resource_limits().max_instances = 0;
        qos.resource_limits().max_samples_per_instance = 0;
        qos.endpoint().history_memory_policy =
                eprosima::fastrtps::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
    }

    Topic* find_topic(const std::string& topic, const std::string& type)
    {
        if (topics_.count(topic) == 0)
        {
            topics_[topic] = participant_->create_topic(topic, type, TOPIC_QOS_DEFAULT);
            check(topics_[topic] != nullptr, "no topic");
        }
        return topics_.at(topic);
    }

    DomainParticipant* participant_;
    Publisher* publisher_;
    Subscriber* subscriber_;
    std::map<std::string, Type> types_;
    std::map<std::string, Topic*> topics_;
    std::map<std::string, DataWriter*> writers_;
    std::map<std::string, DataReader*> readers_;
};

int main(int, char** arguments)
{
    Log::ClearConsumers();
    Log::RegisterConsumer(std::unique_ptr<LogConsumer>(new StdoutErrConsumer));  // standard output has the answers
    Peer peer(static_cast<uint32_t>(std::stoul(arguments[1])));
    std::string line;
    while (std::getline(std::cin, line))
    {
        try
        {
            Words words(line);
            std::cout << peer.obey(words) << std::endl;
        }
        catch (const std::exception& error)
        {
            std::cout << "!" << error.what() << std::endl;
        }
    }
    std::_Exit(0);
}
