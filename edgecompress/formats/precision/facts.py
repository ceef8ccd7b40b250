"""The precision of an artifact as facts, in words, and against what a recipe promises and a name says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, TypedDict

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError, StageFailed
from edgecompress.core.model import Artifact, Check, Promise
from edgecompress.formats.op_counts import CONTRADICTION
from edgecompress.formats.precision import walk
from edgecompress.formats.precision.walk import DYNAMIC

# A word of a name: "fp16", "int8", "w8a8", "palette6"; W4 are weights of 4 bits
NAMED = re.compile(
    r"(?<![a-z0-9])(?:(fp|bf|float|int)(64|32|16|8|4|2)|w(8|4|2)(?:a(?:32|16|8))?|(palette)s?(\d*))(?![a-z0-9])"
)
UNREADABLE = (*CONTRADICTION, ImportError, OSError, SyntaxError)  # the last: of XML
MOST = 0.5  # of the weights, or of the operators: what a name may be after


class Precision(TypedDict):
    """Bytes of the weights by precision, operators that multiply by what they compute in; `why` both are None."""

    weights: dict[str, int] | None
    computes: dict[str, int] | None
    why: str


def of(artifact: Artifact) -> Precision:
    """What the file of an artifact tells; the reason where it does not."""
    try:
        weights, computes = _read(artifact)
    except EdgeError as error:
        return {"weights": None, "computes": None, "why": str(error)}
    except UNREADABLE as error:
        why = f"its file cannot be read ({type(error).__name__}: {error})"
        return {"weights": None, "computes": None, "why": why}
    return {"weights": weights, "computes": computes, "why": ""}


def _read(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """By a runtime of its format. Raises StageFailed where none reads it."""
    for runtime in registry.of_format(artifact.kind):
        if runtime.precision:
            return runtime.precision(artifact)
    raise StageFailed(f"files of kind '{artifact.kind}' do not record it")


# --------------------------------------------------------------------------- in words


def main(precision: Precision) -> str:
    """What most bytes of the weights are in; of a net without weights, what most operators compute in; else ""."""
    counted = precision["weights"] or precision["computes"] or {}
    return max(counted, key=lambda word: counted[word], default="").removesuffix(DYNAMIC)


def weights(precision: Precision) -> str:
    """The weights in words, with the bytes of the first: "int8 98 % (2,100,000 bytes), fp32 2 %"."""
    counted = precision["weights"]
    if not counted:
        return "no weights" if counted is not None else ""
    total, ranked = sum(counted.values()), sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    shares = [f"{word} {_percent(size, total)}" for word, size in ranked]
    return ", ".join([f"{shares[0]} ({ranked[0][1]:,} bytes)", *shares[1:]])


def computes(precision: Precision) -> str:
    """The arithmetic in words: "int8 in 34 of 36 operators, fp32 in 2"."""
    counted = precision["computes"]
    if not counted:
        return "nothing is multiplied" if counted is not None else ""
    total, ranked = sum(counted.values()), sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    first, *rest = ranked
    return ", ".join([f"{first[0]} in {first[1]} of {total} operators", *(f"{word} in {n}" for word, n in rest)])


def line(precision: Precision) -> str:
    """All of it in one line, or why nothing is known."""
    if precision["weights"] is None:
        return f"precision unknown: {precision['why']}"
    return f"weights: {weights(precision)}; computes: {computes(precision)}"


def _percent(part: int, total: int) -> str:
    """Nothing is 0 % or 100 % that is not."""
    percent = 100 * part / max(total, 1)
    return "under 1 %" if 0 < percent < 1 else "over 99 %" if 99 < percent < 100 else f"{percent:.0f} %"


# --------------------------------------------------------------------------- promises and names


def checks(precision: Precision, promise: Promise | None, name: str) -> Iterator[Check]:
    """Whether the file keeps the promise of a recipe (None: it promises nothing), and is what a name says."""
    words = named(name)
    if precision["weights"] is None and (promise or words):
        yield Check("precision", None, None, None, f"the precision is not judged: {precision['why']}")
        return
    if promise and promise.weights:
        yield _kept(precision, "weights", promise.weights, promise.share)
    if promise and promise.computes:
        yield _kept(precision, "computes", promise.computes, promise.operators)
    promised = {promise.weights, promise.computes.removesuffix(DYNAMIC)} if promise else set()
    for word in words:
        if not any(_same(word, each) for each in promised) and contradicts(precision, word):
            yield _misnamed(precision, word, name, bool(promise))


def _kept(precision: Precision, what: Literal["weights", "computes"], word: str, share: float) -> Check:
    """The share of what is in a precision, of the weights' bytes or of the operators, against what is promised.

    Nothing of it breaks the promise; a smaller share is told: of some nets a technique takes only the smaller part.
    """
    counted = precision[what] or {}
    held, total = _held(counted, word), sum(counted.values())
    if not total:
        return Check("precision", None, None, share, f"{word} is not judged: {line(precision)}")
    value, limit = held / total, f"at least {100 * share:g} %" if share else "a part"
    unit = "bytes of weights are" if what == "weights" else "operators compute in"
    says = f"{held:,} of {total:,} {unit} {word}, promised {limit} ({line(precision)})"
    ok = value >= share or None if held else False
    return Check("precision", ok, value, share, f"{says}; {_advice(precision, word)}" if ok is False else says)


def _advice(precision: Precision, word: str) -> str:
    """What to do about a promise that was not kept."""
    if 0 < walk.bits(main(precision)) < walk.bits(word) or main(precision) == word:
        return f"the source is quantized already: give the one it was made from, or remove the step for {word}"
    return f"this technique does not take the operators that hold them: use another one for {word}, or remove the step"


def named(name: str) -> list[str]:
    """The precisions that a name speaks of: "litert-int8" of int8, "w4a16" of int4."""
    found = NAMED.finditer(name.lower())
    return [
        f"palette{m[5]}" if m[4] else f"int{m[3]}" if m[3] else f"{m[1].replace('float', 'fp')}{m[2]}" for m in found
    ]


def whole(precision: Precision) -> bool:
    """Whether most of the weights are whole numbers, and most of the operators multiply such."""
    counted = [precision["weights"] or {}, precision["computes"] or {}]
    held = [sum(n for word, n in c.items() if word.startswith("int") and not word.endswith(DYNAMIC)) for c in counted]
    return all(part and part >= MOST * sum(c.values()) for part, c in zip(held, counted, strict=True))


def contradicts(precision: Precision, word: str) -> bool:
    """Whether most of the weights and most of the operators are in another precision."""
    known = [counted for counted in (precision["weights"], precision["computes"]) if counted]
    held = [_held(counted, word) + _held(counted, word + DYNAMIC) for counted in known]
    return bool(known) and all(part < MOST * sum(counted.values()) for part, counted in zip(held, known, strict=True))


def narrower(precision: Precision, name: str) -> str:
    """The precision of a file whose name says a wider one, else ""."""
    held = main(precision)
    wider = (word for word in named(name) if 0 < walk.bits(held) < walk.bits(word))
    return held if any(contradicts(precision, word) for word in wider) else ""


def _misnamed(precision: Precision, word: str, name: str, promised: bool) -> Check:
    """A name that is not true: lost, but for an artifact that nothing compressed and that is narrower than it says."""
    held = main(precision)
    given = not promised and 0 < walk.bits(held) < walk.bits(word)
    why = f"the name '{name}' says {word}, but the file is {held or 'nothing of the kind'} ({line(precision)})"
    already = f"the source is so already, and what {word} must answer does not count"
    do = already if given else f"give it another name, or a step that makes it {word}"
    return Check("name", None if given else False, None, None, f"{why}; {do}")


def _held(counted: Mapping[str, int], word: str) -> int:
    """What of it a word means: "palette" is one of any bits."""
    return sum(number for each, number in counted.items() if _same(word, each))


def _same(word: str, held: str) -> bool:
    return word == held or (word == "palette" and held.startswith(word))
