"""How much of a campaign a run plays: a quarter on each push, all of it by ``make test-long``.

A campaign repeats one test with other seeds, examples or kills. Half of the seeds of a push are always the same, and
half are drawn from the hash of the commit, so that each commit looks where none has looked before. The head of pytest's
report names that commit; with ``SPARK_RTPS_TEST_COMMIT`` set to it the same seeds are drawn again.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Final

#: The whole of each campaign is played.
LONG: Final = os.environ.get("SPARK_RTPS_TEST_LONG", "") not in ("", "0")


def _commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:  # there is no git
        return "none"
    return done.stdout.strip() or "none"


#: What the fresh seeds are drawn from; "none" outside of a checkout.
COMMIT: Final = os.environ.get("SPARK_RTPS_TEST_COMMIT") or _commit()


def share(whole: int) -> int:
    """How many of ``whole`` repetitions are played, at least one."""
    return whole if LONG else -(-whole // 4)


def seeds(whole: int) -> list[int]:
    """The seeds of a campaign of ``whole``: those from 0 on, then as many fresh ones as a push has of both kinds."""
    played = share(whole)
    fixed = played if LONG else -(-played // 2)
    return [*range(fixed), *fresh_seeds(-(-whole // 8) if LONG else played - fixed)]


def fresh_seeds(count: int) -> list[int]:
    """Seeds of this commit."""
    return random.Random(COMMIT).sample(range(1 << 16, 1 << 30), count)
