"""The matched readers of a writer: what each has acknowledged, which of them the writer waits for, and its limit."""

from .acknowledgments import Acknowledgments
from .groups import destinations_of, regroup
from .matched_readers import MatchedReaders
from .pacing import Pacing
from .reader_activity import ReaderActivityChanged
from .reader_proxy import ReaderProxy
from .reader_repairs import Missing, Requested
from .send_window import SendWindow

__all__ = [
    "Acknowledgments",
    "MatchedReaders",
    "Missing",
    "Pacing",
    "ReaderActivityChanged",
    "ReaderProxy",
    "Requested",
    "SendWindow",
    "destinations_of",
    "regroup",
]
