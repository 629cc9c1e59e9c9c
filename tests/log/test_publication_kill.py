"""A process that publishes is killed at random instants: what it leaves is whole frames and claims, no more.

The child is a writer of ours with a named publication log. Its threads write samples with a checksum of themselves,
some claimed and filled in two halves, some never finished; its main thread turns the duty cycle. This process is a spy:
it maps the file and reads it all the while, so that the child is killed while it works.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.named_logs import NamedLogs
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.log.publication_log_metadata import ACTIVE_TERM_COUNT
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.buffer_claim import BufferClaim
from spark_rtps.transport.net.ipc_writing import WrittenLogs
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.protocol.writing.flow import FlowControl
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import Guid
from tests.log.make_runs import guid
from tests.log.publishing_scene import (
    Driver,
    data_in,
    each_once_and_in_order,
    number_of,
    payload,
    read_all,
    samples_of,
)
from tests.protocol.writer_script import RELIABLE, Script
from tests.support.campaigns import seeds
from tests.support.child_environment import child_environment
from tests.support.interruption import Interruption
from tests.support.publication_frames import (
    DATA,
    HEADER_BYTES,
    PAD,
    FrameAt,
    data_frames,
    frame_at,
    scan_frames,
)
from tests.support.waiting import PATIENCE, wait_until

TERM = 64 << 10
ANY = 1 << 62
KILLS = 40
PREFIX = b"w" * 12
#: Longer than a busy machine keeps a thread from going on: who is given up while it lives writes where others do.
UNBLOCK = 200_000_000
POLICY = FlowControlPolicy(term_length=TERM, unblock_timeout=UNBLOCK, spies_simulate_connection=True)


# --- the child ---------------------------------------------------------------------------------------


def publish(directory: Path) -> None:
    """Two threads publish, the main one conducts, until the process is killed."""
    logs, driver = WrittenLogs(PREFIX, 0, NamedLogs(directory)), Driver()
    spec = WriterSpec("t", "T", RELIABLE, policy=PublicationPolicy(flow_control=POLICY))
    key, log = logs.create(spec, TERM)
    assert key is not None and log is not None
    driver.writer = writer = StatefulWriter(
        Guid(PREFIX, key.to_bytes(3, "big") + b"\3"), RELIABLE, flow_control=FlowControl(POLICY), log=log
    )
    logs.add_log(writer, log, POLICY)
    publishing = BlockingWriter(driver, writer, "t")
    sys.setswitchinterval(1e-5)
    rest = random.random() / 1_000  # others may run
    for source in range(2):
        threading.Thread(target=produce, args=(publishing, source), daemon=True).start()
    while True:
        with driver.lock:
            logs.conduct(now=time.monotonic_ns())
        driver.do_work()
        time.sleep(rest)


def produce(writer: BlockingWriter, source: int) -> None:
    rng = random.Random()
    for number in range(1 << 31):
        data = payload(source, number, rng.choice([16, 28, 60, 300, 2_000, 7_000]))
        if rng.random() < 0.3:
            while writer.offer(samples_of([data])) < 0:
                pass
            continue
        while not isinstance(claim := writer.try_claim(len(data)), BufferClaim):
            pass
        half = len(data) // 2
        claim.data[:half] = np.frombuffer(data, np.uint8)[:half]
        claim.data[half:] = np.frombuffer(data, np.uint8)[half:]
        chance = rng.random()
        if chance < 0.01:
            claim.abort()
        elif chance < 0.998:
            claim.commit()  # else never: it has to be given up


# --- the spy -----------------------------------------------------------------------------------------


class Spy:
    """A reader of the one log in the directory, which holds its writer back."""

    def __init__(self, directory: Path) -> None:
        logs = NamedLogs(directory)
        wait_until(lambda: bool(logs.listing()), every=0.001)
        (found,) = logs.listing()
        self.log = logs.map_log(found.path.name)
        self.image = Image.joined(self.log, CopyBuffer())
        slot = self.log.subscribe(guid(9), position=self.image.position, now=time.monotonic_ns(), spy=True)
        assert slot is not None
        self._slot = slot
        self.seen: list[tuple[int, int]] = []

    def read(self) -> int:
        """Read all that is there, and check it; returns how much that was so far."""
        for _, data in read_all(self.image):
            self.seen.append(number_of(data))
        assert not self.image.is_lapped, "a spy is waited for"
        self._slot.position, self._slot.heartbeat = self.image.position, time.monotonic_ns()
        return len(self.seen)


@pytest.mark.parametrize("seed", seeds(KILLS))
def test_killed_at_random_instants(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    command = [sys.executable, __file__, str(tmp_path)]
    with subprocess.Popen(command, env=child_environment(), stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        try:
            spy = Spy(tmp_path)
            wanted, deadline = rng.randrange(1, 400), time.monotonic() + PATIENCE
            while spy.read() < wanted:
                assert child.poll() is None, child.stderr.read().decode()
                assert time.monotonic() < deadline, "it does not go on"
            time.sleep(rng.random() * 0.01)  # where in its work it is hit is for chance to say
        finally:
            child.kill()
        assert child.wait() == -9
    log = spy.log
    assert not log.metadata.owner_lives

    # Consistent, whichever store was the last.
    reported, tail = log.metadata.positions(), log.position
    assert log.clean_position <= max(reported["snd_pos"], tail - TERM, 0)
    assert reported["snd_pos"] <= tail and reported["pub_pos"] <= tail <= log.clean_position + 3 * TERM
    assert reported["pub_lmt"] <= reported["snd_pos"] + TERM // 2
    assert tail // TERM - log.metadata.words[ACTIVE_TERM_COUNT] in (0, 1)
    assert not zeros(log).any()

    # The spy gets all up to the first claim; each source's samples once and in order.
    before = spy.image.position
    spy.read()
    numbers = each_once_and_in_order(spy.seen)
    assert all(len(each) <= each[-1] + 1 for each in numbers.values())
    stopped = spy.image.position
    assert (before <= stopped <= tail and frame_at(log, stopped) is None) or stopped == tail

    # Behind it are whole frames and claims, no more, and so before it, as far as it is not cleaned.
    first = -(-log.cleaning_position // TERM) * TERM
    places = list(scan_frames(log, min(first, tail), tail))
    claims = [place for place in places if isinstance(place, int)]
    assert claims[:1] == ([stopped] if stopped < tail else [])
    for place in places:
        if isinstance(place, FrameAt):
            assert place.end - place.start >= HEADER_BYTES and place.type in (PAD, DATA)
            for _, data in data_in(place.data.tobytes()) if place.type == DATA else ():
                number_of(data)
    assert list(map(str, scan_frames(log, min(first, tail), tail))) == list(map(str, places)), (
        "and so it stays"
    )
    assert NamedLogs(tmp_path).remove_dead() == [log.path]


def zeros(log: PublicationLog) -> np.ndarray:
    """What lies between the tail and the first byte not yet cleaned."""
    room = log.clean_position + 3 * TERM - log.position
    return np.roll(log.data, -(log.position % (3 * TERM)))[:room]


def test_killed_in_the_middle_of_a_message(tmp_path: Path) -> None:
    """What :func:`test_killed_at_random_instants` hits by chance."""
    path = tmp_path / "log"
    script = (
        "import sys; from pathlib import Path; from spark_rtps.transport.log.publication_log import PublicationLog\n"
        "log = PublicationLog.create(65536, path=Path(sys.argv[1]))\n"
        "claims = [log.claim(100, limit=1 << 20) for _ in range(3)]\n"
        "claims[0].data[:50] = 1; claims[1].commit(); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        child.kill()
    log = PublicationLog.open(path)
    image = Image(log, 0, CopyBuffer())
    assert frame_at(log, 0) is None and frame_at(log, 160) is not None and frame_at(log, 320) is None
    assert not image.has_more and image.poll(ANY) is None
    assert log.unblock(0, log.position) == 2
    assert [frame.start for frame in data_frames(log, 0, log.position)] == [160] and log.position == 480


# --- between any two lines ---------------------------------------------------------------------------


class Steps:
    """A writer step by step: writes, a claim, one that is aborted, one that stays open, a rotation, cleaning."""

    def __init__(self, log: PublicationLog) -> None:
        self.log = log
        self.script = Script(log=log, flow_control=FlowControl(FlowControlPolicy(strategy="max")))
        self.writer = self.script.writer
        self.script.acknack(1)
        #: Where the frames of samples begin that are committed, with their sequence numbers.
        self.committed: list[tuple[int, int]] = []

    def write(self, size: int = 100) -> None:
        sn, start = self.writer.last_sn + 1, self.log.position
        data = payload(0, sn, size)
        assert self.writer.write_samples(samples_of([data]), timestamp=sn, now=self.script.now) == 1
        found = [f for f in scan_frames(self.log, start, self.log.position) if isinstance(f, FrameAt)]
        self.committed += [(f.start, sn) for f in found if f.type == DATA]

    def claim(self, finish: str) -> None:
        claim = self.writer.claims.make(100, timestamp=1, now=self.script.now)
        assert claim is not None
        claim.data[:] = np.frombuffer(payload(0, claim.sn, 100), np.uint8)
        if finish:
            getattr(self.writer.claims, finish)(claim, now=self.script.now)
        if finish == "commit_claim":
            self.committed.append((claim.claim.start, claim.sn))

    def fill(self) -> None:
        """Go on to the end of the term."""
        while TERM - self.log.position % TERM > 8_192:
            self.write(8_000)
            self.acknowledge()

    def acknowledge(self) -> None:
        self.script.output()
        self.script.acknack(self.writer.last_sn + 1)

    def rest(self) -> None:
        """Everything is acknowledged, and what is overdue given up."""
        self.script.sleep(16_000_000_000)
        self.acknowledge()

    def go_through(self) -> None:
        self.write()
        self.claim("commit_claim")
        self.claim("abort")
        self.write(7_900)  # it may not fit the term
        self.claim("")
        self.write()


def is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    return "/transport/log/" in code.co_filename or code.co_qualname in (
        "LogFrames._claim",
        "LogFrames.store_content",
        "LogFrames.claim",
    )


def test_a_crash_between_any_two_lines(tmp_path: Path) -> None:
    """The file as it is before each line of the code: a reader gets what is committed, up to the first claim."""
    path, twin = tmp_path / "log", tmp_path / "twin"
    steps = Steps(log := PublicationLog.create(TERM, path=path, initial_term_id=-1))
    states: dict[bytes, tuple[int, int, list[tuple[int, int]]]] = {}

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        if not is_ours(frame):
            return None
        states.setdefault(path.read_bytes(), (log.position, log.cleaning_position, list(steps.committed)))
        return trace

    for rotation in range(4):
        steps.fill()
        sys.settrace(trace if rotation > 1 else None)
        try:
            steps.go_through()
            steps.acknowledge()
            steps.write()  # which cleans
        finally:
            sys.settrace(None)
        steps.rest()
    assert log.position > 4 * TERM and len(states) > 100

    for content, (position, cleaning, whole) in states.items():
        twin.write_bytes(content)
        again = PublicationLog.open(twin)
        assert again.position == position
        # Cleaning stops anywhere, but a term begins with a frame.
        first = min(-(-cleaning // TERM) * TERM, position)
        places = list(scan_frames(again, first, position))
        seen = []
        for place in places:
            if isinstance(place, FrameAt) and place.type == DATA:
                ((sn, data),) = data_in(place.data.tobytes())
                assert number_of(data) == (0, sn), "torn"
                seen.append((place.start, sn))
        expected = sorted((at, sn) for at, sn in whole if at >= first)
        # Perhaps one more: its commit had not returned yet.
        assert set(expected) <= set(seen) and len(seen) <= len(expected) + 1
        hole = next((place for place in places if isinstance(place, int)), position)
        image = Image(again, first, CopyBuffer())
        assert [sn for sn, _ in read_all(image)] == [sn for at, sn in seen if at < hole]
        assert image.position == hole


def test_an_exception_between_any_two_lines(tmp_path: Path) -> None:
    """The writer goes on after each, and its log blocks nobody: readers get all that is written afterwards."""
    number = 0
    while True:
        number += 1
        log = PublicationLog.create(TERM)
        steps = Steps(log)
        steps.fill()
        image = Image(log, log.position, CopyBuffer())
        # This log has no lock: those of other tests are garbage that is collected at any time.
        interruption = Interruption(number, ("/transport/log/",), but=("owner_lock.py",))
        interruption.run(steps.go_through)
        if interruption.is_due:
            break  # it went through
        steps.rest()
        last = steps.writer.last_sn
        for _ in range(20):
            steps.write(1_000)
            steps.acknowledge()
        found = [(sn, number_of(data)) for sn, data in read_all(image)]
        assert all(proven == (0, sn) for sn, proven in found), "torn"
        expected = list(range(last + 1, last + 21))
        assert [sn for sn, _ in found][-20:] == expected, number
        assert image.position == log.position == steps.writer.positions.snd_pos
    assert number > 100


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
