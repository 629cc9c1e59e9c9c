"""Every bound on what a peer can make us hold or send, in one place.

A bound that is reached is counted under the name of the thing it bounds; nothing here is an option.
"""

from __future__ import annotations

from typing import Final

#: Largest UDP payload over IPv4 (65,535 - 20 IP - 8 UDP).
UDP_PAYLOAD_MAX: Final = 65_507
#: What one message may cost to take in, in units of about a microsecond: several times what honest ones do.
MESSAGE_WORK_MAX: Final = 12_000
#: Participants announced in one message, of which peers put one in each.
ANNOUNCEMENTS_PER_MESSAGE_MAX: Final = 8
#: What we put in one datagram at most: whole 63 KiB pages of loopback and jumbo links.
MESSAGE_SIZE_MAX: Final = 64_512
#: Messages, and bytes, that a writer frames and keeps as one train.
GSO_MESSAGES_MAX: Final = 256
GSO_BYTES_MAX: Final = 256 << 10
#: The same of fragments; a single sample may be longer.
GSO_FRAGMENT_BYTES_MAX: Final = 1 << 20
#: Samples whose last fragments share a message: a reader puts so many together at a time.
GROUP_SAMPLES_MAX: Final = 8
#: What every peer takes, whatever it announces; discovery messages are no longer.
MESSAGE_SIZE_LEAST: Final = 1_200
#: Serialized bytes in one fragment of a DATA_FRAG; with its headers it stays below MESSAGE_SIZE_MAX.
FRAGMENT_SIZE: Final = 63_488
#: Bits in a SequenceNumberSet or FragmentNumberSet (RTPS 2.5 §8.3.5.5).
NUMBER_SET_BITS: Final = 256

PARTICIPANTS_MAX: Final = 1_024
#: Of those that speak from one address: a robot with 200 ROS 2 nodes in as many processes has 200, and several
#: containers behind one address have more. The other half of the room is for others.
PARTICIPANTS_PER_ADDRESS_MAX: Final = 512
#: Participants of which it is remembered that they addressed us before their announcement came.
EARLY_MESSAGES_MAX: Final = 256
#: Open questions whether a participant behind a translator of addresses receives at an address that it names.
CHALLENGES_MAX: Final = 256
#: Datagrams kept of each participant that is not proven yet, and bytes of each.
HELD_DATAGRAMS_MAX: Final = 4
HELD_DATAGRAM_BYTES_MAX: Final = 2_048
#: Endpoints of one participant, and of all participants that speak from one address. A robot with 200 ROS 2 nodes in as
#: many processes has some 200 participants of 20 to 40 endpoints; as one process, one participant of 4,000.
ENDPOINTS_PER_PARTICIPANT_MAX: Final = 4_096
ENDPOINTS_PER_ADDRESS_MAX: Final = 16_384
#: Deleted endpoints of ours of which participants are told that are found later: they may know them from before.
DISPOSED_ENDPOINTS_MAX: Final = 256
#: Matched readers of a sink that `spark-rtps stat` shows one by one.
READERS_SHOWN_MAX: Final = 32
#: Matched writers of a source that it shows so.
WRITERS_SHOWN_MAX: Final = 32
#: Serialized bytes of the announcements that a receiver writes down, to know their participants after a restart.
KNOWN_PARTICIPANTS_BYTES_MAX: Final = 1 << 20
LOCATORS_MAX: Final = 16
#: Addresses of which it is remembered whether they lie in a list of networks, and the networks in such a list.
ADDRESSES_REMEMBERED_MAX: Final = 4_096
NETWORKS_MAX: Final = 256
#: What remote endpoints may cost us: serialized bytes, and about a KiB of overhead each. All together, those of one
#: address, those of one participant; endpoints on topics that nobody here uses take three quarters of it at most.
ENDPOINT_BYTES_MAX: Final = 64 << 20
ENDPOINT_BYTES_PER_ADDRESS_MAX: Final = 32 << 20
ENDPOINT_BYTES_PER_PARTICIPANT_MAX: Final = 16 << 20
STRING_MAX: Final = 4_096
#: Parameters in one list; a list reassembled from fragments is not bounded by a datagram.
PARAMETERS_MAX: Final = 1_024
PARTITIONS_MAX: Final = 256
USER_DATA_MAX: Final = 65_536
#: A lease longer than this is taken as this (a day), so that a hostile lease cannot pin memory.
LEASE_MAX_NS: Final = 86_400 * 1_000_000_000
#: A participant of whose endpoints none matches ours is not found and lost over and over, nor kept for a day, whatever
#: it announces. One that announces itself less often than that is found again with its next announcement.
UNMATCHED_LEASE_MIN: Final = 3 * 1_000_000_000
UNMATCHED_LEASE_MAX: Final = 3_600 * 1_000_000_000

#: Bytes of out-of-order samples a reader keeps while it waits for the missing ones: of one writer, of all.
REORDER_WRITER_BYTES_MAX: Final = 32 << 20
REORDER_BYTES_MAX: Final = 256 << 20
#: Separate holes tracked per writer.
REORDER_RUNS_MAX: Final = 4_096
#: Stretches of consecutive numbers, each of one coherent set, in one batch: those who write batches leave few out.
RUNS_PER_BATCH_MAX: Final = 256
#: What a writer of ours puts in a coherent set: readers of ours hold it in their reorder buffers.
COHERENT_SET_BYTES_MAX: Final = REORDER_WRITER_BYTES_MAX * 3 // 4
COHERENT_SET_MESSAGES_MAX: Final = REORDER_RUNS_MAX // 2
#: Serialized size of one fragmented sample; the memory of all unfinished ones of a reader, which grows as they arrive:
#: the largest sample leaves room for those of other participants.
FRAGMENTED_SAMPLE_MAX: Final = 256 << 20
FRAGMENTED_BYTES_MAX: Final = 384 << 20
FRAGMENTED_SAMPLES_MAX: Final = 64

#: What one asynchronous writer may have waiting for tokens: bytes, each datagram counted with its overhead.
FLOW_CONTROLLER_BYTES_MAX: Final = 4 << 20

#: Reasons of mismatches that one process logs, each once.
MISMATCHES_LOGGED_MAX: Final = 256
#: Events nobody has fetched yet.
EVENTS_MAX: Final = 65_536
#: Writers of which a subscription keeps track which instances they write.
INSTANCE_WRITERS_MAX: Final = 1_024
#: Instances a reader or writer keeps track of, where a policy needs to know them.
INSTANCES_MAX: Final = 1 << 18
#: The smallest window that a reader believes a writer to have: a quarter of it is worth a status message.
TERM_WINDOW_LEAST: Final = 16 << 10
#: Changes whose positions in the publication log a writer remembers.
SEQUENCE_POSITIONS_MAX: Final = 16_384
#: Topics that one receiver follows at a time, whose names peers make up; those beyond are named in a warning.
TOPICS_MAX: Final = 1_024
#: Writers remembered per stream log; the longest silent one is forgotten first.
WRITERS_MAX: Final = 8_192
#: How deep types may nest, as Arrow's own files have it.
TYPE_DEPTH_MAX: Final = 64
#: A serialized TypeObject, and one of XTypes 1.1 uncompressed.
TYPE_OBJECT_BYTES_MAX: Final = 1 << 20
#: Types inside a type, each as often as it is used: a few small type objects can stand for millions.
TYPE_NODES_MAX: Final = 1 << 16
#: Words of an IDL text, of all it includes and of what its macros stand for.
IDL_WORDS_MAX: Final = 1 << 22
#: Pairs of types whose comparison is remembered: a thousand endpoints have few types.
TYPE_COMPARISONS_MAX: Final = 1_024
#: Reasons given why two types do not match.
TYPE_REASONS_MAX: Final = 16
#: Parameters of one content filter (DDS-SQL names them %0 to %99).
FILTER_PARAMETERS_MAX: Final = 100
#: Types asked for in one request of the TypeLookup service: by others, by us.
TYPE_LOOKUP_IDS_MAX: Final = 4_096
TYPE_LOOKUP_ASKED_MAX: Final = 64
#: Participants asked at a time.
TYPE_LOOKUP_PEERS_MAX: Final = 32
#: A request, a reply; a reply of ours is longer than the third only if a single type is.
TYPE_LOOKUP_REQUEST_BYTES_MAX: Final = 128 << 10
TYPE_LOOKUP_REPLY_BYTES_MAX: Final = 4 << 20
TYPE_LOOKUP_REPLY_BYTES: Final = 32 << 10
#: Types in one reply to a question for dependencies; octets of the continuation point for the next reply.
TYPE_LOOKUP_DEPENDENTS_MAX: Final = 1_024
CONTINUATION_POINT_MAX: Final = 32
#: What the types of one endpoint may come to: serialized bytes, and types.
RESOLVED_TYPE_BYTES_MAX: Final = 2 << 20
RESOLVED_TYPE_OBJECTS_MAX: Final = 2_048
#: Serialized bytes of all types that remote endpoints are known to have, and of type objects kept for others to come.
RESOLVED_BYTES_MAX: Final = 32 << 20
TYPE_OBJECTS_BYTES_MAX: Final = 32 << 20
#: Replies that are not acknowledged; beyond it requests are not answered.
TYPE_LOOKUP_BACKLOG_MAX: Final = 4 << 20
#: Malformed samples are counted by so many pairs of a writer and a reason, of each stream log; a reason's bytes.
MALFORMED_REASONS_MAX: Final = 256
MALFORMED_REASON_MAX: Final = 500
#: Lost parts of a stream log that are known one by one; of more only the number.
LOST_PARTS_MAX: Final = 1024
#: Damaged places of a stream log that a command lists; of more only the number.
DAMAGE_LISTED_MAX: Final = 1024
#: Sources and sinks whose statuses are in one offset of a source of statuses.
STATUS_ENDPOINTS_MAX: Final = 1024
#: How deep a content filter may be nested.
FILTER_DEPTH_MAX: Final = 64
#: Unknown encapsulations that the reasons of one decode call distinguish.
UNKNOWN_ENCAPSULATIONS_MAX: Final = 16
#: Leaves of the elements of one sample's lists, beside some for each of its bytes: absent members take none of them.
LIST_LEAVES_MAX: Final = 1 << 19
LIST_LEAVES_PER_BYTE_MAX: Final = 8
#: Leaves of some 8 bytes that the samples of one decode call may make, as many as a chunk of the log has bytes; names
#: of literals count as what they hold. More are decoded in several calls; a sample that alone makes more than the
#: second bound is malformed.
DECODE_LEAVES_MAX: Final = 1 << 23
SAMPLE_LEAVES_MAX: Final = 1 << 29
#: What the Arrow batches of one sample may take in memory, beside some bytes for each of its own.
ARROW_BATCH_BYTES_MAX: Final = 256 << 20
ARROW_BATCH_BYTES_PER_BYTE_MAX: Final = 16
#: What stepping over values may cost in one decode call, in elements stepped over by Python (about half a microsecond).
DECODE_STEPS_MAX: Final = 1 << 22
#: Members unknown to us that are stepped over in one struct, before it counts as malformed.
UNKNOWN_MEMBERS_MAX: Final = 1_024
#: Distinct types of writers that a receiver records for tasks that are given none. Those beyond are read by the type
#: that the given columns make.
WRITER_TYPES_MAX: Final = 256
#: Writers of the samples in one log whose types and topics are recorded. Samples of others are dropped and counted.
TYPED_WRITERS_MAX: Final = 1 << 16
#: Members, branches, literals or flags of one type that a peer announces.
TYPE_MEMBERS_MAX: Final = 4_096
#: Characters that the macros of one IDL text stand for, all together.
IDL_EXPANSION_MAX: Final = 1 << 19
#: Positions of a stream log that files, clients and servers name are no higher.
LOG_POSITION_MAX: Final = 1 << 62
