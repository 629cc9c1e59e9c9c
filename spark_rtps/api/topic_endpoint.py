"""The common part of subscriptions and publications."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Self

from ..options import AppliesTo
from ..transport.qos import PresentationScope, Qos
from .membership import Membership
from .statuses import StatusBoard

if TYPE_CHECKING:
    import pyarrow as pa

    from ..columns.topic_plan import TopicPlan

_LOOK_AGAIN_SECONDS: Final = 0.01


def wants_group(qos: Qos) -> bool:
    """Whether PRESENTATION asks for coherence or order across the topics of one publisher or subscriber."""
    is_group = qos.presentation_scope is PresentationScope.GROUP
    return is_group and (qos.coherent_access or qos.ordered_access)


class TopicEndpoint(ABC):
    """A reader or a writer of one topic, with its statuses."""

    #: Whether it reads or writes.
    role: ClassVar[AppliesTo]

    def __init__(
        self,
        membership: Membership,
        plan: TopicPlan,
        board: StatusBoard,
        *,
        is_of_group: bool,
    ) -> None:
        """``board`` shows the statuses of the DDS reader or writer; see `wants_group` for ``is_of_group``."""
        #: Whether its samples are ordered, or become visible, together with those of other topics.
        self.is_of_group = is_of_group
        self._membership = membership
        self._plan = plan
        self._board = board

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Leave the topic. A second call does nothing."""

    def _wait_until(self, is_reached: Callable[[], bool], timeout: float | None) -> bool:
        """False if the condition is not met within ``timeout`` seconds, or this is closed meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not is_reached():
            if self.is_closed or (deadline is not None and time.monotonic() >= deadline):
                return False
            time.sleep(_LOOK_AGAIN_SECONDS)
        return True

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether it was closed, by itself or with its participant."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._plan.topic

    @property
    def type_name(self) -> str:
        """Name of the topic's type, by which readers and writers match."""
        return self._plan.type_name

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows have."""
        return self._plan.columns

    def status(self, name: str) -> dict[str, int]:
        """A communication status by DDS's name, such as ``SUBSCRIPTION_MATCHED``: its fields by DDS's names.

        ``total_count_change`` counts since the previous call. Raises UsageError naming all statuses if there is none of
        that name.
        """
        self._membership.serve()
        return self._board.get(name)

    @property
    def statuses(self) -> dict[str, dict[str, int]]:
        """All communication statuses by name, each with its fields."""
        self._membership.serve()
        return self._board.all()
