"""Options about receiver services: their addresses, the credentials of a query, and where it starts and ends."""

from __future__ import annotations

from typing import Final

from .spec import AppliesTo, OptionKind, OptionSpec

_READ: Final = AppliesTo.READ

RECEIVER_OPTIONS: Final = (
    OptionSpec(
        "receivers",
        OptionKind.LIST,
        None,
        "Receiver services (`spark-rtps receive`) to read from, each as a name, an equals sign and `host:port`; the "
        "query joins no DDS network. The names are those of the offsets in the checkpoint: an address may change, a "
        "name may not. Options that the subscription of a receiver decides, such as QoS and interfaces, cannot be set "
        "by the query unless `receiver.subscribe` is true. Default: the query has a receiver of its own, on the "
        "driver's host.",
        _READ,
        maximum=256,
    ),
    OptionSpec(
        "receiver.subscription",
        OptionKind.TEXT,
        None,
        "Name of the subscription at the receiver services. Default: the only one with the query's topic.",
        _READ,
        maximum=128,
    ),
    OptionSpec(
        "receiver.subscribe",
        OptionKind.BOOLEAN,
        "false",
        "Ask the receiver services for a subscription with the options of this query: QoS, filter, interfaces and "
        "`log.*`. The token needs the role admin. A subscription that receives the same is shared; else one is "
        "created, which stays when the query ends. `false`: the query reads an existing subscription.",
        _READ,
    ),
    OptionSpec(
        "receiver.group",
        OptionKind.TEXT,
        None,
        "Consumer group in which a streaming query commits what it has processed at receiver services. Default: a "
        "random name, which is kept in the checkpoint.",
        _READ,
        maximum=128,
    ),
    OptionSpec(
        "receiver.timeout",
        OptionKind.DURATION,
        "60s",
        "How long a receiver service may be out of reach. Until then the query continues with the others; after that "
        "it fails, or continues with a warning if `failOnDataLoss` is false.",
        _READ,
        minimum=0,
    ),
    OptionSpec(
        "receiver.token",
        OptionKind.TEXT,
        None,
        "Token that receiver services ask for. Default: that of `receiver.token.file`, else that of the environment "
        "variable `SPARK_RTPS_TOKEN` on the driver.",
        _READ,
    ),
    OptionSpec(
        "receiver.token.file",
        OptionKind.TEXT,
        None,
        "File on the driver's host with the token that receiver services ask for.",
        _READ,
    ),
    OptionSpec(
        "receiver.ca",
        OptionKind.TEXT,
        None,
        "PEM file on the driver's host with the certificates to trust in receiver services; with it, connections use "
        "TLS. Default: connections are not encrypted.",
        _READ,
    ),
    OptionSpec(
        "receiver.certificate",
        OptionKind.TEXT,
        None,
        "PEM file on the driver's host with a certificate to show to receiver services with `client_ca`, which grant "
        "the role in `client_role` to clients that show one; no token is needed then. Requires `receiver.key` and "
        "`receiver.ca`.",
        _READ,
    ),
    OptionSpec(
        "receiver.key",
        OptionKind.TEXT,
        None,
        "PEM file on the driver's host with the private key of `receiver.certificate`, without a passphrase. Tasks get "
        "the key itself, as they get the token.",
        _READ,
    ),
    OptionSpec(
        "startingTimestamp",
        OptionKind.TEXT,
        None,
        "Where a new query of receiver services starts: with the first sample received at or after this time, which "
        "is ISO 8601 (UTC unless it says otherwise) or milliseconds since 1970.",
        _READ,
    ),
    OptionSpec(
        "endingOffsets",
        OptionKind.OFFSETS,
        None,
        'Where `spark.read` of receiver services ends: `latest`, or JSON that has a position or `"latest"` for each '
        "receiver, as `startingOffsets`. The sample at the position is not read. Default: `latest`, the end of what "
        "is recorded when the read starts.",
        _READ,
        choices=("latest",),
    ),
    OptionSpec(
        "endingTimestamp",
        OptionKind.TEXT,
        None,
        "Where `spark.read` of receiver services ends: before the first sample received at or after this time, "
        "written as for `startingTimestamp`. Default: as for `endingOffsets`.",
        _READ,
    ),
)
