"""``python -m spark_rtps`` is ``spark-rtps``."""

from .cli import main

main()
