"""What mends a mismatch, in the words of the options: for the side that says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: What to set at a reader.
READER_FIXES: Final = {
    "TYPE": "set the option type (or type.name) to the writer's",
    "KEY": "name the key columns in the option key (keyed=true for payload=binary), or use an IDL with @key",
    "RELIABILITY": "set reliability=best_effort",
    "DURABILITY": "set durability=volatile (startingOffsets=latest)",
    "PARTITION": "set the option partition",
    "PRESENTATION": "set presentation.access_scope, .coherent_access and .ordered_access to what the writer offers",
    "DEADLINE": "set deadline=infinite",
    "LATENCY_BUDGET": "set latency_budget=infinite",
    "LIVELINESS": "set liveliness=automatic, or to what the writer offers",
    "LIVELINESS lease_duration": "set liveliness.lease_duration=infinite",
    "OWNERSHIP": "set ownership to the writer's",
    "DESTINATION_ORDER": "set destination_order=by_reception_timestamp",
}
#: What to set at a writer.
WRITER_FIXES: Final = {
    "TYPE": "set the option type (or type.name) to the reader's",
    "TYPE_CONSISTENCY": "write the reader's type: give it as type.file",
    "KEY": "name the key columns in the option key, or use an IDL with @key",
    "RELIABILITY": "set reliability=reliable",
    "DURABILITY": "set durability=transient_local",
    "PARTITION": "set the option partition",
    "PRESENTATION": "set presentation.access_scope, .coherent_access and .ordered_access to what the reader requests",
    "DEADLINE": "set deadline to what the reader requests, or less",
    "LATENCY_BUDGET": "set latency_budget to what the reader requests, or less",
    "LIVELINESS": "set liveliness to what the reader requests",
    "LIVELINESS lease_duration": "set liveliness.lease_duration to what the reader requests, or less",
    "OWNERSHIP": "set ownership to the reader's",
    "DESTINATION_ORDER": "set destination_order=by_source_timestamp",
    "DATA_REPRESENTATION": "set data_representation to what the reader takes",
}


def explained(reasons: Sequence[str], fixes: Mapping[str, str]) -> str:
    """The reasons of a mismatch, and what mends it on this side."""
    mended_by = [fixes[kind] for kind in (reason.partition(":")[0] for reason in reasons) if kind in fixes]
    return "; ".join(reasons) + (f" ({', '.join(mended_by)})" if mended_by else "")
