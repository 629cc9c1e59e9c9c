"""A Cyclone DDS writer of numbers: ``python paced_writer.py TOPIC DOMAIN PARTITION WHICH RATE COUNT FLAG ...``.

It is number WHICH, and writes COUNT samples, RATE of them a second, when FLAG, a file, is there and it has a reader;
then the same for the next COUNT and FLAG. In the end it prints ``written``, and stays for those who have not got all.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import float64, int32
from cyclonedds.pub import DataWriter, Publisher
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
class Numbered(IdlStruct, typename="Numbered"):
    writer: int32
    number: int32
    value: float64


def main(name: str, domain: str, partition: str, which: str, rate: str, *parts: str) -> None:
    participant = DomainParticipant(int(domain))
    publisher = Publisher(participant, qos=Qos(Policy.Partition([partition])))
    reliable = Qos(Policy.Reliability.Reliable(duration(infinite=True)), Policy.History.KeepAll)
    writer = DataWriter(publisher, Topic(participant, name, Numbered, qos=reliable), qos=reliable)
    me, number, per_second = int(which), 0, float(rate)
    for count, flag in zip(parts[::2], parts[1::2], strict=True):
        while not Path(flag).exists() or not writer.get_matched_subscriptions():
            time.sleep(0.01)
        begun, first = time.monotonic(), number
        for number in range(first, first + int(count)):
            writer.write(Numbered(me, number, number / 2))
            ahead = begun + (number - first) / per_second - time.monotonic()
            if ahead > 0.01:
                time.sleep(ahead)
        number = first + int(count)
    print("written", flush=True)
    time.sleep(3_600)


if __name__ == "__main__":
    main(*sys.argv[1:])
