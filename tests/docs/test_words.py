"""The words of the code: none that only this code would have, and no verb that stands for many things."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Words for which the field has others (docs/glossary.md), in names and in sentences.
BANNED = (
    *(
        "said",
        "told",
        "heard",
        "believe",
        "believed",
        "nap",
        "naps",
        "stretch",
        "stretches",
        "lanes",
        "stranger",
    ),
    *("strangers", "knock", "knocks", "goodbye", "goodbyes", "rumour", "rumours", "remedy", "remedies"),
)
#: Verbs by which interfaces of Python, Spark, Aeron and the operating system are called.
EVERYWHERE = frozenset({"close", "flush", "start", "stop", "get_timer", "handle_timer"})
UNRELATED_MAX = 8


def _modules() -> Iterator[Path]:
    for room in ("spark_rtps", "datasource", "transport"):
        yield from (path for path in sorted((ROOT / room).rglob("*.py")) if not path.parent.is_symlink())


def test_no_word_of_the_code_is_one_that_the_field_does_not_know() -> None:
    # "told_by" is a key of `spark-rtps type --json`, whose output stays
    pattern = re.compile(rf"(?i)(?<![a-z])({'|'.join(BANNED)})(?![a-z]|_by)")
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in (*_modules(), *(page for page in pages if page.name != "CHANGELOG.md"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for word in pattern.findall(line)
    ]
    assert not found, "\n".join(found)


def _bare_verbs() -> dict[str, set[str]]:
    """The families of classes that have each public method of one word: a family shares a base, or a module."""
    bases: dict[str, list[str]] = {}
    methods: list[tuple[str, str, str]] = []
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [
                    ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases
                ]
                methods += [
                    (each.name, node.name, str(path.relative_to(ROOT)))
                    for each in node.body
                    if isinstance(each, ast.FunctionDef)
                    and not each.name.startswith("_")
                    and "_" not in each.name
                    and not any(ast.unparse(d).endswith("property") for d in each.decorator_list)
                ]

    def root(name: str) -> str:
        known = [
            base for base in bases.get(name, []) if base not in ("Protocol", "Generic", "ABC", "NamedTuple")
        ]
        return root(known[0]) if known and known[0] != name else name

    found: dict[str, set[str]] = defaultdict(set)
    for verb, name, module in methods:
        found[verb].add(root(name) if root(name) != name else module)
    return found


def test_no_verb_alone_names_methods_of_many_unrelated_classes() -> None:
    found = {
        verb: sorted(families)
        for verb, families in _bare_verbs().items()
        if verb not in EVERYWHERE and len(families) > UNRELATED_MAX
    }
    assert not found, "\n".join(f"{verb}: {', '.join(families)}" for verb, families in found.items())


def test_the_glossary_has_each_word_once() -> None:
    rows = re.findall(r"^\| ([^|]+?) +\| ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = [
        word.strip() for row in rows if row not in ("word",) and set(row) != {"-"} for word in row.split(",")
    ]
    assert len(words) == len(set(words)) > 60
