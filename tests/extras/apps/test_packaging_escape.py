"""A stranger's text in Java, Swift, JSON, XML, HTML, Markdown: text, and no more."""

from __future__ import annotations

import html.parser
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgecompress.core.errors import InputError
from edgecompress.extras.apps import escape
from edgecompress.extras.apps.render import render

pytestmark = pytest.mark.slow

HOSTILE = (
    '"; System.exit(1); //',
    "'); DROP TABLE x; --",
    "line\nline\r\n\u2028\u2029\x85",
    "\\u0022; evil(); //",
    "\\\\u0022",
    "\\",
    "*/ evil(); /*",
    "/*/",
    "${evil} $(evil) `evil` \\(evil)",
    "</script><script>evil()</script>",
    "]]><evil/>",
    "<!-- --> --",
    "NUL\0 \x01 \x7f \ufffe \uffff",
    "\u202eRTL\u2066\u2069\u200f\u061c שלום",
    "{{ evil }} {% evil %}",
    "halves \ud800 \udfff 😀",
    "",
)
ANY = st.text(st.characters(exclude_categories=[]), max_size=80)
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def hostile(test: Callable[[str], None]) -> Callable[[], None]:
    """Runs a test on every hostile text, and on random ones."""
    for text in HOSTILE:
        test = example(text)(test)
    return given(ANY)(settings(max_examples=150, deadline=None)(test))  # type: ignore[return-value]


def whole(text: str) -> str:
    return escape.SURROGATES.sub("\ufffd", text)


def utf16(match: re.Match[str]) -> str:
    return bytes.fromhex("".join(re.findall(r"\\u([0-9a-f]{4})", match[0]))).decode("utf-16-be")


@hostile
def test_java_reads_the_text_back_from_one_literal(text: str) -> None:
    found = escape.java(text)
    assert re.fullmatch(r"(?:[ !#%-\[\]-~]|\\[0-7]{3}|\\u[0-9a-f]{4})*", found), found
    assert "*/" not in found and "'" not in found
    decoded = re.sub(r"(?:\\u[0-9a-f]{4})+", utf16, re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), found))
    if "\\" not in text:  # an escaped backslash and what follows it would be decoded twice here
        assert decoded == whole(text)


@hostile
def test_swift_reads_the_text_back_from_one_literal(text: str) -> None:
    found = escape.swift(text)
    assert re.fullmatch(r'(?:[^"\'\\\x00-\x1f]|\\u\{[0-9a-f]{1,6}\})*', found), found
    assert "*/" not in found and "/*" not in found
    assert re.sub(r"\\u\{([0-9a-f]+)\}", lambda m: chr(int(m[1], 16)), found) == whole(text)


@hostile
def test_json_reads_the_text_back_and_a_page_does_not_end_with_it(text: str) -> None:
    found = escape.json({"a": [text], text: 1})
    assert json.loads(found)["a"] == [whole(text)]
    assert found.isascii() and not set(found) & set("<>&'`")


def test_maven_fills_nothing_into_a_name() -> None:
    read = ElementTree.fromstring(f"<name>{escape.pom('${env.SECRET} $${x} 5 $')}</name>").text
    assert read == "\ufffd{env.SECRET} $\ufffd{x} 5 $"


@hostile
def test_xml_reads_back_what_it_can_hold(text: str) -> None:
    found = ElementTree.fromstring(f'<a b="{escape.xml(text)}"><!-- {escape.xml(text)} -->{escape.xml(text)}</a>')
    assert (found.attrib["b"], found.text or "", len(found)) == (kept(text), kept(text), 0)


def kept(text: str) -> str:
    """What XML can hold of a text."""
    held = re.sub("[^\t\n\r\x20-\x7e\xa0-\ufffd\U00010000-\U0010ffff]", "\ufffd", whole(text))
    return "".join(c if ord(c) & 0xFFFE != 0xFFFE else "\ufffd" for c in held)


class Page(html.parser.HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, object]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@hostile
def test_html_has_the_text_and_no_tag_of_it(text: str) -> None:
    found = escape.html(text)
    page = Page(f"<p title=\"{found}\">x{found}</p><!-- {found} --><p title='{found}'></p>")
    assert [tag for tag, _ in page.tags] == ["p", "p"]
    assert page.text.startswith("x") and "\0" not in page.text
    if all(" " <= c <= "~" for c in text):
        assert page.text[1:] == text and page.tags[0][1] == [("title", text)]


@hostile
def test_markdown_is_one_line_without_markup(text: str) -> None:
    found = escape.md(text)
    assert "\n" not in found and "\r" not in found and not set(found) & set("<>")
    assert re.fullmatch(r"(?:[^\\`*_{}\[\]()#+\-.!|~$:\"'=^/@%<>&]|\\[^\w\s]|\\_|&#\d+;)*", found), found


@pytest.mark.parametrize("name", ["java", "javadoc", "swift", "xml", "pom", "html", "md", "json"])
def test_no_escape_lets_bidi_controls_or_nul_through(name: str) -> None:
    assert not set(escape.FILTERS[name](f"a{BIDI}\0b")) & {*BIDI, "\0"}


@pytest.mark.parametrize("name", ["java", "javadoc", "swift", "xml", "pom", "html", "md", "json"])
def test_ten_megabytes_take_no_long_time(name: str) -> None:
    begin = time.perf_counter()
    assert len(escape.FILTERS[name]('"<\n\u202e*/' * 1_700_000)) > 10_000_000
    assert time.perf_counter() - begin < 20


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ident", ["a", "_x-1.y"], ["", "1a", "-a", "a b", "a\n", "ä", 'a"', "a/b"]),
        ("hex", ["0af"], ["", "0AF", "0x1", "g", "a\n"]),
        ("version", ["2.3.0", "1.0.0-beta+1"], ["", "-1", "1 0", "1\n", "1'"]),
        ("path", ["a", "a/b.c", ".hidden/x", "a..b"], ["", "/a", "a/../b", "..", "./a", "a//b", "a b", "a/", "a\n"]),
    ],
)
def test_what_needs_no_escape_is_asserted(name: str, good: list[str], bad: list[str]) -> None:
    check = escape.FILTERS[name]
    assert [check(text) for text in good] == good
    for text in bad:
        with pytest.raises(InputError, match="is not") as raised:
            check(text)
        assert "\n" not in str(raised.value)


# --------------------------------------------------------------------------- templates


def rendered(tmp_path: Path, template: str, **values: object) -> str:
    (tmp_path / "mine").mkdir(exist_ok=True)
    (tmp_path / "mine" / "a.txt.j2").write_text(template, encoding="utf-8")
    render("mine", tmp_path / "out", values, {"a.txt": "a.txt.j2"}, folder=tmp_path)
    return (tmp_path / "out" / "a.txt").read_bytes().decode()


def test_a_template_takes_numbers_and_escaped_texts(tmp_path: Path) -> None:
    told = rendered(
        tmp_path,
        '"{{ a | java }}" {{ n }} {{ x }} {% for i in l %}{{ i | md }};{% endfor %}.\n',
        a='"',
        n=3,
        x=0.5,
        l=["#"],
    )
    assert told == '"\\042" 3 0.5 \\#;.\n'


@pytest.mark.parametrize("value", ["text", True, None, float("nan"), ["a"], b"a"])
def test_a_template_refuses_what_went_through_no_escape(tmp_path: Path, value: object) -> None:
    with pytest.raises(InputError, match=r"template a\.txt\.j2: .* must be escaped"):
        rendered(tmp_path, "{{ value }}", value=value)


@pytest.mark.parametrize(
    "template", ["{{ (a | java) ~ b }}", "{{ (a | java) + b }}", "{{ (a | java) | upper }}", "{{ (a | java)[0] }}"]
)
def test_what_is_made_of_an_escaped_text_is_escaped_no_more(tmp_path: Path, template: str) -> None:
    with pytest.raises(InputError, match="must be escaped"):
        rendered(tmp_path, template, a="x", b='"')


def test_a_name_that_a_template_misses_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"template a\.txt\.j2: 'missing' is undefined"):
        rendered(tmp_path, "{{ missing | java }}")
    with pytest.raises(InputError, match=r"template a\.txt\.j2: 'missing' is undefined"):
        rendered(tmp_path, "{{ missing }}")


@pytest.mark.parametrize("target", ["../a", "/a", "a/../../b"])
def test_a_template_writes_below_its_root_only(tmp_path: Path, target: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").write_text("a")
    with pytest.raises(InputError, match="is not a relative path"):
        render("mine", tmp_path / "out", {}, {target: "a"}, folder=tmp_path)


def test_other_files_are_copied_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.sh").write_bytes(b"{{ x }}\r\n\0")
    (tmp_path / "mine" / "run.sh").chmod(0o755)
    render("mine", tmp_path / "out", {}, {"bin/run": "run.sh"}, folder=tmp_path)
    assert (tmp_path / "out" / "bin" / "run").read_bytes() == b"{{ x }}\r\n\0"
    assert (tmp_path / "out" / "bin" / "run").stat().st_mode & 0o777 == 0o755
