"""When endpoints speak and how much they have in flight, as values handed in; and what they count."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from ..structure import INFINITE


@dataclass(frozen=True, slots=True)
class ReaderPolicy:
    """When a reader answers; nanoseconds. An ACKNACK that requests nothing is never delayed."""

    #: From a HEARTBEAT that proves a loss to the request: late datagrams may still drop in.
    heartbeat_response_delay: int = 1_000_000
    #: The same where nothing proves it but a hole, or the end of what was announced: it may be on its way.
    reorder_delay: int = 10_000_000
    #: From a request to its repetition; doubles up to the maximum while nothing comes.
    nack_period: int = 20_000_000
    nack_period_max: int = 320_000_000
    #: Pre-emptive ACKNACKs from the match to the first HEARTBEAT; doubles up to the maximum.
    preemptive_period: int = 50_000_000
    preemptive_period_max: int = 3_000_000_000


@dataclass(frozen=True, slots=True)
class WriterPolicy:
    """How much a writer has in flight and when it speaks; bytes and nanoseconds."""

    send_window_bytes: int = 4 << 20
    #: A HEARTBEAT rides along so many times per send window.
    heartbeats_per_window: int = 8
    #: While something is unacknowledged; doubles up to the maximum for a reader that stays silent.
    heartbeat_period: int = 100_000_000
    heartbeat_period_max: int = 3_000_000_000
    #: Instead of heartbeat_period while the window is full: a lost ACKNACK must not stall the flow.
    fast_heartbeat_period: int = 10_000_000
    #: A turn: within it, a sample is sent again to a reader at most once.
    nack_suppression: int = 5_000_000
    max_bytes_per_nack_response: int = 256 << 10
    #: To one reader in one turn, whatever it asks.
    max_repair_bytes: int = 4 << 20


@dataclass(slots=True)
class ReaderCounters:
    """What happened so far; samples unless the name says otherwise."""

    received_samples: int = 0
    duplicate_samples: int = 0
    lost_samples: int = 0
    irrelevant_samples: int = 0
    #: Larger than the reader takes; they are among the irrelevant ones too.
    oversized_samples: int = 0
    window_closed: int = 0
    held_samples: int = 0
    reorder_overflow: int = 0
    unknown_writer: int = 0
    fragments: int = 0
    duplicate_fragments: int = 0
    bad_fragments: int = 0
    fragment_overflow: int = 0
    heartbeats: int = 0
    bad_heartbeats: int = 0
    stale_counts: int = 0
    gaps: int = 0
    gap_overflow: int = 0
    acknacks_sent: int = 0
    nacks_sent: int = 0
    nack_frags_sent: int = 0

    def snapshot(self) -> dict[str, int]:
        # A forged HEARTBEAT can lose 2 ** 63 samples; whoever keeps counters keeps 64 bits.
        return {name: min(count, INFINITE) for name, count in asdict(self).items()}


@dataclass(slots=True)
class WriterCounters:
    """What happened so far."""

    written_samples: int = 0
    written_bytes: int = 0
    back_pressured: int = 0
    heartbeats_sent: int = 0
    acknacks: int = 0
    nack_frags: int = 0
    stale_counts: int = 0
    unknown_reader: int = 0
    repaired_samples: int = 0
    repaired_fragments: int = 0
    repaired_bytes: int = 0
    repairs_bounded: int = 0
    gaps_sent: int = 0

    def snapshot(self) -> dict[str, int]:
        return asdict(self)


READER_POLICY: Final = ReaderPolicy()
WRITER_POLICY: Final = WriterPolicy()
