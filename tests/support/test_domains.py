"""No two users of a DDS domain run side by side, and none takes a domain that is not in the registry."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import pytest

from spark_rtps.transport.structure import user_unicast_port
from tests.support import domains
from tests.support.rows import each_of, place_of
from tests.support.worker_lane import scope_of

ROOT = Path(__file__).parents[2]
REGISTRY = Path(domains.__file__)
FILES = sorted(path for path in (ROOT / "tests").rglob("*.py") if path not in (REGISTRY, Path(__file__)))
USERS = {
    name: frozenset(value if isinstance(value, range) else (value,))
    for name, value in vars(domains).items()
    if name.isupper() and name != "FIRST_EPHEMERAL"
}
#: These run alone: `make bench`, `make test-fastdds`, `make simulate`.
RUN_ALONE = ("bench", "fastdds", "simulation")

#: Ranges of which each process has a domain of its own.
OF_EACH_PROCESS = ("SPARK",)

#: Where Linux's ports of unbound sockets start, unless told otherwise.
EPHEMERAL = 32_768

#: What opens sockets and is given a domain; no domain above 232 has ports.
LITERALS = re.compile(
    r"""\b(?:scene_of|Sockets\.open|DomainParticipant|Domain|CyclonePeer|FastPeer)\(\s*(?P<position>\d+)
      | \bNodeConfig\([^()]*?\bdomain=(?P<config>\d+)
      | ^\s*\w*DOMAINS?\b[^=\n]*=(?!=)[^\n]*?(?<![\w.])(?P<constant>\d+)
      | "domain":\s*"?(?P<option>\d+)[^{}]*"interface"
      | "--domain",\s*"(?P<argument>\d+)""",
    re.VERBOSE | re.MULTILINE,
)


#: Without such a text a source imports nothing of the tests, and need not be parsed.
IMPORTS_TESTS = re.compile(r"(?:\bfrom|\bimport|,)[\s\\]*tests\b")


def literals(text: str) -> list[int]:
    """The domains that a source gives to sockets as numbers."""
    found = (int(match[match.lastgroup or 0]) for match in LITERALS.finditer(text))
    return [number for number in found if number <= 232]


@cache
def needed(path: Path) -> frozenset[Path]:
    """The modules of the tests that a file of tests runs with: itself, its conftest.py and all that they import."""
    found: set[Path] = set()
    waiting = [path, path.with_name("conftest.py")]
    while waiting:
        file = waiting.pop()
        if file in FILES and file not in found:
            found.add(file)
            waiting += (ROOT / f"{name.replace('.', '/')}.py" for name in imports_of(file))
    return frozenset(found)


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Dotted names of which some are the modules of the tests that a file imports, and the others things in them."""
    text = path.read_text(encoding="utf-8")
    return tuple(_imported(ast.parse(text))) if IMPORTS_TESTS.search(text) else ()


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the registry that a source mentions, in texts that it runs as scripts too."""
    return frozenset(re.findall(r"\bdomains\.([A-Z_]+)\b", path.read_text(encoding="utf-8")))


@cache
def scopes() -> dict[str, set[str]]:
    """By name of the registry: the lanes and files whose tests use it."""
    found: dict[str, set[str]] = {name: set() for name in USERS}
    for path in FILES:
        file = path.relative_to(ROOT)
        alone = file.parts[1] in RUN_ALONE
        if alone or path.name.startswith("test_"):
            for name in frozenset().union(*map(names_in, needed(path))):
                found[name].add(f"alone: {file.parts[1]}" if alone else scope_of(str(file)))
    return found


def test_no_two_names_share_a_domain() -> None:
    shared = {
        (one, other): sorted(USERS[one] & USERS[other])
        for one, other in combinations(USERS, 2)
        if USERS[one] & USERS[other]
    }
    assert not shared


def test_all_domains_lie_below_the_ephemeral_ports() -> None:
    used = set(chain(*USERS.values()))
    assert 0 < min(used) <= max(used) < domains.FIRST_EPHEMERAL
    assert user_unicast_port(max(used), 8) < EPHEMERAL <= user_unicast_port(domains.FIRST_EPHEMERAL, 8)


@each_of(sorted(USERS))
def test_a_domain_name_belongs_to_one_lane_or_file(name: str) -> None:
    users = scopes()[name]
    assert len(users) == 1 or name in OF_EACH_PROCESS, users


@each_of(FILES, name=place_of)
def test_no_domain_is_given_as_a_number(path: Path) -> None:
    assert not literals(path.read_text(encoding="utf-8")), "take it from tests/support/domains.py"


@pytest.mark.parametrize(
    "text",
    [
        "with scene_of(66) as scene:",
        "Sockets.open(64, LOOPBACK)",
        "NodeConfig(domain=7)",
        'NodeConfig(interface="lo", domain=7)',
        "DOMAIN = 61",
        "DOMAIN, EMPTY_DOMAIN = 71, 72",
        "    _DOMAINS = itertools.cycle(range(1, 41))",
        "_DOMAIN: int = 9",
        '{"domain": "63", "interface": "lo"}',
        '["--domain", "7"]',
    ],
)
def test_domain_numbers_in_code_are_found(text: str) -> None:
    assert literals(text)


@pytest.mark.parametrize(
    "text",
    [
        "NodeConfig(domain=domains.SPARK)",
        "Sockets.open(233, LOOPBACK)",
        "SimpleNamespace(domain=0); counters.add(writer, domain=0)",
        "DOMAIN = domains.TYPES_1",
        "NodeConfig(domain=DOMAIN, receive_buffer=4 << 20)",
        "DOMAIN_COUNTS = 5",
        '{"topic": "T", "domain": 7}',
    ],
)
def test_other_numbers_in_code_are_not_found(text: str) -> None:
    assert not literals(text)
