"""QoS profiles of ROS 2, of the documents of RTI and Aeron, or of an XML file."""

from __future__ import annotations

from ..texts import path_of
from .named import document_profile, ros2_profile
from .profile import NO_PROFILE, Profile

__all__ = ["NO_PROFILE", "Profile", "find_profile"]


def find_profile(name: str | None, file: str | None, *, writes: bool) -> Profile:
    """The profile that ``qos.profile`` and ``qos.file`` name, for a writer or for a reader.

    Raises:
        OptionError: there is none of that name, or the file cannot be read.
    """
    if file is not None:
        from .xml_file import read_profile  # most programs have no such file

        path = path_of("qos.file", file).absolute()
        return read_profile(path, name, writes=writes)
    if name is None:
        return NO_PROFILE
    return document_profile(name, writes=writes) or ros2_profile(name, writes=writes)
