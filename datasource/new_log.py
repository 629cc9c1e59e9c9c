"""The log that a run of a query begins: the first one of a new query, or the replacement of a lost log.

========  ==============================================================  =============
state     event                                                           next
========  ==============================================================  =============
none      Spark asks where the query begins: the log gets its name        named
named     the first micro-batch will end at its beginning: it is made    made
any       a log is lost and may be: another one is named and made         made
========  ==============================================================  =============

Nothing is received into a log before the checkpoint names it, which the end of an empty first micro-batch does.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from ..columns.topic_plan import TopicPlan
from ..options import Settings
from .receiver_session import make_log


class NewLog:
    """Its name, and whether it is made."""

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan
        #: Empty: no log is named.
        self.name = ""
        #: The lost log that it replaces; empty: none.
        self.replaces = ""
        self._is_made = False

    def choose_name(self) -> str:
        """The log's name, which stays the same until a log is lost."""
        self.name = self.name or str(uuid.uuid4())
        return self.name

    def make_if_next(self, begin: str) -> bool:
        """Whether a micro-batch that begins in the log ``begin``, without a receiver, ends at this log's beginning.

        The log is made then, unless it exists.
        """
        if begin != self.name:
            return self._is_made  # it replaces a lost log
        if self._is_made:
            return False  # Spark has recorded it
        self._make(begin)
        return True

    def replace(self, lost: str) -> Path:
        """Name and make another log in place of a lost one; returns its folder. If it raises, nothing has changed."""
        name = str(uuid.uuid4())
        directory = self._make(name)
        self.name, self.replaces = name, lost
        return directory

    def _make(self, name: str) -> Path:
        directory = make_log(self._settings, self._plan, name)
        self._is_made = True
        return directory
