"""``kill -9`` of the receiver process and of a process that publishes, at random instants, many times.

What they leave is whole: each sample holds a checksum of itself. The receiver's log goes on where it was, for the
writers repair what was in flight. Of a publisher the receiver has the beginning, without a hole.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import BatchPolicy, FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.structure import NANOSECONDS, Guid
from tests.receiver.kill_scene import BATCHES, RELIABLE, Load, LogReader, checksummed, config, load, shapes
from tests.support import domains
from tests.support.campaigns import COMMIT, share
from tests.support.child_environment import child_environment
from tests.support.publication_frames import PAD, scan_frames
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.RECEIVER_KILL
KILLS = share(12)  # of each receiver, and
LIVES = share(24)  # so many publishers
TERM = 1 << 20
#: Of a publisher: long enough for it to be kept while it lives, and to be over before the test is.
LEASE = 6 * NANOSECONDS


# --- the receiver ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumption", ["logged", "committed"])
def test_receivers_killed_at_random_instants(tmp_path: Path, consumption: str) -> None:
    rng = random.Random(f"{consumption} {COMMIT}")
    node = Node.open(NodeConfig(domain=DOMAIN, interface="lo", lease_duration=60 * NANOSECONDS)).start()
    plain = node.create_writer(WriterSpec("t", "T", RELIABLE))
    batching = node.create_writer(WriterSpec("t", "T", RELIABLE, policy=PublicationPolicy(batch=BATCHES)))
    given = config(tmp_path / "log", DOMAIN, consumption=consumption)
    log = LogReader(tmp_path / "log")
    loads: list[Load] = []
    try:
        for _ in range(KILLS):
            receiver = ReceiverProcess.start(given)
            if not loads:
                assert plain.wait_for_readers(PATIENCE) and batching.wait_for_readers(PATIENCE)
                loads = [Load(plain, 1), Load(batching, 2)]
            enough = receiver.cursor().position + rng.randrange(1, 6 << 20)

            def has_enough(receiver: ReceiverProcess = receiver, enough: int = enough) -> bool:
                position = receiver.cursor().position
                if rng.random() < 0.2 and position > log.end.position:
                    log.read(position)  # while it is written
                    receiver.commit_position(position)
                return position >= enough

            wait_until(has_enough, every=0.001)
            time.sleep(rng.random() * 0.02)
            os.kill(receiver.pid, 9)
            reported = receiver.cursor().position
            receiver.stop()
            log.check_closed(reported, given.log_max_bytes)
        receiver = ReceiverProcess.start(given)
        try:
            for each in loads:
                each.stop()

            def acknowledged() -> bool:
                log.read(receiver.cursor().position)
                receiver.commit_position(log.end.position)
                return not (plain.wait_for_acknowledgments(0.01) or batching.wait_for_acknowledgments(0.01))

            wait_until(lambda: acknowledged() and all(each.has_ended for each in loads))
            wait_until(acknowledged)
            log.read(receiver.cursor().position)
            assert log.counts == {plain.guid: loads[0].written, batching.guid: loads[1].written}
            assert receiver.counters()["reader.lost_samples"] == 0
            assert {len(plain.writer.readers), len(batching.writer.readers)} == {1}
        finally:
            receiver.stop()
    finally:
        node.close()


# --- the sender ------------------------------------------------------------------------------------------


def publish(path: Path, seed: int) -> None:
    """A process that publishes from a publication log in a file, until it is killed."""
    node = Node.open(NodeConfig(domain=DOMAIN, interface="lo", lease_duration=LEASE)).start()
    policy = PublicationPolicy(flow_control=FlowControlPolicy(term_length=TERM), batch=_batch(seed))
    log = PublicationLog.create(TERM, path=path)
    with node.lock:
        now = time.monotonic_ns()
        writer = node.participant.create_writer(
            WriterSpec("t", "T", RELIABLE, policy=policy), flow_control=None, log=log, now=now
        )
        node.flush()
    writing = BlockingWriter(node, writer, "t")
    writing.wait_for_readers(PATIENCE)
    os.write(1, writing.guid.to_bytes())
    for samples in load(seed):
        writing.write_samples(samples, timeout=PATIENCE)


def _batch(seed: int) -> BatchPolicy:
    return BATCHES if seed % 2 else BatchPolicy()


def check_publication(path: Path, seed: int) -> int:
    """Walk the log of a killed publisher, which is whole; returns how many samples it had published."""
    log = PublicationLog.open(path)
    reported, tail = log.metadata.positions(), log.position
    assert not log.metadata.owner_lives
    assert reported["snd_pos"] <= tail and reported["pub_lmt"] <= reported["snd_pos"] + TERM // 2
    assert log.clean_position <= tail <= log.clean_position + 3 * TERM
    # Frames begin where a term does.
    start, sn, written, size = -(-log.clean_position // TERM) * TERM, 0, shapes(seed), 0
    after = 0
    for frame in scan_frames(log, start, tail):
        if isinstance(frame, int) or frame.type == PAD:  # an int: claimed, and not committed
            continue
        assert sn in (0, frame.first_sn - 1), "each once and in order"
        text, at = frame.data.tobytes(), 0
        for number in range(frame.first_sn - 1, frame.first_sn - 1 + frame.count):
            while number >= after:
                first, count, size = next(written)
                after = first + count
            if text:
                # In a batch one encapsulation header is enough.
                whole = bytes(checksummed(number, 1, size).payload(0)[4:])
                at = text.find(whole, at)
                assert at >= 0, "a torn frame"
        sn = frame.first_sn + frame.count - 1
    assert tail == log.position
    return sn


def test_senders_killed_at_random_instants(tmp_path: Path) -> None:
    rng = random.Random("senders")
    given = config(tmp_path / "log", DOMAIN)
    receiver = ReceiverProcess.start(given)
    log = LogReader(tmp_path / "log")
    published: dict[Guid, int] = {}
    try:
        for life in range(0, LIVES, 2):
            # Two at once: starting takes longer than what there is to be seen.
            with contextlib.ExitStack() as killed:
                begun = [(seed, start(tmp_path, seed, killed)) for seed in (life, life + 1)]
                guids = {seed: Guid.from_bytes(read(child, 16)) for seed, child in begun}
                enough = log.end.position + rng.randrange(1, 3 << 20)
                wait_until(lambda enough=enough: commit(receiver, log) >= enough, every=0.001)  # type: ignore[misc]
                for _, child in rng.sample(begun, 2):
                    time.sleep(rng.random() * 0.01)
                    child.kill()
                    assert child.wait() == -9
            for seed, guid in guids.items():
                path = tmp_path / f"publication{seed}"
                published[guid] = check_publication(path, seed)
                path.unlink()
        wait_until(lambda: receiver.counters()["reader.matched_writers"] == 0)  # their leases are over
        commit(receiver, log)
        assert set(log.counts) <= set(published)
        for guid, count in log.counts.items():
            assert count <= published[guid], "nobody has what was never published"
        assert len(log.counts) >= LIVES // 2
    finally:
        receiver.stop()
    log.check_closed(log.end.position, given.log_max_bytes)


def start(directory: Path, seed: int, killed: contextlib.ExitStack) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, str(directory / f"publication{seed}"), str(seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment())
    killed.enter_context(child)
    killed.callback(child.kill)
    return child


def read(child: subprocess.Popen[bytes], count: int) -> bytes:
    assert child.stdout is not None
    assert select.select([child.stdout], [], [], PATIENCE)[0]
    return os.read(child.stdout.fileno(), count)


def commit(receiver: ReceiverProcess, log: LogReader) -> int:
    """Check what came, and let it go."""
    log.read(receiver.cursor().position)
    receiver.commit_position(log.end.position)
    return log.end.position


if __name__ == "__main__":
    publish(Path(sys.argv[1]), int(sys.argv[2]))
