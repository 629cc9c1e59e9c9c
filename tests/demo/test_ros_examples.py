"""The examples of ROS 2, with the robot of examples/: what they write, print and draw.

Those that end run one after the other in one program (``in_turn.py``), since each would start a Java.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import nbformat
import numpy as np
import pyarrow.dataset as ds
import pytest
from matplotlib.image import imread
from nbclient import NotebookClient

import spark_rtps as rtps
from spark_rtps.java import find_java_home
from tests.support import domains
from tests.support.child_environment import ROOT, child_environment
from tests.support.waiting import PATIENCE, wait_until

EXAMPLES = ROOT / "examples"
FRAMES = 100
#: Seconds for a program with a Spark of its own, beside others.
SPARK_PATIENCE = 4 * PATIENCE
#: What the robot publishes; the frames of one second of its clock are ten.
TEMPERATURES = [30 - 10 * float(np.cos(frame / 20)) for frame in range(FRAMES)]
HOTTEST = {second: max(TEMPERATURES[10 * second : 10 * second + 10]) for second in range(FRAMES // 10)}

Run = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def environment() -> dict[str, str]:
    """All that tells the examples where to meet."""
    return child_environment(
        ROS_DOMAIN_ID=str(domains.DEMO_EXAMPLE),
        ROS_LOCALHOST_ONLY="1",
        SPARK_LOCAL_IP="127.0.0.1",
        JAVA_HOME=str(find_java_home()),
        PYSPARK_PYTHON=sys.executable,
        TZ="UTC",
    )


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Iterator[Run]:
    """Starts a program, whose output goes to a file that is named after it."""
    with ExitStack() as stack:

        def start(*command: str) -> subprocess.Popen[str]:
            out = stack.enter_context((tmp_path / f"{Path(command[0]).stem}.txt").open("w"))
            program = [sys.executable, *command]
            child = subprocess.Popen(
                program,
                env=environment,
                cwd=tmp_path,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert child.stdin is not None
            stack.enter_context(child.stdin)
            stack.callback(child.wait)
            stack.callback(child.kill)
            return child

        yield start


def test_the_examples_of_ros_2(run: Run, tmp_path: Path) -> None:
    def example(name: str, *arguments: str) -> subprocess.Popen[str]:
        return run(str(EXAMPLES / name), *arguments)

    def output(name: str) -> str:
        return (tmp_path / f"{name}.txt").read_text()

    in_turn = run(str(Path(__file__).with_name("in_turn.py")))

    def begin(name: str, *arguments: str) -> None:
        """When the ones before have ended."""
        assert in_turn.stdin is not None
        in_turn.stdin.write(json.dumps([str(EXAMPLES / name), *arguments]) + "\n")
        in_turn.stdin.flush()

    def ended(name: str) -> str:
        def has_ended() -> bool:
            assert in_turn.poll() is None, output("in_turn")
            return (tmp_path / f"{name}.done").exists()

        wait_until(has_ended, lambda: f"the end of {name}: {output('in_turn')}", SPARK_PATIENCE, every=0.1)
        return output(name)

    robot = example("ros2_robot.py", "--frames", str(FRAMES))
    with rtps.Participant(domains.DEMO_EXAMPLE, interface="lo") as watching:
        wait_until(lambda: "rt/temperature" in watching.topics(), "the robot")
    alerting = example("robot_alerts.py", "--checkpoint", "alerts")
    recording = run(
        "-m", "spark_rtps", "record", "rt/temperature", "-o", "drive.mcap", "-n", str(FRAMES),
        "--domain", str(domains.DEMO_EXAMPLE), "--interface", "lo",
    )  # fmt: skip
    begin("ros2_dashboard.py", "--drawings", "1")
    assert "drawing 1: 720 points in dashboard.png" in ended("ros2_dashboard")
    assert imread(tmp_path / "dashboard.png").std() > 0.1
    alerts = [f"alert: motor: {t:.1f} degrees at 22:13:{20 + s}" for s, t in HOTTEST.items() if t > 35]
    assert len(alerts) == 5
    wait_until(
        lambda: alerting.poll() is not None or output("ros2_robot").count("\n") >= len(alerts),
        lambda: output("robot_alerts"),
        SPARK_PATIENCE,
        every=0.1,
    )
    assert sorted(output("ros2_robot").splitlines()) == sorted(alerts), output("robot_alerts")
    alerting.kill()

    begin("bronze_silver.py", "--bronze", "bronze", "--silver", "silver", "--listen", "20s")
    assert recording.wait(PATIENCE) == 0
    begin(
        "bag_to_parquet.py", "--recording", "drive.mcap", "--topic", "/temperature", "--output", "temperature"
    )
    assert "sensor_msgs::msg::dds_::PointCloud2_" in ended("bronze_silver")
    assert f"|{FRAMES} " in ended("bag_to_parquet")
    assert robot.poll() is None
    bronze = ds.dataset(tmp_path / "bronze", partitioning="hive", exclude_invalid_files=True).to_table()
    stored = Counter(bronze["topic"].to_pylist())
    assert [stored[f"rt/{name}"] for name in ("camera/image_raw", "points", "temperature")] == [FRAMES] * 3
    for folder in ("silver", "temperature"):
        table = ds.dataset(tmp_path / folder, exclude_invalid_files=True).to_table(columns=["temperature"])
        assert sorted(table["temperature"].to_pylist()) == sorted(TEMPERATURES)


def test_the_notebook_draws_the_plots_of_the_documents(environment: dict[str, str], tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / "ros2_notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert all(not cell.get("outputs") for cell in notebook.cells), "it is committed without outputs"
    resources = {"metadata": {"path": str(EXAMPLES)}}
    client = NotebookClient(notebook, timeout=SPARK_PATIENCE, kernel_name="python3", resources=resources)
    client.execute(env={**environment, "PLOTS": str(tmp_path), "MPLBACKEND": "agg"})
    drawn = sorted(tmp_path.glob("*.png"))
    assert [path.name for path in drawn] == ["ros2-cloud.png", "ros2-images.png", "ros2-temperature.png"]
    for path in drawn:
        ours, committed = imread(path), imread(ROOT / "docs" / path.name)
        assert ours.shape == committed.shape
        # a ball in another place makes twice the difference; letters of another matplotlib make less
        assert np.abs(ours - committed).mean() < 0.002, (
            f"{path.name} is another; if it is to be, run the notebook"
        )
