"""``spark-rtps options``: every option of ``format("rtps")``."""

from __future__ import annotations

import typer


def options() -> None:
    """Print the table of all options of format("rtps"), as Markdown; the README shows the same."""
    from ..datasource.options.table import options_table_markdown

    typer.echo(options_table_markdown(), nl=False)
