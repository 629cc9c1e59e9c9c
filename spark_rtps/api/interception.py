"""The batch interceptor of a whole process."""

from __future__ import annotations

from collections.abc import Callable

from ..options.explanations import explained
from ..transport.net.plugins import set_worker_interceptor
from ..transport.protocol.writing.batching import BatchRequest


@explained()
def set_batch_interceptor(interceptor: Callable[[BatchRequest], object] | None) -> None:
    """Set one interceptor for all writers of this process that send batches, but for those with an option of their own.

    It decides on the samples of publications and sinks that are made from now on. The environment variable
    ``SPARK_RTPS_BATCH_INTERCEPTOR`` names one as ``module:callable``, which counts where none is set here.

    Args:
        interceptor: called with a `BatchRequest` before each sample is queued; None: no interceptor.

    Raises:
        OptionError: it cannot be called with one argument.
    """
    set_worker_interceptor(interceptor)
