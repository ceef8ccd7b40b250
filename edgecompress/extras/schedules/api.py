"""`edgecompress schedule`: what one of Distiller's schedules does, whether it fits a net, and training under it."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack, cast

from edgecompress.commands import job_run
from edgecompress.core import atomic_file, catalog, config, output_place, registry
from edgecompress.core.errors import InputError, StageFailed, edge_errors
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Stage
from edgecompress.core.plain_text import fitted, one_line, plural, printed, wrapped
from edgecompress.core.settings import is_factory
from edgecompress.pipeline import plan, shipping
from edgecompress.pipeline.job import job
from edgecompress.pipeline.job_request import How, Name, Options, keywords
from edgecompress.pipeline.plan import Plan
from edgecompress.pipeline.runner import PlanRun

STAGE, TECHNIQUE = "schedule", "schedule"
FEW = 3  # names that are told of a policy
ROWS = 16  # epochs that a table shows
TRAINED, QUANTIZED = "scheduled", "scheduled-int8"  # the variants of a target for a schedule
FROM_HEADER = ("epochs", "lr", "batch_size", "momentum", "weight_decay")


@dataclass(frozen=True, repr=False)
class Outline:
    """What a schedule does, as JSON, and the files that were drawn of it."""

    file: str
    facts: Mapping[str, Any]
    drawn: Sequence[Path] = ()

    def __repr__(self) -> str:
        return f"Outline({checked(self, brief=True)})"

    def __str__(self) -> str:
        return printed(lambda columns: checked(self, width=min(columns, 80)))


@dataclass(frozen=True)
class Pictures:
    """Where the course is drawn: a page, a picture."""

    page: Name | None = None
    picture: Name | None = None


@edge_errors
def read(
    file: Name,
    model: str | None = None,
    *,
    data: str | None = None,
    shape: Sequence[int] | None = None,
    rename: Sequence[str] = (),
    epochs: int | None = None,
    lr: float | None = None,
    pictures: Pictures | None = None,
    options: Options | None = None,
) -> Outline:
    """What the schedule in `file` does, and whether it fits the net of the factory `model`. Raises EdgeError.

    `shape`: of an item of the net's input, which thinning is tried with; None: that of `data`, or of the data set that
    the file names. `rename`: see `reader.read`.
    """
    options, pictures = options or Options(), pictures or Pictures()
    _check({name: value for name, value in (("epochs", epochs), ("lr", lr)) if value is not None})
    for option, place in (("--html", pictures.page), ("--png", pictures.picture)):
        if place:
            output_place.check_file(Path(place), option)
    path = _file(file)
    made = job(model, data=data)
    walk = job_run.begin(made, options, f"schedule>{path}>{model or ''}")
    net = made.source.value.model if model else ""
    if model and not is_factory(net):
        raise InputError(
            f"{net}: MODEL must be the factory of a torch net, pkg.mod:fn, or a source.toml that names one: a schedule "
            "names the net's parameters"
        )
    asked: dict[str, Json] = {"file": str(path), "model": net, "epochs": epochs, "lr": lr}
    fed = made.resolved if model and made.resolved.data and not made.resolved.random else None
    asked |= {"shape": list(shape) if shape else None, "rename": list(rename)}
    asked |= {"source": fed.for_data()["source"] if fed else None}
    files = (str(path), *(fed.data_files if fed else ()))
    walk.stage(Stage(STAGE, "extras.schedules.stage:run", {}, asked, user_code=bool(model), user_files=files))
    return Outline(str(file), _artifact(walk, STAGE).facts, _drawn(walk, path.stem, pictures))


def _file(file: Name) -> Path:
    """The file's absolute path; raises InputError where there is none."""
    path = Path(file).resolve()
    catalog.check_file(path, "schedule", "a YAML file")
    return path


def _check(given: Mapping[str, Json]) -> None:
    """Raises InputError, which begins with the option, for what the technique refuses."""
    so_far: dict[str, Json] = {}
    for name in sorted(given):  # `distill` comes before the `teacher` that needs it
        so_far[name] = given[name]
        _built(so_far, f"--{name.replace('_', '-')} {given[name]}")


def _built(options: Mapping[str, Json], where: str) -> None:
    technique = registry.technique(TECHNIQUE)
    assert technique.options is not None
    config.build(technique.options, options, where)


def _drawn(walk: PlanRun, title: str, pictures: Pictures) -> list[Path]:
    wanted = {".html": pictures.page, ".png": pictures.picture}
    asked = {suffix: Path(place) for suffix, place in wanted.items() if place}
    if not asked or not _artifact(walk, STAGE).facts["epochs"]:
        return []
    walk.stage(Stage("page", "extras.schedules.stage:draw", {"schedule": STAGE}, {"title": title}, context=()))
    for suffix, place in asked.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_artifact(walk, "page").file(suffix), place)
    return list(asked.values())


def _artifact(walk: PlanRun, stage: str) -> Artifact:
    outcome = walk.outcomes[stage]
    if outcome.artifact is None:
        raise outcome.error or StageFailed(f"{stage}: {outcome.reason}")
    return outcome.artifact


# --------------------------------------------------------------------------- text


def checked(outline: Outline, brief: bool = False, width: int = 80) -> str:
    """A row for each policy, then what is odd and what is wrong. `brief`: one line."""
    facts = outline.facts
    wrong, odd = facts["problems"], facts["warnings"]
    acting = plural(len(facts["policies"]), "policy").replace("policys", "policies")
    acting = "a quantizer without training" if facts["post_training"] else acting
    words = [acting, *([plural(len(odd), "warning")] if odd else []), *([plural(len(wrong), "error")] if wrong else [])]
    head = f"{outline.file}: {', '.join(words)}"
    if brief:
        return one_line(head)
    rows = [("epochs", "what", "does", "of"), *map(_policy, facts["policies"])]
    lines = [f"  {line}" for line in fitted(rows, width - 2)] if facts["policies"] else []
    told = {"warning": odd, "error": wrong}
    own = f"{Path(outline.file).resolve()}: "  # the head has named the file
    notes = [f"{what}: {each.removeprefix(own)}" for what, texts in told.items() for each in texts]
    if any("the model has no parameter" in each for each in wrong):
        notes.append("next: where the net calls a module otherwise, --rename OLD=NEW, for example layer3=stage2")
    return "\n".join([one_line(head), *lines, *(line for note in notes for line in wrapped(one_line(note), width, 2))])


def _policy(row: Mapping[str, Any]) -> tuple[str, ...]:
    more = f" and {len(row['on']) - FEW} more" if len(row["on"]) > FEW else ""
    return _when(row), row["name"], row["does"], ", ".join(row["on"][:FEW]) + more or row["cls"]


def _when(row: Mapping[str, Any]) -> str:
    """The epochs: 0–9, each fourth as 0–8 /4, those of a list as 2, 4, 9 .. 30."""
    first, last, every, listed = row["first"], row["last"], row["every"], row["listed"]
    if listed:
        return ", ".join(map(str, listed[:FEW])) + (f" .. {last}" if len(listed) > FEW else "")
    return f"{first}" if first == last else f"{first}–{last}" + (f" /{every}" if every > 1 else "")


def shown(outline: Outline, brief: bool = False) -> str:
    """The course in at most so many rows, those at which most changes."""
    epochs = outline.facts["epochs"]
    if brief or not epochs:
        return checked(outline, brief)
    head = ("epoch", "learning rate", "zeros", "act")
    rows = [head, *(_epoch(row) for row in _few(epochs))]
    places = [f"written: {place}" for place in outline.drawn]
    title = f"{outline.file}: {plural(len(epochs), 'epoch')}"
    return "\n".join([one_line(title), *(f"  {line}" for line in fitted(rows, 78)), *places])


def _epoch(row: Mapping[str, Any]) -> tuple[str, ...]:
    shares = sorted(row["shares"].values())
    ends = dict.fromkeys(f"{share:.0%}" for share in (*shares[:1], *shares[-1:]))
    zeros = "–".join(ends) if row["sparsity"] is None else f"{row['sparsity']:.1%}"
    return str(row["epoch"]), f"{row['lr']:.3g}", zeros or "–", ", ".join(row["acts"])


def _few(epochs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The epochs at which something differs from the one before: of many, some evenly, those of new rates first."""
    pairs = list(zip(epochs[1:], epochs, strict=False))
    rates = _evenly([row for row, before in pairs if row["lr"] != before["lr"]], ROWS // 2)
    said = [(row, (row["shares"], row["acts"]) != (before["shares"], before["acts"])) for row, before in pairs]
    changed = [row for row, differs in said if differs and row["acts"]]
    kept = {row["epoch"] for row in (epochs[0], *rates, *_evenly(changed, ROWS - len(rates)), epochs[-1])}
    return [row for row in epochs if row["epoch"] in kept]


def _evenly(rows: Sequence[Mapping[str, Any]], most: int) -> Sequence[Mapping[str, Any]]:
    return rows[:: -(-len(rows) // most)] if rows else ()


# --------------------------------------------------------------------------- a target for it


def converted(outline: Outline, target: str, place: Path, given: Mapping[str, Json]) -> str:
    """The TOML of a target, for a file in the folder `place`: the net under the schedule, then in int8.

    Raises InputError for a schedule without policies, and for options that the technique refuses.

    `given`: options of the technique; what else the schedule's header says of epochs and learning rate counts, too.
    """
    once = outline.facts["post_training"]
    if not outline.facts["policies"] and not once:
        raise InputError(f"{outline.file}: has no policy and no quantizer without training, so it does nothing")
    if once and (trains := [name for name in given if name != "rename"]):
        option = trains[0].replace("_", "-")
        raise InputError(f"{outline.file}: its quantizer does not train; leave out --{option}")
    _check(given)
    header = {} if once else outline.facts["flags"]
    flags = {k: v for k, v in header.items() if k in FROM_HEADER and k not in given}
    _built(flags, f"{outline.file}: the command line in its header")
    base = catalog.target(target)
    file = _file(outline.file)
    last = max((row["last"] + 1 for row in outline.facts["policies"]), default=1)
    step = {"use": TECHNIQUE, "file": os.path.relpath(file, place), "epochs": last, **flags, **given}
    raw = config.read_toml(base.path)
    top = {key: value for key, value in raw.items() if key not in ("description", "variant", "limits")}
    references = [v for v in _tables(raw["variant"]) if v.get("reference") and "runtime" not in v]
    variants = [
        {"name": TRAINED, "compress": [step]},
        {"name": QUANTIZED, "compress": [step, {"use": "int8"}]},
        *references,
    ]
    lines = [f"# {file.name}, by `edgecompress schedule convert`. `edgecompress deploy MODEL --target FILE` goes on."]
    lines += [
        f"{key} = {config.to_toml(value)}" for key, value in {"description": f"{file.stem}: {target}", **top}.items()
    ]
    limits = raw.get("limits")
    rows = limits.items() if isinstance(limits, Mapping) else ()
    lines += ["", "[limits]", *(f"{key} = {config.to_toml(value)}" for key, value in rows)]
    for variant in variants:
        lines += ["", "[[variant]]", *(f"{key} = {config.to_toml(value)}" for key, value in variant.items())]
    return "\n".join([*lines, ""])


def _tables(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


# --------------------------------------------------------------------------- training


@dataclass(frozen=True)
class Trained:
    """What came of training or rounding by a schedule: the folder of the net, and the target that goes on from it."""

    out: Path
    target: Path  # of which `deploy` finds the trained net
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if "calibrated" in self.facts:
            told = f"rounded by the ranges of {plural(self.facts['calibrated'], 'calibration item')}"
            return "\n".join([told, *self._odd(), f"{self.out}/  {self.target.name}  net/"])
        last = self.facts["epochs"][-1]
        score = f", {self.facts['metric']} {last['select']:.4g} on select" if last["select"] is not None else ""
        told = f"epoch {last['epoch']}: loss {last['loss']:.4g}, {last['sparsity']:.1%} of the weights are zero{score}"
        return "\n".join([told, *self._layers(), *self._odd(), f"{self.out}/  {self.target.name}  net/"])

    def _odd(self) -> list[str]:
        return [line for each in self.facts["warnings"] for line in wrapped(one_line(f"warning: {each}"), 80)]

    def _layers(self) -> Iterator[str]:
        rows = [("weight", "elements", "zero", "filters", "channels")]
        for row in self.facts["weights"]:
            structures = (row["filters_pct"], row["channels_pct"])
            shares = ("" if share is None else f"{share:.1f} %" for share in structures)
            rows.append((row["name"], f"{row['dense']:,}", f"{row['fine_pct']:.1f} %", *shares))
        return (f"  {line}" for line in fitted(rows, 78))


@keywords
@edge_errors
def run(
    file: Name,
    model: str,
    *,
    target: str = "x86",
    given: Mapping[str, Json] | None = None,
    options: Options | None = None,
    **how: Unpack[How],
) -> Trained:
    """Trains a net under a schedule; killed, it goes on from its last epoch. Raises EdgeError.

    `given`: options of the technique `schedule`; the keywords are those of `deploy`.
    """
    options = options or Options()
    outline = read(file, rename=cast("Sequence[str]", (given or {}).get("rename", ())), options=options)
    out = Path(options.out or Path("dist") / Path(file).stem).resolve()
    output_place.check_folder(out, "--out")
    text = converted(outline, target, out, given or {})
    with tempfile.TemporaryDirectory() as folder:  # a target is a file, and nothing is in `out` before its net is
        asked = Path(folder).resolve() / "target.toml"
        asked.write_text(converted(outline, target, asked.parent, given or {}), encoding="utf-8")
        made = job(model, str(asked), **how | How(only=TRAINED))
    net = made.source.value.name or Path(made.source.value.model.rpartition(":")[2]).stem
    place = out / f"{re.sub(r'[^A-Za-z0-9_-]+', '-', net).strip('-') or 'net'}.toml"
    if place.exists() and config.read_text(place, config.LARGEST) != text:
        raise InputError(f"{place}: already exists, and is not the target of this training; give another --out")
    steps = plan.deploy(made)
    name = f"{TRAINED}/{TECHNIQUE}"
    walk = job_run.begin(made, options, f"schedule>{made.source.given}>{out}")
    walk.stages([step for step in steps.stages if step.name in _needed(steps, name)])
    trained = _artifact(walk, name)
    shipping.ship(out / "net", lambda part: shipping.copied(trained, part))
    with atomic_file.told(place, "--out"):
        atomic_file.write(place, text.encode())
    return Trained(out, place, trained.facts)


def _needed(steps: Plan, name: str) -> set[str]:
    """The steps that lead to one."""
    stages = {step.name: step for step in steps.stages}
    needed, queue = set[str](), [name]
    while queue:
        at = queue.pop()
        if at not in needed:
            needed.add(at)
            queue += stages[at].inputs.values()
    return needed
