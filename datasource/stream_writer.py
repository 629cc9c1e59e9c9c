"""The streaming sink for PySpark 4.1 and newer; 4.0 passes it rows one by one."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from .writer import TaskWriter


class RtpsStreamArrowWriter(TaskWriter, DataSourceStreamArrowWriter):
    """``df.writeStream``: each task of a micro-batch returns when its rows are acknowledged."""
