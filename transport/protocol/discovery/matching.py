"""Whether two endpoints match, and to which addresses a peer may be sent. Pure functions."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from ...limits import LOCATORS_MAX
from ...qos import incompatibilities
from ...structure import LOCATOR_KIND_UDPV4, Locator, is_keyed
from .endpoint_data import EndpointData

_BROADCAST = ipaddress.IPv4Address("255.255.255.255")


def mismatches(
    writer: EndpointData, reader: EndpointData, of_types: Iterable[str] | None = None
) -> tuple[str, ...]:
    """The reasons why a writer and a reader of one topic do not match, one sentence each; empty if they match.

    ``of_types``: the reasons why their types do not match; None: types were not compared, and their names decide.
    """
    reasons = list(mismatches_by_name(writer, reader) if of_types is None else of_types)
    has_key = is_keyed(writer.guid.entity)
    if has_key != is_keyed(reader.guid.entity):
        # RTPS 2.5 table 9.1: the entity kind shows it. Cyclone DDS drops messages that mix the kinds.
        with_key, without = ("writer", "reader") if has_key else ("reader", "writer")
        reasons.append(f"KEY: the {with_key}'s type has a key, the {without}'s has none")
    reasons += incompatibilities(writer.qos, reader.qos)
    return tuple(reasons)


def mismatches_by_name(
    writer: EndpointData, reader: EndpointData, why: str = "their types are not known"
) -> tuple[str, ...]:
    """Compare the names of types that cannot be compared themselves, because of ``why`` (XTypes 1.3 §7.6.3.4.2)."""
    if reader.qos.type_consistency.force_type_validation:
        return (f"TYPE_CONSISTENCY: the reader forces type validation, and {why}",)
    if writer.type_name != reader.type_name:
        return (f"TYPE: the writer's is {writer.type_name!r}, the reader's is {reader.type_name!r}",)
    return ()


def usable_unicast(locators: Iterable[Locator], source_ip: str) -> tuple[Locator, ...]:
    """The unicast UDPv4 locators at which a peer at ``source_ip`` can be reached.

    If a peer names the address from which it sends, only that address is used: there are no duplicates over several
    interfaces, and fewer addresses that a forger could point to. Loopback addresses of a peer that does not send from
    loopback count only if it names no other (they would mean *our* loopback).
    """
    usable = _usable(locators, multicast=False)
    same = tuple(locator for locator in usable if locator.address == source_ip)
    if same:
        return same
    if not source_ip.startswith("127."):
        routed = tuple(locator for locator in usable if not locator.address.startswith("127."))
        return routed or usable
    return usable


def usable_multicast(locators: Iterable[Locator]) -> tuple[Locator, ...]:
    """The multicast UDPv4 locators of a list."""
    return _usable(locators, multicast=True)


def _usable(locators: Iterable[Locator], *, multicast: bool) -> tuple[Locator, ...]:
    found: dict[Locator, None] = {}
    for locator in locators:
        if locator.kind != LOCATOR_KIND_UDPV4 or not 0 < locator.port < 65_536:
            continue  # UDPv6, TCP, shared memory (Fast DDS: kind 16): not supported
        address = ipaddress.IPv4Address(locator.address)
        if address.is_multicast == multicast and not address.is_unspecified and address != _BROADCAST:
            found[locator] = None
    return tuple(found)[:LOCATORS_MAX]
