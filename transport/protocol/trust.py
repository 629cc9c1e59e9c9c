"""From which addresses a participant of a given name is believed to speak."""

from __future__ import annotations

import enum
from typing import Final

_LOG: Final = "log of "


class Trust(enum.StrEnum):
    """What a message is believed by, beside the GUID prefix that it names."""

    #: It must come from an address of the participant that it names.
    ADDRESS = "address"
    #: Addresses are not looked at.
    ANY = "any"


def source_of_log(prefix: bytes) -> str:
    """The source of messages that were read from a publication log of this participant.

    They are no datagrams: that the log is this participant's was found out by its file and its token. It is no address,
    so that nothing from the network has this source.
    """
    return _LOG + prefix.hex()


def is_address(source: str) -> bool:
    """Whether a source is one of datagrams."""
    return not source.startswith(_LOG)
