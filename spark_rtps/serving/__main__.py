"""The process of a log server: ``python -m spark_rtps.serving``, started by :mod:`.process`.

Its configuration is the first line of its standard input; each further line names a log to serve. It ends when its
standard input ends or its parent does (a process that the parent forked may hold the pipe open). Unasked it writes
``{"crossed": ADDRESS}``, when the first peer on another host was admitted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..transport.errors import RtpsError
from .server.server_config import LogServerConfig

if TYPE_CHECKING:
    from .server.log_server import LogServer

_LOOK_SECONDS: Final = 2.0
#: Steps of nice(2): a receiver that wants more of a core than there is gets three times what the server gets.
_NICENESS: Final = 5
#: Lines of two threads do not mix.
_telling: Final = threading.Lock()


def main() -> int:
    parent = os.getppid()
    config = LogServerConfig.from_json(sys.stdin.readline())
    if config.receiver_service:
        return _stand(config, parent)
    try:
        from .server.log_server import LogServer

        server = LogServer(config)
    except ImportError as error:  # the package was shipped without its dependencies
        _tell({"error": f"{error}; install it on the driver's host: pip install h11"})
        return 1
    except RtpsError as error:
        _tell({"error": str(error)})
        return 1
    # The parent ends it: a signal to the whole group, as from a terminal, does not.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.crossed = lambda peer: _tell({"crossed": peer})
    _give_way()
    _tell({"ready": True, "port": server.port})
    threading.Thread(target=server.run, name="serve", daemon=True).start()
    unused = None if config.descriptor is None else config.bounds.unused_seconds
    threading.Thread(target=_watch, args=(server, parent, unused), name="watch", daemon=True).start()
    for line in sys.stdin:
        server.allow(line.strip())
        _tell({"allowed": line.strip()})
    server.close()
    return 0


def _give_way() -> None:
    """Let the receivers of this host run first: a client that fetches can wait, acknowledgements cannot."""
    with suppress(OSError):  # a filter of system calls may forbid it
        niceness = str(os.nice(_NICENESS))
        # sessions are weighed against each other first (sched(7), autogroups), and this process has one of its own
        Path("/proc/self/autogroup").write_text(niceness)


def _stand(config: LogServerConfig, parent: int) -> int:
    """Serve a receiver service."""
    try:
        from .server.receiver_service_server import ReceiverServiceServer

        server = ReceiverServiceServer(config, _tell)
    except ImportError as error:
        _tell({"error": f"{error}; install it: pip install h11"})
        return 1
    except RtpsError as error:
        _tell({"error": str(error)})
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    _give_way()
    _tell({"ready": True, "port": server.port})
    threading.Thread(target=server.run, name="serve", daemon=True).start()
    threading.Thread(target=_watch, args=(None, parent, None), name="watch", daemon=True).start()
    server.hear(sys.stdin)
    server.close()
    return 0


def _watch(server: LogServer | None, parent: int, unused: float | None) -> None:
    """End the process with its parent, or when no authenticated client has used it for ``unused`` seconds."""
    while os.getppid() == parent and (unused is None or server is None or server.unused_seconds < unused):
        time.sleep(_LOOK_SECONDS if unused is None else min(_LOOK_SECONDS, unused))
    os._exit(0)


def _tell(answer: dict[str, object]) -> None:
    with _telling:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
