"""The query to which a stream log belongs: tasks know its id and name, and note them in a sidecar file.

Spark tells neither to a source. A task finds both in the description that Spark gives the jobs of a query.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

from ..transport.log.small_file import replace_text
from ..transport.value_classes import value

QUERY_FILE: Final = "query"
#: ``name<br/>id = <uuid><br/>runId = ...``; a query without a name has no first line.
_DESCRIPTION: Final = re.compile(r"(?:(?P<name>.*?)(?:<br/>|\n))?id = (?P<id>[0-9a-f-]{36})\b.*", re.DOTALL)
_TEXT_MAX: Final = 1_024


@value
class QueryName:
    """A query by its id, which it keeps over restarts, and its name; empty: it is not known, or has none."""

    id: str = ""
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.id


NO_QUERY: Final = QueryName()
#: The queries noted or read last, by file and inode: tasks note theirs repeatedly.
_NOTED: Final[dict[str, tuple[int, QueryName]]] = {}
_NOTED_MAX: Final = 64


def query_of(description: str | None) -> QueryName | None:
    """The query whose job has this description; None: the job is not a query's."""
    match = _DESCRIPTION.match(description or "")
    return None if match is None else QueryName(match["id"], (match["name"] or "")[:_TEXT_MAX])


def note_query(directory: Path, query: QueryName) -> None:
    """Note that the log in ``directory`` is this query's, if the log lies here. Errors are ignored."""
    try:
        _note(directory, query)
    except OSError:
        pass  # only `spark-rtps errors` would show it


def _note(directory: Path, query: QueryName) -> None:
    path = os.path.join(directory, QUERY_FILE)
    noted = _NOTED.get(path)
    if noted is not None and noted[1] == query and noted[0] == _inode(path):
        return
    if not os.path.isdir(directory):
        return
    if read_query(directory) != query:
        replace_text(directory / QUERY_FILE, json.dumps({"id": query.id, "name": query.name}))
    if len(_NOTED) >= _NOTED_MAX:
        _NOTED.clear()
    _NOTED[path] = _inode(path), query


def _inode(path: str) -> int:
    """The inode of a file: a replaced file has another number. 0: there is none."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def read_query(directory: Path) -> QueryName:
    """The query of the log in ``directory``; an empty one if that is not known."""
    try:
        found = json.loads((directory / QUERY_FILE).read_bytes())
        return QueryName(str(found["id"])[:_TEXT_MAX], str(found["name"])[:_TEXT_MAX])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return NO_QUERY
