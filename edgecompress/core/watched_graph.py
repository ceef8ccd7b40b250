"""The operators of an artifact whose inner values are handed out: plain data, as `watched` of a runtime writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from edgecompress.core.json import Json

if TYPE_CHECKING:
    import numpy as np

CONSTANTS = "constants.npz"  # of a folder: "0", "1", ...
LONGEST = 16  # of a list or a text that is an attribute worth telling


@dataclass(frozen=True)
class WatchedOperator:
    """An operator: what it reads and makes that depends on the inputs, the constants that it reads, its attributes.

    `module`: of the torch net, or "".
    """

    name: str
    type: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    constants: tuple[str, ...] = ()
    attributes: Mapping[str, Json] = field(default_factory=dict)
    module: str = ""


class WatchedFacts(TypedDict):
    """Of an artifact with its inner values: [output, value], the value that each own output is, the operators, the
    names and dtypes of CONSTANTS in their order."""

    values: list[list[str]]
    ends: list[list[str]]
    graph: list[dict[str, Json]]
    constants: list[list[str]]


def written(
    folder: Path,
    values: Iterable[tuple[str, str]],
    ends: Iterable[tuple[str, str]],
    graph: Iterable[WatchedOperator],
    constants: Mapping[str, np.ndarray],
) -> WatchedFacts:
    """What `watched` tells beside the file; the constants go into the folder, as they are stored."""
    import numpy as np

    np.savez(folder / CONSTANTS, **{str(i): array for i, array in enumerate(constants.values())})  # type: ignore[arg-type]
    return {
        "values": [[*pair] for pair in values],
        "ends": [[*pair] for pair in ends],
        "graph": [asdict(op) for op in graph],
        "constants": [[name, str(array.dtype)] for name, array in constants.items()],
    }


def operators(rows: Iterable[Mapping[str, Any]]) -> list[WatchedOperator]:
    """The operators in the facts of an artifact."""
    return [
        WatchedOperator(
            row["name"],
            row["type"],
            tuple(row["reads"]),
            tuple(row["writes"]),
            tuple(row["constants"]),
            row["attributes"],
            row["module"],
        )
        for row in rows
    ]


def attribute(value: object) -> Json:
    """An attribute as plain data; None for one that is no number, text, or short list of those."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if hasattr(value, "item") and getattr(value, "size", 2) == 1:
        value = value.item()
    if isinstance(value, (list, tuple)) or hasattr(value, "tolist") or type(value).__name__.startswith("Repeated"):
        each = [attribute(one) for one in list(value)[: LONGEST + 1]]  # type: ignore[call-overload]
        return None if len(each) > LONGEST or None in each else each
    return value if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) < 40) else None


def attributes(every: Mapping[str, object]) -> dict[str, Json]:
    """Those that can be told."""
    known = {name: attribute(value) for name, value in every.items()}
    return {name: value for name, value in known.items() if value is not None}
