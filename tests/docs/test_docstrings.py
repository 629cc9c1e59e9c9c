"""Everything public has a docstring: the names of ``spark_rtps``, their members, and the modules they come from."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType

import pytest

import spark_rtps
from tests.support.rows import each_of

#: Characters of the shortest sentence that can say what something is.
SHORTEST = 15


def documented(name: str) -> Iterator[tuple[str, object]]:
    """What a public name asks docstrings of: itself, its module, and for a class its public members."""
    thing = getattr(spark_rtps, name)
    module = sys.modules[thing.__module__] if hasattr(thing, "__module__") else None
    if module is not None and is_ours(module.__name__):
        yield module.__name__, module
    if inspect.isclass(thing):
        yield name, thing
        yield from ((f"{name}.{member}", value) for member, value in members(thing))
    elif inspect.isroutine(thing) or inspect.ismodule(thing):
        yield name, thing


def members(owner: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties of a class, those it has from classes of ours included."""
    for member in dir(owner):
        holder = next((each for each in owner.__mro__ if member in vars(each)), owner)
        if member.startswith("_") or not is_ours(holder.__module__):
            continue
        value = vars(holder)[member]
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        if isinstance(value, property | cached_property) or inspect.isroutine(value):
            yield member, (owner, member, value)


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == spark_rtps.__name__


def public_names_of(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Classes and functions that a module defines, with the members of the classes."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value) or inspect.isroutine(value):
            yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            yield from ((f"{module.__name__}.{name}.{member}", each) for member, each in members(value))


def everything() -> dict[str, object]:
    found: dict[str, object] = {spark_rtps.__name__: spark_rtps}
    for name in spark_rtps.__all__:
        found |= documented(name)
    for module in [each for each in found.values() if inspect.ismodule(each)]:
        found |= public_names_of(module)
    return found


def fault_of(thing: object) -> str | None:
    """What is wrong with a docstring; None if nothing is."""
    if isinstance(thing, tuple):
        owner, member, value = thing
        # what overrides a documented method of Spark's is described there
        text = value.__doc__ or inspect.getdoc(getattr(owner, member))
    else:
        text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    first = (text or "").strip().partition("\n")[0].strip()
    if not first:
        return "no docstring"
    if len(first) < SHORTEST:
        return f"too short: {first!r}"
    if not first.endswith("."):
        return f"the first line is no sentence with a period: {first!r}"
    return None


PUBLIC = everything()


@each_of(PUBLIC)
def test_public_names_have_a_docstring(name: str) -> None:
    assert fault_of(PUBLIC[name]) is None


def test_every_public_name_is_looked_at() -> None:
    names = {name for name in spark_rtps.__all__ if callable(getattr(spark_rtps, name))}
    assert names <= set(PUBLIC)


class Base:
    """A class that others are made from."""

    def inherited(self) -> None:
        """Does what the base does."""

    def bare(self) -> None: ...

    @property
    def short(self) -> int:
        """Too short."""
        return 0

    @classmethod
    def unfinished(cls) -> None:
        """A line that does not end here
        but here."""

    def _private(self) -> None: ...


class Derived(Base):
    def inherited(self) -> None: ...


def test_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_rtps, "__name__", __name__.partition(".")[0])
    faults = {name: (fault_of(thing) or "").partition(":")[0] for name, thing in members(Derived)}
    assert faults == {
        "inherited": "",
        "bare": "no docstring",
        "short": "too short",
        "unfinished": "the first line is no sentence with a period",
    }
    assert fault_of(Base) is None
    assert fault_of(Derived) == "no docstring"
