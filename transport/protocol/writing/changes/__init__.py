"""Changes: samples framed for the wire, in the forms in which a writer keeps and sends them."""

from .batch_content import BatchContent, MissingSamples
from .change import Change
from .content import Content
from .data_content import DataContent, addressed_to
from .framed_samples import Framing, batch_change, data_changes, fitting, overhead, removed_samples
from .gso_batch_content import GsoBatchContent
from .gso_fragment_content import GsoFragmentContent
from .gso_message_content import GsoMessageContent
from .large_content import LargeContent
from .large_sample import LargeSample, fragment_size_for
from .stream_packer import BATCH, DATA, StreamPacker

__all__ = [
    "BATCH",
    "BatchContent",
    "GsoBatchContent",
    "Change",
    "Content",
    "DATA",
    "DataContent",
    "GsoFragmentContent",
    "Framing",
    "LargeContent",
    "LargeSample",
    "GsoMessageContent",
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
