"""A Cyclone DDS reader: ``python relayed_reader.py TOPIC DOMAIN`` prints a line of JSON for each sample."""

import json
import sys
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import int32
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
class Relayed(IdlStruct, typename="Relayed"):
    writer: int32
    number: int32
    host: str


def main(name: str, domain: str) -> None:
    participant = DomainParticipant(int(domain))
    reliable = Qos(Policy.Reliability.Reliable(duration(seconds=30)), Policy.History.KeepAll)
    reader = DataReader(participant, Topic(participant, name, Relayed, qos=reliable), qos=reliable)
    while True:
        for sample in reader.take(N=10_000):
            print(json.dumps([sample.writer, sample.number, sample.host]))
        sys.stdout.flush()
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
