"""Repairs: what a writer sends again, and when."""

from .repairs import Repairs
from .requests import Requests

__all__ = ["Repairs", "Requests"]
