"""Found by Spark 4 (every ``pyspark_*`` module on the path): makes ``format("rtps")`` known.

A module that fails to import would disable every data source found this way, so this one does not fail.
"""

try:
    from spark_rtps import RtpsDataSource as DefaultSource  # noqa: F401
except Exception as error:  # noqa: BLE001
    import warnings

    warnings.warn(f"spark-rtps cannot be used: {type(error).__name__}: {error}", stacklevel=1)
