"""Offsets in a datagram that begins with a header and an INFO_TS, as most do (RTPS 2.5 §9.4.4, §9.4.5).

Offsets are in little-endian words of 4 bytes from the datagram's beginning, unless they are named as bytes.
"""

from __future__ import annotations

from typing import Final

from .info import INFO_TS_SIZE
from .message import FLAG_E, HEADER_SIZE, MAGIC
from .runs import INFO_TS_WORDS
from .submessages import DATA_HEADER_SIZE

#: Bytes before the first submessage behind the INFO_TS.
BODY: Final = HEADER_SIZE + INFO_TS_SIZE
#: The value of the first word of a datagram, and of an INFO_TS.
MAGIC_LE: Final = int.from_bytes(MAGIC, "little")
INFO_TS_LE: Final = INFO_TS_WORDS[FLAG_E]

#: The major version is the low byte of this word.
VERSION_WORD: Final = 1
MAJOR_VERSION: Final = 2
#: The GUID prefix has three words.
PREFIX_WORD: Final = 2
INFO_TS_WORD: Final = HEADER_SIZE // 4
#: The timestamp of the INFO_TS: seconds and fraction.
STAMP_WORD: Final = INFO_TS_WORD + 1
#: The submessage behind it: kind, flags and length; octetsToInlineQos; the ids; its sequence number if it is a DATA.
BODY_WORD: Final = BODY // 4
OCTETS_WORD: Final = BODY_WORD + 1
READER_WORD: Final = BODY_WORD + 2
WRITER_WORD: Final = BODY_WORD + 3
SN_HIGH_WORD: Final = BODY_WORD + 4
SN_LOW_WORD: Final = BODY_WORD + 5
#: The payload of a DATA without inline QoS, behind its header.
PAYLOAD_WORD: Final = BODY_WORD + DATA_HEADER_SIZE // 4

#: The words of all datagrams that identify their writer, and the kind and length of its submessage.
PREFIX_WORDS: Final = (PREFIX_WORD, PREFIX_WORD + 1, PREFIX_WORD + 2)
EQUAL_WORDS: Final = (*PREFIX_WORDS, BODY_WORD, OCTETS_WORD, READER_WORD, WRITER_WORD)
