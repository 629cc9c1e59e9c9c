"""Found by Spark 4 as ``pyspark_rtps`` is: makes ``format("ros2")`` known, which has ROS 2's names."""

try:
    from spark_rtps import Ros2DataSource as DefaultSource  # noqa: F401
except Exception as error:  # noqa: BLE001
    import warnings

    warnings.warn(f"spark-rtps cannot be used: {type(error).__name__}: {error}", stacklevel=1)
