"""The TOML file of ``spark-rtps receive``: its tables and keys, and errors that name file, table, key and the fix."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ..transport.errors import UsageError

_FILE_BYTES_MAX: Final = 4 << 20


class ReceiverFileError(UsageError):
    """The file of a receiver service cannot be used; the message names file, table, key and the fix."""

    def __init__(self, file: Path, table: str, key: str, fix: str) -> None:
        self.file = file
        self.table = table
        self.key = key
        self.fix = fix
        place = " ".join(filter(None, (f"[{table}]" if table else "", key)))
        super().__init__(f"{file}: {place}: {fix}" if place else f"{file}: {fix}")


class ConfigFile:
    """One file: reads texts, paths and tables from it. Its errors are ReceiverFileErrors."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.raw = _parse(file)

    def table(self, name: str) -> dict[str, Any]:
        found = self.raw.get(name, {})
        if not isinstance(found, dict):
            raise self.error("", name, f"must be a table: [{name}]")
        return found

    def text(self, table: str, raw: Mapping[str, Any], key: str, default: str | None = None) -> str:
        found = raw.get(key, default)
        if found is None:
            raise self.error(table, key, "is missing; set it")
        if not isinstance(found, str) or not found or "\0" in found:
            raise self.error(table, key, "must be a text in quotes")
        return found

    def path(self, table: str, key: str, text: str) -> Path:
        try:
            return (self.file.parent / Path(text).expanduser()).absolute()
        except (RuntimeError, ValueError) as error:  # ~ of a user that does not exist
            raise self.error(table, key, str(error)) from None

    def check_keys(self, table: str, raw: Mapping[str, Any], known: Iterable[str]) -> None:
        for key in raw:
            if key not in known:
                raise self.unknown(table, key, list(known))

    def unknown(self, table: str, key: str, known: list[str]) -> ReceiverFileError:
        near = [name for name in known if name.rpartition(".")[2].lower() == key.lower()]
        near += difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known)[:12])}"
        return self.error(table, key, f"is unknown; {hint}")

    def error(self, table: str, key: str, fix: str) -> ReceiverFileError:
        return ReceiverFileError(self.file, table, key, fix)


def _parse(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _FILE_BYTES_MAX:
            raise ReceiverFileError(file, "", "", f"has more than {_FILE_BYTES_MAX >> 20} MiB")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReceiverFileError(file, "", "", f"cannot be read: {error.strerror}") from None
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError, and int()'s error for too many digits
        hint = ""
        if "overwrite" in str(error) or "namespace" in str(error):  # history = "…" and history.depth = …
            hint = '; where one option is the beginning of another, quote the longer one: "history.depth" = 5'
        raise ReceiverFileError(file, "", "", f"is not TOML: {error}{hint}") from None
