"""``python -m tests.bench.growth [--json FILE] [--docs DIRECTORY] [CURVE ...]``: all curves by default.

``--json`` goes on with the curves that are in the file, so that each may be measured when the machine is quiet;
``--docs`` draws growth.svg into the directory.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.bench.growth.curves import CURVES, growth, lines
from tests.support import domains


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the figures here, and go on with those there"
    )
    parser.add_argument("--docs", type=Path, metavar="DIRECTORY", help="draw growth.svg into this directory")
    parser.add_argument("curves", nargs="*", choices=[[], *CURVES], metavar="CURVE", help=", ".join(CURVES))
    arguments = parser.parse_args()
    found = {}
    if arguments.json is not None and arguments.json.exists():
        found = json.loads(arguments.json.read_text(encoding="utf-8"))
    found |= growth(domains.BENCH[14], arguments.curves or CURVES)
    for line in lines(found):
        print(line)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if arguments.docs is not None:
        from tests.bench.growth.plot import draw  # matplotlib is wanted here only

        draw(found, arguments.docs)


if __name__ == "__main__":
    main()
