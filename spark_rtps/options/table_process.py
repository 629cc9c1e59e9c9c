"""Options about the process: network, stream log, and how a sink waits."""

from __future__ import annotations

import mmap
from typing import Final

from ..transport.limits import MESSAGE_SIZE_LEAST, NETWORKS_MAX, STRING_MAX, UDP_PAYLOAD_MAX
from .spec import AppliesTo, OptionKind, OptionSpec

_READ, _WRITE = AppliesTo.READ, AppliesTo.WRITE

#: The shortest lease: a participant announces itself several times per lease, so that a shorter one would flood peers.
_LEASE_MIN: Final = 100_000_000

PROCESS_OPTIONS: Final[tuple[OptionSpec, ...]] = (
    # --- network --------------------------------------------------------------------------------------
    OptionSpec(
        "interface",
        OptionKind.TEXT,
        None,
        "Network interface to use, by name or address. Default: all interfaces except loopback; loopback "
        "if there is no other.",
    ),
    OptionSpec(
        "peers",
        OptionKind.LIST,
        None,
        "Hosts to which the participant announces itself by unicast, as `host` or `host:port`. Host names "
        "are resolved.",
    ),
    OptionSpec(
        "peers.allow",
        OptionKind.LIST,
        None,
        "IPv4 networks and addresses of the participants to listen to, such as `10.1.0.0/16, 10.2.0.7`. Datagrams "
        "from other addresses are dropped unread and counted as `drop.peer_not_admitted`: their participants are not "
        "discovered, and their messages are ignored. The address of this host is no exception: name it if its "
        "participants are to discover each other. Default: all.",
        maximum=NETWORKS_MAX,
    ),
    OptionSpec(
        "trust",
        OptionKind.WORD,
        "address",
        "Which messages in the name of a participant are trusted. `address`: those that come from an address of that "
        "participant; other messages are dropped and counted as `drop.foreign_address`, and data goes only to "
        "addresses from which the participant itself has sent messages. `any`: all of them, whatever their address, "
        "for networks in which relays or address translation (NAT) change addresses; then any host can send in the "
        "name of any other.",
        choices=("address", "any"),
    ),
    OptionSpec(
        "readers.allow",
        OptionKind.LIST,
        None,
        "IPv4 networks and addresses of the hosts whose readers a sink serves. A reader elsewhere does not match, like "
        "one with incompatible QoS, and is named in a warning. Data goes only to addresses in these networks, to "
        "multicast groups only if they are named. Default: all.",
        _WRITE,
        maximum=NETWORKS_MAX,
    ),
    OptionSpec(
        "multicast",
        OptionKind.BOOLEAN,
        "true",
        "Whether discovery uses multicast. `false`: samples are not sent by multicast either.",
    ),
    OptionSpec(
        "multicast.receive",
        OptionKind.TEXT,
        "auto",
        "Multicast group by which a source's reader receives samples, as `address` or `address:port`, and which it "
        "announces. Writers that have several readers in one group send each sample once. Without a port, the port "
        "is 7401 plus 250 times the `domain`. `off`: samples come by unicast only. `auto`: the domain's group "
        "239.255.0.1, or none if `multicast=false`, or if an interface in use is loopback, wireless or takes no "
        "multicast.",
    ),
    OptionSpec(
        "multicast.send",
        OptionKind.WORD,
        "auto",
        "Whether a sink sends samples to multicast groups. `auto`: to a group that several matched readers share, if "
        "they are on a network of this host and discovery reaches it by multicast from there; readers that are alone, "
        "or elsewhere, are sent copies of their own. `off`: every reader is sent copies of its own.",
        _WRITE,
        choices=("auto", "off"),
    ),
    OptionSpec(
        "multicast.ttl",
        OptionKind.INTEGER,
        "1",
        "Time to live of multicast datagrams. With `1` they stay on the network; each router on the way requires one "
        "more. Above 1 samples are sent to the groups of readers on other networks, too.",
        minimum=1,
        maximum=255,
    ),
    OptionSpec(
        "multicast.interface",
        OptionKind.TEXT,
        None,
        "The only one of the interfaces in use (`interface`) that joins multicast groups and sends to them, by name or "
        "address. Default: all of them do.",
    ),
    OptionSpec(
        "participant.name",
        OptionKind.TEXT,
        "spark-rtps",
        "Participant name that discovery tools show.",
        maximum=STRING_MAX - 1,
    ),
    OptionSpec(
        "participant.lease_duration",
        OptionKind.DURATION,
        "30s",
        "How long peers keep the participant after its last announcement. A query that is killed and back "
        "within two thirds of this time misses nothing of a volatile reliable topic. After Spark has "
        "ended a worker, peers still see its writers for this long.",
        minimum=_LEASE_MIN,
    ),
    OptionSpec(
        "leave_on_stop",
        OptionKind.BOOLEAN,
        "true",
        "Whether a query that is stopped announces to its topic's writers that it leaves, so that they no longer keep "
        "samples for it. `false`: it stays announced for `participant.lease_duration`, as if it were killed; reliable "
        "writers keep the samples that they write for it, and wait for it once their history is full. Started again "
        "on its checkpoint within two thirds of that time, the query misses nothing of a volatile reliable topic: the "
        "way to redeploy one.",
        _READ,
    ),
    OptionSpec(
        "receive_buffer",
        OptionKind.SIZE,
        "32MiB",
        "Size of the socket receive buffer requested from the kernel, which may grant less "
        "(`net.core.rmem_max`).",
        minimum=1,
        maximum=(1 << 30),
    ),
    OptionSpec(
        "send_buffer",
        OptionKind.SIZE,
        "4MiB",
        "Size of the socket send buffer requested from the kernel, which may grant less (`net.core.wmem_max`). A "
        "write waits while this many bytes wait for the network (Ice.UDP.SndSize of ZeroC Ice). It does not bound "
        "datagrams: see `mtu`.",
        minimum=1,
        maximum=(1 << 30),
    ),
    OptionSpec(
        "mtu",
        OptionKind.SIZE,
        "auto",
        "Maximum size of an IP packet. `auto`: the largest size that the interfaces carry without fragmentation, and "
        "63 KiB on loopback.",
        minimum=MESSAGE_SIZE_LEAST + 28,
        maximum=65_535,
    ),
    OptionSpec(
        "message_size_max",
        OptionKind.SIZE,
        str(UDP_PAYLOAD_MAX),
        "Maximum size of an RTPS message. Larger ones are dropped, counted, and logged with their sender. Our writers "
        "send none that are larger. The default is the maximum of UDP; Ice's is 1MB.",
        minimum=MESSAGE_SIZE_LEAST,
        maximum=UDP_PAYLOAD_MAX,
    ),
    # --- stream log -----------------------------------------------------------------------------------
    OptionSpec(
        "log.dir",
        OptionKind.TEXT,
        None,
        "Directory of the stream logs; each query has its own folder there. A query that restarts from a "
        "checkpoint needs the same directory. Default: `spark-rtps-<uid>` in the system's temporary "
        "directory, which must belong to the user and be closed to others.",
        _READ,
    ),
    OptionSpec(
        "log.mode",
        OptionKind.WORD,
        "0700",
        "Who else may enter the folder of a stream log, as the folder's mode. Its files follow: `0640` with "
        "`0750`. It is set whatever the umask, also in a `log.dir` that existed, and again when a query "
        "restarts. Tasks that run as another user than the driver, and others who call `spark-rtps stat`, "
        "need `0750` and a common group, or `0755`. With `0770` the group can also change the log.",
        _READ,
        choices=("0700", "0750", "0770", "0755"),
    ),
    OptionSpec(
        "log.max_bytes",
        OptionKind.SIZE,
        "4GiB",
        "Maximum size of a stream log between Spark's commits; `on_log_full` says what happens while it is full. A "
        "micro-batch takes at most half of it.",
        _READ,
        minimum=16 << 20,
    ),
    OptionSpec(
        "on_log_full",
        OptionKind.WORD,
        "hold",
        "What happens to samples for which there is no space in the stream log: it has reached `log.max_bytes`, or "
        "its disk is full. `hold`: reliable writers are held back until Spark commits, so that nothing is lost, and "
        "writes of peers may time out; best-effort samples are dropped and counted. `drop`: samples are acknowledged, "
        "dropped and counted, and no writer waits; it needs `failOnDataLoss=false`. `fail`: the query fails and its "
        "reader leaves, so that no writer waits. A warning names the reliable writers when the log is three quarters "
        "full. With `retention=bytes` or `time` the oldest samples are trimmed before the log is full.",
        _READ,
        choices=("hold", "drop", "fail"),
    ),
    OptionSpec(
        "log.segment_bytes",
        OptionKind.SIZE,
        "64MiB",
        "Size of one segment file of a new stream log; a quarter of `log.max_bytes` if that is less and this is not "
        "set. A restarted query keeps the size that its log began with.",
        _READ,
        minimum=mmap.PAGESIZE,  # of which a segment is made
    ),
    OptionSpec(
        "log.retention",
        OptionKind.DURATION,
        "7d",
        "How long the log of an ended query is kept in `log.dir` after its last change, for a restart from the query's "
        "checkpoint. A query removes older ones when it starts and every ten minutes, and `spark-rtps clean` at once. "
        "Where Spark made the checkpoint in its temporary directory, the samples go when the query ends.",
        _READ,
    ),
    OptionSpec(
        "log.retention_bytes",
        OptionKind.SIZE_LIMIT,
        "unlimited",
        "Maximum disk space of all logs of ended queries in `log.dir` together. The oldest are removed first, at the "
        "times that `log.retention` names; a log that has changed in the last ten minutes is not removed. A query "
        "whose log is gone cannot resume from its checkpoint without loss; therefore the default is no limit.",
        _READ,
    ),
    OptionSpec(
        "retention",
        OptionKind.WORD,
        "bytes",
        "Which samples a receiver service (`spark-rtps receive`) keeps in a log. `bytes`: as many as `log.max_bytes` "
        "holds; the oldest samples are trimmed when the log is full, and writers never wait for space. `time`: those "
        "that were received within `retention.time`, and no more than `log.max_bytes`. `committed`: all that a "
        "consumer group has not committed; while the log is full, reliable writers are slowed down. The receiver of a "
        "query always keeps the samples that Spark has not committed.",
        _READ,
        choices=("bytes", "time", "committed"),
    ),
    OptionSpec(
        "retention.time",
        OptionKind.DURATION,
        None,
        "How long a receiver service with `retention=time` keeps a sample, counted from its reception.",
        _READ,
        minimum=1_000_000_000,
    ),
    # --- tasks on other hosts -----------------------------------------------------------------------
    OptionSpec(
        "serve.address",
        OptionKind.TEXT,
        "auto",
        "IPv4 address of the driver's host at which tasks on other hosts fetch the samples they read; `0.0.0.0`: all "
        "addresses of that host. Tasks on the driver's host read the stream log from the disk. `auto`: all addresses, "
        "or only 127.0.0.1 where `interface` names a loopback interface; the server starts when a task first "
        "connects. `none`: the log is not served, and all tasks have to run on the driver's host.",
        _READ,
    ),
    OptionSpec(
        "serve.port",
        OptionKind.INTEGER,
        "0",
        "TCP port at which the driver's host serves the stream log (`serve.address`); `0`: any free port.",
        _READ,
        minimum=0,
        maximum=65_535,
    ),
    OptionSpec(
        "serve.certificate",
        OptionKind.TEXT,
        None,
        "PEM file on the driver's host with the certificate for TLS at `serve.address`. Tasks trust this certificate, "
        "and no other. Default: samples are sent to tasks on other hosts unencrypted, and to any client that knows "
        "the query's random token.",
        _READ,
    ),
    OptionSpec(
        "serve.key",
        OptionKind.TEXT,
        None,
        "PEM file with the private key of `serve.certificate`, without a passphrase.",
        _READ,
    ),
    # --- sink -----------------------------------------------------------------------------------------
    OptionSpec(
        "on_no_reader",
        OptionKind.WORD,
        "wait",
        "`wait`: a task waits up to `connect_timeout` for a reader and then fails; it also fails if "
        "readers left without having acknowledged data that no other reader has. `drop`: rows go only to "
        "the readers that are there. With either value a new worker process first looks for readers for "
        "one second.",
        _WRITE,
        choices=("wait", "drop"),
    ),
    OptionSpec(
        "connect_timeout",
        OptionKind.DURATION,
        "10s",
        "How long a task waits for a first reader with `on_no_reader=wait`.",
        _WRITE,
    ),
    OptionSpec(
        "acknowledgment_timeout",
        OptionKind.DURATION,
        "30s",
        "How long a task waits at its end for every matched reliable reader to acknowledge all samples, "
        "before it fails.",
        _WRITE,
    ),
)
