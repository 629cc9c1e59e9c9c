"""Some 10^5 attack messages, a quarter of them on a push; ``python -m tests.hostile.nightly`` plays 10^7.

Hypothesis draws the stories that they are told in.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.hostile.campaign import Campaign, Story, Tally, resident_bytes, stories
from tests.support.campaigns import share

MESSAGES = share(100_000)
STORIES = share(90)


def test_every_honest_row_arrives_once_while_others_attack() -> None:
    tally = Tally()
    before: list[int] = []

    @settings(
        max_examples=STORIES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(stories())
    def play(story: Story) -> None:
        Campaign(story.seed).play(story, tally)
        if tally.stories == STORIES // 4:
            before.append(resident_bytes())

    play()
    assert tally.messages >= MESSAGES
    assert tally.rows > share(10_000)
    assert resident_bytes() < before[0] + (256 << 20)
