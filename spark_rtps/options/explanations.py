"""Hints for users about errors and warnings, which name the options to set.

``transport`` raises errors with facts. When an error reaches the user, :func:`explained` adds the hint. The receiver
process, which knows no options, gets its hints with its configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ..transport.errors import (
    AcknowledgmentError,
    CoherentSetError,
    EncodeError,
    LogAccessError,
    LogDamagedError,
    LogFormatError,
    LogFullError,
    LogLostError,
    NoReaderError,
    NullPlace,
    OptionError,
    OutOfTokensError,
    Plugin,
    PluginError,
    RangeServerError,
    RtpsError,
    TypeGap,
    UnknownTypeError,
    UnloggedError,
    WriterLimit,
)
from ..transport.protocol.policies import LossCause
from ..transport.receiver.hints import (
    DISK_FULL,
    DOUBTED,
    EXPIRED,
    FAR_AHEAD,
    LOG_DROPPED,
    LOG_FILLS,
    LOG_FULL,
    NO_PUBLICATION_LOG,
    SUPPRESSED_HEARTBEATS,
    lost_for,
    reasons_with_hints,
)
from ..transport.structure import Guid

#: Maximum number of readers that an error names.
_READERS_NAMED_MAX: Final = 3

# --- warnings of a receiver, mismatches ---------------------------------------------------------------

#: What to set at a reader, by the kind of a mismatch.
READER_HINTS: Final = {
    "TYPE": "set the option type (or type.name) to the writer's",
    "KEY": "name the key columns in the option key (keyed=true for payload=binary), or use an IDL with @key",
    "RELIABILITY": "set reliability=best_effort",
    "DURABILITY": "set durability=volatile (startingOffsets=latest)",
    "PARTITION": "set the option partition",
    "PRESENTATION": "set presentation.access_scope, .coherent_access and .ordered_access to what the writer offers",
    "DEADLINE": "set deadline=infinite",
    "LATENCY_BUDGET": "set latency_budget=infinite",
    "LIVELINESS": "set liveliness=automatic, or to what the writer offers",
    "LIVELINESS lease_duration": "set liveliness.lease_duration=infinite",
    "OWNERSHIP": "set ownership to the writer's",
    "DESTINATION_ORDER": "set destination_order=by_reception_timestamp",
}
#: What to set at a writer, by the kind of a mismatch.
WRITER_HINTS: Final = {
    "TYPE": "set the option type (or type.name) to the reader's",
    "TYPE_CONSISTENCY": "write the reader's type: give it as type.file",
    "KEY": "name the key columns in the option key, or use an IDL with @key",
    "RELIABILITY": "set reliability=reliable",
    "DURABILITY": "set durability=transient_local",
    "PARTITION": "set the option partition",
    "PRESENTATION": "set presentation.access_scope, .coherent_access and .ordered_access to what the reader requests",
    "DEADLINE": "set deadline to what the reader requests, or less",
    "LATENCY_BUDGET": "set latency_budget to what the reader requests, or less",
    "LIVELINESS": "set liveliness to what the reader requests",
    "LIVELINESS lease_duration": "set liveliness.lease_duration to what the reader requests, or less",
    "OWNERSHIP": "set ownership to the reader's",
    "DESTINATION_ORDER": "set destination_order=by_source_timestamp",
    "DATA_REPRESENTATION": "set data_representation to what the reader takes",
    "ADDRESS": "add the reader's network to readers.allow",
}
#: What a receiver process adds to its warnings, by their kind.
RECEIVER_HINTS: Final = {
    **READER_HINTS,
    lost_for(LossCause.STOPPED): (
        "stop the query with leave_on_stop=false so that reliable writers wait for it; if it was killed, raise "
        "participant.lease_duration to twice the time that a restart takes; `spark-rtps loss` counts all"
    ),
    lost_for(LossCause.OUT_OF_REACH): (
        "give reliable writers a longer HISTORY, so that they keep samples for longer; `spark-rtps loss` counts all"
    ),
    lost_for(LossCause.HISTORY): (
        "the writers need a longer HISTORY, or KEEP_ALL, to send again what was lost; `spark-rtps loss` counts all"
    ),
    lost_for(LossCause.UNTETHERED): "this is the effect of tether=false; `spark-rtps loss` counts all",
    lost_for(LossCause.RECEIVE_BUFFER): (
        "raise receive_buffer, and net.core.rmem_max with it, give the receiver more CPU time, or set "
        "reliability=reliable; `spark-rtps loss` counts all"
    ),
    lost_for(LossCause.NOT_RECEIVED): (
        "no receive buffer of this host was full: look at the network and at the writer's host, or set "
        "reliability=reliable; `spark-rtps loss` counts all"
    ),
    FAR_AHEAD: (
        "compare the clocks of this host and of the writers', or set destination_order.source_timestamp_tolerance to "
        "more than their difference"
    ),
    EXPIRED: (
        "compare the clocks of this host and of the writers', or give what is written a longer LIFESPAN; "
        "expired_dropped_sample_count counts all"
    ),
    SUPPRESSED_HEARTBEATS: (
        "lower reliable_reader.heartbeat_suppression_duration, or raise the writer's reliable_writer.heartbeat_period"
    ),
    DOUBTED: (
        "start the query again, with reliability=reliable: its reader then receives the writer's HEARTBEATs; "
        "reader.doubted_samples counts all"
    ),
    NO_PUBLICATION_LOG: "sinks have one with ipc=true or spies_simulate_connection=true",
    LOG_FILLS: (
        "make the query faster, raise log.max_bytes, or free space on the disk; on_log_full decides whether "
        "writers are held back, samples dropped, or the query fails"
    ),
    LOG_DROPPED: "this is the effect of on_log_full=drop; `spark-rtps loss` counts all by writer",
    LOG_FULL: "set log.max_bytes to at least {needed}",
    DISK_FULL: "free space there, lower log.max_bytes, or set log.dir to a directory on a larger disk",
}


def mismatch(reader: Guid, reasons: Sequence[str]) -> str:
    """A sentence about a reader that does not match a writer of ours, with the reasons and their hints."""
    return f"no match with {reader}: {reasons_with_hints(reasons, WRITER_HINTS)}"


# --- errors -------------------------------------------------------------------------------------------

#: The option that names each kind of user code.
_PLUGIN_OPTIONS: Final = {
    Plugin.INTERCEPTOR.value: "batch.interceptor",
    Plugin.FLOW_CONTROL.value: "flow_control.strategy",
    Plugin.CONGESTION_CONTROL.value: "congestion_control",
}
#: The option that raises each of the limits that stop a writer.
_MORE_ROOM: Final = {
    WriterLimit.SEND_WINDOW: ", or reliable_writer.send_window_bytes",
    WriterLimit.PUBLICATION: ", or publication.term_length",
    WriterLimit.MAX_SAMPLES: ", or resource_limits.max_samples",
    WriterLimit.MAX_BATCHES: ", or max_batches",
}
_TYPE_GAPS: Final = {
    TypeGap.CONTRADICTORY: "give one with type.file, or by its name with type",
    TypeGap.UNEXPLAINED: "give it with type.file, or a ROS 2 name with type, or the columns with .schema(...)",
    TypeGap.NO_ENDPOINT: "start the writer first, or give the type with type.file, or the columns with .schema(...)",
}
_NULLS: Final = {
    NullPlace.MEMBER: (
        "fill it (coalesce), or make it @optional: in the file with type.file, by nullable=optional where columns make "
        "the type"
    ),
    NullPlace.KEY: "fill it (coalesce), or leave the row out",
    NullPlace.DISCRIMINATOR: "fill it (coalesce)",
    NullPlace.ELEMENT: "leave it out (filter), or fill it (transform)",
    NullPlace.MAP_KEY: "leave it out (map_filter)",
    NullPlace.MAP_VALUE: "leave it out (map_filter), or fill it (transform_values)",
}
_LOST_LOG: Final = (
    "set log.dir to the directory of the earlier run, or continue without the lost samples with failOnDataLoss=false, "
    "or start with a new checkpoint"
)
_DAMAGED: Final = (
    "`spark-rtps log verify` shows all damage of a log; continue without the damaged samples with "
    "failOnDataLoss=false, or restore the log, or start with a new checkpoint"
)
_OTHER_FORMAT: Final = (
    "let the version that wrote the log finish the query (Trigger.AvailableNow), or continue without what it has not "
    "processed with failOnDataLoss=false, or start with a new checkpoint"
)
_SERVER_UNREACHED: Final = (
    "let the executors reach one of these addresses, or set serve.address and serve.port, or the address in receivers, "
    "to what they reach"
)
_OTHER_USER: Final = (
    "run all of a query as one user, or set log.mode=0750 where all are in one group, or log.mode=0755"
)


@contextmanager
def explained() -> Iterator[None]:
    """Adds a hint to each error that leaves the block; also usable as a decorator. It may be nested."""
    try:
        yield
    except PluginError as error:
        if error.plugin in _PLUGIN_OPTIONS:
            raise option_error(error) from error
        raise
    except RtpsError as error:
        error.hint = hint_of(error)
        raise


def option_error(error: PluginError) -> OptionError:
    """The error for the option that names user code, with the fault of that code."""
    where = "on the workers (--py-files)"
    if error.plugin == Plugin.CONGESTION_CONTROL.value:
        where = "where the driver's Python finds it (installed, or shipped with --py-files or addPyFile)"
    fix = "" if error.is_loaded else f"; it is module:callable, and its module has to be {where}"
    return OptionError(_PLUGIN_OPTIONS[error.plugin], error.name, f"{error.reason}{fix}")


def hint_of(error: RtpsError) -> str:
    """The hint for an error, as half a sentence; "" if no option helps."""
    match error:
        case OutOfTokensError():
            timeout = "acknowledgment_timeout" if error.admitted else "offer_timeout"
            return f"raise flow_controller.token_bucket.tokens_added_per_period, or {timeout}"
        case AcknowledgmentError(limit=limit) if limit is not None:
            return _of_limit(limit)
        case LogFullError():
            return RECEIVER_HINTS[DISK_FULL if error.limit is None else LOG_FULL].format_map(vars(error))
        case RangeServerError(is_reached=False):
            return _SERVER_UNREACHED
        case LogAccessError() if error.path is None:  # a server refused the query's random token
            return error.hint
        case LogAccessError():
            return _OTHER_USER
        case LogDamagedError():
            return _DAMAGED
        case LogFormatError():
            return _OTHER_FORMAT
        case LogLostError():
            return _LOST_LOG
        case UnknownTypeError(gap=gap) if gap in _TYPE_GAPS:
            return _TYPE_GAPS[gap]
        case EncodeError(null=null) if null is not None:
            return _NULLS[null]
        case CoherentSetError():
            return "end it sooner (in Spark: more partitions, or presentation.coherent_access=false)"
        case UnloggedError():
            return "set publication.term_length"
    return error.hint


def _of_limit(limit: WriterLimit) -> str:
    if limit is WriterLimit.GROUP:
        return "start them, lower flow_control.group_min_size, or raise offer_timeout"
    return (
        f"if readers are merely slow raise offer_timeout{_MORE_ROOM.get(limit, '')}; to continue without those that "
        "do not answer set flow_control.receiver_timeout, without slow ones flow_control.strategy=max"
    )


def no_reader(
    topic: str, domain: int, timeout: float, refused: Mapping[Guid, Sequence[str]]
) -> NoReaderError:
    """The error if no reader matched within ``timeout`` seconds; ``refused`` are readers that do not match, and why."""
    why = "; ".join(mismatch(*each) for each in list(refused.items())[:_READERS_NAMED_MAX])
    return NoReaderError(
        f"no reader of topic {topic!r} matched on domain {domain} within {timeout:g} s"
        + (f": {why}. Else" if why else " (`spark-rtps ls` shows readers with their types and QoS);")
        + " raise connect_timeout, or set on_no_reader=drop to write without a reader"
    )


def unacknowledged(
    topic: str, timeout: float, behind: Mapping[Guid, int], last_sn: int
) -> AcknowledgmentError:
    """The error if the readers in ``behind`` have not acknowledged ``last_sn`` within ``timeout`` seconds."""
    readers = ", ".join(f"{guid} (has {sn} of {last_sn})" for guid, sn in behind.items())
    return AcknowledgmentError(
        f"topic {topic!r}: not acknowledged within {timeout:g} s by {readers}; raise acknowledgment_timeout if they "
        "are merely slow",
        readers=behind,
        last_sn=last_sn,
    )


def unserved(topic: str, left: Mapping[Guid, int], last_sn: int) -> AcknowledgmentError:
    """The error if the readers in ``left`` left or do not answer, and no other reader has the samples they lack."""
    readers = ", ".join(f"{guid} (had {sn} of {last_sn})" for guid, sn in left.items())
    return AcknowledgmentError(
        f"topic {topic!r}: {readers} left before everything was acknowledged, or stopped answering, and no other "
        "reader has it; the task has to write again, or set on_no_reader=drop",
        readers=left,
        last_sn=last_sn,
    )
