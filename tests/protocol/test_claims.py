"""Samples written in their place in the publication log: in order, committed, given up, overdue."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from spark_rtps.options.explanations import explained
from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.policies import FlowControlPolicy
from spark_rtps.transport.protocol.writing.flow import FlowControl
from spark_rtps.transport.protocol.writing.intake import SampleClaim
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.submessages import Data, DataFrag, Gap
from tests.protocol.writer_script import LASTING, MS, RELIABLE, Script, reader_guid, sns, where

TIMEOUT = 200 * MS


def script(**options: object) -> Script:
    policy = FlowControlPolicy(unblock_timeout=TIMEOUT)
    s = Script(flow_control=FlowControl(policy), log=PublicationLog.create(64 << 10), **options)
    s.acknack(1)
    s.output()
    return s


def claim(s: Script, size: int = 16, fill: int = 0) -> SampleClaim:
    made = s.writer.claims.make(size, timestamp=s.now, now=s.now)
    assert made is not None
    made.data[:] = fill
    return made


def test_a_claimed_sample_is_sent_when_it_is_committed() -> None:
    s = script()
    made = claim(s, 16, fill=7)
    assert s.output() == []
    assert made.position == s.writer.positions.pub_pos > 0
    assert s.writer.claims.commit_claim(made, now=s.now)
    (data,) = [each for each in s.output() if isinstance(each, Data)]
    assert (data.sn, bytes(data.payload or b"")) == (1, b"\7" * 16)


def test_no_claim_has_a_timestamp_that_rtps_cannot_carry() -> None:
    s = script()
    for _ in range(2):  # also if it is tried again
        with pytest.raises(UsageError, match="1970 to 2106"):
            s.writer.claims.make(16, timestamp=-1, now=s.now)
    assert s.writer.claims.commit_claim(claim(s), now=s.now)
    assert sns(s.output()) == [1]


def test_samples_written_behind_a_claim_wait_for_it() -> None:
    s = script()
    first, second = claim(s, fill=1), claim(s, fill=2)
    s.write(2)
    assert s.writer.claims.commit_claim(second, now=s.now)
    assert sns(s.output()) == []
    assert s.writer.claims.commit_claim(first, now=s.now)
    assert sns(s.output()) == [1, 2, 3, 4]
    s.acknack(5)
    assert s.writer.unacknowledged() == {}


def test_a_claim_given_up_is_a_gap() -> None:
    s = script()
    first = claim(s)
    s.write(1)
    s.writer.claims.abort(first, now=s.now)
    output = s.output()
    assert sns(output) == [2]
    assert [each.start_sn for each in output if isinstance(each, Gap)] == [1]
    s.acknack(1, 1)
    assert any(isinstance(each, Gap) for each in s.output()), "who asks is told again"
    assert s.writer.counters.written_samples == 1
    assert not s.writer.claims.commit_claim(first, now=s.now)


def test_a_claim_that_is_not_committed_in_time_is_padding() -> None:
    s = script()
    late = claim(s)
    s.write(1)
    assert sns([each for _, each in s.sleep(TIMEOUT - MS)]) == []
    assert sns([each for _, each in s.sleep(2 * MS)]) == [2]
    assert s.writer.counters.unblocked_publications == 1
    late.data[:] = 9
    assert not s.writer.claims.commit_claim(late, now=s.now)
    assert s.writer.get_timer() is not None  # heartbeats for sample 2
    s.acknack(3)
    assert s.writer.unacknowledged() == {}


def test_bytes_written_after_an_abandoned_claim_do_not_reach_the_log() -> None:
    keyed = Guid(bytes(12), b"\0\0\1\2")
    writer = StatefulWriter(keyed, RELIABLE, log=PublicationLog.create(64 << 10))
    made = writer.claims.make(16, timestamp=0, now=0)
    assert made is not None
    writer.claims.abort(made, now=0)
    before = bytes(made.claim.data)
    made.data[:] = 7
    assert made.key_hash is not None
    made.key_hash[:] = 7
    assert not writer.claims.commit_claim(made, now=0)
    assert bytes(made.claim.data) == before


def test_a_claim_needs_room_and_a_log() -> None:
    s = script()
    made = []
    while (one := s.writer.claims.make(1_000, timestamp=s.now, now=s.now)) is not None:
        made.append(one)
    assert s.writer.state.blocked_by == "publication limit"
    assert len(made) < 64
    for each in made:
        s.writer.claims.commit_claim(each, now=s.now)
    s.output()
    assert s.writer.claims.make(1_000, timestamp=s.now, now=s.now) is not None
    with pytest.raises(UsageError, match="too large to be claimed"):
        s.writer.claims.make(100_000, timestamp=s.now, now=s.now)
    with pytest.raises(UsageError, match=r"publication\.term_length"), explained():
        Script().writer.claims.make(8, timestamp=0, now=0)


def test_a_request_for_fragments_brings_nothing_of_an_open_claim() -> None:
    s = script()
    made = claim(s, 3000, fill=1)
    info = ReaderInfo(reader_guid(2), (where(2),), (), True, False, message_size_max=1200)
    s.writer.match_reader(info, now=s.now)
    s.acknack(1, i=2).output()
    s.nack_frag(1, 1, 2, 3, i=2)
    assert s.output() == []
    assert s.writer.claims.commit_claim(made, now=s.now)
    assert s.output(), "it is sent once it is complete"
    s.nack_frag(1, 2, i=2)
    assert [each.first_fragment for each in s.output() if isinstance(each, DataFrag)] == [2]


def test_claims_are_kept_for_late_joiners_too() -> None:
    s = Script(LASTING, 0, log=PublicationLog.create(64 << 10))
    for i in range(3):
        assert s.writer.claims.commit_claim(claim(s, fill=i), now=s.now)
    s.match(1, transient_local=True)
    s.output()
    s.acknack(1, 1, 2, 3)
    got = [bytes(each.payload or b"")[0] for each in s.output() if isinstance(each, Data)]
    assert got == [0, 1, 2]


class ReceivedNumbers:
    """What a reader is sent: the payload of each sample, and the numbers it need not wait for."""

    def __init__(self) -> None:
        self.payloads: dict[int, int] = {}
        self.irrelevant: set[int] = set()

    def take(self, output: Iterable[object]) -> None:
        for each in output:
            if isinstance(each, Data):
                self.payloads[each.sn] = bytes(each.payload or b"")[0]
            elif isinstance(each, Gap):
                self.irrelevant.update(range(each.start_sn, each.irrelevant.base), each.irrelevant.numbers())


def test_any_order_of_claims_writes_commits_and_ends_is_safe() -> None:
    """What is committed and written is sent as it is, what is given up or overdue is a GAP: each number is either."""
    sent = given_up = 0
    for seed in range(60):
        r = np.random.default_rng(seed)
        s = script()
        pending: list[SampleClaim] = []
        expected: dict[int, int] = {}
        received = ReceivedNumbers()
        for _ in range(200):
            what = r.integers(6)
            if what == 0:
                made = s.writer.claims.make(16, timestamp=s.now, now=s.now)
                if made is not None:
                    made.data[:] = made.sn % 251
                    pending.append(made)
            elif what == 1:
                if s.write(1):
                    expected[s.writer.last_sn] = 0
            elif what in (2, 3) and pending:
                each = pending.pop(int(r.integers(len(pending))))
                if s.writer.claims.commit_claim(each, now=s.now):
                    expected[each.sn] = each.sn % 251
            elif what == 4 and pending:
                s.writer.claims.abort(pending.pop(int(r.integers(len(pending)))), now=s.now)
            else:
                received.take(output for _, output in s.sleep(int(r.integers(120)) * MS))
            received.take(s.output())
        received.take(output for _, output in s.sleep(2 * TIMEOUT))
        received.take(s.output())
        assert received.payloads == expected, seed
        assert received.irrelevant == set(range(1, s.writer.last_sn + 1)) - set(expected), seed
        sent, given_up = sent + len(expected), given_up + len(received.irrelevant)
        s.acknack(s.writer.last_sn + 1)
        assert s.writer.unacknowledged() == {}, seed
        assert s.writer.positions.snd_pos == s.writer.positions.pub_pos, seed
        assert reader_guid(1) in s.writer.readers
    assert sent > 1_000 and given_up > 500
