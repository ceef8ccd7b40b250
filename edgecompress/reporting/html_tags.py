"""HTML elements as text: what is not HTML already is escaped, numbers keep their units beside them."""

from __future__ import annotations

import html
from collections.abc import Iterable

from edgecompress.core.plain_text import TOGETHER


class Raw(str):
    """Text that is HTML already; every other text is escaped on its way into an element."""


def tag(name: str, /, *children: str | Iterable[str], **attributes: str) -> Raw:
    """One element. `class_` is class, `aria_label` is aria-label; every child that is not Raw is escaped."""
    flat = [c for child in children for c in ([child] if isinstance(child, str) else child)]
    inner = "".join(c if isinstance(c, Raw) else html.escape(c) for c in flat)
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    pairs = "".join(f' {names[key]}="{html.escape(value)}"' for key, value in attributes.items())
    return Raw(f"<{name}{pairs}>{inner}</{name}>")


def void(name: str, /, **attributes: str) -> Raw:
    """An element without an end."""
    return Raw(tag(name, **attributes).removesuffix(f"</{name}>"))


def bdi(value: str) -> Raw:
    """A name that strangers chose, kept from reordering its neighbours; numbers keep their units and intervals."""
    # A dash allows a break after it, even before a space that does not: a word joiner forbids that one too.
    unbroken = {ord(" "): "\N{NO-BREAK SPACE}", ord("–"): "–\N{WORD JOINER}"}
    return tag("bdi", TOGETHER.sub(lambda match: match[0].translate(unbroken), value))
