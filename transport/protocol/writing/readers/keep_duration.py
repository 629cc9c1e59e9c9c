"""How long a writer keeps samples for readers without positive acknowledgements (``disable_positive_acks``).

Samples that were sent longer ago than ``duration`` count as acknowledged by such readers. Invariant: ``duration`` stays
between the policy's min and max; NACKs lengthen it, a whole duration without any shortens it.
"""

from __future__ import annotations

from collections import deque

from ...policies import WriterPolicy


class KeepDuration:
    """The keep duration of one writer, and the times at which it sent its samples."""

    def __init__(self, policy: WriterPolicy) -> None:
        self.policy = policy
        self.duration = policy.disable_positive_acks_min_sample_keep_duration
        self._adapts = policy.disable_positive_acks_enable_adaptive_sample_keep_duration
        self._quiet_since = 0
        self._sent: deque[tuple[int, int]] = deque()  # (last SN, when)
        #: The last number of the datagrams that waited for tokens and have left.
        self._left_sn = 0

    def sent(self, last_sn: int, now: int) -> None:
        """Everything up to ``last_sn`` is sent."""
        if not self._sent:
            self._quiet_since = max(self._quiet_since, now)
        elif self._sent[-1][1] == now:
            self._sent.pop()
        self._sent.append((last_sn, now))

    def left(self, now: int) -> None:
        """Datagrams that waited for tokens have left: the duration of their samples begins now."""
        if self._sent and self._sent[-1][0] > self._left_sn:
            self._left_sn = self._sent[-1][0]
            self._sent = deque([(self._left_sn, now)])

    def expired(self, now: int) -> int:
        """The highest number that counts as acknowledged since the last call; 0 if there is none."""
        highest = 0
        while self._sent and now - self._sent[0][1] >= self.duration:
            highest = self._sent.popleft()[0]
        if highest and self._adapts and now - self._quiet_since >= self.duration:
            self._quiet_since = now
            shorter = (
                self.duration * self.policy.disable_positive_acks_decrease_sample_keep_duration_factor // 100
            )
            self.duration = max(shorter, self.policy.disable_positive_acks_min_sample_keep_duration)
        return highest

    def on_nack(self, now: int) -> None:
        """A reader without positive acknowledgements lacks something."""
        self._quiet_since = now
        if self._adapts:
            longer = (
                self.duration * self.policy.disable_positive_acks_increase_sample_keep_duration_factor // 100
            )
            self.duration = min(longer, self.policy.disable_positive_acks_max_sample_keep_duration)

    def forget_readers(self) -> None:
        """No reader without positive acknowledgements is left."""
        self._sent.clear()

    def get_timer(self) -> int | None:
        return self._sent[0][1] + self.duration if self._sent else None
