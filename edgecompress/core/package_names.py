"""Identifiers from a model's untrusted name: each is safe in the language it is named after."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass

LONGEST = 40  # characters of a slug
WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Names:
    """`text` is what people read, whatever it holds: it goes through the escape of each language before it is written.

    `slug` ("handwritten-digits") is for files and coordinates, `snake` for packages of code, `camel` for types.
    """

    text: str
    slug: str

    @property
    def snake(self) -> str:
        """`handwritten_digits`."""
        return self.slug.replace("-", "_")

    @property
    def camel(self) -> str:
        """`HandwrittenDigits`."""
        return "".join(word.capitalize() for word in self.slug.split("-"))


def names(text: str) -> Names:
    """Of a model's name: letters and digits of ASCII, the first a letter; where none is left, by the name's sha256."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    slug = "-".join(WORD.findall(plain))[:LONGEST].strip("-")
    if not slug:
        slug = f"model-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return Names(text, slug if slug[0].isalpha() else f"model-{slug}")
