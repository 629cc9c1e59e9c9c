"""From positions of the log that are committed to samples that are consumed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.receiver.consumption import Consumed, Consumption
from spark_rtps.transport.structure import Guid

ONE, TWO = Guid(b"1" * 12, b"\0\0\1\3"), Guid(b"2" * 12, b"\0\0\1\3")


def test_a_commit_consumes_all_entries_before_it() -> None:
    consumption = Consumption()
    for position, writer, sn in ((100, ONE, 5), (200, TWO, 3), (300, ONE, 9), (400, ONE, 12)):
        consumption.on_append(position, writer, sn, 10)
    assert list(consumption.on_commit(99)) == []
    assert list(consumption.on_commit(300)) == [Consumed(300, ONE, 9, 20), Consumed(200, TWO, 3, 10)]
    assert list(consumption.on_commit(300)) == []
    assert list(consumption.on_commit(1_000)) == [Consumed(400, ONE, 12, 10)]
    assert len(consumption) == 0


appends = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 50), st.integers(0, 100)), min_size=1, max_size=60
)


@given(appends=appends, repeat=st.integers(1, 200), commits=st.lists(st.integers(0, 100), max_size=5))
def test_thinned_entries_are_neither_reported_early_nor_lost(
    appends: list[tuple[int, int, int]], repeat: int, commits: list[int]
) -> None:
    consumption = Consumption()
    entries: list[Consumed] = []
    position, sn = 0, dict.fromkeys(range(9), 0)
    for who, step, nbytes in appends * repeat:
        position += step
        sn[who] += step
        writer = Guid(bytes([who]) * 12, b"\0\0\1\3")
        entries.append(Consumed(position, writer, sn[who], nbytes))
        consumption.on_append(*entries[-1])
    assert len(consumption) < 4_096
    reported: dict[Guid, tuple[int, int]] = {}
    for percent in (*sorted(commits), 100):
        committed = position * percent // 100
        for done in consumption.on_commit(committed):
            sum_before = reported.get(done.writer, (0, 0))[1]
            reported[done.writer] = (done.last_sn, sum_before + done.nbytes)
        for writer, (last_sn, nbytes) in reported.items():
            before = [each for each in entries if each.writer == writer and each.position <= committed]
            assert last_sn <= before[-1].last_sn
            assert nbytes == sum(each.nbytes for each in before if each.last_sn <= last_sn)
    for entry in entries:
        assert reported[entry.writer][0] >= entry.last_sn
