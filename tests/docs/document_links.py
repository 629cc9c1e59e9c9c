"""The links of all documents: ``python -m tests.docs.document_links`` lists those that lead nowhere.

It checks relative links, to files and to headings, and needs no network: links to the web are left alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_FENCE: Final = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def documents() -> list[Path]:
    """Every document written for readers of the repository."""
    folders = (ROOT, ROOT / "docs", ROOT / "examples")
    return sorted(path for folder in folders for path in folder.glob("*.md"))


def without_code(text: str) -> str:
    """The text without its code blocks."""
    return _FENCE.sub("", text)


def links(text: str) -> Iterator[str]:
    """The relative targets of the links and images of a document."""
    for match in _LINK.finditer(_CODE.sub("`", without_code(text))):
        if not _ELSEWHERE.match(match[1]):
            yield match[1]


def anchors(text: str) -> set[str]:
    """What a link may name behind ``#``: the headings as GitHub writes them, the second of a name with ``-1``."""
    found: dict[str, int] = {}
    made = set()
    for match in _HEADING.finditer(without_code(text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        made.add(f"{slug}-{count}" if count else slug)
    return made


def broken_links(document: Path) -> list[str]:
    """A sentence for each link of a document that leads nowhere."""
    broken = []
    text = document.read_text(encoding="utf-8")
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists():
            broken.append(f"{document.relative_to(ROOT)}: there is no {path}")
        elif not target.is_relative_to(ROOT):
            broken.append(f"{document.relative_to(ROOT)}: {path} lies outside the repository")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            broken.append(f"{document.relative_to(ROOT)}: {path or document.name} has no heading #{anchor}")
    return broken


def main() -> int:
    broken = [sentence for document in documents() for sentence in broken_links(document)]
    for sentence in broken:
        print(sentence, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
