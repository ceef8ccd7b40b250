"""All cells of a matrix: each is a deploy, what they share is done once; what became of them is one file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress.commands import deploy, job_run
from edgecompress.core import atomic_file, output_place
from edgecompress.core.errors import UNDECIDED, CheckFailed, EdgeError, InputError, NoPath
from edgecompress.core.json import Json, read_json
from edgecompress.extras.fleet import cluster, page
from edgecompress.extras.fleet.matrix import PLACE, Cell, Row
from edgecompress.pipeline import plan, store_place
from edgecompress.pipeline.job import Job, facts_of, job
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.plan import Plan
from edgecompress.pipeline.runner import Event
from edgecompress.pipeline.store import Store

SCHEMA = "edgecompress.matrix/1"
FILE, LOG, PAGE = "matrix.json", "sweep.jsonl", "matrix.html"
AT_ONCE = 32  # cells on a cluster
LARGEST = 1 << 28  # bytes of a matrix.json
ENDED = {0: "shipped", CheckFailed.exit_code: "lost", InputError.exit_code: "refused", UNDECIDED: "undecided"}
OPTION = re.compile(r"--(only|data|metric|samples|device|profile|set)\b")
SHOWN = ("latency", "size", "accuracy", "energy_gross", "instructions")  # of Row.numbers


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended: its rows, where they are, the seconds that it took, why combinations are no cells."""

    rows: Sequence[Row]
    out: Path
    wall_s: float
    notes: Sequence[str]

    @property
    def exit_code(self) -> int:
        """0 where each cell shipped, else the gravest of theirs."""
        from edgecompress.core.errors import GRAVITY

        codes = {row["exit_code"] or 0 for row in self.rows}
        return max(codes, key=lambda code: GRAVITY.index(code) if code in GRAVITY else -1, default=0)


Hears = Callable[[Sequence[Row]], None]


def planned(cells: Sequence[Cell], options: Options) -> tuple[list[tuple[Cell, Job, Plan]], dict[str, EdgeError]]:
    """The job and the plan of each cell, and why others have none, by their names. Raises EdgeError where none has."""
    made, refused = list[tuple[Cell, Job, Plan]](), dict[str, EdgeError]()
    asks, told = job_run.asks(options) or facts_of, dict[str, dict[str, Json]]()

    def ask(name: str, device: Mapping[str, Json]) -> dict[str, Json]:
        """Each device once."""
        key = json.dumps([name, device], sort_keys=True, default=str)
        if key not in told:
            told[key] = asks(name, device)
        return dict(told[key])

    wanted = list[tuple[Cell, Job]]()
    for cell in cells:
        try:
            wanted.append((cell, job(**cell.request, untrusted=options.untrusted, ask=ask)))
        except EdgeError as error:
            refused[cell.name] = _of_matrix(error)
    try:
        own = plan.parted([whole for _, whole in wanted])  # of the variants asked for those that each target has
    except EdgeError as error:
        raise _of_matrix(error) from error
    for (cell, _), whole in zip(wanted, own, strict=True):
        try:
            made.append((cell, whole, plan.deploy(whole)))
        except EdgeError as error:
            refused[cell.name] = _of_matrix(error)
    if not made:
        raise next(iter(refused.values()))
    return made, refused


def _of_matrix(error: EdgeError) -> EdgeError:
    """An error whose remedies are keys of a matrix, which are called as the options of a deploy."""
    kind = InputError if isinstance(error, NoPath) else type(error)
    return kind(OPTION.sub(r"`\1`", str(error)))


def run(
    cells: Sequence[Cell],
    options: Options,
    notes: Sequence[str],
    hears: Hears = lambda rows: None,
    beside: Sequence[Cell] = (),
) -> Swept:
    """Deploys every cell into OUT/SOURCE/TARGET/DEVICE/PROFILE, and writes matrix.json and matrix.html there.

    What an earlier sweep wrote there of the cells `beside` stays in both.

    `hears` is told the rows whenever one changes. On this machine one cell after another, on a cluster all at once. A
    cell that fails does not stop the others. Raises EdgeError where nothing could begin.
    """
    out = Path(options.out or Path("dist") / "sweep").resolve()
    output_place.check_folder(out, "--out")
    began = time.time()
    made, refused = planned(cells, options)
    atomic_file.make_folder(out)
    Store(store_place.root(options.store))  # made once, before threads would
    rows = {cell.name: _row(cell) for cell in cells}
    for name, error in refused.items():
        rows[name] |= Row(state="refused", exit_code=error.exit_code, says=str(error))  # type: ignore[typeddict-item]
    others = {cell.name for cell in beside}
    before = {row["cell"]: row for row in (read(out) if others and (out / FILE).is_file() else ())}
    before = {name: row for name, row in before.items() if name in others or name in rows}  # in the order that it has
    with (out / LOG).open("a", encoding="utf-8") as file, contextlib.ExitStack() as last:
        book = _Book(out, file, rows, hears, before)
        last.callback(book.finish, notes)  # also where Ctrl-C ends it
        if options.on == "local":
            for each in made:
                _deploy(*each, options, book, began)
        else:
            known = cluster.connected(options.on)
            book.stopped = known.stopped
            with ThreadPoolExecutor(AT_ONCE) as pool, known.logged(book.log), known.stopped_by_errors():
                for future in [pool.submit(_deploy, *each, options, book, began) for each in made]:
                    future.result()
    return Swept([*rows.values()], out, time.time() - began, notes)


def read(place: Path) -> list[Row]:
    """The rows of a matrix.json, or of the folder that it is in. Raises InputError."""
    file = place / FILE if place.is_dir() else place
    try:
        table = read_json(file, LARGEST)
        rows: list[Row] = table["rows"]
        if table["schema"] != SCHEMA or not all(set(row) == set(Row.__annotations__) for row in rows):
            raise ValueError(f"its schema is not {SCHEMA}")
        return rows
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: not a matrix of `edgecompress sweep`, or damaged: {error}") from error


def _row(cell: Cell) -> Row:
    source, target, device, profile = cell.parts
    return Row(
        cell=cell.name,
        source=source,
        target=target,
        device=device,
        profile=profile,
        state="waiting",
        exit_code=None,
        says="",
        report="",
        variant="",
        numbers={},
        loss=None,
        wall_s=0.0,
        saved_s=0.0,
    )


@dataclass
class _Book:
    """What is known of the cells, told and written by one thread at a time."""

    out: Path
    file: Any
    rows: dict[str, Row]
    hears: Hears
    before: Mapping[str, Row]
    stopped: Callable[[], bool] = bool  # whether what has not ended will not
    _telling: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def log(self, row: Mapping[str, Json]) -> None:
        """A line of the log."""
        with self._telling:
            self.file.write(json.dumps({"time": time.time(), **row}) + "\n")
            self.file.flush()

    def tell(self, cell: Cell, **changes: Any) -> None:
        """What changed of a cell."""
        with self._telling:
            self.rows[cell.name] |= changes  # type: ignore[typeddict-item]
            self.hears([*self.rows.values()])
        self.log(
            {"cell": cell.name, **{name: changes[name] for name in ("state", "says", "wall_s") if name in changes}}
        )
        self.write()

    def every(self) -> list[Row]:
        """The cells of this sweep, among those of an earlier one that stay."""
        return [*({**self.before, **self.rows}).values()]

    def write(self) -> None:
        """Writes matrix.json, whole or not at all."""
        with self._telling:
            text = json.dumps({"schema": SCHEMA, "rows": self.every()}, indent=1)
            atomic_file.write(self.out / FILE, text.encode("utf-8"))

    def finish(self, notes: Sequence[str]) -> None:
        """Writes what became of the cells, and their page."""
        self.write()
        atomic_file.write(self.out / PAGE, page.of(self.every(), notes).encode("utf-8"))


def _deploy(cell: Cell, whole: Job, steps: Plan, options: Options, book: _Book, began: float) -> None:
    """One cell, in a thread of its own."""
    begin, place = time.time(), book.out.joinpath(*cell.name.split(PLACE))
    book.tell(cell, state="running")
    own = dataclasses.replace(options, out=place, listener=_unheard)
    try:
        result = deploy.run(whole, steps, own)
    except EdgeError as error:
        if book.stopped():  # that is why
            book.tell(cell, state="waiting")
            return
        state = ENDED.get(error.exit_code, "failed")
        book.tell(cell, state=state, exit_code=error.exit_code, says=str(error), wall_s=time.time() - begin)
        return
    if book.stopped() and result.exit_code not in (0, UNDECIDED):
        book.tell(cell, state="waiting")
        return
    told: dict[str, Any] = {"exit_code": result.exit_code, "says": result.message, "wall_s": time.time() - begin}
    facts = result.read_report()
    if facts and result.report == place:
        told |= {"report": f"{cell.name}/report.html", **dict(_numbers(facts))}
        if result.exit_code == CheckFailed.exit_code:  # which variant lost what
            told["says"] = facts["summary"]["sentence"] or result.message
    told["saved_s"] = sum(o.wall_s for o in result.outcomes.values() if o.why_run == "hit" and began < o.made < begin)
    book.tell(cell, state=ENDED.get(result.exit_code, "failed"), **told)


def _unheard(event: Event) -> None:
    """A cell's own events are not shown: the matrix is."""


def _numbers(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The numbers of the variant that a report is about, and what its metric lost."""
    from edgecompress.reporting import formatting, model

    report = model.of(facts)
    variant = report.variant(report.choice.variant) if report.choice.variant else None
    if variant is None:
        return
    yield "variant", variant.name
    known = {name: number for name in SHOWN if (number := variant.numbers.get(name)) and number.value is not None}
    yield "numbers", {n: {"value": k.value, "unit": k.unit, "text": formatting.text(k)} for n, k in known.items()}
    for row in report.deltas:
        ends = [number.value for number in (row.before, row.after) if number and number.value is not None]
        if row.metric == "accuracy" and len(ends) == 2:
            yield "loss", (ends[0] - ends[1]) * (1.0 if row.better == "higher" else -1.0)
