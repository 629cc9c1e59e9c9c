"""A driver that relays a topic to another one: ``python relaying_driver.py JSON``, with

``master``, ``topic``, ``options`` of the source, ``onward`` (the other topic), ``sink`` (its options), ``checkpoint``,
``flag`` (written when the query runs) and ``end`` (a file: the query stops when it is there). To each row it adds the
host whose task read it, which is the one that writes it.
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
        .select("writer", "number", "host")
        .writeStream.format("rtps")
        .options(**given["sink"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(processingTime="500 milliseconds")
        .start(given["onward"])
    )
    Path(given["flag"]).touch()
    while not Path(given["end"]).exists():
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.2)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
