"""Three Cyclone DDS writers that number their samples: ``python numbered_writers.py TOPIC DOMAIN COUNT FLAG...``

Each of them writes COUNT samples when the first FLAG, a file, is there, then as many more for each further one; before
each part it waits for a reader.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import float64, int32
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
class Numbered(IdlStruct, typename="Numbered"):
    writer: int32
    number: int32
    value: float64


def main(name: str, domain: str, count: str, *flags: str) -> None:
    participants = [DomainParticipant(int(domain)) for _ in range(3)]
    reliable = Qos(Policy.Reliability.Reliable(duration(seconds=30)), Policy.History.KeepAll)
    writers = [
        DataWriter(each, Topic(each, name, Numbered, qos=reliable), qos=reliable) for each in participants
    ]
    number = 0
    for flag in flags:
        while not Path(flag).exists() or not all(writer.get_matched_subscriptions() for writer in writers):
            time.sleep(0.05)
        for _ in range(int(count)):
            for which, writer in enumerate(writers):
                writer.write(Numbered(which, number, number / 2))
            number += 1
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
