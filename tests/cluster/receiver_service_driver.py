"""A driver that copies what receiver services recorded into Parquet: ``python receiver_service_driver.py JSON``, with

``master``, ``address``, ``topic``, ``options`` of the source, ``checkpoint``, ``output``, ``flag`` (written when the
query runs), ``end`` (a file: the query stops when it is there) and ``settings`` of Spark. To each row it adds the host
whose task read it. It may be killed and started again.
"""

import json
import sys
import time
from pathlib import Path

from tests.cluster.session import numbered, session_on


def main(text: str) -> None:
    given = json.loads(text)
    spark = session_on(given)
    query = (
        numbered(spark, given)
        .writeStream.format("parquet")
        .option("checkpointLocation", given["checkpoint"])
        .trigger(processingTime="300 milliseconds")
        .start(given["output"])
    )
    Path(given["flag"]).touch()
    while not Path(given["end"]).exists():
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
