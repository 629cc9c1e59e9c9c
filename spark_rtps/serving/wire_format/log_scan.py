"""A log that its receiver scans, for a second at a time: only the findings are sent, and soon.

``{"v":1,"base":B,"end":E,"stop":P,"frames":F,"rows":R,"bytes":N,"errors":[TEXT],"damage":[[POSITION,STOP,ROWS,WRITER,SN]],
"more_damage":N,"segments":[[BASE,END,FRAMES,ROWS,FIRST,LAST]],"writers":[[GUID,HIGHEST,ROWS,BYTES,MISSING,FIRST,LAST]],
"more_writers":N}``: of positions up to ``P`` of [``B``, ``E``), with null for what is not known.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ...monitoring.untrusted_json import parse_entries, parse_number, parse_object, parse_optional, parse_text
from ...transport.errors import LogError
from ...transport.limits import DAMAGE_LISTED_MAX, WRITERS_MAX
from ...transport.log.damage import Damage
from ...transport.log.frame import Frame
from ...transport.log.inventory import HeldSegment, HeldWriter, Inventory
from ...transport.log.log_view import LogView
from ...transport.log.verification import Verified, extent, scan_log
from ...transport.structure import GUID_BYTES, Guid

#: Time for one part.
_SECONDS: Final = 1.0
_SEGMENTS_MAX: Final = 65_536
_ERRORS_MAX: Final = 16


def scan_directory(directory: Path, start: int, stop: int | None, *, bodies: bool) -> dict[str, object]:
    """What lies in the log from position ``start`` on, and how far the scan came; not beyond ``stop``. Raises
    LogError."""
    view, inventory = LogView(directory), Inventory.of_log(directory)
    found, until = Verified(directory), time.monotonic() + _SECONDS
    found.base, found.end, error = extent(view)
    if error is not None:
        found.errors.append(error)
    end = found.end if stop is None else min(stop, found.end)
    position = max(start, found.base)
    try:
        for item in scan_log(view, position, end, bodies=bodies):
            if isinstance(item, Frame):
                # never next to damage alone: the frames on both sides of it tell what it is
                if found.frames and time.monotonic() >= until:
                    position = item.position
                    break
                inventory.count(item)
            found.add_item(item)
        else:
            position = end
    except LogError as failure:
        found.errors.append(str(failure))
        position = end
    return {
        "v": 1,
        "base": found.base,
        "end": found.end,
        "stop": position,
        "frames": found.frames,
        "rows": found.rows,
        "bytes": found.nbytes,
        "errors": found.errors,
        "damage": [
            [d.position, d.stop, d.rows, None if d.writer is None else _hex(d.writer), d.first_sn]
            for d in found.damage
        ],
        "more_damage": found.overflow,
        "segments": [
            [s.base, s.end, s.frames, s.rows, s.first_reception, s.last_reception] for s in inventory.segments
        ],
        "writers": [
            [_hex(w.writer), w.highest_sn, w.rows, w.nbytes, w.missing, w.first_sn, w.last_sn]
            for w in inventory.writers.values()
        ],
        "more_writers": inventory.overflow,
    }


class ScannedLog:
    """The contents of a log in ``directory`` of another host, put together from the parts that its receiver sends."""

    def __init__(self, directory: Path) -> None:
        self.verified = Verified(directory)
        self.writers: dict[Guid, HeldWriter] = {}
        #: Frames of writers beyond the limit of separately counted ones.
        self.overflow = 0
        #: The position that the scan has reached; None: none yet.
        self.stop: int | None = None
        self._segments: dict[int, HeldSegment] = {}

    @property
    def segments(self) -> list[HeldSegment]:
        return list(self._segments.values())

    @property
    def is_whole(self) -> bool:
        """Whether everything was scanned that was there when the scan began."""
        return self.stop is not None and self.stop >= self.verified.end

    def add_bytes(self, raw: bytes) -> None:
        """Add the next part. Raises ValueError if it is invalid."""
        part, found, before = parse_object(raw), self.verified, self.stop
        base, end, stop = (parse_number(part.get(key)) for key in ("base", "end", "stop"))
        if before is None:
            before, found.base, found.end = base, base, end
        if stop <= before and stop < found.end:
            raise ValueError(f"the scan does not advance: it ends at position {stop}")
        self.stop = stop
        found.frames += parse_number(part.get("frames"))
        found.rows += parse_number(part.get("rows"))
        found.nbytes += parse_number(part.get("bytes"))
        for error in parse_entries(part.get("errors"), parse_text, _ERRORS_MAX):
            if error not in found.errors and len(found.errors) < _ERRORS_MAX:
                found.errors.append(error)
        found.overflow += parse_number(part.get("more_damage"))
        for entry in _rows(part.get("damage"), DAMAGE_LISTED_MAX, 5):
            self._add_damage(entry)
        for entry in _rows(part.get("segments"), _SEGMENTS_MAX, 6):
            self._add_segment(entry)
        for entry in _rows(part.get("writers"), WRITERS_MAX, 7):
            self._add_writer(entry)
        self.overflow += parse_number(part.get("more_writers"))

    def _add_damage(self, entry: Sequence[Any]) -> None:
        (position, stop), rows, writer = map(parse_number, entry[:2]), _optional_number(entry[2]), entry[3]
        damage = Damage(
            self.verified.path,
            position,
            stop,
            rows,
            parse_optional(writer, _guid),
            _optional_number(entry[4]),
        )
        if len(self.verified.damage) < DAMAGE_LISTED_MAX:
            self.verified.damage.append(damage)
        else:
            self.verified.overflow += 1

    def _add_segment(self, entry: Sequence[Any]) -> None:
        (base, end, frames, rows), first, last = (
            map(parse_number, entry[:4]),
            _optional_number(entry[4]),
            _optional_number(entry[5]),
        )
        if base not in self._segments and len(self._segments) >= _SEGMENTS_MAX:
            raise ValueError("it has too many segments")
        segment = self._segments.setdefault(base, HeldSegment(base, end))
        segment.end = end
        segment.frames += frames
        segment.rows += rows
        segment.first_reception = first if segment.first_reception is None else segment.first_reception
        segment.last_reception = segment.last_reception if last is None else last

    def _add_writer(self, entry: Sequence[Any]) -> None:
        guid, (highest, rows, nbytes, missing) = _guid(entry[0]), map(parse_number, entry[1:5])
        first, last = _optional_number(entry[5]), _optional_number(entry[6])
        if guid not in self.writers and len(self.writers) >= WRITERS_MAX:
            self.overflow += 1
            return
        writer = self.writers.setdefault(guid, HeldWriter(guid, 0))
        if writer.last_sn is not None and first is not None:
            missing += max(0, first - writer.last_sn - 1)
        writer.highest_sn = max(writer.highest_sn, highest)
        writer.rows += rows
        writer.nbytes += nbytes
        writer.missing += missing
        writer.last_sn = writer.last_sn if last is None else last


def _hex(writer: Guid) -> str:
    return writer.to_bytes().hex()


def _guid(value: object) -> Guid:
    raw = bytes.fromhex(parse_text(value))
    if len(raw) != GUID_BYTES:
        raise ValueError(f"{value!r:.40} is not a GUID")
    return Guid.from_bytes(raw)


def _optional_number(value: object) -> int | None:
    return parse_optional(value, parse_number)


def _rows(value: object, most: int, columns: int) -> list[list[Any]]:
    def parse_row(entry: object) -> list[Any]:
        if not isinstance(entry, list) or len(entry) != columns:
            raise ValueError(f"each entry needs {columns} columns, not {value!r:.40}")
        return entry

    return parse_entries(value, parse_row, most)
