"""What ``spark-rtps demo`` runs: two foreign DDS processes and one Spark query between them."""

from __future__ import annotations

from typing import Final

#: A domain of its own, so that the demonstration meets nobody else's topics.
DOMAIN: Final = 42

#: Keeps Cyclone DDS on the loopback interface.
CYCLONE_ON_LOOPBACK: Final = (
    "<CycloneDDS><Domain><General><Interfaces>"
    '<NetworkInterface name="lo"/>'
    "</Interfaces></General></Domain></CycloneDDS>"
)

COLORS: Final = ("RED", "GREEN", "BLUE", "YELLOW")
