"""Every bound on what a peer can make us hold or send, in one place.

A bound that is reached is counted under the name of the thing it bounds; nothing here is an option.
"""

from __future__ import annotations

from typing import Final

#: Largest UDP payload over IPv4 (65,535 - 20 IP - 8 UDP).
UDP_PAYLOAD_MAX: Final = 65_507
#: What we put in one datagram at most: whole 63 KiB pages of loopback and jumbo links.
MESSAGE_SIZE_MAX: Final = 64_512
#: Messages of one system call that the kernel cuts apart (UDP_SEGMENT).
TRAIN_MESSAGES_MAX: Final = 64
#: What everybody takes, whatever a peer says of itself; discovery messages are no longer.
MESSAGE_SIZE_LEAST: Final = 1_200
#: Serialized bytes in one fragment of a DATA_FRAG; with its headers it stays below MESSAGE_SIZE_MAX.
FRAGMENT_SIZE: Final = 63_488
#: Bits in a SequenceNumberSet or FragmentNumberSet (RTPS 2.5 §8.3.5.5).
NUMBER_SET_BITS: Final = 256

PARTICIPANTS_MAX: Final = 1_024
ENDPOINTS_PER_PARTICIPANT_MAX: Final = 4_096
#: Matched readers of a sink that `spark-rtps stat` shows one by one.
READERS_SHOWN_MAX: Final = 32
#: Matched writers of a source that it shows so.
WRITERS_SHOWN_MAX: Final = 32
LOCATORS_MAX: Final = 16
#: What all remote endpoints together may cost us: serialized bytes, and about a KiB of overhead each.
ENDPOINT_BYTES_MAX: Final = 64 << 20
STRING_MAX: Final = 4_096
#: Parameters in one list; a list reassembled from fragments is not bounded by a datagram.
PARAMETERS_MAX: Final = 1_024
PARTITIONS_MAX: Final = 256
USER_DATA_MAX: Final = 65_536
#: A lease longer than this is taken as this (a day), so that a hostile lease cannot pin memory.
LEASE_MAX_NS: Final = 86_400 * 1_000_000_000

#: Bytes of out-of-order samples a reader keeps while it waits for the missing ones: of one writer, of all.
REORDER_WRITER_BYTES_MAX: Final = 32 << 20
REORDER_BYTES_MAX: Final = 256 << 20
#: Separate holes tracked per writer.
REORDER_RUNS_MAX: Final = 4_096
#: What a writer of ours puts in a coherent set: readers of ours hold it in their reorder buffers.
COHERENT_SET_BYTES_MAX: Final = REORDER_WRITER_BYTES_MAX * 3 // 4
COHERENT_SET_MESSAGES_MAX: Final = REORDER_RUNS_MAX // 2
#: Serialized size of one fragmented sample, and of all unfinished ones of a reader.
FRAGMENTED_SAMPLE_MAX: Final = 256 << 20
FRAGMENTED_BYTES_MAX: Final = 512 << 20
FRAGMENTED_SAMPLES_MAX: Final = 64

#: What one asynchronous writer may have waiting for tokens: bytes, each datagram counted with its overhead.
FLOW_CONTROLLER_BYTES_MAX: Final = 4 << 20

#: Events nobody has fetched yet.
EVENTS_MAX: Final = 65_536
#: Instances a reader or writer keeps track of, where a policy needs to know them.
INSTANCES_MAX: Final = 1 << 18
#: The smallest window that a reader believes a writer to have: a quarter of it is worth a status message.
TERM_WINDOW_LEAST: Final = 16 << 10
#: Changes whose positions in the publication log a writer remembers.
SEQUENCE_POSITIONS_MAX: Final = 16_384
#: Writers remembered per stream log; the longest silent one is forgotten first.
WRITERS_MAX: Final = 8_192
