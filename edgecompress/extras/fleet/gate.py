"""Gates over a matrix: each cell of two sweeps compared with itself, as two reports are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgecompress.commands import compare
from edgecompress.commands.compare import ComparisonRequest
from edgecompress.core.errors import GRAVITY, UNDECIDED, CheckFailed, EdgeError, InputError
from edgecompress.extras.fleet import sweep
from edgecompress.extras.fleet.matrix import Row
from edgecompress.reporting import compare_output

SHIPS = ("shipped", "undecided")


@dataclass(frozen=True)
class JudgedCell:
    """How a cell ended against the first sweep: an exit code as of `compare`, and a line that says why."""

    cell: str
    exit_code: int
    says: str


@dataclass(frozen=True)
class JudgedMatrix:
    """The cells of both sweeps."""

    cells: Sequence[JudgedCell]

    @property
    def exit_code(self) -> int:
        """The gravest of the cells."""
        return max((cell.exit_code for cell in self.cells), key=GRAVITY.index, default=0)


def is_matrix(paths: Sequence[str | Path]) -> bool:
    """Whether these are two sweeps. Raises InputError where a sweep is among others."""
    found = [(Path(path) / sweep.FILE).is_file() for path in paths]
    if missing := [path for path in paths if any(found) and not Path(path).exists()]:
        raise InputError(f"compare: {missing[0]}: no such file or folder")
    if any(found) and found != [True, True]:
        raise InputError(f"compare: {paths[found.index(True)]} is a sweep; give two sweeps, or the folders of cells")
    return any(found)


def judge(before: Path, after: Path, request: ComparisonRequest) -> JudgedMatrix:
    """Compares each cell. One that shipped and does no longer, or is gone, fails; one that is new is told.

    Raises InputError for what is no matrix, and for gates that are wrong.
    """
    request.gates()
    old, new = ({row["cell"]: row for row in sweep.read(place)} for place in (before, after))
    return JudgedMatrix([_cell(name, old.get(name), new.get(name), before, after, request) for name in {**old, **new}])


def _cell(
    name: str, old: Row | None, new: Row | None, before: Path, after: Path, request: ComparisonRequest
) -> JudgedCell:
    if old is None or old["state"] not in SHIPS:
        return JudgedCell(name, 0, f"new: {new['state']}" if new and not old else "shipped nothing before")
    if new and new["state"] in ("running", "waiting"):
        return JudgedCell(name, UNDECIDED, "not finished: sweep again")
    if new is None or new["state"] not in SHIPS:
        return JudgedCell(
            name, CheckFailed.exit_code, f"ships no longer: {new['state']}: {new['says']}" if new else "is gone"
        )
    try:
        found = compare.compare([before / name, after / name], request)
    except EdgeError as error:
        return JudgedCell(name, UNDECIDED, str(error))
    return JudgedCell(name, found.exit_code, compare_output.outcome(found))
