"""The tables of ``spark-rtps stat``: as AeronStat, but easier to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .tables import NOTHING, duration, fields, sentence, size, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from ..monitoring.stream_counters import MatchedReader, ReceivedPositions, SenderPositions, Stream
    from .stat_snapshot import StatSnapshot

_STREAMS: Final = (
    "stream",
    "samples\nbytes\non disk",
    "behind",
    "peers",
    "lost\nrejected\nmalformed",
    "repairs\nheld",
)
_RATES: Final = "samples/s\nbytes/s"
_SENDERS: Final = ("sink", "pub-pos\npub-lmt", "snd-pos\nsnd-lmt", "lag\nwindow", "snd-bpe", "paced by", "")
_WRITERS: Final = ("source\nwriter", "rcv-pos\nrcv-hwm", "sub-pos\nlag", "window\nrtt")
_READERS: Final = ("sink\nreader", "acknowledged", "behind", "")
#: Pairs of a system counter and its number, side by side.
_SYSTEM_WIDTH: Final = 3


def tables(look: StatSnapshot, *, everything: bool, system: bool) -> list[RenderableType]:
    """The tables of one snapshot; the first one has no rates."""
    streams = look.shown(everything=everything)
    hidden = len(look.streams) - len(streams)
    parts: list[RenderableType] = []
    if streams:
        columns = (*_STREAMS[:2], _RATES, *_STREAMS[2:]) if look.rates else _STREAMS
        rows = [_stream_row(alike, look) for alike in _together(streams, look)]
        parts.append(table("streams", columns, rows, numbers=columns[1:]))
    else:
        parts.append(sentence(look.collected.nothing("no source or sink runs")))
    parts += map(sentence, look.collected.unreached.values())
    if hidden:
        parts.append(sentence(f"{hidden} more that have ended: --all shows them{_left_on_disk(look)}"))
    parts += _details(streams)
    if system:
        parts.append(_system(streams))
    return parts


def _details(streams: Sequence[Stream]) -> list[RenderableType]:
    """A table for each kind of detail that is present."""
    senders = [_sender_row(s, s.positions) for s in streams if s.positions is not None]
    writers = [_writer_row(s, writer) for s in streams for writer in s.writers]
    readers = [_reader_row(s, reader) for s in streams for reader in s.readers]
    statuses = [(s.topic, _who(s), *row) for s in streams for row in _status_rows(s)]
    found: list[tuple[str, Sequence[str], Sequence[Sequence[str]], Sequence[str]]] = [
        ("positions of the sinks", _SENDERS, senders, _SENDERS[1:-1]),
        ("positions of the sources", _WRITERS, writers, _WRITERS[1:]),
        ("readers of the sinks", _READERS, readers, _READERS[1:3]),
        ("statuses", ("stream", "", "status", ""), statuses, ()),
    ]
    return [table(title, columns, rows, numbers=numbers) for title, columns, rows, numbers in found if rows]


def _on_disk(stream: Stream) -> str:
    return size(stream.disk_bytes) if stream.disk_bytes else NOTHING


def _left_on_disk(look: StatSnapshot) -> str:
    """The disk space of the logs of ended sources."""
    from ..monitoring.stream_counters import State

    left = sum(stream.disk_bytes for stream in look.streams if stream.state is State.ENDED)
    return f"; their logs take {size(left)} on the disk, see `spark-rtps clean`" if left else ""


def _who(stream: Stream) -> str:
    return f"{stream.kind.value} {stream.pid}"


def _together(streams: Sequence[Stream], look: StatSnapshot) -> list[list[Stream]]:
    """The streams by rows: the writers of a topic in several worker processes are one sink."""
    from ..monitoring.stream_counters import StreamKind

    found: dict[object, list[Stream]] = {}
    for number, each in enumerate(streams):
        of_sink = (each.topic, each.type, each.domain, each.state, look.collected.at(each.path))
        found.setdefault(of_sink if each.kind is StreamKind.SINK else number, []).append(each)
    return list(found.values())


def _stream_row(alike: Sequence[Stream], look: StatSnapshot) -> tuple[str, ...]:
    stream = alike[0]
    domain = "" if stream.domain is None else f", domain {stream.domain}"
    where = str(stream.pid) if len(alike) == 1 else f"in {len(alike)} workers"
    behind = size(sum(each.behind_bytes for each in alike))
    behind_samples = [each.behind_samples for each in alike if each.behind_samples is not None]
    rates: tuple[str, ...] = ()
    if look.rates:
        known = [look.rates[each.path] for each in alike if each.path in look.rates]
        known_bytes = [look.byte_rates[each.path] for each in alike if each.path in look.byte_rates]
        samples = f"{sum(known):.0f}" if known else NOTHING
        rates = (f"{samples}\n{size(sum(known_bytes)) if known_bytes else NOTHING}",)
    return (
        f"{stream.topic}\n{stream.kind.value}{domain}\n{stream.state.value} {where}{look.collected.at(stream.path)}",
        f"{sum(each.samples for each in alike)}\n{size(sum(each.nbytes for each in alike))}\n{_on_disk(stream)}",
        *rates,
        f"{sum(behind_samples)}\n{behind}" if behind_samples else behind,
        str(max(each.peers for each in alike)),  # all writers have the same readers
        "\n".join(str(sum(n)) for n in zip(*((s.lost, s.rejected, s.malformed) for s in alike), strict=True)),
        "\n".join(str(sum(n)) for n in zip(*((s.repairs, s.back_pressure) for s in alike), strict=True)),
    )


def _sender_row(stream: Stream, positions: SenderPositions) -> tuple[str, ...]:
    return (
        f"{stream.topic}\n{stream.pid}",
        f"{positions.pub_pos}\n{positions.pub_lmt}",
        f"{positions.snd_pos}\n{positions.snd_lmt}",
        f"{size(positions.lag)}\n{size(positions.window)}",
        str(positions.snd_bpe),
        NOTHING if positions.receivers is None else str(positions.receivers),
        "not connected" if positions.is_connected is False else "",
    )


def _writer_row(stream: Stream, writer: ReceivedPositions) -> tuple[str, ...]:
    return (
        f"{stream.topic} {stream.pid}\n{writer.guid}",
        f"{writer.rcv_pos}\n{writer.rcv_hwm}",
        f"{writer.sub_pos}\n{size(writer.lag)}",
        f"{size(writer.window)}\n{NOTHING if writer.rtt_ns is None else duration(writer.rtt_ns)}",
    )


def _reader_row(stream: Stream, reader: MatchedReader) -> tuple[str, ...]:
    which = f"{stream.topic} {stream.pid}\n{reader.guid}"
    if reader.acked_sn is None:
        return which, f"\n{NOTHING}", f"\n{NOTHING}", "\nbest effort"
    behind = max(0, stream.counters.get("writer.last_sn", 0) - reader.acked_sn)
    return which, f"\n{reader.acked_sn}", f"\n{behind}", "" if reader.active else "\ninactive"


def _status_rows(stream: Stream) -> list[tuple[str, str]]:
    """The DDS statuses that have a value other than zero, then the dropped messages by reason, and consumer groups."""
    from ..monitoring.stream_counters import raised

    rows = [(name, fields(found)) for name, found in sorted(raised(stream.counters).items())]
    drops = {reason: count for reason, count in stream.drops.items() if count}
    others = {"messages dropped": drops, "consumer groups": stream.groups}
    return [*rows, *((name, fields(found)) for name, found in others.items() if found)]


def _system(streams: Sequence[Stream]) -> RenderableType:
    from ..monitoring.stream_counters import system_counters

    cells: list[str] = []
    for name, value in system_counters(streams).items():
        cells += name.replace("_", " "), NOTHING if value is None else str(value)
    width = 2 * _SYSTEM_WIDTH
    cells += [""] * (-len(cells) % width)
    rows = [cells[at : at + width] for at in range(0, len(cells), width)]
    return table("all streams together", ("",) * width, rows, header=False)
