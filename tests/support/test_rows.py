from __future__ import annotations

import pytest

from tests.support.rows import each_of


def test_a_failure_names_all_offenders() -> None:
    @each_of(range(5), name=lambda row: f"row {row}")
    def test_small(row: int) -> None:
        """Rows are small."""
        assert row != 1, "is one"
        if row == 4:
            raise ValueError("is four")
        if row == 3:
            with pytest.raises(ValueError):
                pass

    with pytest.raises(AssertionError) as caught:
        test_small()
    first, *offenders = str(caught.value).splitlines()
    assert first == "3 of 5 rows:"
    named = [line for line in offenders if line.startswith("row ")]
    assert [line.partition(":")[0] for line in named] == ["row 1", "row 3", "row 4"]
    assert "is one" in named[0] and "DID NOT RAISE" in named[1] and "is four" in named[2]
    assert test_small.__name__ == "test_small" and test_small.__doc__ == "Rows are small."


def test_sound_rows_pass_and_none_are_a_mistake() -> None:
    each_of([1, 2])(lambda row: None)()
    with pytest.raises(AssertionError, match="there is no row"):
        each_of([])
