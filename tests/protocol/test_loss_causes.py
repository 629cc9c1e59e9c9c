"""Each lost sample is counted once, with its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.qos import Qos
from tests.protocol.reader_script import IT, LASTING, ME, RELIABLE, Script, started


def lost(s: Script) -> dict[LossCause, int]:
    """What was lost since the last call, by cause."""
    losses = s.reader.delivery.losses.take()
    assert {writer for writer, _ in losses} <= {IT}
    return {cause: count for (_, cause), count in losses.items()}


def test_samples_of_a_best_effort_writer_that_did_not_arrive() -> None:
    s = Script(Qos(), reliable=False)
    s.data(1).data(5)
    assert lost(s) == {LossCause.NOT_RECEIVED: 3}
    assert lost(s) == {}


def test_samples_that_a_reliable_writer_no_longer_has() -> None:
    s = started()
    s.data(1, 2).heartbeat(5, 8)
    assert lost(s) == {LossCause.HISTORY: 2}


def test_samples_that_others_lacked_at_the_match_are_no_loss() -> None:
    """A HEARTBEAT to all announces what others lack; it is gone once they have it, and was never for this reader."""
    s = Script()
    s.heartbeat(3, 5).heartbeat(6, 8)
    assert lost(s) == {}
    s.data(6).heartbeat(9, 9)
    assert lost(s) == {LossCause.HISTORY: 2}, "it was written later"
    assert s.taken() == [6]


@pytest.mark.parametrize("lasting", [False, True])
def test_a_heartbeat_to_the_reader_alone_sets_its_first_number(lasting: bool) -> None:
    s = Script(transient_local=lasting)
    s.heartbeat(3, 5).heartbeat(8, 9, to=ME.entity)
    assert lost(s) == {}, "6 and 7 were written before the match, too"
    s.heartbeat(9, 9, to=ME.entity)
    assert lost(s) == {LossCause.HISTORY: 1}


def test_repairs_that_a_gone_writer_owed() -> None:
    s = started()
    s.data(1).data(3).heartbeat(1, 4)
    s.reader.unmatch_writer(IT)
    assert lost(s) == {LossCause.WRITER_GONE: 3}


@pytest.mark.parametrize("by_gap", [False, True])
@pytest.mark.parametrize("lasting", [False, True])
def test_losses_counted_when_the_writer_left_do_not_count_again(lasting: bool, by_gap: bool) -> None:
    s = started(qos=LASTING, transient_local=True) if lasting else started()
    s.data(1).data(3).heartbeat(1, 4)
    info = s.proxy.info
    s.reader.unmatch_writer(IT)
    assert lost(s) == {LossCause.WRITER_GONE: 3}
    s.reader.match_writer(info, now=s.now)
    s.heartbeat(1, 4)
    s.reader.unmatch_writer(IT)
    assert lost(s) == {}
    s.reader.match_writer(info, now=s.now)
    if by_gap and not lasting:
        s.heartbeat(1, 6).gap(2, 7)
    s.heartbeat(7, 6)
    assert lost(s) == {LossCause.OUT_OF_REACH: 2}
    s.data(7).heartbeat(9, 9)
    assert lost(s) == {LossCause.HISTORY: 1}
    assert s.taken() == [1, 7]


def test_samples_of_a_reliable_writer_sent_without_a_receiver() -> None:
    s = Script(resume={IT: 10})
    s.heartbeat(16, 20)
    assert lost(s) == {LossCause.STOPPED: 5}
    s.data(16, 20).heartbeat(23, 24)
    assert lost(s) == {LossCause.HISTORY: 2}, "it was sent later"
    assert s.reader.counters.missed_samples == 0


def test_losses_while_stopped_and_of_the_history() -> None:
    s = Script(LASTING, transient_local=True, resume={IT: 10})
    s.heartbeat(1, 20).heartbeat(31, 40)
    assert lost(s) == {LossCause.STOPPED: 10, LossCause.HISTORY: 10}


def test_samples_of_a_best_effort_writer_sent_without_a_receiver() -> None:
    s = Script(Qos(), reliable=False, resume={IT: 10})
    s.data(16).data(18)
    assert lost(s) == {LossCause.STOPPED: 5, LossCause.NOT_RECEIVED: 1}


def test_samples_of_a_writer_sent_while_it_was_unreachable() -> None:
    s = Script(Qos(), reliable=False)
    info = s.proxy.info
    s.data(1)
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(info, now=s.now)
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(info, now=s.now)
    s.data(5).data(7)
    assert lost(s) == {LossCause.OUT_OF_REACH: 3, LossCause.NOT_RECEIVED: 1}


def test_a_writer_rematched_before_its_first_message_counts_losses_as_stopped() -> None:
    s = Script(resume={IT: 10})
    info = s.proxy.info
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(info, now=s.now)
    s.heartbeat(16, 20)
    assert lost(s) == {LossCause.STOPPED: 5}


def test_samples_of_an_incomplete_coherent_set() -> None:
    s = Script(replace(Qos(), coherent_access=True), reliable=False)
    s.data(1).data(2, of=2).data(4, of=2).end_of_set(5).data(6)
    assert s.taken() == [1, 6]
    assert lost(s) == {LossCause.NOT_RECEIVED: 1, LossCause.COHERENT_SET: 2}


def test_samples_skipped_by_an_untethered_reader() -> None:
    s = started()
    s.data(1).output()
    s.reader.untethered.rest(IT)
    s.data(2, 5)
    assert lost(s) == {LossCause.UNTETHERED: 4}


def test_lost_samples_stay_lost_after_a_lower_heartbeat() -> None:
    s = Script(RELIABLE, resume={IT: 10})
    s.heartbeat(5_001, 5_000).heartbeat(21, 20)
    assert lost(s) == {LossCause.STOPPED: 4_990}


@pytest.mark.parametrize("announced_first", [True, False])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_gap_over_samples_written_while_unmatched(lasting: bool, announced_first: bool) -> None:
    """A volatile writer has nothing for a reader from before their match, and answers a request for it by a GAP."""
    s = started(qos=LASTING, transient_local=True) if lasting else started()
    s.data(1, 5).heartbeat(1, 5)
    info = s.proxy.info
    s.reader.unmatch_writer(IT)
    s.reader.match_writer(info, now=s.now)
    if announced_first:
        s.heartbeat(1, 8)
    s.gap(6, 9)
    s.heartbeat(9, 8).data(9).gap(10, 11).data(11)
    assert s.taken() == [1, 2, 3, 4, 5, 9, 11]
    assert s.reader.delivery.losses.take() == ({} if lasting else {(IT, LossCause.OUT_OF_REACH): 3})
    counters = s.reader.counters
    assert (counters.lost_samples, counters.irrelevant_samples) == ((0, 4) if lasting else (3, 1))
    assert counters.missed_samples == 0
