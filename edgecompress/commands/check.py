"""`edgecompress check`: what each target makes of a model, told before anything is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TypedDict, Unpack, cast

from edgecompress.commands import job_run, objects
from edgecompress.core import environments, registry
from edgecompress.core.errors import EdgeError, edge_errors
from edgecompress.core.model import Dim, Outcome
from edgecompress.core.operations import MULTIPLYING, Operation
from edgecompress.core.plain_text import plural, printed
from edgecompress.pipeline import conversion, first_stages, plan, variant_stages
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.job_request import How, JobRequest, Model, Name, Options, keywords
from edgecompress.pipeline.runner import PlanRun

NAMED = 5  # types of operators that are named
WIDTH = 80  # of the text


class Exceptional(TypedDict):
    """Operators of a type that a variant does not compute as hoped."""

    type: str
    count: int
    becomes: list[str]
    multiplies: bool  # by weights, or activations by each other


class CheckedVariant(TypedDict):
    """What is known of a variant. `why`: why it is not reached, ""; `told`: whether the engine tells where they run;
    `chip`: what its compiler was asked for; `table`: what installs that compiler, where a table answered; `open`:
    inputs of sizes that no data tells, so that it was not asked; `rewritten`: operators that simpler ones replace, with
    their layers."""

    runtime: str
    precision: str
    reached: bool
    why: str
    operators: int
    rewritten: list[str]
    told: bool
    chip: str
    table: str
    open: list[str]
    outside: list[Exceptional]
    floats: list[Exceptional]
    unknown: list[Exceptional]


class CheckedTarget(TypedDict):
    """A target: why it is refused, or its variants by name."""

    refused: str
    variants: dict[str, CheckedVariant]


@dataclass(frozen=True, repr=False)
class Checked:
    """What was found, by target."""

    source: str
    targets: Mapping[str, CheckedTarget]

    def __repr__(self) -> str:
        return f"Checked({text(self, brief=True)})"

    def __str__(self) -> str:
        return printed(lambda _: text(self))

    @property
    def reached(self) -> bool:
        """Whether any variant of any target is."""
        return any(v["reached"] for t in self.targets.values() for v in t["variants"].values())


@keywords
@edge_errors
def check(
    model: Model | None = None,
    target: Name | Sequence[Name] = "x86",
    *,
    options: Options | None = None,
    **how: Unpack[How],
) -> Checked:
    """What the targets make of `model` (None: the embedded demo): nothing is built. Raises EdgeError.

    The keywords are those of `deploy`; a file needs no data.
    """
    options = options or Options()
    request = objects.written(model, how, options)
    names: list[Name] = [*target] if isinstance(target, list | tuple) else [cast("Name", target)]
    jobs, refused = plan.jobs_of(names, lambda name: job_of(request | JobRequest(target=name)))
    targets: dict[str, CheckedTarget] = {}
    for made in jobs:
        try:
            walk = job_run.begin(made, options, f"check>{made.source.given}")
            targets[made.target.name] = {"refused": "", "variants": variants(made, walk)}
        except EdgeError as error:
            if len(names) == 1:
                raise
            refused[made.target.name] = error
    targets |= {name: {"refused": str(error), "variants": {}} for name, error in refused.items()}
    return Checked(jobs[0].source.value.title, targets)


def job_of(request: JobRequest) -> Job:
    """The job of a request; a file without data has random data, from which no accuracy is asked."""
    made = job(**request)
    if made.source.value.data or made.resolved.torch:
        return made
    return job(**request | JobRequest(data="random"))


# --------------------------------------------------------------------------- what is found


def variants(made: Job, walk: PlanRun) -> dict[str, CheckedVariant]:
    """What is known of each variant of a job, in whose run the operators are read. Raises NoPath for no way at all."""
    calls, left_out = plan.reached(made)
    first = first_stages.operators(made, calls)
    walk.stages(first.stages)
    found = {}
    for variant in plan.chosen(made):
        runtime = variant.runtime or made.target.value.runtime
        outcome = walk.outcomes[first.readers[variant.name]] if variant.name in first.readers else None
        built = walk.outcomes[first.compilers[variant.name]] if variant.name in first.compilers else None
        source = walk.outcomes[variant_stages.SOURCE].artifact
        specs = source.inputs if source and built and made.resolved.random else ()
        unknown = [s.name for s in specs if any(isinstance(dim, Dim) and dim.name != "batch" for dim in s.shape)]
        built = None if unknown else built
        row = _variant(runtime, conversion.precision(variant), outcome, built, left_out.get(variant.name, ""))
        row |= {"open": unknown, "table": "" if unknown else row["table"]}
        alone, left = registry.runtime(runtime).alone, [each["type"] for each in row["outside"]]
        if left and alone and alone(variant.export):
            row |= {"reached": False, "why": f"{registry.runtime(runtime).accelerator} does not take {', '.join(left)}"}
        by = first_stages.converter(calls.get(variant.name, ())).removeprefix("runtimes.")
        if row["reached"] and by and outcome and outcome.artifact:
            row["rewritten"], row["why"] = outcome.artifact.facts["foreseen"][by]
            replaced = {each.partition(" of ")[0] for each in row["rewritten"]}
            row["unknown"] = [each for each in row["unknown"] if each["type"].partition(".")[0] not in replaced]
            row["reached"] = not row["why"]
        found[variant.name] = row
    return found


def _variant(runtime: str, precision: str, read: Outcome | None, built: Outcome | None, why: str) -> CheckedVariant:
    """By what the engine's compiler answered, where it was asked (`built`), else by the engine's table."""
    row = CheckedVariant(
        runtime=runtime,
        precision=precision,
        reached=False,
        why=why or (read.reason if read else ""),
        operators=0,
        rewritten=[],
        told=False,
        chip="",
        table="",
        open=[],
        outside=[],
        floats=[],
        unknown=[],
    )
    if read is None or read.artifact is None:
        return row
    ops = [Operation(*fields) for fields in read.artifact.facts["operations"]]
    row["operators"], row["reached"] = len(ops), True
    plugin = registry.runtime(runtime)
    if built and plugin.compiled:
        if not built.artifact:
            return row | {"told": True, "reached": False, "why": built.reason.partition(" (log: ")[0]}
        each, row["chip"] = list(plugin.compiled(built.artifact)), str(built.artifact.facts["estimate"]["system"])
    elif plugin.kernels:
        if plugin.compiled:
            row["table"] = environments.install_command(registry.load("runtimes", runtime))
        each = [(op, plugin.kernels(op, precision)) for op in ops]
    else:
        return row
    row["told"] = True
    if unable := Counter((op.type, found.unable) for op, found in each if found.unable):
        return row | {"reached": False, "why": "; ".join(f"{n} {kind}: {why}" for (kind, why), n in unable.items())}
    row["outside"] = _listed((op, found.outside) for op, found in each)
    row["floats"] = _listed((op, found.floats) for op, found in each)
    row["unknown"] = _listed((op, [op.type]) for op, found in each if not found.known)
    return row


def _listed(rows: Iterator[tuple[Operation, Sequence[str]]]) -> list[Exceptional]:
    """The operators by type, most first, each with what the engine calls its parts."""
    count: Counter[str] = Counter()
    becomes: dict[str, dict[str, None]] = {}
    multiplying = set()
    for op, parts in rows:
        if parts:
            count[op.type] += 1
            multiplying |= {op.type} if op.word in MULTIPLYING else set()
            becomes.setdefault(op.type, {}).update(dict.fromkeys(parts))
    return [
        {"type": kind, "count": n, "becomes": list(becomes[kind]), "multiplies": kind in multiplying}
        for kind, n in count.most_common()
    ]


# --------------------------------------------------------------------------- as text


def text(checked: Checked, brief: bool = False) -> str:
    """The findings in lines of at most 80 columns; `brief`: one line."""
    if brief:
        rows = [v for t in checked.targets.values() for v in t["variants"].values()]
        return f"{checked.source}: {sum(v['reached'] for v in rows)} of {plural(len(rows), 'variant')} reached"
    lines = [checked.source]
    for name, target in checked.targets.items():
        lines += ["", f"{name}: refused: {target['refused']}" if target["refused"] else name]
        width = max(map(len, target["variants"]), default=0)
        alike: dict[str, list[str]] = {}  # what is not reached for one reason is told once
        for variant, row in target["variants"].items():
            why = row["why"].replace(f"variant.{variant}.", "")
            alike.setdefault(variant if row["reached"] else f"not {why}", []).append(variant)
        for variants in alike.values():
            said = _said(target["variants"][variants[0]])
            begin = f"  {variants[0]:<{width}}  "
            if len(variants) > 1:
                lines.append(f"  {', '.join(variants)}")
                begin = " " * len(begin)
            following = " " * (len(begin) + 2)
            for sentence in said:
                whole = sentence.replace("--set ", "--set\N{NO-BREAK SPACE}")  # what is to be pasted stays in one piece
                folded = wrap(whole, WIDTH, initial_indent=begin, subsequent_indent=following, break_on_hyphens=False)
                lines += [line.replace("\N{NO-BREAK SPACE}", " ") for line in folded]
                begin = " " * len(begin)
        if table := next((row["table"] for row in target["variants"].values() if row["table"]), ""):
            lines += ["  by a table: the compiler, which knows more, is not installed; it is, by", f"    {table}"]
    commands = {f"    {row['table']}" for target in checked.targets.values() for row in target["variants"].values()}
    short = ([each] if len(each) <= WIDTH or each in commands else wrap(each, WIDTH) for each in lines)
    return "\n".join(line for each in short for line in each)


def _said(row: CheckedVariant) -> list[str]:
    if not row["reached"]:
        return [f"not reached: {row['why']}"]
    many = f"{row['runtime']}: {plural(row['operators'], 'operator')}"
    said = [f"{many}, {_where(row)}" if row["told"] else f"{many}; where they run, the device decides"]
    if row["rewritten"]:
        kinds = Counter(each.partition(" of ")[0] for each in row["rewritten"]).most_common()
        more = [f"{len(kinds) - NAMED} more types"] if len(kinds) > NAMED else []
        said.append(f"rewritten: {', '.join([*(f'{kind} {n}' for kind, n in kinds[:NAMED]), *more])}")
    if row["outside"]:
        said.append(f"outside: {_named(row['outside'])}")
    if row["floats"]:
        said.append(f"in float: {_named(row['floats'])}")
    if row["unknown"]:
        said.append(f"not known: {_named(row['unknown'])}")
    if row["open"]:
        said.append(f"by a table: give --data for the sizes of {', '.join(row['open'])}, and the compiler is asked")
    return said


def _where(row: CheckedVariant) -> str:
    accelerator = registry.runtime(row["runtime"]).accelerator + (f" of {row['chip']}" if row["chip"] else "")
    left = sum(each["count"] for each in row["outside"])
    if not accelerator:
        return "all supported"
    if not left and row["unknown"]:
        return f"all that are known in {accelerator}"
    return f"all in {accelerator}" if not left else f"{left} outside {accelerator}, whole or in part"


def _named(rows: Sequence[Exceptional]) -> str:
    """TopK 1 (TOPK_V2), GroupNorm 4 (BROADCAST_TO): the first few."""
    named = []
    for row in rows[:NAMED]:
        parts = ", ".join(part for part in row["becomes"] if part != row["type"])
        named.append(f"{row['type']} {row['count']}{f' ({parts})' if parts else ''}")
    return ", ".join([*named, *([f"{len(rows) - NAMED} more types"] if len(rows) > NAMED else [])])
