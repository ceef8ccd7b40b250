"""`edgecompress report`: the report of a deploy, with measurements of its packages from other devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgecompress.commands import shipped_folder
from edgecompress.core import atomic_file
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Context, Stage
from edgecompress.pipeline import store_place
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.store import Store
from edgecompress.reporting import external_results, external_rows, read

Report = dict[str, Any]
FACES = ("report.html", "report.md", "report.json")  # the last says that the others are there


def report(folder: Path) -> Report:
    """The report.json of a folder with all that its `measured/` holds, rendered yet or not. Raises InputError."""
    stored, home = read.document(folder), _home(folder)
    if not (home / "artifact").is_dir() or not external_results.files(home):
        return stored
    return {**stored, "elsewhere": _rows(external_results.kept(home, _model(home)))}


def add(folder: Path, files: Sequence[Path], options: Options | None = None) -> Report:
    """Stores measurements from other devices beside the report and renders the report again; returns it.

    All files are checked before the first is stored. Raises InputError for a file that is no measurement, is of
    another model, or tells a session again with other numbers.
    """
    report, home, options = read.document(folder), _home(folder), options or Options()
    if not (home / "artifact").is_dir():
        raise InputError(
            f"{folder}: no artifact in this folder whose package could have been measured; give the folder that "
            "deploy wrote"
        )
    model = _model(home)
    new = [external_results.held(external_results.read(file), model, file) for file in files]
    walk = PlanRun(Store(store_place.root(options.store)), Context(), scope=f"report>{home}", listener=options.hears)
    with walk.store.locked(external_results.lock(home)):
        known = external_results.kept(home, model)
        external_results.no_other_telling(known, new)
        every = {measurement.name: measurement for measurement in (*known, *new)}
        report = {**report, "elsewhere": _rows(list(every.values()))}
        drawn = _drawn(walk, report)
        for measurement in new:
            external_results.keep(home, measurement)
        _place(drawn, home)
    return report


def _rows(measurements: Sequence[external_results.Measurement]) -> object:
    from msgspec import to_builtins

    return to_builtins(external_rows.rows(measurements))


def _home(folder: Path) -> Path:
    return folder.parent if folder.suffix == ".json" else folder


def _model(home: Path) -> str:
    """The digest of what shipped, whose bytes are those that shipped; raises InputError."""
    return external_results.digest(shipped_folder.shipped(home)[0])


def _drawn(walk: PlanRun, report: Report) -> Path:
    """A folder with the faces, drawn in a worker."""
    drawn = walk.stage(Stage("report", "stages.report:again", options={"report": report}, context=())).artifact
    assert drawn  # or it had raised
    return drawn.path


def _place(drawn: Path, home: Path) -> None:
    """Puts each face in its place, whole or not at all."""
    for name in FACES:
        try:
            atomic_file.write(home / name, (drawn / name).read_bytes())
        except OSError as error:
            raise StageFailed(
                f"{home / name}: cannot be written: {error.strerror}; the added measurements are kept"
            ) from error
