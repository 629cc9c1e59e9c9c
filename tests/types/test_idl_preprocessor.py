"""What comes before the grammar: includes, macros, conditions; and that places stay right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import TypeDefinitionError
from spark_rtps.transport.types.idl import preprocessor
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Alias, Array, Struct, resolve


def files(**texts: str) -> Callable[[str], str]:
    """Files by path; in their names here _ stands for what Python does not allow: a_b is a/b.idl."""
    return {f"{name.replace('_', '/')}.idl": text for name, text in texts.items()}.__getitem__


def size(text: str, **texts: str) -> int:
    """The length of the array that is the first member of S."""
    found = parse_idl(text, include=files(**texts))["S"]
    assert isinstance(found, Struct)
    t = resolve(found.members[0].type)
    assert isinstance(t, Array)
    return t.length


@pytest.mark.parametrize(
    ("defines", "expression", "value"),
    [
        ("#define N 5", "N", 5),
        ("# define N 5 // five", "N", 5),
        ("#define N (1 + \\\n 2) /* three */", "N * 2", 6),
        ("const long N = 5; // C:\\\nconst long N = 6; // \\\r\nconst long N = 7;\n", "N", 5),
        ("#define M N\n#define N 7", "M", 7),
        ("#define N N + 1\nconst long NN = 3;\n#undef N\n#define N NN", "N", 3),
        ("#define N 1\n#define N 2", "N", 2),
        ('#define URL "http://x" // a comment\nconst string U = URL;', "4", 4),
        ("#define LONG long\nconst LONG N = 5;", "N", 5),
        ("#define F(x) x", "2", 2),
        ("#ifdef A\nconst long N = 1;\n#else\nconst long N = 2;\n#endif", "N", 2),
        ("#define A\n#ifdef A\nconst long N = 1;\n#else\nconst long N = 2;\n#endif", "N", 1),
        ("#ifndef A\nconst long N = 1;\n#endif", "N", 1),
        ("#if 0\nthis isn't \"IDL\n#define N 3\n#include <nowhere>\n#foo\n#else\n#define N 4\n#endif", "N", 4),
        ("#if defined(A) || !defined B && 1\n#define N 3\n#endif", "N", 3),
        ("#define A 3\n#if A > 2 && (A - 1) == 2 && A != -3\n#define N 3\n#endif", "N", 3),
        ("#if A\n#define N 1\n#elif 0x10 >= 020\n#define N 2\n#elif 1\n#define N 3\n#else\n#foo\n#endif", "N", 2),
        ("#if 0\n#if 1\n#define N 1\n#else\n#define N 2\n#endif\n#else\n#define N 3\n#endif", "N", 3),
        ("#define A\n#if defined(A)\n#define N 1\n#endif // A", "N", 1),
        ("#pragma prefix \"x\"\n#line 7 \"y.idl\"\n# 3 \"z.idl\"\n#\n#warning beware", "1", 1),
    ],
)  # fmt: skip
def test_macros_and_conditions(defines: str, expression: str, value: int) -> None:
    assert size(f"{defines}\nstruct S {{ long x[{expression}]; }};") == value


def test_includes() -> None:
    text = '#include "a.idl"\n#include <a.idl>\nstruct S { Row x; };'
    assert size(text, a="#pragma once\ntypedef long Row[3];") == 3
    # macros go both ways
    text = '#define N 4\n#include "a.idl"\nstruct S { long x[M]; };'
    assert size(text, a="#define M (N + 1)") == 5


def test_an_include_is_sought_in_the_directory_of_its_file() -> None:
    text = '#include "m/a.idl"\nstruct S { Row x; };'
    assert size(text, m_a='#include "b.idl"', m_b="typedef long Row[3];", b="typedef long Row[4];") == 3
    assert size(text, m_a="#include <b.idl>", m_b="typedef long Row[3];", b="typedef long Row[4];") == 4
    assert size(text, m_a='#include "../b.idl"', b="typedef long Row[4];") == 4
    # or from where the first one is, as packages of ROS 2 have it
    assert size(text, m_a='#include "n/b.idl"', n_b="typedef long Row[5];") == 5


def test_a_file_is_read_once() -> None:
    text = '#include "a.idl"\n#include "b.idl"\nstruct S { Row x; };'
    assert size(text, a='#include "b.idl"', b="typedef long Row[3];") == 3
    guarded = "#ifndef A\n#define A\n{}\n#endif"
    a, b = guarded.format('#include "b.idl"'), '#include "a.idl"\ntypedef long Row[3];'
    assert size('#include "a.idl"\nstruct S { Row x; };', a=a, b=b) == 3


def test_without_a_place_to_look_includes_are_noted() -> None:
    notes: list[str] = []
    assert "S" in parse_idl('#include "a.idl"\nstruct S { long x; };', "b.idl", notes=notes)
    assert notes == ['b.idl:1:1: #include "a.idl" is ignored: there is no place to look for it']


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('\n#include "a.idl"', "a.idl:2:9", "the size of array"),
        ('#include "m/b.idl"', "m/b.idl:1:12", "B is not defined"),
        ('#include "c.idl"', "d.idl:1:1", "c.idl includes itself: c.idl > d.idl > c.idl"),
        (' #include "none.idl"', "main.idl:1:2", "none.idl cannot be included: 'none.idl'"),
        ("#include none", "main.idl:1:1", 'write #include "name.idl"'),
        ('#include "open.idl"\n#endif', "open.idl:1:1", "this #if has no #endif"),
        ("struct S {\n#if 1\nlong x;", "main.idl:2:1", "this #if has no #endif"),
        ("#endif", "main.idl:1:1", "#endif needs an #if"),
        ("#else", "main.idl:1:1", "#else needs an #if"),
        ("#if 1\n#else\n#elif 1\n#endif", "main.idl:3:1", "#elif must not follow #else"),
        ("#ifdef A B\n#endif", "main.idl:1:1", "#ifdef needs one name"),
        ("#if 1 +\n#endif", "main.idl:1:1", "unexpected 'end' in the condition"),
        ("#if (1\n#endif", "main.idl:1:1", "unexpected 'end' in the condition"),
        ("#if (1 2\n#endif", "main.idl:1:1", "unexpected '2' in the condition"),
        ("#if 1 2\n#endif", "main.idl:1:1", "unexpected '2' in the condition"),
        ('#if "a"\n#endif', "main.idl:1:1", "unexpected '\"a\"' in the condition"),
        ("#define 5", "main.idl:1:1", "#define needs a name"),
        ("#define F(x) x\nstruct S { long x[F(3)]; };", "main.idl:2:19", "the macro F has parameters"),
        ("#define N x y\nstruct S {\n  long N; };", "main.idl:3:8", "unexpected 'y'"),
        ("#error no", "main.idl:1:1", "#error no"),
        ("#define_it", "main.idl:1:1", "#define_it is not supported: leave it out"),
        ("struct S { long x; }; #define N", "main.idl:1:23", "at the beginning of a line"),
        ("/* a\n b */ struct S { Q x; };", "main.idl:2:18", "Q is not defined"),
        ("#define A \\\n 5\nstruct S { Q x; };", "main.idl:3:12", "Q is not defined"),
        ("#pragma once\r\nstruct S {\r\n  Q x; };", "main.idl:3:3", "Q is not defined"),
        ("struct S { long x; };\n#pragma keylist S y", "main.idl:2:1", "y is no member of S itself"),
    ],
)  # fmt: skip
def test_errors_name_the_file_and_the_position(text: str, place: str, message: str) -> None:
    include = files(
        a="struct A { long x;\n long x[0]; };",
        m_b="struct A { B x; };",
        c='#include "d.idl"',
        d='#include "c.idl"',
        open="#if 1",
    )
    with pytest.raises(TypeDefinitionError) as caught:
        parse_idl(text, "main.idl", include=include)
    assert str(caught.value).startswith(f"{place}: ")
    assert message in str(caught.value)


def test_errors_of_the_file_reader_are_reported_with_the_position() -> None:
    def include(_name: str) -> str:
        raise TypeDefinitionError("no such file")

    with pytest.raises(TypeDefinitionError, match=r"^<idl>:1:1: x\.idl cannot be included: no such file$"):
        parse_idl('#include "x.idl"', include=include)


def test_macros_cannot_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert preprocessor.IDL_WORDS_MAX == limits.IDL_WORDS_MAX  # type: ignore[attr-defined]
    monkeypatch.setattr(preprocessor, "IDL_WORDS_MAX", 1000)
    text = (
        "#define A0 long x;\n"
        + "".join(f"#define A{i + 1} A{i} A{i}\n" for i in range(40))
        + "struct S { A40"
    )
    with pytest.raises(TypeDefinitionError, match="more than 1000 words"):
        parse_idl(text)
    # in a condition as well
    with pytest.raises(TypeDefinitionError, match="more than 1000 words"):
        parse_idl(text.removesuffix("struct S { A40") + "#if A40\n#endif")


def test_a_macro_that_names_itself_ends() -> None:
    found = parse_idl("#define A B\n#define B A\nstruct S { long A; };")["S"]
    assert isinstance(found, Struct) and found.members[0].name == "A"
    assert not isinstance(found, Alias)
