"""Functions for Spark's columns, beside those of ``pyspark.sql.functions``."""

from __future__ import annotations

from .datasource.functions import from_cdr, schema_of_cdr, to_cdr

__all__ = ["from_cdr", "schema_of_cdr", "to_cdr"]
