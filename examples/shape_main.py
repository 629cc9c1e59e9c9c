"""The test program of the OMG's DDS interoperability suite (github.com/omg-dds/dds-rtps), on the Python API.

python examples/shape_main.py -P -t Square -c RED -w        # publishes
python examples/shape_main.py -S -t Square                  # subscribes
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

import spark_rtps as rtps

IDL = """@appendable struct ShapeType {
    @key string<128> color; int32 x; int32 y; int32 shapesize; sequence<uint8> additional_payload_size;
};"""
DURABILITIES = {"v": "volatile", "l": "transient_local", "t": "transient", "p": "persistent"}
WIDTH, HEIGHT = 240, 270
ENDED = {"NOT_ALIVE_NO_WRITERS", "NOT_ALIVE_DISPOSED"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    role = parser.add_mutually_exclusive_group(required=True)
    role.add_argument("-P", dest="publish", action="store_true", help="publish samples")
    role.add_argument("-S", dest="publish", action="store_false", help="subscribe to samples")
    reliability = parser.add_mutually_exclusive_group()
    reliability.add_argument("-b", dest="reliability", action="store_const", const="best_effort")
    reliability.add_argument(
        "-r", dest="reliability", action="store_const", const="reliable", default="reliable"
    )
    parser.add_argument("-d", dest="domain", type=int, default=0)
    parser.add_argument("-t", dest="topic", default="Square")
    parser.add_argument("-c", dest="color", help="color to publish; a subscriber filters by it")
    parser.add_argument("-k", dest="depth", type=int, default=-1, help="KEEP_LAST depth; 0: KEEP_ALL")
    parser.add_argument("-D", dest="durability", choices=DURABILITIES, default="v")
    parser.add_argument("-f", dest="deadline", type=int, default=0, help="DEADLINE in ms; 0: none")
    parser.add_argument("-s", dest="strength", type=int, default=-1, help="OWNERSHIP strength; -1: shared")
    parser.add_argument("-p", dest="partition")
    parser.add_argument("-x", dest="representation", choices=("1", "2"), default="1", help="XCDR version")
    parser.add_argument("-w", dest="prints", action="store_true", help="print what is published")
    parser.add_argument("-z", dest="size", type=int, default=20, help="shapesize; 0: it grows")
    parser.add_argument("-R", dest="reads", action="store_true", help="read instead of take")
    parser.add_argument("-v", dest="verbosity", choices=("e", "d"), help="ignored")
    parser.add_argument("--write-period", type=int, default=33, metavar="MS")
    parser.add_argument("--read-period", type=int, default=100, metavar="MS")
    parser.add_argument("--num-iterations", type=int, default=0, help="0: until it is interrupted")
    parser.add_argument("--interface", help="network interface, such as lo")
    return parser.parse_args()


def show(text: str) -> None:
    print(text, flush=True)


def on_status(change: rtps.StatusChange) -> None:
    """Print a status as the suite expects it."""
    name, fields = change.status.lower(), change.fields
    head = f"on_{name}() topic: '{change.topic}'  type: 'ShapeType'"
    match name:
        case "publication_matched" | "subscription_matched":
            others = "readers" if name == "publication_matched" else "writers"
            step = 1 if change.remote and fields["current_count"] else -1
            show(f"{head} : matched {others} {fields['current_count']} (change = {step})")
        case "offered_incompatible_qos" | "requested_incompatible_qos":
            show(f"{head} : {fields['last_policy_id']} ({'; '.join(change.reasons)})")
        case "offered_deadline_missed" | "requested_deadline_missed" | "liveliness_lost":
            show(f"{head} : (total = {fields['total_count']}, change = 1)")
        case "liveliness_changed":
            show(f"{head} : (alive = {fields['alive_count']}, not_alive = {fields['not_alive_count']})")
        case "inconsistent_topic":
            show(head)


def policies(o: argparse.Namespace) -> dict[str, object]:
    chosen: dict[str, object] = {
        "reliability": o.reliability,
        "durability": DURABILITIES[o.durability],
        "partition": o.partition,
        "ownership": None if o.strength < 0 else "exclusive",
        "deadline": f"{o.deadline}ms" if o.deadline else None,
        "history": "keep_all" if o.depth == 0 else "keep_last",
        "history.depth": max(o.depth, 1) if o.depth else None,
    }
    if o.publish:
        chosen["data_representation"] = f"xcdr{o.representation}"
        chosen["ownership.strength"] = o.strength if o.strength >= 0 else None
        chosen["on_no_reader"] = "drop"
    return chosen


def line(topic: str, row: dict) -> str:
    return f"{topic:<10} {row['color']:<10} {row['x']:03d} {row['y']:03d} [{row['shapesize']}]"


def publish(participant: rtps.Participant, idl: Path, o: argparse.Namespace) -> None:
    color = o.color or "BLUE"
    shapes = participant.publish(o.topic, type_file=idl, options=policies(o), listener=on_status)
    show(f"Create writer for topic: {o.topic} color: {color}")
    shapes.wait_for_readers()
    for n in itertools.count() if not o.num_iterations else range(o.num_iterations):
        x, y = 5 * n % WIDTH, 5 * n % HEIGHT
        row = {"color": color, "x": x, "y": y, "shapesize": o.size or n + 1, "additional_payload_size": b""}
        shapes.write(row, wait=False)
        if o.prints:
            show(line(o.topic, row))
        time.sleep(o.write_period / 1e3)
    shapes.wait_for_acknowledgments()


def subscribe(participant: rtps.Participant, idl: Path, o: argparse.Namespace) -> None:
    chosen = {**policies(o), "filter": f"color = '{o.color}'" if o.color else None}
    shapes = participant.subscribe(o.topic, type_file=idl, metadata=True, options=chosen, listener=on_status)
    show(f"Create reader for topic: {o.topic}")
    fetch = shapes.read if o.reads else shapes.take
    for _ in itertools.count() if not o.num_iterations else range(o.num_iterations):
        for row in fetch().to_pylist():
            state = row["_rtps"]["instance_state"]
            show(
                f"{o.topic:<10} {row['color']:<10} {state}_INSTANCE_STATE"
                if state in ENDED
                else line(o.topic, row)
            )
        time.sleep(o.read_period / 1e3)


def main() -> None:
    o = arguments()
    with (
        tempfile.TemporaryDirectory() as directory,
        rtps.Participant(o.domain, interface=o.interface) as participant,
    ):
        idl = Path(directory, "shape.idl")
        idl.write_text(IDL)
        show(f"Create topic: {o.topic}")
        (publish if o.publish else subscribe)(participant, idl, o)
    show("Done.")


if __name__ == "__main__":
    try:
        main()
    except rtps.OptionError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        show("Done.")
