"""The datagrams that a writer sends: first sendings of changes, and HEARTBEATs."""

from .broadcast import Broadcast, Compressor
from .heartbeats import Heartbeats
from .sender import Sender

__all__ = ["Broadcast", "Compressor", "Heartbeats", "Sender"]
