"""A listener is called for every communication status there is, of readers and of writers."""

from __future__ import annotations

import pytest

from spark_rtps.api.statuses import StatusBoard, StatusChange
from spark_rtps.transport.protocol.participant.events import IncompatibleQos, LivelinessGained
from spark_rtps.transport.protocol.participant.statuses import ReaderStatuses, WriterStatuses
from spark_rtps.transport.structure import Guid

ME = Guid(b"m" * 12, b"\0\0\1\7")
#: DDS 1.4 §2.2.4.1, and RTI's. DATA_AVAILABLE has no fields; the cache statuses have no listener in RTI either.
OF_READERS = (
    "SUBSCRIPTION_MATCHED",
    "REQUESTED_INCOMPATIBLE_QOS",
    "INCONSISTENT_TOPIC",
    "LIVELINESS_CHANGED",
    "REQUESTED_DEADLINE_MISSED",
    "SAMPLE_LOST",
    "SAMPLE_REJECTED",
)
OF_WRITERS = (
    "PUBLICATION_MATCHED",
    "OFFERED_INCOMPATIBLE_QOS",
    "INCONSISTENT_TOPIC",
    "LIVELINESS_LOST",
    "OFFERED_DEADLINE_MISSED",
    "RELIABLE_READER_ACTIVITY_CHANGED",
    "RELIABLE_WRITER_CACHE_CHANGED",
)


def labels(kept: ReaderStatuses | WriterStatuses) -> dict[str, int]:
    return {**kept.snapshot({})}


@pytest.mark.parametrize(
    ("kept", "status"),
    [(ReaderStatuses(ME), status) for status in OF_READERS]
    + [(WriterStatuses(ME), status) for status in OF_WRITERS],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_listener_is_called_for(kept: ReaderStatuses | WriterStatuses, status: str) -> None:
    counted, received = labels(kept), list[StatusChange]()
    board = StatusBoard("T", kept, lambda: counted, received.append)
    board.notify_changes()
    assert received == [], "nothing has happened"
    fields = [label for label in counted if label.startswith(f"status.{status.lower()}.")]
    assert fields
    for label in fields:
        counted[label] += 1
        board.notify_changes()
        change = received.pop()
        assert received == [] and (change.status, change.topic) == (status, "T")
        assert change.fields[label.rpartition(".")[2]] == counted[label]
        board.notify_changes()
        assert received == [], "once for each change"


@pytest.mark.parametrize(
    ("kept", "statuses"), [(ReaderStatuses(ME), OF_READERS), (WriterStatuses(ME), OF_WRITERS)]
)
def test_the_board_has_all_statuses(kept: ReaderStatuses | WriterStatuses, statuses: tuple[str, ...]) -> None:
    board = StatusBoard("T", kept, lambda: labels(kept), None)
    assert set(board.all()) == set(statuses)


def test_changes_before_an_event_do_not_name_its_remote() -> None:
    kept, counted, received = ReaderStatuses(ME), dict[str, int](), list[StatusChange]()
    board = StatusBoard("T", kept, lambda: kept.snapshot(counted), received.append)
    board.notify_changes()
    counted["lost_samples"] = 3
    remote = Guid(b"r" * 12, b"\0\0\1\2")
    board.on_event(IncompatibleQos(ME, remote, "T", ("RELIABILITY: offered is too little",)))
    assert [(each.status, each.remote, len(each.reasons)) for each in received] == [
        ("SAMPLE_LOST", None, 0),
        ("REQUESTED_INCOMPATIBLE_QOS", str(remote), 1),
    ]


def test_a_writer_of_another_topic_that_is_back_is_not_the_last_of_this_one() -> None:
    kept = ReaderStatuses(ME)
    kept.on_event(LivelinessGained(Guid(b"r" * 12, b"\0\0\1\2"), "another"))
    assert kept.snapshot({})["last.liveliness_changed.guid_high"] == 0
