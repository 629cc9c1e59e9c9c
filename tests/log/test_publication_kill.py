"""A process that publishes is killed at random instants: what it leaves is whole frames and claims, no more.

The child's threads write bodies that tell what they must be, some in two halves, some never finished. One agent of
it sends: it checks each frame and tells of its own by a pipe, so that a child is killed while it works.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from publication_agents import Publication

from spark_rtps.transport.log.publication_log import Claim, PublicationLog
from spark_rtps.transport.log.publication_metadata import ACTIVE_TERM_COUNT
from spark_rtps.transport.log.term_frames import DATA, HEADER_BYTES, PAD
from spark_rtps.transport.protocol.writing.positions import PublicationPositions

TERM = 64 << 10
ANY = 1 << 62
KILLS = 40
LIVES = 4  # of one file: each goes on where the one before was killed


def body(seed: int) -> bytes:
    """What the message with that first sequence number says."""
    rng = random.Random(seed)
    text = rng.randbytes(rng.choice([0, 1, 28, 60, 300, 2000, 7000]))
    return zlib.crc32(text, seed & 0xFFFFFFFF).to_bytes(4, "little") + text


def check(seed: int, data: np.ndarray) -> None:  # type: ignore[type-arg]
    raw = data.tobytes()
    assert int.from_bytes(raw[:4], "little") == zlib.crc32(raw[4:], seed & 0xFFFFFFFF), f"torn frame {seed}"


def publish(path: Path, life: int) -> None:
    """The child: two threads publish, the main one sends and cleans, until it is killed."""
    import threading

    if path.exists():
        log = PublicationLog.open(path)
        log.adopt()
    else:
        log = PublicationLog.create(TERM, path=path)
    told = log.metadata.positions()
    positions = PublicationPositions(TERM)
    for name in ("pub_pos", "pub_lmt", "snd_pos", "snd_lmt", "clean_pos"):
        setattr(positions, name, told[name])
    # longer than a busy machine keeps a thread from going on: who is unblocked while it lives writes where others do
    publication = Publication(log, positions, unblock_timeout=200_000_000)
    publication.on_limit(ANY)

    def produce(number: int) -> None:
        rng = random.Random(life * 10 + number)
        seed = (life * 10 + number) << 32
        while True:
            seed += 1
            size = len(body(seed))
            claim = publication.try_claim(size, first_sn=seed, count=1)
            while isinstance(claim, int):
                claim = publication.try_claim(size, first_sn=seed, count=1)
            half = size // 2
            claim.data[:half] = np.frombuffer(body(seed), np.uint8)[:half]
            claim.data[half:] = np.frombuffer(body(seed), np.uint8)[half:]
            chance = rng.random()
            if chance < 0.01:
                claim.abort()
            elif chance < 0.998:
                claim.commit()  # else never: it has to be unblocked

    sys.setswitchinterval(1e-5)
    for number in range(2):
        threading.Thread(target=produce, args=(number,), daemon=True).start()

    def transmit(frames) -> bool:  # type: ignore[no-untyped-def]
        for frame in frames:
            check(frame.first_sn, frame.data)
        # not what the life before has left
        os.write(1, b"." * sum(frame.first_sn >> 32 in (life * 10, life * 10 + 1) for frame in frames))
        return True

    while True:
        publication.conduct(time.monotonic_ns())
        publication.send(transmit, 8192)


def run_and_kill(path: Path, life: int, rng: random.Random) -> None:
    """Let a child send some frames of its own, and a random moment more."""
    command = [sys.executable, __file__, str(path), str(life)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        assert child.stdout and child.stderr
        wanted = rng.randrange(1, 400)
        while wanted > 0:
            got = os.read(child.stdout.fileno(), wanted)
            if not got:
                pytest.fail(child.stderr.read().decode())
            wanted -= len(got)
        time.sleep(rng.random() * 0.01)  # where in its work it is hit is for chance to say
        child.kill()
        assert child.wait() == -9, child.stderr.read().decode()


def walk(log: PublicationLog, position: int) -> tuple[list[int], list[int]]:
    """First numbers of the frames from ``position`` to the tail, and the places that had to be unblocked."""
    numbers, unblocked = [], []
    while position < log.position:
        frame = log.frame(position)
        if frame is None:
            assert log.unblock(position)
            unblocked.append(position)
            frame = log.frame(position)
            assert frame is not None and frame.type == PAD
        elif frame.type == DATA:
            check(frame.first_sn, frame.data)
            numbers.append(frame.first_sn)
        else:
            assert frame.type == PAD
        assert frame.start == position and frame.end - frame.start >= HEADER_BYTES
        position = frame.end
    assert position == log.position
    return numbers, unblocked


@pytest.mark.parametrize("seed", range(KILLS // LIVES))
def test_killed_at_random_instants(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path, twin = tmp_path / "log", tmp_path / "twin"
    position = 0
    for life in range(1, LIVES + 1):
        run_and_kill(path, life, rng)

        shutil.copy(path, twin)  # the next child gets it as it is
        log = PublicationLog.open(twin)
        told = log.metadata.positions()
        assert not log.metadata.owner_lives
        # Consistent, whichever store was the last.
        assert told["clean_pos"] <= max(told["snd_pos"] - TERM, 0)
        assert told["snd_pos"] <= log.position <= told["snd_pos"] + TERM // 2 + 8192 + 64
        assert told["pub_pos"] <= log.position <= told["clean_pos"] + 3 * TERM
        assert told["pub_lmt"] <= told["snd_pos"] + TERM // 2
        assert log.position // TERM - log.metadata.words[ACTIVE_TERM_COUNT] in (0, 1)
        assert log.position > position, "it did publish"
        position = log.position
        assert not zeros(log).any()

        # Whole frames and claims from the sender on; what was sent is whole as far as it is not cleaned.
        log.adopt()
        numbers, unblocked = walk(log, told["snd_pos"])
        assert len(unblocked) <= log.metadata.unblocked
        for thread in range(2):
            own = [n & 0xFFFFFFFF for n in numbers if n >> 32 == life * 10 + thread]
            assert own == sorted(set(own)), "each once and in order"
        assert walk(log, told["snd_pos"]) == (numbers, []), "and so it stays"


def test_killed_in_the_middle_of_a_message(tmp_path: Path) -> None:
    """What :func:`run_and_kill` hits by chance."""
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
    assert log.frame(0) is None and log.frame(160) is not None and log.frame(320) is None
    log.adopt()
    assert [log.unblock(position) for position in (0, 160, 320, 480)] == [True, False, True, False]
    frames, position = log.scan(0, ANY, ANY)
    assert [frame.start for frame in frames] == [160] and position == log.position == 480


def test_a_crash_between_any_two_lines(tmp_path: Path) -> None:
    """Claims, a rotation, an abort, cleaning and unblocking, with the file as it is before each line of the code."""
    path, twin = tmp_path / "log", tmp_path / "twin"
    log = PublicationLog.create(TERM, path=path, initial_term_id=-1)
    seeds = iter(range(1, 1000))
    committed: list[tuple[int, int]] = []
    states: dict[bytes, tuple[int, list[tuple[int, int]]]] = {}

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        if (
            "/log/publication_log.py" in frame.f_code.co_filename
            or "/log/term_frames.py" in frame.f_code.co_filename
        ):
            states.setdefault(path.read_bytes(), (log.position, list(committed)))
            return trace
        return None

    def write(size: int, finish: str = "commit") -> None:
        seed = next(seeds)
        claim = log.claim(size, limit=ANY, first_sn=seed, count=1)
        if isinstance(claim, Claim):
            claim.data[:] = seed
            if finish:
                getattr(claim, finish)()
            if finish == "commit":
                committed.append((claim.start, seed))

    def fill() -> None:
        while TERM - log.position % TERM > 8192:
            write(8000)

    for _ in range(4):  # rotations
        fill()
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            write(100)
            write(100, "abort")
            unfinished = log.position
            write(100, "")
            log.unblock(unfinished)
            write(8192)  # does not fit
            write(100)
            log.clean(log.position - TERM)
        finally:
            sys.settrace(None)
    assert log.position > 4 * TERM and len(states) > 100

    for content, (position, whole) in states.items():
        twin.write_bytes(content)
        again = PublicationLog.open(twin)
        assert again.position == position
        again.adopt()
        # The sender was at the tail. Cleaning stops anywhere, but a term begins with a frame.
        start = first = max(-(-(position - TERM) // TERM), 0) * TERM
        seen: list[int] = []
        while start < again.position:
            frame = again.frame(start)
            if frame is None:
                assert again.unblock(start)
                frame = again.frame(start)
                assert frame is not None and frame.type == PAD
            elif frame.type == DATA:
                assert (frame.data == frame.first_sn % 256).all(), "torn"
                seen.append(frame.first_sn)
            start = frame.end
        assert start == again.position
        expected = [seed for at, seed in whole if at >= first]
        # Perhaps one more: its commit had not returned yet.
        assert seen[: len(expected)] == expected and len(seen) <= len(expected) + 1
        claim = again.claim(10, limit=ANY)
        claim = again.claim(10, limit=ANY) if isinstance(claim, int) else claim
        assert isinstance(claim, Claim) and not claim.data.any(), "it goes on"


def zeros(log: PublicationLog) -> np.ndarray:  # type: ignore[type-arg]
    """What lies between the tail and the first byte not yet cleaned."""
    room = log.clean_position + 3 * TERM - log.position
    return np.roll(log.data, -(log.position % (3 * TERM)))[:room]


if __name__ == "__main__":
    publish(Path(sys.argv[1]), int(sys.argv[2]))
