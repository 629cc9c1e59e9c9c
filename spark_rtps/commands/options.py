"""``spark-rtps options``: every option of ``format("rtps")``."""

from __future__ import annotations

import typer


def options() -> None:
    """Print the reference of all options of format("rtps") as Markdown; docs/options.md holds the same page."""
    from ..options.page import options_page

    typer.echo(options_page(), nl=False)
