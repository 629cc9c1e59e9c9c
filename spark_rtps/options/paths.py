"""Paths as options name them: ``~`` is a home directory, and URLs of the scheme ``file`` are paths, too."""

from __future__ import annotations

from pathlib import Path

from ..transport.errors import OptionError


def path_of(option: str, text: str) -> Path:
    """The path. Raises OptionError for the home directory of a user whom the host does not know."""
    try:
        return Path(text.removeprefix("file://")).expanduser()
    except RuntimeError:
        fix = "begins with a home directory that is not known; write the whole path"
        raise OptionError(option, text, fix) from None
