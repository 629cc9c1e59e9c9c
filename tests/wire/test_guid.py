"""GUIDs as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.structure import Guid


@given(st.binary(min_size=16, max_size=16))
def test_a_printed_guid_is_parsed(raw: bytes) -> None:
    guid = Guid.from_bytes(raw)
    assert Guid.parse(str(guid)) == guid


@pytest.mark.parametrize("text", ["", "00" * 16, "00000000.00000000.00000000:0000000g", "0" * 35])
def test_other_text_is_none(text: str) -> None:
    assert Guid.parse(text) is None
