"""Takes samples until they are sent: admits, batches and frames them; claims in place, and coherent sets."""

from .admission import Admission
from .coherent_sets import CoherentSets
from .framer import Framer
from .intake import Intake, batcher_of
from .offered_deadline import OfferedDeadline
from .sample_claims import SampleClaim, SampleClaims

__all__ = [
    "Admission",
    "CoherentSets",
    "Framer",
    "Intake",
    "OfferedDeadline",
    "SampleClaim",
    "SampleClaims",
    "batcher_of",
]
