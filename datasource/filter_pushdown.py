"""``pushFilters`` of a batch reader, for sessions that push filters down as well as for those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.datasource import DataSourceReader


class PushedFilters:
    """What a reader sets as ``pushFilters``, where Spark has that: a call of ``push``.

    Spark refuses a reader that overrides the method in a session whose spark.sql.python.filterPushdown.enabled is
    false, as it is by default. It looks at the method's function, so this one shows that of the base class: filters
    are then not pushed, and Spark applies them itself.
    """

    def __init__(self, push: Callable[[list[Any]], Iterable[Any]]) -> None:
        self._push = push
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        """The filters that Spark has to apply itself."""
        return self._push(filters)
