"""The process of a range server: ``python -m spark_rtps.serving``, started by :mod:`.process`.

Its configuration is the first line of its standard input; each further line names a log to serve. It ends when its
standard input does, however its parent ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from ..transport.errors import RtpsError
from .server_config import RangeServerConfig


def main() -> int:
    config = RangeServerConfig.from_json(sys.stdin.readline())
    try:
        from .range_server import RangeServer

        server = RangeServer(config)
    except ImportError as error:  # where the package was shipped without what it depends on
        _tell({"error": f"{error}; install it on the driver's host: pip install h11"})
        return 1
    except RtpsError as error:
        _tell({"error": str(error)})
        return 1
    # The parent ends it: a signal to the whole group, as from a terminal, does not.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=server.run, name="serve", daemon=True).start()
    _tell({"ready": True, "port": server.port})
    for line in sys.stdin:
        server.allow(line.strip())
        _tell({"allowed": line.strip()})
    server.close()
    return 0


def _tell(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
