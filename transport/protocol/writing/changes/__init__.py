"""Changes: samples framed for the wire as a writer keeps and sends them."""

from .batch_content import BatchContent, MissingSamples
from .batch_train_content import BatchTrainContent
from .change import Change
from .content import Content
from .data_content import DataContent, addressed_to
from .fragment_train_content import FragmentTrainContent
from .framed_samples import Framing, batch_change, data_changes, fitting, overhead, removed_samples
from .large_content import LargeContent
from .large_sample import LargeSample, fragment_size_for
from .message_train_content import MessageTrainContent
from .stream_packer import BATCH, DATA, StreamPacker

__all__ = [
    "BATCH",
    "BatchContent",
    "BatchTrainContent",
    "Change",
    "Content",
    "DATA",
    "DataContent",
    "FragmentTrainContent",
    "Framing",
    "LargeContent",
    "LargeSample",
    "MessageTrainContent",
    "MissingSamples",
    "StreamPacker",
    "addressed_to",
    "batch_change",
    "data_changes",
    "fitting",
    "fragment_size_for",
    "overhead",
    "removed_samples",
]
