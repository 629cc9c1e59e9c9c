"""Content filters: the SQL subset of DDS 1.4 annex B, evaluated over columns."""

from .content_filter import Filter, parse_filter

__all__ = ["Filter", "parse_filter"]
