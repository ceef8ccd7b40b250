"""What a technique leaves as it is: the names that the patterns of its option `skip` mean."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypedDict

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import Promise


class SensitiveLayer(TypedDict):
    """A layer of a diagnosis that is sensitive to quantization: its names in the artifact, the net and the program."""

    operator: str
    type: str
    module: str
    node: str


def matching(known: Iterable[str], patterns: Sequence[str], what: str) -> set[str]:
    """The names that match one of `patterns`. Raises InputError where a pattern matches none; `what` they name."""
    names = set(known)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError(f"skip: no {what} is called '{pattern}'{did_you_mean(pattern, names)}")
    return {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}


def promise(weights: str, computes: str, kept: Sequence[str]) -> Promise:
    """Most of the weights and operators; where the recipe itself keeps some as they are, a part of them."""
    share = 0.0 if kept else Promise.share
    return Promise(weights, computes, share, share)


def skipping(options: Mapping[str, Json], patterns: Iterable[str], option: str = "skip") -> dict[str, Json]:
    """The options of a technique with those patterns added to what it keeps in higher precision."""
    skipped = options.get(option, ())
    assert isinstance(skipped, Sequence), "the Options of each technique have it as a tuple of patterns"
    return {**options, option: list(dict.fromkeys([*map(str, skipped), *patterns]))}


def kept_as_patterns(
    options: Mapping[str, Json], layers: Sequence[SensitiveLayer], option: str = "skip"
) -> dict[str, Json]:
    """The options with the operators of those layers of a diagnosis left in float; `skip` has shell patterns."""
    return skipping(options, (glob.escape(layer["operator"]) for layer in layers if layer["operator"]), option)


def kept_as_expressions(
    options: Mapping[str, Json], layers: Sequence[SensitiveLayer], option: str = "skip"
) -> dict[str, Json]:
    """The same where `skip` has regular expressions."""
    return skipping(options, (f"^{re.escape(layer['operator'])}$" for layer in layers if layer["operator"]), option)
