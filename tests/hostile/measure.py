"""The table of what an unmatched participant can do, measured over real sockets: ``python -m tests.hostile.measure``.

An attacker at 127.0.0.66 attacks one of two honest participants of ours, each in a process of its own on loopback. The
attacks are written without the product, so an older version of it can be measured by the same means: copy this folder
into its ``tests`` and run the same there.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.hostile import messages as m
from tests.hostile.attacker import FAR, READER, WRITER, Datagram, Host
from tests.hostile.attacks import batch_bomb, payload
from tests.hostile.honest_process import HonestProcess, StrangerSocket, honest_pair, wait_for

RATE = 20_000

Figures = dict[str, Any]
_ROWS: dict[str, Callable[[int], Figures]] = {}


def row(title: str) -> Callable[[Callable[[int], Figures]], Callable[[int], Figures]]:
    def register(function: Callable[[int], Figures]) -> Callable[[int], Figures]:
        _ROWS[title] = function
        return function

    return register


class Scene:
    """``two`` streams rows to ``one``, which the attacker attacks."""

    def __init__(self, one: HonestProcess, two: HonestProcess, unmatched_peer: StrangerSocket) -> None:
        self.one, self.two, self.unmatched_peer = one, two, unmatched_peer
        self.on, self.other = one.host(), two.host()
        self.attacker = unmatched_peer.attacker

    def in_anothers_name(self, *submessages: bytes) -> bytes:
        return self.attacker.to(self.on, *submessages, prefix=self.other.prefix)

    def send(self, *datagrams: Datagram | bytes, pace: float = 0.0) -> None:
        self.unmatched_peer.send(self.on, datagrams, pace=pace)

    def state(self) -> Figures:
        found: Figures = self.one.call("state")
        return found

    def lost_rows(self) -> int:
        """Rows that the writer has written and the reader does not get, at the end of a stream."""
        written = self.two.call("end_stream")
        wait_for(lambda: self.state()["rows"] >= written, 3)
        return int(written - self.state()["rows"])

    def settled_cpu(self) -> float:
        """CPU seconds, once nothing is being worked on."""
        before = float(self.state()["cpu"])
        while True:
            time.sleep(0.2)
            now = float(self.state()["cpu"])
            if now - before < 0.02:
                return now
            before = now

    def caught_up(self) -> None:
        """Until the stream's reader has nearly all that its writer has written."""
        wait_for(lambda: self.state()["rows"] > self.two.call("state")["written"] - RATE // 2, 60)

    def cpu_share(self, seconds: float) -> float:
        before = self.state()["cpu"]
        time.sleep(seconds)
        return float((self.state()["cpu"] - before) / seconds)


@contextmanager
def scene_of(domain: int, *, stream: bool = False, **config: Any) -> Iterator[Scene]:
    with honest_pair(domain, **config) as (one, two), StrangerSocket() as unmatched_peer:
        scene = Scene(one, two, unmatched_peer)
        if stream:
            two.call("stream", rate=RATE)
            time.sleep(0.5)
            one.call("begin")
        yield scene


# --- the rows -----------------------------------------------------------------------------------------


@row("DATA_BATCH in COMPRESSED, sample infos of alternating shape")
def batch(domain: int) -> Figures:
    with scene_of(domain) as scene:
        bomb = batch_bomb(WRITER)
        cost = []
        for datagram in (scene.attacker.to(scene.on, bomb), scene.in_anothers_name(bomb)):
            before = scene.settled_cpu()
            scene.send(datagram)
            cost.append(scene.settled_cpu() - before)
        peers = _of_a_matched_peer(scene, bomb)
    with scene_of(domain, stream=True) as scene:
        scene.send(*[scene.attacker.to(scene.on, bomb)] * 5)
        time.sleep(1)
        scene.caught_up()
        stall = scene.state()["longest"]
        lost = scene.lost_rows()
    return {
        "bytes": len(bomb) + 36,
        "CPU s a datagram": max(cost),
        "CPU s a datagram of a matched peer": peers,
        "stall of a 20 k/s stream by 5, s": stall,
        "rows lost": lost,
    }


def _of_a_matched_peer(scene: Scene, bomb: bytes) -> float:
    scene.send(*scene.attacker.matches(scene.on), pace=0.01)
    time.sleep(0.5)
    before = scene.settled_cpu()
    scene.send(scene.attacker.to(scene.on, bomb))
    return scene.settled_cpu() - before


def _leap(domain: int, *output: Callable[[Scene], bytes]) -> Figures:
    with scene_of(domain, stream=True) as scene:
        for each in output:
            scene.send(scene.in_anothers_name(each(scene)))
        time.sleep(2)
        state = scene.state()
        rows = {"rows lost of 2 s": scene.lost_rows(), "rows injected": state["forged"]}
        return rows | {"writer reports success": scene.two.call("acknowledged", timeout=1.0)}


@row("forged HEARTBEAT first = 10^12")
def heartbeat(domain: int) -> Figures:
    return _leap(domain, lambda scene: m.heartbeat(scene.other.writer, FAR, FAR, 1 << 20))


@row("forged GAP 1…10^12")
def gap(domain: int) -> Figures:
    return _leap(domain, lambda scene: m.gap(scene.other.writer, 1, FAR))


@row("forged DATA at 10^12, into a stream log")
def data(domain: int) -> Figures:
    with (
        tempfile.TemporaryDirectory() as folder,
        HonestProcess(directory=folder + "/log", domain=domain, topic="t") as receiver,
        HonestProcess(domain=domain, writes="t", reads="s") as two,
        StrangerSocket() as unmatched_peer,
    ):
        on, other = _receiver_host(two), two.host()
        two.call("write", count=100)
        wait_for(lambda: receiver.call("rows")["rows"] >= 100, 5)
        forged = [
            m.heartbeat(other.writer, FAR, FAR, 1 << 20),
            m.data(other.writer, FAR, payload()),
        ]
        unmatched_peer.send(
            on, [unmatched_peer.attacker.to(on, each, prefix=other.prefix) for each in forged]
        )
        time.sleep(0.5)
        injected = receiver.call("rows")["forged"]
        receiver.call("restart")
        before = receiver.call("rows")["rows"]
        two.call("write", count=100, timeout=5)
        wait_for(lambda: receiver.call("rows")["rows"] >= before + 100, 8)
        return {
            "rows injected": injected,
            "rows of 100 after a restart": receiver.call("rows")["rows"] - before,
        }


def _receiver_host(two: HonestProcess) -> Host:
    """The receiver, as its peer knows it."""
    assert wait_for(lambda: two.call("matched")["readers"], 30) is not None
    known = next(each for each in two.call("participants") if each["name"] == "receiver")
    return Host(
        bytes.fromhex(known["prefix"]),
        ("127.0.0.1", known["metatraffic"]),
        ("127.0.0.1", known["user"]),
        b"\0\0\0\0",
        b"\0\0\1\4",
        "nothing",
        "t",
    )


@row("SEDP dispose of somebody's writer")
def dispose(domain: int) -> Figures:
    with scene_of(domain, stream=True) as scene:
        guid = scene.other.writer_guid
        qos = [m.key_hash(guid), m.status_info(disposed=True, unregistered=True)]
        for sn in (2, 3, 4):
            scene.send(
                scene.attacker.sedp(
                    scene.on,
                    m.PUBLICATIONS_WRITER,
                    m.endpoint_key(guid),
                    prefix=scene.other.prefix,
                    sn=sn,
                    inline_qos=qos,
                )
            )
        time.sleep(0.2)
        if scene.one.call("matched")["writers"] == 1:
            seconds: float | str | None = 0.0
        else:
            seconds = wait_for(lambda: scene.one.call("matched")["writers"] == 1, 15)
        return {
            "s until rematch": "not in 15" if seconds is None else seconds,
            "rows lost": scene.lost_rows(),
        }


@row("forged ACKNACK base = 10^6 to a sink")
def acknack(domain: int) -> Figures:
    with scene_of(domain) as scene:
        with scene.two.away():
            scene.one.call("write", count=1000)
            forged = m.acknack(scene.other.reader, scene.on.writer, 10**6, 0, 1 << 20)
            scene.send(scene.in_anothers_name(forged))
            time.sleep(0.2)
            success = scene.one.call("acknowledged", timeout=0.5)
        return {"success reported for 1,000 rows that nobody has": success}


@row("NACK storm")
def nacks(domain: int) -> Figures:
    with scene_of(domain, qos={"durability": 1}) as scene:
        scene.one.call("write", count=300, size=1_000)
        scene.one.call("stream", rate=116, size=1_000)
        time.sleep(1)
        rates = []
        for storm in (False, True):
            before, began, count = scene.state()["sent_bytes"], time.monotonic(), 0
            while time.monotonic() < began + 2:
                if storm:
                    count += 1
                    output = m.acknack(scene.other.reader, scene.on.writer, 1, 256, count + (1 << 20))
                    scene.send(scene.in_anothers_name(output))
                time.sleep(0.001)
            rates.append((scene.state()["sent_bytes"] - before) / (time.monotonic() - began))
        return {"kB/s before": rates[0] / 1000, "kB/s in the storm": rates[1] / 1000}


@row("SPDP with forged locators")
def reflection(domain: int) -> Figures:
    found: Figures = {}
    with scene_of(domain) as scene:
        victim, here = scene.attacker.victim, scene.unmatched_peer.socket.getsockname()
        for name, at, count in (
            ("the victim only", (victim,), 1),
            ("the victim and itself", (here, victim), 1),
            ("each new", (victim,), 50),
            ("each new, of 16 addresses", tuple((f"127.0.0.{80 + i}", victim[1]) for i in range(16)), 20),
        ):
            scene.unmatched_peer.third_party_got()
            before = scene.unmatched_peer.sent_bytes
            for _ in range(count):
                prefix = scene.attacker.fresh_prefix()
                announced = scene.attacker.announcement(prefix, at=at, default=(victim,))
                scene.send(announced, Datagram(scene.attacker.to(scene.on, prefix=prefix), user=False))
            time.sleep(3)
            sent = scene.unmatched_peer.sent_bytes - before
            found[f"bytes out / in, {name}"] = scene.unmatched_peer.third_party_got() / sent
    return found


@row("a best-effort reader whose locator is the victim")
def best_effort(domain: int) -> Figures:
    with scene_of(domain) as scene:
        victim = scene.attacker.victim
        scene.send(
            *scene.attacker.introduction(scene.on),
            scene.attacker.endpoint(scene.on, READER, scene.on.writes, reliable=False, unicast=[victim]),
            pace=0.02,
        )
        scene.one.call("stream", rate=RATE)
        got = 0
        for _ in range(30):
            time.sleep(0.1)
            got += scene.unmatched_peer.third_party_got()
        return {"bytes in": scene.unmatched_peer.sent_bytes, "bytes out in 3 s": got}


@row("a reliable reader that never acknowledges")
def stuck(domain: int) -> Figures:
    with scene_of(domain) as scene:
        scene.send(*scene.attacker.matches(scene.on, reliable_reader=True), pace=0.02)
        time.sleep(0.5)
        scene.one.ask("write", count=200_000, timeout=4)
        written = scene.one.answer()
        return {"rows of 200,000 taken in 4 s": written["written"], "why": written["error"][:120]}


@row("1,100 participants")
def participants(domain: int) -> Figures:
    with scene_of(domain, stream=True) as scene:
        for i in range(1_100):
            prefix = scene.attacker.fresh_prefix()
            announced = scene.attacker.announcement(prefix, lease=m.INFINITE_LEASE)
            scene.send(announced, Datagram(scene.attacker.to(scene.on, prefix=prefix), user=False))
            if i % 10 == 0:
                time.sleep(0.005)
        time.sleep(0.5)
        stall = scene.state()["longest"]
        with HonestProcess(domain=domain, writes="t", reads="nothing") as newcomer:
            seconds = wait_for(lambda: newcomer.call("matched")["readers"] == 1, 10)
        return {
            "s until a new writer is found": "not in 10" if seconds is None else seconds,
            "stall of a 20 k/s stream, s": stall,
            "rows lost": scene.lost_rows(),
        }


@row("77,000 endpoints of them")
def endpoints(domain: int) -> Figures:
    with scene_of(domain) as scene:
        a, on = scene.attacker, scene.on
        quiet = scene.cpu_share(1)
        for _ in range(1_100):
            prefix = a.fresh_prefix()
            announced = a.announcement(prefix, lease=m.INFINITE_LEASE)
            scene.send(announced, Datagram(a.to(on, prefix=prefix), user=False))
            listed = []
            for i in range(70):
                guid = prefix + struct.pack(">I", (i + 16) << 8 | 3)
                listed.append(m.data(m.PUBLICATIONS_WRITER, i + 1, m.announced_endpoint(guid, f"x{i}", "T")))
            beat = m.heartbeat(m.PUBLICATIONS_WRITER, 1, 70, 1)
            scene.send(Datagram(a.to(on, *listed, beat, prefix=prefix), user=False))
            time.sleep(0.004)
        wait_for(lambda: scene.cpu_share(0.5) < 0.7, 20)
        share, state = scene.cpu_share(6), scene.state()
        scene.two.call("stream", rate=RATE)
        time.sleep(0.3)
        scene.one.call("begin")
        time.sleep(2)
        return {
            "CPU share before": quiet,
            "CPU share while they last": share,
            "RSS, MB": state["rss"] / 1e6,
            "stall of a 20 k/s stream, s": scene.state()["longest"],
            "rows lost": scene.lost_rows(),
        }


def _fragments(domain: int, *, peer: bool) -> Figures:
    with scene_of(domain, stream=True) as scene:
        a = scene.attacker
        if peer:
            scene.send(*a.matches(scene.on), pace=0.02)
        time.sleep(1)
        quiet = scene.state()
        began, stop, written = time.monotonic(), threading.Event(), quiet["rows"]

        def storm() -> None:
            # Samples of 9 MB which lack their last fragment.
            sn, size, count = (0 if peer else written + 200_000), 60_000, 150
            writer = WRITER if peer else scene.other.writer
            prefix = a.prefix if peer else scene.other.prefix
            if peer:
                scene.send(a.to(scene.on, m.heartbeat(writer, 1, 1_000, 1)))
            while not stop.is_set():
                sn += 1
                for first in range(1, count):
                    fragment = m.data_frag(writer, sn, first, 1, size, count * size, b"\xee" * size)
                    scene.send(a.to(scene.on, fragment, prefix=prefix))
                    if first % 4 == 0:
                        time.sleep(0.001)
                    if stop.is_set():
                        break

        thread = threading.Thread(target=storm)
        thread.start()
        time.sleep(4)
        state, seconds = scene.state(), time.monotonic() - began
        stop.set()
        thread.join()
        return {
            "RSS before, MB": quiet["rss"] / 1e6,
            "RSS, MB": state["peak"] / 1e6,
            "honest rows' share": (state["rows"] - quiet["rows"]) / (RATE * seconds),
            "rows lost": scene.lost_rows(),
        }


@row("fragments, in another's name")
def fragments(domain: int) -> Figures:
    return _fragments(domain, peer=False)


@row("fragments, of a matched peer")
def fragments_of_a_peer(domain: int) -> Figures:
    return _fragments(domain, peer=True)


@row("a timestamp 80 years ahead")
def timestamp(domain: int) -> Figures:
    found: Figures = {}
    for name, policies in (
        ("BY_SOURCE", {"destination_order": 1}),
        ("TIME_BASED_FILTER", {"time_based_filter": 1_000_000}),
    ):
        with (
            tempfile.TemporaryDirectory() as folder,
            HonestProcess(directory=folder + "/log", domain=domain, topic="t", **policies) as receiver,
            HonestProcess(domain=domain, writes="t", reads="s", qos={"destination_order": 1}) as two,
            StrangerSocket() as unmatched_peer,
        ):
            a, on = unmatched_peer.attacker, _receiver_host(two)
            unmatched_peer.send(on, a.matches(on, more=[(0x0025, b"\1\0\0\0")]), pace=0.05)
            time.sleep(0.5)
            for _ in range(2):
                two.call("write", count=5)
                time.sleep(0.05)
            unmatched_peer.send(
                on,
                [
                    a.to(
                        on,
                        m.heartbeat(WRITER, 1, 1, 1),
                        m.info_timestamp(4.2e9),
                        m.data(WRITER, 1, payload()),
                    )
                ],
            )
            time.sleep(0.5)
            before = receiver.call("rows")
            for _ in range(10):
                two.call("write", count=1)
                time.sleep(0.02)
            time.sleep(1)
            after = receiver.call("rows")
            found[f"{name}: rows kept of 10"] = after["rows"] - before["rows"]
    return found


# --- the table ----------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def default_domain() -> int:
    try:
        from tests.support.domains import HOSTILE
    except ImportError:  # an older version of the product
        return 40
    return HOSTILE


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.measure", description=__doc__)
    parser.add_argument("--domain", type=int, default=default_domain())
    parser.add_argument("--json", help="write the figures into this file")
    parser.add_argument("words", nargs="*", help="only rows whose titles contain one of these")
    asked = parser.parse_args()
    found: dict[str, Figures] = {}
    print("| attack | measured |\n|---|---|", flush=True)
    for title, measure in _ROWS.items():
        if asked.words and not any(word in title for word in asked.words):
            continue
        began = time.monotonic()
        try:
            figures = measure(asked.domain)
        except Exception as error:  # noqa: BLE001 - the other rows are still worth having
            figures = {"not measured": f"{type(error).__name__}: {error}"}
        found[title] = figures
        print(f"| {title} | {'; '.join(f'{k}: {shown(v)}' for k, v in figures.items())} |", flush=True)
        print(f"{title}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
