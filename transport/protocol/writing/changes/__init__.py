"""Changes: samples framed for the wire as a writer keeps and sends them."""

from .batch_content import BATCH, DATA, BatchContent, MissingSamples
from .batch_train_content import BatchTrainContent
from .change import Change, addressed_to
from .framed_samples import Framing, batch_change, data_changes, fitting, overhead, removed_samples
from .large_sample import LargeSample, fragment_size_for

__all__ = [
    "BATCH",
    "BatchContent",
    "BatchTrainContent",
    "Change",
    "DATA",
    "Framing",
    "LargeSample",
    "MissingSamples",
    "addressed_to",
    "batch_change",
    "data_changes",
    "fitting",
    "fragment_size_for",
    "overhead",
    "removed_samples",
]
