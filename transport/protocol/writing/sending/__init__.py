"""What leaves a writer: changes for the first time, and HEARTBEATs."""

from .broadcast import Broadcast, Compressor
from .heartbeats import Heartbeats
from .sender import Sender

__all__ = ["Broadcast", "Compressor", "Heartbeats", "Sender"]
