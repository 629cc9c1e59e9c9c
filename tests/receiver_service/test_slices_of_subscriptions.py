"""``slice`` as an option of receiver services' subscriptions: in the file, asked for by clients, kept, and changed."""

from __future__ import annotations

import pytest

from spark_rtps.receiver_service.config_file import ReceiverFileError
from spark_rtps.transport.protocol.participant.slices import Slice
from spark_rtps.transport.receiver.config import ReceiverConfig
from tests.receiver_service.supervisor_scene import Scene

A = '[subscriptions.a]\ntopic = "A"\n'


def sliced(part: str) -> str:
    return f'{A}slice = "{part}"\n'


def test_the_receiver_gets_its_slice(scene: Scene) -> None:
    scene.begin(sliced("1/4"))
    config = scene.receivers[0].config
    assert config.slice == Slice(1, 4)
    assert ReceiverConfig.from_json(config.to_json()) == config
    assert scene.recorded()["a"]["options"]["slice"] == "1/4"
    assert scene.servers[0].reported[-1][0]["options"]["slice"] == "1/4"


def test_errors_name_the_place(scene: Scene) -> None:
    with pytest.raises(
        ReceiverFileError, match=r"\[subscriptions.a\] slice: '4/4' must have an index from 0"
    ):
        scene.begin(sliced("4/4"))
    with pytest.raises(ReceiverFileError, match=r"\[subscriptions.a\] slice: '0/4' excludes ownership"):
        scene.begin(sliced("0/4") + 'ownership = "exclusive"\n')


def test_a_change_starts_it_again_on_its_log_and_no_change_does_not(scene: Scene) -> None:
    supervisor = scene.begin(sliced("0/2"))
    log = scene.keeper("a").log
    assert supervisor.reload(scene.config(sliced("0/2"))) == []
    assert supervisor.reload(scene.config(sliced("1/2"))) == ["a has changed and starts again"]
    scene.steps(5)
    assert [each.config.slice for each in scene.receivers] == [Slice(0, 2), Slice(1, 2)]
    assert scene.keeper("a").log == log


def test_a_slice_is_part_of_the_identity_of_a_subscription(scene: Scene) -> None:
    scene.begin(sliced("0/2"))
    assert scene.ask("subscribe", options={"topic": "A", "slice": "0/2"}) == ("a", None)
    assert scene.ask("subscribe", options={"topic": "A"}) == ("A", None)
    assert scene.ask("subscribe", options={"topic": "A", "slice": "1/2"}) == ("A-2", None)
    assert scene.ask("subscribe", options={"topic": "A", "slice": "1/2"}) == ("A-2", None)
    assert scene.ask("subscribe", options={"topic": "A", "slice": "0/1"})[0] == "A-3"
    assert [each.config.slice for each in scene.receivers] == [
        Slice(0, 2),
        None,
        Slice(1, 2),
        Slice(0, 1),
    ]


def test_a_sliced_subscription_of_a_client_survives_the_supervisor(scene: Scene) -> None:
    scene.begin(A)
    scene.ask("subscribe", options={"topic": "C", "slice": "2/3"})
    log = scene.keeper("C").log
    scene.begin(A)
    assert scene.keeper("C").log == log
    assert scene.receivers[-1].config.slice == Slice(2, 3)
