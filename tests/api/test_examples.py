"""The examples of the Python API, as programs of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.support.child_environment import child_environment
from tests.support.waiting import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"
Run = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run(tmp_path: Path, domain: int) -> Iterator[Run]:
    """Starts an example; its output is in the test's directory until it ends."""
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> subprocess.Popen[str]:
            command = [sys.executable, str(EXAMPLES / name), *arguments]
            environment = child_environment(
                DOMAIN=str(domain), INTERFACE="lo", PYTHONPATH=str(EXAMPLES.parent)
            )
            child = subprocess.Popen(
                command,
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(child)
            stack.callback(child.kill)
            return child

        yield start


def output(child: subprocess.Popen[str]) -> list[str]:
    out, errors = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, errors
    return out.splitlines()


def shape(domain: int, *arguments: str) -> tuple[str, ...]:
    return ("shape_main.py", "-d", str(domain), "--interface", "lo", *arguments)


def test_plugins(run: Run) -> None:
    assert output(run("slowest_but_one.py")) == [
        "3 readers at 1000, 2000 and 3000 with 10000 bytes free: send up to 12000",
        "no loss: a window of 8388608 bytes",
        "a loss: a window of 4194304 bytes",
        "no loss: a window of 4195712 bytes",
    ]


def test_shape_main_with_itself(run: Run, domain: int) -> None:
    subscriber = run(*shape(domain, "-S", "-c", "RED", "--num-iterations", "60"))
    publisher = run(*shape(domain, "-P", "-c", "RED", "-w", "-z", "0", "--num-iterations", "10"))
    published, received = output(publisher), output(subscriber)
    matched = "on_publication_matched() topic: 'Square'  type: 'ShapeType' : matched readers 1 (change = 1)"
    assert published[:3] == ["Create topic: Square", "Create writer for topic: Square color: RED", matched]
    assert published[-1] == "Done."
    shapes = [line for line in published if line.startswith("Square")]
    assert shapes[1] == "Square     RED        005 005 [2]" and len(shapes) == 10
    assert received[:2] == ["Create topic: Square", "Create reader for topic: Square"]
    assert (
        "on_subscription_matched() topic: 'Square'  type: 'ShapeType' : matched writers 1 (change = 1)"
        in received
    )
    got = [line for line in received if line.endswith("]")]
    assert got
    assert got == [line for line in shapes if line in got]


def test_shape_main_says_what_is_incompatible(run: Run, domain: int) -> None:
    run(*shape(domain, "-P", "-b"))
    lines = output(run(*shape(domain, "-S", "-r", "--num-iterations", "50")))
    assert any(
        line.startswith("on_requested_incompatible_qos() topic: 'Square'") and ": 11 (" in line
        for line in lines
    )


def test_shape_main_with_cyclone(run: Run, domain: int, cyclone: Callable[..., CyclonePeer]) -> None:
    peer = cyclone()
    peer.reader("Square", cyclone_types.ShapeType)
    run(*shape(domain, "-P", "-c", "BLUE", "-k", "0"))
    assert {taken.row["color"] for taken in peer.take("Square", 5)} == {"BLUE"}
    subscriber = run(*shape(domain, "-S", "-t", "Circle", "--num-iterations", "40"))
    peer.writer("Circle", cyclone_types.ShapeType)
    peer.wait_for_match("Circle")
    row = {"color": "RED", "x": 7, "y": 120, "shapesize": 30, "additional_payload_size": []}
    peer.write("Circle", [row])
    peer.write("Circle", [row], "dispose")
    received = output(subscriber)
    assert "Circle     RED        007 120 [30]" in received
    assert "Circle     RED        NOT_ALIVE_DISPOSED_INSTANCE_STATE" in received


def test_a_subscription_and_a_plot(run: Run, domain: int) -> None:
    printing = run("python_subscribe.py", "--domain", str(domain), "--interface", "lo", "--rows", "20")
    plotting = run("plot_topic.py")
    run(*shape(domain, "-P", "-c", "GREEN", "-r", "-k", "0", "--write-period", "10"))
    printed = output(printing)
    assert "color: string" in printed[0]
    assert sum("'GREEN'" in line for line in printed) >= 20
    plotted = output(plotting)
    assert plotted[0].startswith("200 samples; color: string")
    assert "'color': 'GREEN'" in plotted[-2] + plotted[-1]
