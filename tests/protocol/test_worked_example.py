"""The worked example of Aeron's log buffers by a real writer: initial state, status message, three messages."""

from __future__ import annotations

from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.log.publication_log_metadata import ACTIVE_TERM_COUNT, TAILS
from spark_rtps.transport.protocol.policies import FlowControlPolicy
from spark_rtps.transport.protocol.writing.flow import FlowControl
from tests.protocol.writer_script import Script, sns

TERM = 64 << 10
#: Frame 32, RTPS header and INFO_TS 32, DATA 24, payload 40.
PLACE = 128


def counters(s: Script) -> dict[str, int]:
    positions = s.writer.positions
    return {
        name: getattr(positions, name) for name in ("pub_pos", "pub_lmt", "snd_pos", "snd_lmt", "snd_bpe")
    }


def test_the_worked_example() -> None:
    log = PublicationLog.create(TERM, initial_term_id=1005)
    policy = FlowControlPolicy(strategy="unicast", group_min_size=0)
    s = Script(readers=0, flow_control=FlowControl(policy), log=log)

    # the initial state
    tail = log.metadata.words[TAILS]
    assert tail == 0x3ED00000000
    assert counters(s) == {"pub_pos": 0, "pub_lmt": 0, "snd_pos": 0, "snd_lmt": 0, "snd_bpe": 0}
    assert not s.writer.positions.is_connected
    assert not log.data.any() and log.metadata.words[ACTIVE_TERM_COUNT] == 0
    shown = "pub_pos pub_lmt snd_pos snd_lmt snd_bpe clean_pos is_connected unblocked"
    assert log.metadata.positions() == dict.fromkeys(shown.split(), 0)

    # a receiver is there, and its first status message opens the way for two messages
    s.match(1, status_messages=True).acknack(1).status(0, 2 * PLACE)
    s.output()
    assert s.writer.positions.is_connected
    assert s.writer.pacing.send_limit[0] == 2 * PLACE
    assert counters(s)["pub_lmt"] == TERM // 2, "the conductor has looked: half a term"

    # three messages are published, two of them sent
    for _ in range(3):
        assert s.write(1, 40) == 1
    assert sns(s.output()) == [1, 2]
    assert counters(s) == {
        "pub_pos": 3 * PLACE,
        "pub_lmt": 2 * PLACE + TERM // 2,
        "snd_pos": 2 * PLACE,
        "snd_lmt": 2 * PLACE,
        "snd_bpe": 1,
    }
    assert log.metadata.words[TAILS] == 1005 << 32 | 3 * PLACE

    # another status message: the slowest subscriber has read one of the two
    s.acknack(3).status(1, 2 * PLACE)
    assert sns(s.output()) == [3]
    assert counters(s) == {
        "pub_pos": 3 * PLACE,
        "pub_lmt": 3 * PLACE + TERM // 2,
        "snd_pos": 3 * PLACE,
        "snd_lmt": 3 * PLACE,
        "snd_bpe": 1,
    }

    # every process that maps the log can see it
    log.record(s.writer.positions)
    assert log.metadata.positions() == counters(s) | {"clean_pos": 0, "is_connected": 1, "unblocked": 0}

    # and so on, until the first term is cleaned behind the sender
    while s.writer.positions.pub_pos < 3 * TERM:
        sn = s.writer.last_sn
        assert s.write(1, 40) == 1
        s.acknack(sn + 2).status(sn + 1, TERM)
        s.output()
    assert log.clean_position == s.writer.positions.snd_pos - TERM
    assert not log.data[: log.clean_position % log.data.size].any()
