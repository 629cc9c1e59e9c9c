"""Changes of the communication statuses of this host's sources and sinks, between two moments at which they were read.

A *snapshot* has the statuses at one moment, as plain values that become JSON. Zeros are left out, so its size depends
on
what has happened. Two snapshots determine the changes between them: nothing else has to be kept, and a repeated read
gives the same changes.

::

    {"at": 1700000000000000000,
     "endpoints": {"<path>": {"kind": "source", "topic": "Square", "domain": 0, "participant": "01..", "pid": 4711,
                              "statuses": {"SUBSCRIPTION_MATCHED": {"total_count": 1, "current_count": 1}},
                              "remotes": {"SUBSCRIPTION_MATCHED": "02..."}}}}

A restarted process counts from zero: all its counts are changes. It has another id, or, as in a restarted container,
lower totals than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeGuard

from ..transport.errors import UsageError
from ..transport.limits import STATUS_ENDPOINTS_MAX
from ..transport.value_classes import value
from .stream_counters import State, Stream, raised

#: The field of a status that never decreases.
_TOTAL: Final = "total_count"

Json: TypeAlias = "dict[str, Json] | str | int"


@value
class ObservedChange:
    """A changed status of one source or sink."""

    #: When the change was seen, in nanoseconds since the epoch.
    time: int
    #: ``source`` or ``sink``.
    kind: str
    topic: str
    domain: int | None
    #: The GUID prefix of its participant, and its process.
    participant: str
    pid: int
    #: DDS's name of the status, such as SUBSCRIPTION_MATCHED.
    status: str
    #: Its fields as they are now, and the differences of the changed ones.
    fields: dict[str, int]
    changes: dict[str, int]
    #: GUID of the peer that the last change was about; None: there is none, or it is not known.
    remote: str | None


def take_snapshot(streams: Iterable[Stream], *, topic: str, wall: int) -> dict[str, Json]:
    """The statuses of running streams, of ``topic`` only unless it is empty; the first STATUS_ENDPOINTS_MAX of them."""
    endpoints: dict[str, Json] = {}
    for stream in streams:
        if stream.state is State.ENDED or topic not in ("", stream.topic):
            continue
        if len(endpoints) >= STATUS_ENDPOINTS_MAX:
            break
        statuses = raised(stream.counters)
        endpoint: dict[str, Json] = {
            "kind": stream.kind.value,
            "topic": stream.topic,
            "participant": stream.guid_prefix,
            "pid": stream.pid,
            "statuses": {name: dict(sorted(fields.items())) for name, fields in sorted(statuses.items())},
            "remotes": {name: str(guid) for name, guid in sorted(stream.last_remotes.items())},
        }
        if stream.domain is not None:
            endpoint["domain"] = stream.domain
        endpoints[str(stream.path)] = endpoint
    return {"at": wall, "endpoints": dict(sorted(endpoints.items()))}


#: The snapshot of a moment before any change.
def nothing_yet() -> dict[str, Json]:
    return {"at": 0, "endpoints": {}}


def is_alike(one: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    """Whether two snapshots have the same endpoints and statuses."""
    return one["endpoints"] == other["endpoints"]


def changes_between(start: Mapping[str, Json], end: Mapping[str, Json]) -> Iterator[ObservedChange]:
    """Each status that differs. Raises UsageError for an invalid snapshot."""
    time, before, after = end.get("at"), start.get("endpoints"), end.get("endpoints")
    if not (isinstance(time, int) and _is_object(before) and _is_object(after)):
        raise UsageError(f"the checkpoint holds no offset of statuses: {end!r:.200}")
    for path, endpoint in after.items():
        if not _is_object(endpoint):
            raise UsageError(f"the checkpoint holds no offset of statuses: {endpoint!r:.200}")
        known = before.get(path)
        same = _is_object(known) and known.get("pid") == endpoint.get("pid")
        old = _counts(known) if same and _is_object(known) else {}
        yield from _of_endpoint(endpoint, old, time)


def _of_endpoint(
    endpoint: dict[str, Json], old: dict[str, dict[str, int]], time: int
) -> Iterator[ObservedChange]:
    new, remotes = _counts(endpoint), endpoint.get("remotes")
    if any(fields.get(_TOTAL, 0) > new.get(status, {}).get(_TOTAL, 0) for status, fields in old.items()):
        old = {}
    pid, domain = endpoint.get("pid"), endpoint.get("domain")
    for status in sorted(new.keys() | old.keys()):
        fields, was = new.get(status, {}), old.get(status, {})
        changes = {f: fields.get(f, 0) - was.get(f, 0) for f in sorted(fields.keys() | was.keys())}
        changes = {field: change for field, change in changes.items() if change}
        if not changes:
            continue
        remote = remotes.get(status) if _is_object(remotes) else None
        yield ObservedChange(
            time,
            str(endpoint.get("kind", "")),
            str(endpoint.get("topic", "")),
            domain if isinstance(domain, int) else None,
            str(endpoint.get("participant", "")),
            pid if isinstance(pid, int) else 0,
            status,
            # a field that became zero has changed, too
            {field: fields.get(field, 0) for field in sorted(fields.keys() | changes.keys())},
            changes,
            remote if isinstance(remote, str) else None,
        )


def _counts(endpoint: dict[str, Json]) -> dict[str, dict[str, int]]:
    statuses = endpoint.get("statuses")
    found: dict[str, dict[str, int]] = {}
    for name, fields in (statuses if _is_object(statuses) else {}).items():
        if _is_object(fields):
            found[name] = {field: value for field, value in fields.items() if isinstance(value, int)}
    return found


def _is_object(value: object) -> TypeGuard[dict[str, Json]]:
    return isinstance(value, dict)
