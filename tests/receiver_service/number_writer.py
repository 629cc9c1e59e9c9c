"""A Cyclone DDS writer of numbers from 0 on: ``python number_writer.py TOPIC DOMAIN PAUSE``; ``stop`` ends the numbers.

It begins when it has a reader. After ``stop`` it says how many there were, and stays.
"""

import sys
import threading
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import int32
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
class Number(IdlStruct, typename="Number"):
    source: int32
    number: int32


def main(name: str, domain: str, pause: str) -> None:
    participant = DomainParticipant(int(domain))
    qos = Qos(Policy.Reliability.Reliable(duration(seconds=30)), Policy.History.KeepAll)
    writer = DataWriter(participant, Topic(participant, name, Number, qos=qos), qos=qos)
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stopped.set()), daemon=True).start()
    while not writer.get_matched_subscriptions():
        time.sleep(0.02)
    number = 0
    while not stopped.is_set():
        writer.write(Number(0, number))
        number += 1
        time.sleep(float(pause))
    print(number, flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
