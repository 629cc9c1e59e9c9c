"""The headers before members that have one: @optional members in XCDR1, and all members of @mutable types."""

from __future__ import annotations

from typing import Final

# XCDR1 (XTypes 1.3 §7.4.1.2): a parameter's id with flags, and its length, of 16 bits each
PID_MASK: Final = 0x3FFF
PID_MUST_UNDERSTAND: Final = 0x4000
#: An id with flags and a length follow, of 32 bits each.
PID_EXTENDED: Final = 0x3F01
LONG_MUST_UNDERSTAND: Final = 1 << 30
PID_LIST_END: Final = 0x3F02

# XCDR2 (XTypes 1.3 §7.4.3.4.2), EMHEADER: must-understand, length code, member id
MUST_UNDERSTAND: Final = 1 << 31
LENGTH_CODE: Final = 28
#: The least length code with a NEXTINT, which has the length; with greater codes NEXTINT is the value's own first word.
NEXTINT: Final = 4

#: The member id in the long form of both versions.
MEMBER_ID_MASK: Final = (1 << 28) - 1
