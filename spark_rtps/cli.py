"""The command line: one file a command under ``commands/``; this one ties them together."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from . import __version__
from .transport.errors import RtpsError

#: Objects after which Python collects garbage; 700 by default. Joining a domain makes some 80,000.
_COLLECTED_AFTER: Final = 100_000

#: The commands in the order of the help: each is a module, and the name of the command's function in it.
_COMMANDS: Final = {
    "ls": "ls",
    "echo": "echo",
    "type": "show_type",
    "idl": "idl",
    "options": "options",
    "stat": "stat",
    "loss": "loss",
    "errors": "errors",
    "record": "record",
    "play": "play",
    "clean": "clean",
    "receive": "receive",
    "demo": "demo",
    "log": "app",
}


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is used: importing all of them takes longer than most commands
    run."""

    def __getitem__(self, name: str) -> Any:
        attribute = _COMMANDS[name]
        command = getattr(import_module(f".commands.{name}", __package__), attribute)
        alone = typer.Typer()
        if isinstance(command, typer.Typer):
            alone.add_typer(command, name=name)
        else:
            alone.command(name)(command)
        return typer.main.get_group(alone).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Group(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": _Commands()})


app = typer.Typer(
    name="spark-rtps",
    cls=_Group,
    help="Live DDS topics as Spark DataFrames, and DataFrames as live DDS topics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spark-rtps {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Live DDS topics as Spark DataFrames, and DataFrames as live DDS topics."""


def main() -> None:
    """The entry point of the console script: errors of this package are one line, not a traceback."""
    # Most of a short command is imports: they leave nothing to collect, and nothing here calls numpy's linear algebra.
    gc.set_threshold(_COLLECTED_AFTER)
    atexit.register(gc.freeze)  # at its end Python would look for garbage in all of it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except RtpsError as error:
        from .commands.tables import visible
        from .options.explanations import hint_of

        error.hint = hint_of(error)
        typer.secho(visible(f"error: {error}"), fg="red", err=True)
        sys.exit(1)
