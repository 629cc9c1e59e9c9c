"""What samples cost the receiver as the writers of a topic, or the instances, become more."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from tests.bench.cost import cpu_seconds, memory
from tests.bench.figures import receiving
from tests.bench.growth.peers import KEYED_IDL, KEYED_TYPE, keyed_qos
from tests.bench.peers import Peer

WRITERS: Final = (1, 10, 100, 1_000)
#: More participants than these have no ports of their own in a domain; each has several writers then.
PARTICIPANTS_MAX: Final = 100
KEYS: Final = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
#: What a sample's instance matters for: nothing; the reader's OWNERSHIP or DEADLINE; the writer's history.
RULES: Final = ("none", "exclusive", "deadline", "keep_last")
_BLOCK: Final = 50
_SECONDS: Final = 2.0
_WARM_UP: Final = 0.5
_PATIENCE: Final = 60.0
_MODULE: Final = "tests.bench.growth.peers"
_RECEIVED: Final = "reader.received_samples"


def by_writers(
    domain: int, counts: Sequence[int] = WRITERS, seconds: float = _SECONDS
) -> dict[str, dict[str, dict[str, float]]]:
    """By whether one participant has all writers, and by their number: samples a second of all together, CPU seconds
    for a million of them, MB of the receiver, and seconds until all were matched."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for shape, participants_max in (("one participant", 1), ("many participants", PARTICIPANTS_MAX)):
        for count in counts:
            participants = min(count, participants_max)
            how = {"participants": participants, "each": count // participants, "block": _BLOCK}
            with receiving(domain) as process:
                peer = Peer("writers", domain, json.dumps(how), module=_MODULE)
                _pump(process, _WARM_UP)
                rates = _measured(process, peer, seconds)
                peer.stop()
            found.setdefault(shape, {})[str(count)] = {**rates, "matched": peer.ready["matched"]}
    return found


def by_keys(
    domain: int, counts: Sequence[int] = KEYS, rules: Sequence[str] = RULES, seconds: float = _SECONDS
) -> dict[str, dict[str, dict[str, float]]]:
    """By rule and number of instances: samples a second, CPU seconds for a million, and MB, of both processes; and how
    many samples of the receiver's were rejected as of too many instances."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for rule in rules:
        topic = {
            "type_name": KEYED_TYPE,
            "keyed": True,
            "qos": keyed_qos(rule)[1],
            "type": (KEYED_IDL, KEYED_TYPE),
            "reports_instances": rule in ("exclusive", "deadline"),
        }
        for count in counts:
            with receiving(domain, **topic) as process:
                peer = Peer("keyed_writer", domain, json.dumps({"keys": count, "rule": rule}), module=_MODULE)
                _pump(process, _PATIENCE, samples=count)
                _pump(process, _WARM_UP)
                rates = _measured(process, peer, seconds)
                rejected = process.counters()["status.sample_rejected.by_instances_limit"]
                peer.stop()
            found.setdefault(rule, {})[str(count)] = {**rates, "rejected": float(rejected)}
    return found


def _measured(process: Any, peer: Peer, seconds: float) -> dict[str, float]:
    before, started = process.counters(), time.monotonic()
    used = cpu_seconds(process.pid), cpu_seconds(peer.pid)
    _pump(process, seconds)
    counters, took = process.counters(), time.monotonic() - started
    spent = [cpu_seconds(pid) - then for pid, then in zip((process.pid, peer.pid), used, strict=True)]
    if counters.get("reader.lost_samples", 0):
        raise RuntimeError(f"{counters['reader.lost_samples']} samples lost on a reliable topic")
    received = max(1, counters[_RECEIVED] - before[_RECEIVED])
    return {
        "samples": received / took,
        "receiver": 1e6 * spent[0] / received,
        "writer": 1e6 * spent[1] / received,
        "receiver_memory": memory(process.pid),
        "writer_memory": memory(peer.pid),
    }


def _pump(process: Any, seconds: float, samples: int = 1 << 62) -> None:
    """Commit what is received for so long, or until so many samples were."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.counters().get(_RECEIVED, 0) < samples:
        time.sleep(0.02)
        process.commit_position(process.cursor().position)
        process.check()
