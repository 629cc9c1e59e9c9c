"""Mutated datagrams against a whole participant in process, as many as there is time for.

``python -m tests.fuzz.campaign --seconds N --seed S`` prints what it did and found. The participant has an honest peer,
and one that means ill and is matched; what is mutated are the captures of other vendors, rewritten so that they speak
for the matched writer, our own messages of every kind, and the files in ``corpus``. Hundreds of mutations of one
datagram are made with NumPy and handed over at once. After each scene the honest peer's samples must still arrive.
An exception is a finding, and so is a datagram that takes more than CPU_MAX seconds when it is alone.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.structure import ENTITYID_UNKNOWN, is_builtin, is_writer
from spark_rtps.transport.wire.message import HEADER_SIZE, iter_submessages
from spark_rtps.transport.wire.samples import U8
from spark_rtps.transport.wire.submessages import InfoDestination
from tests.fuzz.expensive import batches, datas, discovery, others
from tests.protocol.hostile_scene import EVIL, EVIL_IP, EVIL_READER, EVIL_WRITER, Scene, message
from tests.support import pcap

CORPUS: Final = Path(__file__).parent / "corpus"
#: What one datagram may take, in seconds of CPU.
CPU_MAX: Final = 0.02
#: Mutations of one datagram that are handed over together, and how often, before the scene is a new one.
TOGETHER: Final = 512
ROUNDS: Final = 64
#: Seconds that the mutations of one datagram should take together; those that alone take less are put behind others.
TOGETHER_SECONDS: Final = 0.01
CHEAP: Final = 100e-6
#: Longer datagrams are mutated as they are, and beginnings of them.
LONG: Final = 1_500
_STRANGER_IP: Final = "10.0.0.77"
_MILLISECOND: Final = 1_000_000
_WORDS: Final = np.array(
    [0, 1, 2, 4, 0xFF, 0x100, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 0x01000000],
    "<u4",
)
_BYTES: Final = np.array([0, 1, 2, 3, 4, 7, 8, 12, 16, 24, 0x7F, 0x80, 0xFE, 0xFF], np.uint8)
#: The kinds that name a reader and a writer at the same place: behind extraFlags and octetsToInlineQos, and at once.
_WITH_FLAGS: Final = (0x15, 0x16, 0x18)
_TO_READER: Final = (0x07, 0x08, 0x13, 0x19)
_TO_WRITER: Final = (0x06, 0x12, 0x17)


def rewritten(payload: bytes, prefix: bytes) -> bytes:
    """A captured message as if the matched peer had sent it: its user endpoints become those that are matched."""
    raw = bytearray(payload)
    if len(raw) < HEADER_SIZE or raw[:4] != b"RTPS":
        return payload
    raw[8:20] = EVIL
    try:
        for kind, _, body, stop in iter_submessages(memoryview(payload)):
            if kind == 0x0E and stop - body >= 12:
                raw[body : body + 12] = prefix
            at = body + 4 if kind in _WITH_FLAGS else body
            if stop - at < 8 or kind not in (*_WITH_FLAGS, *_TO_READER, *_TO_WRITER):
                continue
            entity = bytes(raw[at + 4 : at + 8])
            if is_builtin(entity) or not is_writer(entity):
                continue
            if kind in _TO_WRITER:
                raw[at : at + 8] = EVIL_READER + b"\0\0\2\3"
            else:
                raw[at : at + 8] = ENTITYID_UNKNOWN + EVIL_WRITER
    except DecodeError:
        pass
    return bytes(raw)


def bases(scene: Scene, *, captures: int | None = None) -> list[bytes]:
    """The datagrams to mutate: each kind and form once or a few times; ``captures``: how many capture files to read."""
    found: dict[bytes, None] = {}
    for path in pcap.captures()[:captures]:
        seen: Counter[tuple[int, ...]] = Counter()
        for each in pcap.read_pcap(path):
            try:
                form = tuple(kind for kind, *_ in iter_submessages(memoryview(each.payload)))
            except DecodeError:
                form = ()
            seen[form] += 1
            if seen[form] <= 3:
                found[rewritten(each.payload, scene.one.prefix)] = None
    for family in (batches, datas, others, discovery):
        for _, parts in family():
            found[scene.to_us(*parts[:3])] = None
            found[scene.to_us(*parts[-8:])] = None
            if sum(map(len, parts[:3])) > LONG:
                found[scene.to_us(parts[0][:LONG])] = None
    everything = [parts[0] for family in (datas, others, discovery) for _, parts in family()]
    for i in range(0, len(everything), 4):
        found[scene.to_us(*(part for part in everything[i : i + 4] if len(part) < LONG))] = None
    found[message(InfoDestination(scene.one.prefix).encode(), prefix=b"\x77" * 12)] = None
    for path in sorted(CORPUS.glob("*.bin")):
        found[path.read_bytes()] = None
    return [each for each in found if len(each) >= HEADER_SIZE]


@dataclass(slots=True)
class Report:
    """What a campaign did and found."""

    executions: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    scenes: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    #: (CPU seconds alone, datagram), the slowest ones.
    slowest: list[tuple[float, bytes]] = field(default_factory=list)
    #: What was raised or did not hold, and the datagram, or the batch's first, at which.
    findings: list[tuple[str, bytes]] = field(default_factory=list)

    def __str__(self) -> str:
        slow = max(self.slowest, default=(0.0, b""))
        rate = self.executions / max(self.seconds, 1e-9)
        lines = [
            f"{self.executions:,} executions in {self.seconds:.0f} s ({rate:,.0f}/s; {self.cpu:.0f} s of CPU), "
            f"{self.scenes:,} scenes; 10^8 take {1e8 / max(rate, 1) / 3600:.1f} h at this rate",
            f"findings: {len(self.findings)}",
            f"slowest datagram alone: {slow[0] * 1e3:.2f} ms of CPU, {len(slow[1])} bytes",
            f"largest resident size: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB",
            "drops: " + ", ".join(f"{name} {count:,}" for name, count in self.drops.most_common()),
        ]
        lines += [f"--- {what}\n{datagram.hex()}" for what, datagram in self.findings[:10]]
        return "\n".join(lines)


class Campaign:
    """One run of it; ``rng`` decides everything but the time it takes."""

    def __init__(self, seed: int, *, captures: int | None = None) -> None:
        self.report = Report()
        self._rng = np.random.default_rng(seed)
        self._scene = Scene()
        self._bases = [np.frombuffer(each, np.uint8) for each in bases(self._scene, captures=captures)]
        costs = np.array([self._cost(each) for each in self._bases])
        #: Cheap datagrams are mutated more often, and more of them at once, so that each base has some of the time.
        self._together = np.clip(TOGETHER_SECONDS / costs, 4, TOGETHER).astype(int)
        self._weights = np.cumsum(1 / costs**0.7)
        self._short = [each for each, cost in zip(self._bases, costs, strict=True) if cost < CHEAP]

    def _cost(self, base: U8) -> float:
        data = base.copy()
        return max(20e-6, min(timed_alone(self._scene, data, (0, len(data), EVIL_IP)) for _ in range(2)))

    def run(self, seconds: float, executions: int | None = None) -> Report:
        """Go on for so long, or until there were so many executions."""
        report, begun, cpu = self.report, time.monotonic(), time.process_time()
        while time.monotonic() - begun < seconds and (executions is None or report.executions < executions):
            self._new_scene()
            for _ in range(ROUNDS):
                if not self._round():
                    break
            else:
                self._check_honest_work()
            report.drops.update({reason.value: count for reason, count in self._scene.one.drops.items()})
            report.seconds, report.cpu = time.monotonic() - begun, time.process_time() - cpu
        return report

    def _new_scene(self) -> None:
        self._scene = Scene()
        self._scene.reader.window = 16 << 20
        self.report.scenes += 1

    def _round(self) -> bool:
        """Hand over mutations of one datagram; False if that raised."""
        data, spans = self._mutations()
        scene, begun = self._scene, time.process_time()
        scene.network.now += _MILLISECOND
        try:
            drain(scene, data, spans)
        except Exception:  # noqa: BLE001  (that is what is looked for)
            self.report.findings.append(
                (traceback.format_exc(limit=-6), data[slice(*spans[0][:2])].tobytes())
            )
            return False
        taken = time.process_time() - begun
        self.report.executions += len(spans)
        # A datagram alone cannot be slower than all of them; those of slow rounds are timed alone.
        if taken > CPU_MAX and taken > 2 * self._floor:
            self._time_alone(data, spans)
        return True

    @property
    def _floor(self) -> float:
        return self.report.slowest[0][0] if len(self.report.slowest) == 8 else 0.0

    def _time_alone(self, data: U8, spans: list[tuple[int, int, str]]) -> None:
        scene = Scene()
        for span in spans:
            alone = timed_alone(scene, data, span)
            if alone > CPU_MAX / 4:
                alone = min([alone, *(timed_alone(Scene(), data, span) for _ in range(3))])
                scene = Scene()
            entry = (alone, data[slice(*span[:2])].tobytes())
            if len(self.report.slowest) < 8:
                heapq.heappush(self.report.slowest, entry)
            else:
                heapq.heappushpop(self.report.slowest, entry)
            if alone > CPU_MAX:
                self.report.findings.append((f"{alone * 1e3:.1f} ms of CPU", entry[1]))

    def _check_honest_work(self) -> None:
        try:
            self._scene.reader.window = 16 << 20
            self._scene.assert_honest_work_goes_on()
        except Exception:  # noqa: BLE001
            self.report.findings.append(("honest work: " + traceback.format_exc(limit=-3), b""))

    def _mutations(self) -> tuple[U8, list[tuple[int, int, str]]]:
        rng = self._rng
        chosen = int(np.searchsorted(self._weights, rng.random() * self._weights[-1]))
        base, count = self._bases[chosen], int(self._together[chosen])
        if rng.random() < 0.3 and len(base) < LONG:  # two messages in one, now and then unaligned
            other = self._short[rng.integers(len(self._short))]
            base = np.concatenate((base, other[HEADER_SIZE:]))
        size = len(base)
        pitch = (size + 7) & ~7
        rows = np.zeros((count, pitch), np.uint8)
        rows[:, :size] = base
        low = HEADER_SIZE if rng.random() < 0.95 else 0
        # bytes: more of them near the front, where the headers are
        changes = count * int(rng.integers(1, 5))
        row = rng.integers(0, count, changes)
        column = low + ((size - low) * rng.random(changes) ** 1.5).astype(np.int64)
        column = np.minimum(column, size - 1)
        how = rng.integers(0, 3, changes)
        flipped = rows[row, column] ^ (1 << rng.integers(0, 8, changes)).astype(np.uint8)
        rows[row, column] = np.choose(
            how,
            (flipped, _BYTES[rng.integers(0, len(_BYTES), changes)], rng.integers(0, 256, changes, np.uint8)),
        )
        if size >= HEADER_SIZE + 8:  # words
            changes = count // 2
            words = rows.view("<u4")
            word = rng.integers(HEADER_SIZE // 4, size // 4, changes)
            value = _WORDS[rng.integers(0, len(_WORDS), changes)]
            value = np.where(rng.random(changes) < 0.3, value.byteswap(), value)
            words[rng.integers(0, count, changes), word] = value
            moved = rng.integers(0, count, count // 8)  # a range of words again somewhere else
            length = int(rng.integers(1, 12))
            if size // 4 - HEADER_SIZE // 4 > length:
                source, to = rng.integers(HEADER_SIZE // 4, size // 4 - length, 2)
                words[moved, to : to + length] = words[moved, source : source + length]
        stops = np.full(count, size)
        cut = rng.random(count) < 0.1
        stops[cut] = rng.integers(0, size + 1, int(cut.sum()))
        starts = np.arange(count) * pitch
        sources = [_STRANGER_IP if rng.random() < 0.02 else EVIL_IP] * count
        return rows.reshape(-1), list(zip(starts.tolist(), (starts + stops).tolist(), sources, strict=True))


def drain(scene: Scene, data: U8, spans: list[tuple[int, int, str]]) -> None:
    """Receive datagrams, and do all that may follow."""
    one, now = scene.one, scene.network.now
    for reader in one.receive(data, spans, now=now):
        for run in reader.take_runs():
            run.samples(), run.timestamps(), run.key_hashes(), run.sample_flags()
    timer = one.get_timer()
    if timer is not None and timer <= now:
        one.handle_timer(now)
    one.datagrams_to_send(now)
    while one.next_event() is not None:
        pass


def timed_alone(scene: Scene, data: U8, span: tuple[int, int, str]) -> float:
    begun = time.process_time()
    try:
        drain(scene, data, [span])
    except Exception:  # noqa: BLE001  (found already)
        pass
    return time.process_time() - begun


def _arguments() -> Iterator[tuple[str, type, object]]:
    yield "seconds", float, 60.0
    yield "seed", int, 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, kind, default in _arguments():
        parser.add_argument(f"--{name}", type=kind, default=default)
    given = parser.parse_args()
    campaign = Campaign(given.seed)
    end = time.monotonic() + given.seconds
    while (left := end - time.monotonic()) > 0:  # so that something is shown if it is interrupted
        before = campaign.report.seconds, campaign.report.cpu
        report = campaign.run(min(left, 60.0))
        report.seconds += before[0]
        report.cpu += before[1]
        print(report, flush=True)


if __name__ == "__main__":
    main()
