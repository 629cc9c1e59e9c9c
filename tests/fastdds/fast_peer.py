"""A Fast DDS participant in a process of its own: ``peer.cpp``, worked from a test by lines of words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from spark_rtps.transport.types.model import Struct
from tests.fastdds.words import text, type_words, value_of, value_words
from tests.support.peer_process import PeerProcess
from tests.support.waiting import PATIENCE, wait_until


class Taken(NamedTuple):
    """A sample as Fast DDS gave it out; ``row`` is None where it holds an instance's state alone."""

    state: str  # ALIVE, DISPOSED, NO_WRITERS
    row: dict[str, Any] | None


class FastPeer(PeerProcess):
    """The test's end. A topic has one writer or one reader."""

    def __init__(self, program: Path, domain: int) -> None:
        super().__init__([str(program), str(domain)], text=True)
        self._types: dict[str, Struct] = {}
        self._topics: dict[str, Struct] = {}

    def ask(self, *words: str) -> str:
        """A command, and the answer to it."""
        pipe_in, pipe_out = self._pipes
        with suppress(BrokenPipeError):
            pipe_in.write(" ".join(words) + "\n")
            pipe_in.flush()
        answer = pipe_out.readline()
        if not answer:
            raise RuntimeError(f"the Fast DDS peer ended: {self._child.wait()}")
        if answer.startswith("!"):
            raise RuntimeError(f"the Fast DDS peer failed: {answer[1:]}")
        return answer.strip()  # type: ignore[no-any-return]

    def define(self, struct: Struct, *, announced: bool = True) -> None:
        """A type of the peer's; ``announced``: with its type object and type information."""
        if struct.name not in self._types:
            self.ask("type", text(struct.name), "announced" if announced else "silent", *type_words(struct))
            self._types[struct.name] = struct

    def writer(self, topic: str, struct: Struct, *, user_data: str = "", **qos: Any) -> None:
        self._create("writer", topic, struct, [user_data] if user_data else (), **qos)

    def reader(
        self, topic: str, struct: Struct, *, expression: str = "", parameters: Sequence[str] = (), **qos: Any
    ) -> None:
        """``expression``: it reads a ContentFilteredTopic."""
        self._create("reader", topic, struct, [expression, *parameters] if expression else (), **qos)

    def _create(
        self,
        what: str,
        topic: str,
        struct: Struct,
        more: Iterable[str],
        *,
        reliable: bool = True,
        transient_local: bool = False,
        keep: int = 0,
        announced: bool = True,
    ) -> None:
        self.define(struct, announced=announced)
        self._topics[topic] = struct
        reliability = "reliable" if reliable else "best_effort"
        durability = "transient_local" if transient_local else "volatile"
        self.ask(
            what,
            text(topic),
            text(struct.name),
            reliability,
            durability,
            str(keep),
            *map(text, more),
        )

    def write(self, topic: str, rows: Iterable[dict[str, Any]], how: str = "write") -> None:
        """``how``: write, dispose or unregister."""
        words = [word for row in rows for word in value_words(self._topics[topic], row)]
        self.ask(how, text(topic), *words)

    def delete(self, topic: str) -> None:
        """Delete the endpoints of a topic."""
        self.ask("delete", text(topic))

    def matched(self, topic: str) -> int:
        return int(self.ask("matched", text(topic)))

    def wait_for_match(self, topic: str, count: int = 1, timeout: float = PATIENCE) -> None:
        wait_until(lambda: self.matched(topic) == count, f"{count} matched on {topic}", timeout)

    def wait_for_acks(self, topic: str, timeout: int = int(PATIENCE)) -> None:
        assert self.ask("acknowledged", text(topic), str(timeout)) == "true", "not acknowledged by all"

    def take(self, topic: str, count: int, timeout: float = PATIENCE) -> list[Taken]:
        """Samples until there are ``count`` (and what else was there then)."""
        found: list[Taken] = []

        def enough() -> bool:
            for state, words in json.loads(self.ask("take", text(topic))):
                found.append(
                    Taken(state, value_of(self._topics[topic], iter(words.split())) if words else None)
                )
            return len(found) >= count

        wait_until(enough, lambda: f"{count} samples on {topic}; there are {len(found)}", timeout)
        return found
