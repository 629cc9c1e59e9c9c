"""``python -m spark_rtps.transport.receiver``: started by :class:`.process.ReceiverProcess`."""

import sys

from .host import main

sys.exit(main())
