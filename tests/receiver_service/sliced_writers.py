"""Several Cyclone DDS writers of numbers: ``python sliced_writers.py TOPIC DOMAIN WRITERS NUMBERS READERS``.

They keep all their history and take few samples that nobody has acknowledged: a writer that a reader does not answer
would block, and after ten seconds its write would fail. When each has so many readers they write, and say the GUID of
each. Then they stay.
"""

import sys
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import int32
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic
from cyclonedds.util import duration

#: Samples that one writer has unacknowledged at most.
UNACKNOWLEDGED = 16


@dataclass
class Number(IdlStruct, typename="Number"):
    source: int32
    number: int32


def main(name: str, domain: str, count: str, numbers: str, readers: str) -> None:
    participant = DomainParticipant(int(domain))
    qos = Qos(
        Policy.Reliability.Reliable(duration(seconds=10)),
        Policy.History.KeepAll,
        Policy.ResourceLimits(UNACKNOWLEDGED, -1, -1),
    )
    topic = Topic(participant, name, Number, qos=qos)
    writers = [DataWriter(participant, topic, qos=qos) for _ in range(int(count))]
    while any(len(writer.get_matched_subscriptions()) < int(readers) for writer in writers):
        time.sleep(0.02)
    for number in range(int(numbers)):
        for source, writer in enumerate(writers):
            writer.write(Number(source, number))
    print(" ".join(str(writer.guid) for writer in writers), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
