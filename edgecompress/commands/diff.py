"""`diff`: two models of any kinds on the same items: outputs, the first operator that departs, the kind of fault."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from edgecompress.commands import job_run, objects
from edgecompress.commands.shipped_folder import runtime_of, shipped
from edgecompress.core import catalog, extras, output_place, registry
from edgecompress.core import source as sources
from edgecompress.core.errors import UNDECIDED, CheckFailed, InputError, StageFailed, edge_errors
from edgecompress.core.model import Artifact, Outcome, Stage
from edgecompress.core.plain_text import fitted, printed
from edgecompress.core.settings import SPLITS
from edgecompress.core.source import ResolvedSource
from edgecompress.pipeline import job as jobs
from edgecompress.pipeline.conversion import TRACE
from edgecompress.pipeline.job import job
from edgecompress.pipeline.job_request import How, JobRequest, Model, Name, Options, keywords
from edgecompress.stages.diagnose import advice

ITEMS, SPLIT = 8, "calibrate"
PACKAGES = (".zip", ".tar.gz")  # how their names end
CODES = {"equal": 0, "differ": CheckFailed.exit_code, "undecided": UNDECIDED}


@dataclass(frozen=True, repr=False)
class Diff:
    """How two models differ, as JSON, and the exit code of that: 0 equal, 1 differ, 4 undecided."""

    facts: Mapping[str, Any]
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """That of the command."""
        return CODES[self.facts["verdict"]]

    def __repr__(self) -> str:
        return f"Diff({text(self, brief=True)})"

    def __str__(self) -> str:
        return printed(lambda columns: text(self, width=columns))


@dataclass(frozen=True)
class _Model:
    """One of the two: how it is loaded, by which stages, and the runtime that runs it ("" of a torch program)."""

    given: str
    source: ResolvedSource | None
    artifact: Artifact | None = None

    def fed(self, data: str) -> _Model:
        """The same with that data: a file whose open axes get sizes of it is loaded behind it."""
        return replace(self, source=replace(self.source, data=data)) if self.source else self

    def stages(self, which: str) -> list[Stage]:
        """The stages that end with the one called `which`."""
        if self.source is None:
            return []
        source, last = self.source, f"{which}/source" if self.source.kind == "module" else which
        load = Stage(
            last,
            source.call,
            {"samples": "data"} if source.sized else {},
            source.for_model(),
            user_code=source.runs_code,
            user_files=source.files("model"),
            estimate_s=2.0,
        )
        options = {"dynamic": source.dynamic}
        traced = Stage(which, TRACE, {"model": last, "samples": "data"}, options, user_code=True, estimate_s=6.0)
        return [load, *([traced] if source.kind == "module" else [])]

    @property
    def runtime(self) -> str:
        """What runs it."""
        if self.artifact is not None:
            return runtime_of(self.artifact)
        assert self.source
        return self.source.runtime


@keywords
@edge_errors
def diff(
    a: Model,
    b: Model,
    *,
    map: Mapping[str, str] | None = None,
    items: int = ITEMS,
    split: str = SPLIT,
    html: Name | None = None,
    options: Options | None = None,
    **how: Unpack[How],
) -> Diff:
    """Runs two models on the same items and finds the first operator of which B's differs from A's.

    a, b: a torch factory, a file or folder of any format that a runtime opens, or a folder that a deploy wrote. map:
    {A's name: B's} of inputs and outputs whose names tell nothing. html: a page with the graphs. The other keywords are
    those of `deploy`. Raises EdgeError: InputError where the two have nothing in common.
    """
    if items < 1:
        raise InputError(f"--items {items}: must be at least 1")
    if split not in SPLITS:
        raise InputError(f"--split {split}: must be one of {', '.join(SPLITS)}")
    if html:
        output_place.check_file(Path(html), "--html")
    options = options or Options()
    asked = JobRequest(**how)  # type: ignore[typeddict-item]
    asked["data"] = objects.written(None, how, options).get("data")
    with tempfile.TemporaryDirectory(prefix="edgecompress-diff-") as work:
        places = [Path(work, which) for which in "ab"]
        for place in places:
            place.mkdir()
        first, second = (_model(model, asked, options, place) for model, place in zip((a, b), places, strict=True))
        data = str(asked["data"] or _data(first, second))
        first, second = (model.fed(data) for model in (first, second))
        known = first.source or second.source
        base = job(**(asked | JobRequest(model=known.model if known else None, data=data)))
        walk = job_run.begin(base, options, f"diff>{first.given}>{second.given}")
        for which, model in (("a", first), ("b", second)):
            if model.artifact is not None:
                walk.outcomes[which] = Outcome(which, "ok", model.artifact)
        walk.stages(_stages(base.source.value, first, second, map or {}, items, split, bool(html)))
    found = walk.outcomes["diff"]
    if found.artifact is None:
        raise found.error or StageFailed(f"diff: {found.reason}")
    made_up = base.source.value.random
    facts = {"a": first.given, "b": second.given, "items": items, "split": split, "made_up": made_up, **found.facts}
    if html:
        shown = {**facts, "told": _conclusion(facts)}
        page = walk.stage(Stage("page", "stages.diff.page:draw", options=shown, context=())).artifact
        assert page  # or it had raised
        output_place.put(Path(html), page.file(".html").read_bytes(), "--html")
    told = {key: value for key, value in facts.items() if key != "graph"}
    return Diff(told, walk.outcomes)


def _model(model: Model, how: JobRequest, options: Options, work: Path) -> _Model:
    """One of the two; a package is unpacked into `work`. Raises InputError for what no runtime opens."""
    reference = objects.written(model, how, options)["model"]
    assert isinstance(reference, str)
    path = Path(reference)
    if path.is_dir() and ((path / "artifact.json").is_file() or (path / "artifact").is_dir()):
        return _Model(reference, None, shipped(path)[0])
    if path.name.endswith(PACKAGES) and path.is_file():
        return _Model(reference, None, extras.part("apps", "verify", "a package").model(path, work))
    for runtime in registry.runtimes():
        if runtime.foreign and path.suffix == runtime.foreign_suffix:
            catalog.check_file(path, "model file")
            source = catalog.source(reference, {}).value
            call = f"runtimes.{runtime.name}:foreign"
            return _Model(reference, ResolvedSource(**vars(source), kind=runtime.format, call=call, runs_code=False))
    settings: Mapping[str, Any] = how.get("settings") or {}
    found = jobs.source(reference, settings, data=how.get("data"))
    try:
        return _Model(reference, sources.resolved(found.value))
    except InputError as error:
        suffixes = ", ".join(sorted(r.foreign_suffix for r in registry.runtimes() if r.foreign_suffix))
        offered = "a file ending in " in str(error)
        raise InputError(
            f"{error}; diff takes {suffixes}, folders of deploys and packages, too" if offered else str(error)
        ) from error


def _data(first: _Model, second: _Model) -> str:
    """The data of the models' own descriptions, else made up from the inputs of one that states them."""
    told = [model.source.data for model in (first, second) if model.source and model.source.data]
    return next(iter(told), "random")


def _stages(
    source: Any, first: _Model, second: _Model, told: Mapping[str, str], items: int, split: str, graphs: bool
) -> list[Stage]:
    """The items, both models, both with their inner values, and the comparison."""
    data = sources.ResolvedSource(**vars(source))
    stating = next((w for w, m in (("a", first), ("b", second)) if m.source is None or m.source.kind != "module"), "")
    if data.random and not stating:
        raise InputError("--data is missing: torch factories do not state their inputs; give pkg.mod:fn or an .npz")
    data_stage = Stage(
        "data",
        "stages.data:run",
        {"source": stating} if data.random else {},
        data.for_data(),
        user_code=data.calls("data"),
        user_files=data.data_files,
        estimate_s=1.0,
    )
    sides = {"a": first.stages("a"), "b": second.stages("b")}
    order = [*sides[stating], data_stage, *sides["b" if stating == "a" else "a"]] if data.random else None
    every = order or [data_stage, *sides["a"], *sides["b"]]
    options: dict[str, Any] = {"map": dict(told), "split": split, "items": items}
    every.append(Stage("items", "stages.diff.ends:items", {"a": "a", "b": "b", "samples": "data"}, options))
    inputs = {"a": "a", "b": "b", "items_a": "data", "items_b": "items"}
    runtimes = [first.runtime, second.runtime]
    for which, name in zip("ab", runtimes, strict=True):
        if name and registry.runtime(name).watched:
            every.append(Stage(f"{which}/values", f"runtimes.{name}:watched", {"model": which}, {}, estimate_s=5.0))
            inputs[f"watched_{which}"] = f"{which}/values"
    known = {**options, "runtime_a": runtimes[0], "runtime_b": runtimes[1], "graphs": graphs}
    plugins = tuple(f"runtimes.{name}" for name in dict.fromkeys(runtimes) if name)
    context = ("seed", "batch", "threads", "here")
    return [*every, Stage("diff", "stages.diff:run", inputs, known, context=context, plugins=plugins, estimate_s=20.0)]


# --------------------------------------------------------------------------- text


def text(diff: Diff, brief: bool = False, width: int = sys.maxsize) -> str:
    """The answer in one screen. `brief`: the conclusion only."""
    facts = diff.facts
    if brief:
        return _conclusion(facts).splitlines()[0]
    rows = [("  output of A", "of B", "SQNR", "largest difference", "worst items")]
    for row in facts["outputs"]:
        worst = ", ".join(map(str, row["worst"])) or "–"
        rows.append(
            (f"  {row['a']}", row["b"], _db(row["sqnr_db"]), f"{row['largest']:.3g} of {row['range']:.3g}", worst)
        )
    items = "that are made up: give --data" if facts["made_up"] else f"of {facts['split']}"
    lines = [
        f"A {facts['a']}",
        f"B {facts['b']}",
        f"{facts['items']} items {items}; held in {facts['precision']}",
        "",
    ]
    lines += fitted(rows, width)
    aligned = facts["aligned"]
    if aligned["of"]:
        share = aligned["operators"] / aligned["of"]
        compute = f"; of {aligned['compute_of']} convolutions, products and cells {aligned['compute']}"
        lines += ["", f"aligned: {aligned['operators']} of A's {aligned['of']} operators ({share:.0%}){compute}"]
        lines += [f"  not aligned: {_few(aligned['rest'])}"] if aligned["rest"] else []
    else:
        changed = [f"handing out the values of {name} changes what it answers" for name in facts["unread"]]
        lines += [
            "",
            f"aligned: outputs alone; {changed[0] if changed else 'one of the two does not hand its layers out'}",
        ]
    lines += [f"assumed: {each}" for each in facts["assumed"]]
    return "\n".join([*lines, "", _conclusion(facts)])


def _conclusion(facts: Mapping[str, Any]) -> str:
    first = facts["first"]
    if facts["verdict"] == "equal":
        least = min((row["sqnr_db"] for row in facts["outputs"] if row["sqnr_db"] is not None), default=None)
        limit = f"the limit for {facts['precision']} here is {facts['limit_db']:.0f} dB"
        return f"equal: {'to the bit' if least is None else f'the outputs agree to {least:.0f} dB'}; {limit}"
    if facts["verdict"] == "undecided":
        return f"undecided: {facts['says']}"
    if first is None:
        return f"differ: {facts['says'] or _unnamed(facts)}" + (f"\ndo: {facts['do']}" if facts["do"] else "")
    where = f"{first['a']} ({first['type']}{', ' + first['module'] if first['module'] else ''})"
    other = f"{first['b']} ({first['type_b']}) of B"
    level = "equal" if first["inputs_db"] >= 100 else f"{first['inputs_db']:.0f} dB"
    says = f"differ: first at {where}, {other}: {_db(first['sqnr_db'])}, its inputs are {level}"
    kind = f"\nkind: {facts['kind']}: {facts['says']}" if facts["kind"] else "\nkind: not decided by the values"
    several = len(first["segment"]) > 1
    between = f"\nbetween equal values and that output: {_few(first['segment'])}" if several else ""
    return f"{says}{kind}{between}\ndo: {facts['do']}"


def _unnamed(facts: Mapping[str, Any]) -> str:
    """Why no operator is named."""
    if not facts["aligned"]["of"]:
        return "no operator can be named: one of the two does not hand its layers out"
    if facts["precision"] == "int8":
        return "no operator stands out: the noise is that of 8 bits in all of them"
    return "no operator can be named: none departs while all that it reads is equal"


def _db(value: float | None) -> str:
    return "equal" if value is None else "nothing alike" if value <= -100 else f"{value:.1f} dB"


def _few(names: Sequence[str], limit: int = 4) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(advice.short(name, 30) for name in names[:limit]) + more
