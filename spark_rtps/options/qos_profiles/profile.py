"""A QoS profile: defaults for many options under one name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from ...transport.errors import OptionError
from ...transport.value_classes import value


@value
class Profile:
    """The texts of options by name; options that the user sets take precedence."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    #: Warnings about settings in the profile's file for which there is no option.
    warnings: tuple[str, ...] = ()


NO_PROFILE: Final = Profile("")


def unknown_profile(name: str, known: Iterable[str], what: str, more: str = "") -> OptionError:
    """An error that names the nearest of the known profiles, and all of them."""
    names = list(known)
    by_word = {n.lower(): n for n in names} | {n.rpartition("::")[2].lower(): n for n in names}
    near = difflib.get_close_matches(name.strip().lower(), by_word, n=1, cutoff=0.5)
    hint = f"did you mean {by_word[near[0]]!r}? " if near else ""
    return OptionError("qos.profile", name, f"{what}; {hint}there are {', '.join(names) or 'none'}{more}")
