"""The command line: one file a command under ``commands/``; this one ties them together."""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated, Final

import typer

from . import __version__
from .commands import (
    clean,
    demo,
    echo,
    errors,
    idl,
    log,
    loss,
    ls,
    options,
    play,
    receive,
    record,
    stat,
    type,
)
from .transport.errors import RtpsError

#: Objects after which Python looks for garbage; 700 by default.
_COLLECTED_AFTER: Final = 50_000

app = typer.Typer(
    name="spark-rtps",
    help="Live DDS topics as Spark DataFrames, and DataFrames as live DDS topics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("ls")(ls.ls)
app.command("echo")(echo.echo)
app.command("type")(type.show_type)
app.command("idl")(idl.idl)
app.command("options")(options.options)
app.command("stat")(stat.stat)
app.command("loss")(loss.loss)
app.command("errors")(errors.errors)
app.command("record")(record.record)
app.command("play")(play.play)
app.command("clean")(clean.clean)
app.command("receive")(receive.receive)
app.add_typer(log.app, name="log")
app.command("demo")(demo.demo)


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
    """The entry point of the console script: errors of ours are one line, not a traceback."""
    # Most of a short command is imports: they leave nothing to collect, and nothing here calls numpy's linear algebra.
    gc.set_threshold(_COLLECTED_AFTER)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except RtpsError as error:
        from .commands.tables import visible
        from .options.explanations import remedy_of

        error.remedy = remedy_of(error)
        typer.secho(visible(f"error: {error}"), fg="red", err=True)
        sys.exit(1)
