"""Values that users get cannot be changed, and stay in the sets and dictionaries they were put in."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spark_rtps.api.instances import Instance
from spark_rtps.api.publication import Positions
from spark_rtps.api.statuses import StatusChange
from spark_rtps.transport.net.topic_types import AnnouncedType
from spark_rtps.transport.protocol.discovery.participant_data import ParticipantData
from spark_rtps.transport.protocol.participant.participant import RemoteEndpoint
from spark_rtps.transport.qos import Qos, TypeConsistency
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.model import Struct

ENDPOINT = RemoteEndpoint(Guid(bytes(12), bytes(4)), "writer", "t", "T", Qos(), "p", bytes(2))
HASHED = [
    Positions(1, 2, 3, 4),
    ParticipantData(bytes(12)),
    ENDPOINT,
    AnnouncedType(ENDPOINT, Struct("T", ()), None),
    Qos(),
    TypeConsistency(),
]
#: Those with a mapping are not hashed, like the mapping.
VALUES = [
    *HASHED,
    Instance({"id": 7}, bytes(16), "ALIVE", ()),
    StatusChange("SAMPLE_LOST", "t", {"total_count": 1}),
]


@pytest.mark.parametrize("made", VALUES, ids=lambda each: type(each).__name__)
def test_a_public_value_cannot_be_changed(made: Any) -> None:
    for field in dataclasses.fields(made):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(made, field.name)


@pytest.mark.parametrize("made", HASHED, ids=lambda each: type(each).__name__)
def test_a_public_value_stays_in_its_own_set(made: Any) -> None:
    kept = {made}
    for field in dataclasses.fields(made):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, None)
    assert made in kept and dataclasses.replace(made) in kept
