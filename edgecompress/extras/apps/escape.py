"""Escapes, one per language: untrusted text becomes the content of a literal and nothing else.

The template writes the quotes, `String NAME = "{{ name | java }}";`, and each escape answers a `Safe`: a template takes
no other text. Printable characters to which the language gives no meaning stay. All others (newlines, quotes,
backslashes, `$`, control and bidi characters, ends of comments) are written as the language's own escape; where it has
none, U+FFFD stands for them: XML 1.0 and HTML cannot hold NUL and most control characters at all, and a line of
Markdown should hold none. Halves of surrogate pairs become U+FFFD everywhere.
"""

from __future__ import annotations

import json as _json
import re
from collections.abc import Callable

from edgecompress.core.errors import InputError

REPLACEMENT = "\ufffd"
SURROGATES = re.compile("[\ud800-\udfff]")
IDENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
HEX = re.compile(r"[0-9a-f]+")
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]*")
PATH = re.compile(r"(?!/)(?:/?(?!\.\.?(?:/|$))[A-Za-z0-9_.+-]+)+")
MARKUP = frozenset("\\`*_{}[]()#+-.!|~$:\"'=^/@%")  # what a Markdown of some kind reads as more than the character
SHOWN = 80  # characters of a text that `short` leaves


class Safe(str):
    """Text that went through an escape."""

    __slots__ = ()


class _Table(dict[int, str]):
    """What `str.translate` puts for each character: asked once, kept then."""

    def __init__(self, put: Callable[[str], str]) -> None:
        super().__init__()
        self._put = put

    def __missing__(self, code: int) -> str:
        escaped = self[code] = self._put(chr(code))
        return escaped


def _whole(value: object) -> str:
    """The text without halves of surrogate pairs; raises InputError for what is no text."""
    if not isinstance(value, str):
        shown = ascii(str(value))  # what is not defined raises here, and says its name
        raise InputError(f"{type(value).__name__} {shown[:SHOWN]} cannot be escaped; give it a str")
    return SURROGATES.sub(REPLACEMENT, value)


def _java(char: str) -> str:
    if char > "~":  # twice where UTF-16 takes two
        return re.sub("(.{4})", r"\\u\1", char.encode("utf-16-be").hex())
    return char if char >= " " and char not in "\"'\\$" else f"\\{ord(char):03o}"


def _swift(char: str) -> str:
    return char if char.isprintable() and char not in "\"'\\" else f"\\u{{{ord(char):x}}}"


def _xml(char: str) -> str:
    if char.isprintable() and char not in "\"'<>&`":
        return char
    code = ord(char)
    held = char in "\t\n\r" or (code >= 0x20 and not 0x7F <= code <= 0x9F and code & 0xFFFE != 0xFFFE)
    return f"&#{code};" if held else REPLACEMENT


def _md(char: str) -> str:
    if char in "<>&":
        return f"&#{ord(char)};"
    if char in "\t\n\r":
        return " "
    return f"\\{char}" if char in MARKUP else char if char.isprintable() else REPLACEMENT


JAVA, SWIFT, XML, MD = map(_Table, (_java, _swift, _xml, _md))


def java(value: object) -> Safe:
    r"""Inside of "..." or of a comment, ASCII alone. Octal: `\u0022` would end a literal before it is read."""
    return Safe(_whole(value).translate(JAVA).replace("*/", "*\\057"))


def javadoc(value: object) -> Safe:
    """Inside of a comment that becomes a page: HTML, where @ and { begin tags."""
    return java(html(value).replace("@", "&#64;").replace("{", "&#123;"))


def swift(value: object) -> Safe:
    """Inside of "...", or of a comment, which may nest."""
    return Safe(_whole(value).translate(SWIFT).replace("*/", "*\\u{2f}").replace("/*", "\\u{2f}*"))


def xml(value: object) -> Safe:
    """Inside of an element, an attribute in quotes, or a comment."""
    return Safe(_whole(value).translate(XML).replace("--", "-&#45;"))


def pom(value: object) -> Safe:
    """Inside of an element of a Maven project, whose `${...}` are filled in after XML is read: U+FFFD for that `$`."""
    return xml(_whole(value).replace("${", f"{REPLACEMENT}{{"))


def html(value: object) -> Safe:
    """Inside of an element that holds text (not <script>, <style>), an attribute in quotes, or a comment."""
    return xml(value)


def md(value: object) -> Safe:
    """Inside of one paragraph, heading or table cell; not of code."""
    return Safe(_whole(value).translate(MD))


def json(value: object) -> Safe:
    """A whole JSON value, quotes included, in ASCII, also in a page's <script>. Raises InputError for NaN."""
    try:
        text = _json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"a template value cannot be written as JSON: {error}") from error
    for char in "<>&'`":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Safe(text.replace("\x7f", "\\u007f"))


def _plain(value: object) -> object:
    """The value with whole characters alone."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return {_whole(key): _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _only(allowed: re.Pattern[str], words: str) -> Callable[[object], Safe]:
    def checked(value: object) -> Safe:
        if not isinstance(value, str) or not allowed.fullmatch(value):
            raise InputError(f"{ascii(value)[:SHOWN]} is not {words}")
        return Safe(value)

    checked.__doc__ = f"The text as it is; raises InputError unless it is {words}."
    return checked


ident = _only(IDENT, "a name of letters, digits, _ . and -, the first a letter or _")
hexadecimal = _only(HEX, "hexadecimal digits")
version = _only(VERSION, "a version of letters, digits, . + _ and -")
path = _only(PATH, "a relative path of letters, digits, _ . + - and /")


def short(value: object) -> str:
    """The first 80 characters and an ellipsis, of a longer text: still to be escaped."""
    text = _whole(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


FILTERS: dict[str, Callable[[object], str]] = {
    **{f.__name__: f for f in (java, javadoc, swift, xml, pom, html, md, json)},
    "ident": ident,
    "hex": hexadecimal,
    "version": version,
    "path": path,
}
