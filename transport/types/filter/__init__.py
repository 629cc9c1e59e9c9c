"""Content filters: the SQL subset of DDS 1.4 annex B, evaluated over columns."""
