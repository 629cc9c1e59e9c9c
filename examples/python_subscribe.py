"""Read a topic in a Python program, without Spark: its type is discovered, and each batch is printed as it arrives."""

from __future__ import annotations

import argparse

import spark_rtps as rtps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", type=int, default=0)
    parser.add_argument("--interface", help="network interface, such as lo")
    parser.add_argument("--topic", default="Square")
    parser.add_argument("--rows", type=int, default=100, help="end after this number of rows")
    options = parser.parse_args()
    rows = 0
    with rtps.Participant(options.domain, interface=options.interface) as participant:
        subscription = participant.subscribe(options.topic)
        print(subscription.schema, flush=True)
        for batch in subscription:
            print(*batch.to_pylist(), sep="\n", flush=True)
            rows += batch.num_rows
            if rows >= options.rows:
                return


if __name__ == "__main__":
    main()
