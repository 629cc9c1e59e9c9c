"""The options of ``format("rtps")``: one table, parsed once into frozen settings."""

from __future__ import annotations

from .log_dir import default_log_dir
from .settings import Mode, OnNoReader, Payload, Settings, parse_options
from .spec import AppliesTo

__all__ = ["AppliesTo", "Mode", "OnNoReader", "Payload", "Settings", "default_log_dir", "parse_options"]
