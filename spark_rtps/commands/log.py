"""``spark-rtps log``: inspects stream logs of this host or of receivers, and publication logs of this host."""

from __future__ import annotations

import typer

from . import log_dump, log_frames, log_publication, log_show, log_verify

app = typer.Typer(help="Inspect stream logs and publication logs.", no_args_is_help=True)


@app.callback()
def log() -> None:
    """Inspect stream logs of this host or of a receiver, which may be in use; nothing is changed."""


app.command("show")(log_show.show)
app.command("frames")(log_frames.frames)
app.command("dump")(log_dump.dump)
app.command("verify")(log_verify.verify)
app.command("publication")(log_publication.publication)
