"""Types from files: IDL, with the files it includes, and ROS 2 definitions."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ..options.texts import path_of as option_path
from ..transport.errors import OptionError, TypeDefinitionError
from ..transport.types.model import Extensibility, Struct

_log = logging.getLogger("spark_rtps.datasource")

#: Suffixes of ROS 2 interface definitions; all else is IDL.
_ROS_SUFFIXES: Final = (".msg", ".srv", ".action")


def struct_of_file(
    file: str, wanted: str | None, extensibility: Extensibility, include_path: Iterable[str] = ()
) -> Struct:
    """The struct that ``type.file`` and ``type`` name; ``include_path`` has further folders to include from.

    Raises OptionError if the file cannot be read or has no such struct, TypeDefinitionError for errors in it.
    """
    path = path_of(file)
    if path.suffix in _ROS_SUFFIXES:
        return _ros_struct(path, wanted)
    structs = structs_of_idl(path, extensibility, include_path)
    if wanted is None:
        top = {name: t for name, t in structs.items() if not t.nested} or structs
        if len(top) != 1:
            raise OptionError("type", None, f"{path.name} defines {listed(top)}; name one")
        return next(iter(top.values()))
    return struct_named(structs, wanted, path.name)


def struct_named(structs: Mapping[str, Struct], wanted: str, where: str) -> Struct:
    """The struct that ``type`` names, with or without its modules; ``where`` names the place of definition in errors.

    Raises OptionError if there is none, or more than one.
    """
    names = [n for n in structs if n == wanted] or [n for n in structs if n.endswith(f"::{wanted}")]
    if len(names) == 1:
        return structs[names[0]]
    if names:
        raise OptionError("type", wanted, f"may be {listed(names)}; give the qualified name")
    near = difflib.get_close_matches(wanted, structs, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise OptionError("type", wanted, f"is no struct of {where}, which defines {listed(structs)}{hint}")


def structs_of_idl(
    path: Path, extensibility: Extensibility, include_path: Iterable[str] = ()
) -> dict[str, Struct]:
    """All structs of an IDL file, and of the files it includes, by their qualified names."""
    from ..transport.types.idl.parser import parse_idl  # tasks need no parser

    notes: list[str] = []
    folders = [path.parent, *map(path_of, include_path)]
    found = parse_idl(
        _read(path),
        str(path),
        extensibility=extensibility,
        include=lambda name: _included(folders, name),
        notes=notes,
    )
    for note in notes:
        _log.info("%s", note)
    return {name: t for name, t in found.items() if isinstance(t, Struct)}


def _ros_struct(path: Path, wanted: str | None) -> Struct:
    from ..transport.types.ros import parse_definition

    def definition(name: str) -> str | None:
        """The definition of another package's message: <root>/<package>/msg/<Name>.msg, beside this package."""
        package, kind, message = name.split("/")
        other = path.parent.parent.parent / package / kind / f"{message}.{kind}"
        return _read(other) if other.exists() else None

    package = path.parent.parent.name or "type"
    return parse_definition(
        _read(path), f"{package}/{path.suffix[1:]}/{path.stem}", wanted, definitions=definition
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError("type.file", str(path), f"cannot be read: {error}") from None


def _included(folders: Iterable[Path], name: str) -> str:
    """The text of an included file, which must lie in one of these folders or below it, even after following links.

    A file elsewhere is not accessed, so that errors do not reveal whether it exists. A link to a file with another
    suffix counts as elsewhere, because errors may quote the text of IDL files.
    """
    for folder in folders:
        root = folder.resolve()
        found = (root / name).resolve()
        if found.is_relative_to(root) and found.suffix == Path(name).suffix and found.is_file():
            try:
                return found.read_text(encoding="utf-8-sig")
            except UnicodeDecodeError:
                raise TypeDefinitionError("it is not UTF-8") from None
    where = listed(str(folder) for folder in folders)
    raise FileNotFoundError(f"there is no such file in {where}; type.include_path adds folders")


def path_of(file: str) -> Path:
    """The path that ``type.file`` names: a path, or a URL of the scheme ``file``."""
    return option_path("type.file", file)


def listed(names: Iterable[str]) -> str:
    """A list of names for an error."""
    return ", ".join(repr(name) for name in names) or "nothing"
