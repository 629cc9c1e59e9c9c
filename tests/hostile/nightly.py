"""The campaign for a night: ``python -m tests.hostile.nightly --messages 10000000``."""

from __future__ import annotations

import argparse
import sys
import time

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.hostile.campaign import Campaign, Story, Tally, resident_bytes, stories

#: Stories between two lines of the report.
_BLOCK = 200
#: A night's growth, beyond what the first block of stories takes.
_GROWTH_MAX = 256 << 20


def play_block(number: int, tally: Tally) -> None:
    """So many stories that no other block has. Raises AssertionError with the shortest story that ends badly."""

    @seed(number)
    @settings(
        max_examples=_BLOCK,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(stories())
    def play(story: Story) -> None:
        Campaign(story.seed).play(story, tally)

    play()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.nightly", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many")
    asked = parser.parse_args()
    tally, began, first, findings = Tally(), time.monotonic(), 0, 0
    block = 0
    while tally.messages < asked.messages and time.monotonic() - began < asked.seconds:
        block += 1
        try:
            play_block(asked.seed + block, tally)
        except Exception as finding:  # noqa: BLE001 - the night goes on
            findings += 1
            print(f"finding {findings}, seed {asked.seed + block}: {type(finding).__name__}: {finding}")
            print("\n".join(getattr(finding, "__notes__", [])), flush=True)
        first = first or resident_bytes()
        seconds = time.monotonic() - began
        print(
            f"{seconds:.0f} s: {tally.messages:,} messages in {tally.stories:,} stories, {tally.rows:,} rows arrived, "
            f"slowest step {tally.slowest:.2f} s, {resident_bytes() >> 20} MB, {findings} findings",
            flush=True,
        )
        if resident_bytes() > first + _GROWTH_MAX:
            findings += 1
            print(f"finding {findings}: memory grew from {first >> 20} MB")
            first = resident_bytes()
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
