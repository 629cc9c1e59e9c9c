"""Random scenarios: policies, sizes and networks that nobody would think of together.

``python -m tests.simulation.hunt FIRST LAST`` runs the seeds FIRST..LAST and tells which go wrong, or take far longer
than the network and the policies explain.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import fields, replace
from typing import Any, Final

from spark_rtps.transport.protocol.policies import (
    BATCH_POLICY,
    READER_POLICY,
    WRITER_POLICY,
    BatchPolicy,
    BatchWire,
    Compression,
    ReaderPolicy,
    WriterPolicy,
)
from spark_rtps.transport.structure import INFINITE
from tests.simulation.network import MS, SECOND, US, Link
from tests.simulation.scenarios import Scenario, Simulation, Wrong

#: Virtual; some policies allow one fragment a round trip.
PATIENCE: Final = 900 * SECOND


def scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    draw = random.Random(seed)
    pick = draw.choice
    readers, late = pick((1, 2, 5)), pick((0, 0, 2))
    coherent = pick((0, 0, 0, 5, 40))
    batch = _batch(draw)
    return Scenario(
        Link(
            loss=pick((0, 0.02, 0.1, 0.3)),
            delay=pick((100 * US, 5 * MS, 40 * MS)),
            jitter=pick((0, 50 * US, 8 * MS, 50 * MS)),
            bandwidth=pick((1_000_000_000, 20_000_000)),
        ),
        readers,
        late_readers=late,
        plain_readers=draw.randint(0, readers) if draw.random() < 0.4 else 0,
        multicast=draw.random() < 0.3,
        samples=pick((30, 300)),
        burst=pick((1, 7, 100)),
        size=pick((8, 64, 1_000, 4_000)),
        message_size=pick((1_400, 1_400, 64_512)),
        coherent=coherent,
        instances=pick((0, 0, 5)),
        writer=_writer(draw),
        # A coherent set that is larger than the receive window is lost.
        reader=_reader(draw, (INFINITE,) if coherent else (INFINITE, INFINITE, 4, 64)),
        # A set has to fit in; and history that is kept for late joiners fills it for ever.
        batch=replace(batch, max_batches=INFINITE) if late or coherent else batch,
    )


def _writer(draw: random.Random) -> WriterPolicy:
    pick = draw.choice
    most = pick((INFINITE, INFINITE, 64, 256))
    return replace(
        WRITER_POLICY,
        send_window_bytes=pick((4 << 20, 16 << 10, 3_000)),
        max_send_window_size=most,
        min_send_window_size=INFINITE if most == INFINITE else pick((16, 64)),
        heartbeats_per_max_samples=pick((0, 8, 64)),
        max_nack_response_delay=pick((0, 5 * MS, 50 * MS)),
        min_nack_response_delay=pick((0, 0, 2 * MS)),
        nack_suppression_duration=pick((0, 0, 30 * MS)),
        max_bytes_per_nack_response=pick((256 << 10, 1, 2_000)),
        max_repair_bytes=pick((4 << 20, 4_000)),
    )


def _reader(draw: random.Random, windows: tuple[int, ...]) -> ReaderPolicy:
    pick = draw.choice
    return replace(
        READER_POLICY,
        max_heartbeat_response_delay=pick((0, 0, 30 * MS)),
        heartbeat_suppression_duration=pick((0, 0, 20 * MS)),
        round_trip_time=pick((0, 20 * MS, 100 * MS)),
        receive_window_size=pick(windows),
    )


def _batch(draw: random.Random) -> BatchPolicy:
    pick = draw.choice
    kind = pick(("none", "turbo", "batch", "batch", "batch"))
    if kind == "none":
        return BATCH_POLICY
    codec = pick((Compression.NONE, Compression.NONE, Compression.LZ4, Compression.ZSTD))
    if kind == "turbo":
        return BatchPolicy(turbo_mode=True, compression=codec)
    return BatchPolicy(
        enable=True,
        max_data_bytes=pick((300, 1_024, 1_200, 30_000)),
        max_samples=pick((INFINITE, INFINITE, 3, 10)),
        max_flush_delay=pick((MS, 10 * MS, INFINITE)),
        source_timestamp_resolution=pick((0, INFINITE)),
        compression=codec,
        wire=pick((BatchWire.AUTO, BatchWire.AUTO, BatchWire.DATA)),
        max_batches=pick((INFINITE, INFINITE, 8)),
    )


def explained(it: Scenario) -> float:
    """Milliseconds that the last sample may take: generously, the round trips that the policies ask for."""
    writer, reader, link = it.writer, it.reader, it.link
    units = [max(writer.send_window_bytes // (it.size + 60), 1), writer.max_send_window_size]
    if link.loss or reader.receive_window_size > 0:  # or what comes early is lost
        repaired = min(writer.max_bytes_per_nack_response, writer.max_repair_bytes)
        units += [reader.receive_window_size, max(repaired // (it.size + 24), 1)]
    together = min(unit for unit in units if unit > 0)
    delays = reader.max_heartbeat_response_delay + max(reader.round_trip_time, 20 * MS)
    round_trip = 2 * (link.delay + link.jitter) + delays + writer.repair_suppression
    fragments = -(-it.size // it.message_size)
    rounds = it.samples * fragments * (1 + it.late_readers) / together / (1 - link.loss) ** 3
    return 3_000 + 3 * rounds * round_trip / MS


def differences(it: Any, usual: Any) -> dict[str, Any]:
    """Fields that are not as usual."""
    pairs = {each.name: (getattr(it, each.name), getattr(usual, each.name)) for each in fields(it)}
    return {
        name: differences(value, default) if hasattr(value, "__dataclass_fields__") else value
        for name, (value, default) in pairs.items()
        if value != default
    }


def main() -> None:
    first, last = (int(each) for each in sys.argv[1:3])
    for seed in range(first, last + 1):
        it, began = scenario(seed), time.process_time()
        try:
            result = Simulation(it, seed, patience=PATIENCE).run()
        except Wrong as wrong:
            print(f"{wrong}\n   {differences(it, Scenario())}", flush=True)
            continue
        except Exception as error:
            error.add_note(f"seed {seed}: {differences(it, Scenario())}")
            raise
        worst, bound = result.latency(100), explained(it)
        if worst > bound:
            print(
                f"seed {seed}: {worst:.0f} ms instead of {bound:.0f}\n   {differences(it, Scenario())}",
                flush=True,
            )
        if (took := time.process_time() - began) > 5:
            print(f"seed {seed}: {took:.0f} s", flush=True)
    print("done")


if __name__ == "__main__":
    main()
