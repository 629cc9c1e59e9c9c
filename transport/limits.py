"""Every bound on the memory, work and traffic that a peer can cause.

A counter of the thing that is bounded shows when a bound is reached; no bound is an option.
"""

from __future__ import annotations

from typing import Final

#: Largest UDP payload over IPv4 (65,535 - 20 IP - 8 UDP).
UDP_PAYLOAD_MAX: Final = 65_507
#: Work to process one message, in units of about a microsecond: several times the work of an honest message.
MESSAGE_WORK_MAX: Final = 12_000
#: SPDP samples accepted in one message; peers send one.
ANNOUNCEMENTS_PER_MESSAGE_MAX: Final = 8
#: Bytes of the largest datagram that we send: 63 KiB, for loopback and jumbo links.
MESSAGE_SIZE_MAX: Final = 64_512
#: Messages, and bytes, of one GSO buffer that a writer frames and keeps.
GSO_MESSAGES_MAX: Final = 256
GSO_BYTES_MAX: Final = 256 << 10
#: Bytes of one GSO buffer of fragments; a single sample may be longer.
GSO_FRAGMENT_BYTES_MAX: Final = 1 << 20
#: Samples whose last fragments share a message; a reader reassembles this many at a time.
GROUP_SAMPLES_MAX: Final = 8
#: Bytes of a message that every peer accepts, whatever it announces; discovery messages are no longer.
MESSAGE_SIZE_LEAST: Final = 1_200
#: Serialized bytes in one fragment of a DATA_FRAG; with its headers it stays below MESSAGE_SIZE_MAX.
FRAGMENT_SIZE: Final = 63_488
#: Bits in a SequenceNumberSet or FragmentNumberSet (RTPS 2.5 §8.3.5.5).
NUMBER_SET_BITS: Final = 256

PARTICIPANTS_MAX: Final = 1_024
#: Participants that send from one address: a robot with 200 ROS 2 nodes in as many processes has 200, and several
#: containers behind one address have more. The other half of the capacity is for other addresses.
PARTICIPANTS_PER_ADDRESS_MAX: Final = 512
#: Participants remembered because they addressed us before their announcement came.
EARLY_MESSAGES_MAX: Final = 256
#: Open challenges: whether a participant behind NAT receives at an address that it announces.
CHALLENGES_MAX: Final = 256
#: Datagrams kept of each participant whose address is not proven yet, and bytes of each datagram.
HELD_DATAGRAMS_MAX: Final = 4
HELD_DATAGRAM_BYTES_MAX: Final = 2_048
#: Endpoints of one participant, and of all participants that send from one address. A robot with 200 ROS 2 nodes in as
#: many processes has some 200 participants of 20 to 40 endpoints; as one process, one participant of 4,000.
ENDPOINTS_PER_PARTICIPANT_MAX: Final = 4_096
ENDPOINTS_PER_ADDRESS_MAX: Final = 16_384
#: Deleted endpoints of ours whose disposals are kept for participants discovered later, which may know the endpoints.
DISPOSED_ENDPOINTS_MAX: Final = 256
#: Matched readers of a sink that `spark-rtps stat` shows one by one.
READERS_SHOWN_MAX: Final = 32
#: Matched writers of a source that `spark-rtps stat` shows one by one.
WRITERS_SHOWN_MAX: Final = 32
#: Serialized bytes of the announcements that a receiver stores to recognise participants after a restart.
KNOWN_PARTICIPANTS_BYTES_MAX: Final = 1 << 20
LOCATORS_MAX: Final = 16
#: Addresses in the cache of "is this address in one of the networks", and networks in one such list.
ADDRESSES_REMEMBERED_MAX: Final = 4_096
NETWORKS_MAX: Final = 256
#: Memory of remote endpoints: serialized bytes, and about a KiB of overhead each. Of all endpoints, of one address, of
#: one participant; endpoints on topics that nothing here uses take three quarters of it at most.
ENDPOINT_BYTES_MAX: Final = 64 << 20
ENDPOINT_BYTES_PER_ADDRESS_MAX: Final = 32 << 20
ENDPOINT_BYTES_PER_PARTICIPANT_MAX: Final = 16 << 20
STRING_MAX: Final = 4_096
#: Parameters in one list; a list reassembled from fragments is not bounded by a datagram.
PARAMETERS_MAX: Final = 1_024
PARTITIONS_MAX: Final = 256
USER_DATA_MAX: Final = 65_536
#: A longer lease is shortened to this (a day), so that a hostile lease cannot pin memory.
LEASE_MAX_NS: Final = 86_400 * 1_000_000_000
#: Bounds on the lease of a participant without a matched endpoint, so that it is neither found and lost repeatedly nor
#: kept for a day. A participant that announces itself less often is found again with its next announcement.
UNMATCHED_LEASE_MIN: Final = 3 * 1_000_000_000
UNMATCHED_LEASE_MAX: Final = 3_600 * 1_000_000_000

#: Bytes of out-of-order samples that a reader keeps while it waits for the missing ones: of one writer, of all writers.
REORDER_WRITER_BYTES_MAX: Final = 32 << 20
REORDER_BYTES_MAX: Final = 256 << 20
#: Separate holes tracked per writer.
REORDER_RUNS_MAX: Final = 4_096
#: Ranges of consecutive numbers, each of one coherent set, in one batch; writers of batches skip few numbers.
RUNS_PER_BATCH_MAX: Final = 256
#: Bytes, and messages, of a coherent set of our writers; our readers hold the set in their reorder buffers.
COHERENT_SET_BYTES_MAX: Final = REORDER_WRITER_BYTES_MAX * 3 // 4
COHERENT_SET_MESSAGES_MAX: Final = REORDER_RUNS_MAX // 2
#: Bytes of one fragmented sample; bytes and number of all incomplete samples of a reader. Memory is allocated
#: as fragments arrive, and the largest sample leaves space for samples of other participants.
FRAGMENTED_SAMPLE_MAX: Final = 256 << 20
FRAGMENTED_BYTES_MAX: Final = 384 << 20
FRAGMENTED_SAMPLES_MAX: Final = 64

#: Bytes of one asynchronous writer that wait for tokens; each datagram counts with its overhead.
FLOW_CONTROLLER_BYTES_MAX: Final = 4 << 20

#: Reasons of mismatches that one process logs, each once.
MISMATCHES_LOGGED_MAX: Final = 256
#: Events that the owner has not fetched yet.
EVENTS_MAX: Final = 65_536
#: Writers whose instances a subscription tracks.
INSTANCE_WRITERS_MAX: Final = 1_024
#: Instances that a reader or writer tracks, where a policy needs them.
INSTANCES_MAX: Final = 1 << 18
#: A smaller announced term window counts as this one: a reader sends a status message for each quarter of the window.
TERM_WINDOW_LEAST: Final = 16 << 10
#: Changes whose positions in the publication log a writer remembers.
SEQUENCE_POSITIONS_MAX: Final = 16_384
#: Topics that one receiver follows at a time, since peers choose their names; a warning names the others.
TOPICS_MAX: Final = 1_024
#: Writers remembered per stream log; the one silent for longest is forgotten first.
WRITERS_MAX: Final = 8_192
#: Nesting depth of types, as in Arrow's own files.
TYPE_DEPTH_MAX: Final = 64
#: A serialized TypeObject, and one of XTypes 1.1 uncompressed.
TYPE_OBJECT_BYTES_MAX: Final = 1 << 20
#: Types inside a type, counted each time that one is used: a few small type objects can expand to millions.
TYPE_NODES_MAX: Final = 1 << 16
#: Words of an IDL text, its includes and its expanded macros.
IDL_WORDS_MAX: Final = 1 << 22
#: Pairs of types whose comparison is cached; a thousand endpoints have few types.
TYPE_COMPARISONS_MAX: Final = 1_024
#: Reasons given why two types do not match.
TYPE_REASONS_MAX: Final = 16
#: Parameters of one content filter (DDS-SQL names them %0 to %99).
FILTER_PARAMETERS_MAX: Final = 100
#: Types requested in one TypeLookup request: of a peer, of ours.
TYPE_LOOKUP_IDS_MAX: Final = 4_096
TYPE_LOOKUP_ASKED_MAX: Final = 64
#: Participants that are sent TypeLookup requests at a time.
TYPE_LOOKUP_PEERS_MAX: Final = 32
#: Bytes of a request, of a reply, of a reply of ours; a reply of ours is longer only if a single type is.
TYPE_LOOKUP_REQUEST_BYTES_MAX: Final = 128 << 10
TYPE_LOOKUP_REPLY_BYTES_MAX: Final = 4 << 20
TYPE_LOOKUP_REPLY_BYTES: Final = 32 << 10
#: Types in one reply to getTypeDependencies; octets of the continuation point for the next reply.
TYPE_LOOKUP_DEPENDENTS_MAX: Final = 1_024
CONTINUATION_POINT_MAX: Final = 32
#: Serialized bytes, and number, of the types of one endpoint.
RESOLVED_TYPE_BYTES_MAX: Final = 2 << 20
RESOLVED_TYPE_OBJECTS_MAX: Final = 2_048
#: Serialized bytes of all known types of remote endpoints, and of the type objects kept for later endpoints.
RESOLVED_BYTES_MAX: Final = 32 << 20
TYPE_OBJECTS_BYTES_MAX: Final = 32 << 20
#: Bytes of unacknowledged TypeLookup replies; above it requests are not answered.
TYPE_LOOKUP_BACKLOG_MAX: Final = 4 << 20
#: Pairs of a writer and a reason by which each stream log counts malformed samples; bytes of a reason.
MALFORMED_REASONS_MAX: Final = 256
MALFORMED_REASON_MAX: Final = 500
#: Lost parts of a stream log that are listed one by one; of further ones only the number is kept.
LOST_PARTS_MAX: Final = 1024
#: Damaged parts of a stream log that a command lists; of further ones only the number is shown.
DAMAGE_LISTED_MAX: Final = 1024
#: Sources and sinks in one offset of a source of statuses.
STATUS_ENDPOINTS_MAX: Final = 1024
#: Nesting depth of a content filter.
FILTER_DEPTH_MAX: Final = 64
#: Unknown encapsulations that the reasons of one decode call distinguish.
UNKNOWN_ENCAPSULATIONS_MAX: Final = 16
#: Leaf values of the list elements of one sample, plus some for each of its bytes; absent members count as none.
LIST_LEAVES_MAX: Final = 1 << 19
LIST_LEAVES_PER_BYTE_MAX: Final = 8
#: Leaf values of about 8 bytes that one decode call may produce: as many as a chunk of the log has bytes; names of enum
#: literals count by their length. More are decoded in several calls; a single sample that produces more than the second
#: bound is malformed.
DECODE_LEAVES_MAX: Final = 1 << 23
SAMPLE_LEAVES_MAX: Final = 1 << 29
#: Bytes of memory for the Arrow batches of one sample, plus some bytes for each byte of the sample.
ARROW_BATCH_BYTES_MAX: Final = 256 << 20
ARROW_BATCH_BYTES_PER_BYTE_MAX: Final = 16
#: Elements that Python skips in one decode call (about half a microsecond each).
DECODE_STEPS_MAX: Final = 1 << 22
#: Unknown members that are skipped in one struct before it counts as malformed.
UNKNOWN_MEMBERS_MAX: Final = 1_024
#: Distinct writer types that a receiver records for tasks without a given type. Samples of further types are read by
#: the type that the given columns make.
WRITER_TYPES_MAX: Final = 256
#: Writers per log whose types and topics are recorded. Samples of further writers are dropped and counted.
TYPED_WRITERS_MAX: Final = 1 << 16
#: Members, branches, literals or flags of one type that a peer announces.
TYPE_MEMBERS_MAX: Final = 4_096
#: Characters of all expanded macros of one IDL text.
IDL_EXPANSION_MAX: Final = 1 << 19
#: The highest position of a stream log that a file, a client or a server may name.
LOG_POSITION_MAX: Final = 1 << 62
