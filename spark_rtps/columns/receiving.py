"""The configuration of the receiver that fills one stream log, from the settings and the plan of its reader."""

from __future__ import annotations

from pathlib import Path

from ..options import Payload, Settings
from ..options.explanations import RECEIVER_HINTS
from ..options.participants import node_config
from ..transport.qos import Qos
from ..transport.receiver.config import ReceiverConfig
from ..transport.types.idl.printer import print_idl
from .topic_plan import TopicPlan, announced_type, endpoint_qos


def receiver_config(
    settings: Settings,
    plan: TopicPlan,
    directory: Path,
    *,
    records_writer_types: bool | None = None,
    ephemeral: bool = False,
) -> ReceiverConfig:
    """A receiver that appends to the log in ``directory``.

    ``records_writer_types``: whether the log keeps the types that writers announce; None: it does if the plan's type is
    a guess.
    """
    guessed = plan.payload is Payload.CDR and not plan.announced
    return ReceiverConfig(
        log_directory=str(directory),
        topic=plan.topic,
        type_name=plan.type_name if plan.named else None,
        keyed=_keyed(settings.qos, plan),
        qos=endpoint_qos(settings, plan),
        left_to_writers=settings.left_to_writers,
        policy=settings.reader_policy,
        type=None if plan.struct is None else (print_idl(plan.struct), plan.struct.name),
        announces_type=announced_type(settings, plan) is not None,
        records_writer_types=(guessed if records_writer_types is None else records_writer_types) or plan.many,
        reports_instances=plan.struct is not None and plan.keyed and settings.qos.reports_instances,
        filter=None if plan.filter is None else (plan.filter.expression, plan.filter.parameters),
        slice=settings.slice,
        topics=settings.topics,
        accept_writer_removed_batch_samples=settings.accept_writer_removed_batch_samples,
        node=node_config(settings),
        log_max_bytes=settings.log_max_bytes,
        log_segment_bytes=settings.log_segment_bytes,
        log_mode=settings.log_mode,
        on_log_full=settings.on_log_full,
        consumption=settings.consumption,
        spy=settings.spy,
        ephemeral=ephemeral,
        hints=RECEIVER_HINTS,
    )


def _keyed(qos: Qos, plan: TopicPlan) -> bool | None:
    """Whether the reader has a key; None: as the first writer has. Policies that distinguish instances need a bool."""
    return plan.keyed if plan.named or plan.keyed or qos.reports_instances else None
