"""Serialized samples to Arrow columns."""
