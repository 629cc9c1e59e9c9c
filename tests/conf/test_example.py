"""The examples of receiver files are files that a receiver takes."""

from __future__ import annotations

import re
from pathlib import Path

from spark_rtps.receiver_service.config import ReceiverServiceConfig, read_config

CONF = Path(__file__).parents[2] / "conf"
DAY = 86_400 * 10**9


def loaded(example: str, folder: Path) -> ReceiverServiceConfig:
    """The configuration in a file, with secrets of the test's own in place of those it names."""
    text = (CONF / example).read_text()
    for number, path in enumerate(re.findall(r'"(/run/[^"]+)"', text)):
        own = folder / str(number)
        own.write_text(f"{number}" * 32)
        text = text.replace(path, str(own))
    file = folder / "receiver.toml"
    file.write_text(text)
    return read_config(file)


def test_the_example(tmp_path: Path) -> None:
    found = loaded("receiver.toml", tmp_path)
    assert (found.directory, found.address, found.port) == (Path("/var/lib/spark-rtps"), "0.0.0.0", 7420)
    assert set(found.tokens or ()) == {"read", "commit", "admin"}
    assert found.certificate is not None and found.key is not None
    kept = {
        each.name: (each.settings.retention, each.settings.log_max_bytes, each.settings.retention_time)
        for each in (*found.subscriptions, *found.patterns)
    }
    assert kept == {
        "squares": ("bytes", 4 << 30, 0),
        "alarms": ("committed", 256 << 20, 0),
        "sensors": ("time", 4 << 30, DAY),
    }
    assert [each.settings.topic for each in found.patterns] == ["rt/sensors/*"]


def test_the_file_of_the_kustomize_base(tmp_path: Path) -> None:
    found = loaded("kubernetes/receiver.toml", tmp_path)
    assert (found.address, found.port) == ("0.0.0.0", 7420)
    assert [each.settings.topic for each in found.subscriptions] == ["Square"]
