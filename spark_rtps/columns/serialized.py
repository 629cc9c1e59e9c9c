"""Decodes and encodes serialized samples that are a column, as with ``payload=binary``."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..options import Settings
from ..transport.errors import EncodeError, MalformedSampleError, OptionError, TypeDefinitionError
from ..transport.qos import DataRepresentation
from ..transport.types.model import Extensibility, Struct, traverse
from ..transport.wire.samples import ENCAPSULATION_BYTES
from .decoding import codec_for
from .encoding import samples_of
from .sample_columns import payloads
from .type_files import listed, struct_named
from .type_sources import is_ros_name


def struct_of_text(text: str, settings: Settings) -> Struct:
    """The type that ``text`` gives: a ROS 2 name, or IDL.

    If the IDL defines several structs, ``type`` names one; the default is the one that no other has as a member.

    Raises TypeDefinitionError for errors in the IDL, OptionError if it does not define that struct.
    """
    from ..transport.types.idl.parser import parse_idl
    from ..transport.types.ros import ros_type

    if is_ros_name(text):
        return ros_type(text, settings.ros_distribution)
    extensibility = settings.type_extensibility or Extensibility.APPENDABLE
    found = parse_idl(text, "the IDL of the column's type", extensibility=extensibility)
    structs = {name: t for name, t in found.items() if isinstance(t, Struct)}
    if not structs:
        raise TypeDefinitionError(
            f"{text[:60]!r} is neither IDL that defines a struct nor a ROS 2 name such as sensor_msgs/msg/Imu"
        )
    wanted = settings.type
    if wanted is None:
        inside = {
            t.name
            for each in structs.values()
            for t in traverse(each)
            if isinstance(t, Struct) and t is not each
        }
        outermost = [name for name in structs if name not in inside]
        if len(outermost) != 1:
            raise OptionError("type", None, f"the IDL defines {listed(structs)}; name one")
        return structs[outermost[0]]
    return struct_named(structs, wanted, "the IDL")


def decoded_values(values: pa.Array, struct: Struct, schema: pa.Schema, *, fails: bool) -> pa.StructArray:
    """Payloads, encapsulation header included, as values of ``struct`` with the fields of ``schema``.

    Null stays null. A payload that does not decode becomes null, or raises MalformedSampleError if ``fails`` is true.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    whole = pc.fill_null(pc.greater_equal(pc.binary_length(values), ENCAPSULATION_BYTES), False)
    rows = np.flatnonzero(whole.to_numpy(zero_copy_only=False))
    if fails and len(rows) < len(values) - values.null_count:
        row = np.setdiff1d(np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)), rows)[0]
        raise MalformedSampleError(
            f"row {row} of {len(values)}: a serialized sample has {ENCAPSULATION_BYTES} bytes at least, the "
            "encapsulation header"
        )
    batches, good, at = [], [], 0
    for part in codec_for(struct, schema).parts(samples_of(values.filter(whole))):
        these = rows[at : at + part.count]
        at += part.count
        if part.malformed is not None:
            bad = int(np.argmax(part.malformed))
            if fails:
                raise MalformedSampleError(
                    f"row {int(these[bad])} of {len(values)} is no {struct.name}: {part.reason(bad)}"
                )
            these = these[~part.malformed]
        batches.append(part.batch)
        good.append(these)
    columns = pa.Table.from_batches(batches, schema).combine_chunks().columns
    arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in columns]
    found = pa.StructArray.from_arrays(arrays, fields=list(schema))
    index = np.full(len(values), -1, np.int64)
    kept = np.concatenate(good) if good else np.empty(0, np.int64)
    index[kept] = np.arange(len(kept))
    return found if len(kept) == len(values) else found.take(pa.array(index, mask=index < 0))


def encoded_values(values: pa.Array, struct: Struct, representation: DataRepresentation) -> pa.BinaryArray:
    """Values of ``struct`` as payloads, encapsulation header included; null stays null.

    Raises EncodeError for a field that the type does not have or lacks, and for a value that does not fit its type.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    names = [values.type.field(i).name for i in range(values.type.num_fields)]
    members = {member.name: member.optional for member in struct.members}
    strange = [name for name in names if name not in members]
    lacking = [name for name, optional in members.items() if not optional and name not in names]
    if strange or lacking:
        what = f"has no member {listed(strange)}" if strange else f"needs also {listed(lacking)}"
        raise EncodeError(
            f"{struct.name} {what}; its members are {listed(members)}, the column has {listed(names)}"
        )
    valid = values.is_valid()
    batch = pa.RecordBatch.from_struct_array(values.filter(valid))
    found = payloads(codec_for(struct, None).encode_batch(batch, representation=representation))
    if not values.null_count:
        return found
    flags = valid.to_numpy(zero_copy_only=False)
    return found.take(pa.array(np.cumsum(flags) - 1, mask=~flags))
