"""Programs one after the other in one Python, whose Java is that of all of them: ``python in_turn.py``.

Each line of standard input is a JSON list: a script and its arguments. What it prints goes to ``NAME.txt``, and
``NAME.done`` is there when it has ended.
"""

import contextlib
import json
import runpy
import sys
from pathlib import Path


def main() -> None:
    for line in sys.stdin:
        sys.argv = json.loads(line)
        name = Path(sys.argv[0]).stem
        with Path(f"{name}.txt").open("w") as out, contextlib.redirect_stdout(out):
            runpy.run_path(sys.argv[0], run_name="__main__")
        Path(f"{name}.done").touch()


if __name__ == "__main__":
    main()
