"""Functions for Spark's columns, in addition to those of ``pyspark.sql.functions``."""

from __future__ import annotations

from .columns.ros_arrays import image_array, pointcloud_points
from .datasource.functions import from_cdr, schema_of_cdr, to_cdr

__all__ = ["from_cdr", "image_array", "pointcloud_points", "schema_of_cdr", "to_cdr"]
