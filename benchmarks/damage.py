"""Does a verification that is told no metric refuse what is damaged, and let pass what is not?

    python benchmarks/damage.py [--half judge|tune|all] [--only NET,...] [--work DIR] [--json FILE]

Twenty small nets (damage_nets.py), four of each of five kinds of task, are trained and exported for three runtimes.
Each file is damaged in twenty ways (damage_plants.py); fp16, int8 and dynamic int8 of the project's own techniques are
the files that should pass. What decides is edgecompress.data.output_checks with its default limits, as in a deploy, on
SEEN items without labels. The truth is the task's own metric on HIDDEN other items: damaged is what loses more than 1 %
of it, clean what loses less than 0.3 %; what lies between is not counted. Half of the nets and half of the damages
(SPLIT, a seed) were used to choose the limits; the figures are of the other half of both.
"""

from __future__ import annotations

import dataclasses
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import damage_nets
import damage_plants as plants
import figures
import numpy as np
import torch
from stage_calls import made, quiet

from edgecompress.core import config, registry
from edgecompress.core.model import Artifact, Dim, TensorSpec
from edgecompress.core.settings import Limits
from edgecompress.data import output_channels, output_checks, output_error, tensors
from edgecompress.testing.conformance import zoo_cells

RUNTIMES = ("onnx", "openvino", "litert")
PRECISIONS = ("fp16", "int8", "int8-dynamic")
SEEN, HIDDEN, BATCH, CALIBRATE = 300, 2000, 50, 100
DAMAGED, CLEAN = 0.01, 0.003  # of the metric lost
SPLIT = 2026

Array = Any  # numpy's
Judge = Callable[[dict[str, Array], dict[str, Array], Sequence[TensorSpec]], list[str]]  # -> what it refuses it for


@dataclass(frozen=True)
class Case:
    """A file: what was done to it, what the task loses, and what it was refused for."""

    net: str
    task: str
    runtime: str
    done: str
    lost: float
    refused: list[str]

    @property
    def planted(self) -> bool:
        """Whether it was damaged on purpose."""
        return self.done in plants.PLANTS


@dataclass(frozen=True)
class Bench:
    """A net with its data: `seen` and `hidden` items one after the other in `inputs`."""

    name: str
    net: damage_nets.Net
    folder: Path
    module: Artifact
    samples: Artifact
    inputs: Array
    truth: Array
    golden: dict[str, Array]


def main() -> int:
    parser = figures.flags(__doc__, "only", "work", "json")
    parser.add_argument("--half", choices=("judge", "tune", "all"), default="judge")
    asked = parser.parse_args()
    nets, done = half(asked.half)
    began, found = time.monotonic(), list[Case]()
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(asked.work or scratch)
        for name in asked.only.split(",") if asked.only else nets:
            found += cases(bench(name, work), done, refusals)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    figures.write(asked.json, [dataclasses.asdict(c) for c in found])
    print(f"half: {asked.half}; {SEEN} items without labels judge, {HIDDEN} others tell the truth; split {SPLIT}\n")
    print(report(found))
    return 0


def half(which: str) -> tuple[list[str], list[str]]:
    """The nets (two of each task) and the damages of a half, by a seed; "all": both."""
    drawn, nets = random.Random(SPLIT), dict[str, list[str]]()
    for task in dict.fromkeys(n.task for n in damage_nets.NETS.values()):
        names = [name for name, net in damage_nets.NETS.items() if net.task == task]
        tune = drawn.sample(names, len(names) // 2)
        nets.setdefault("tune", []).extend(tune)
        nets.setdefault("judge", []).extend(n for n in names if n not in tune)
    tune = drawn.sample(plants.PLANTS, len(plants.PLANTS) // 2)
    done = {"tune": tune, "judge": [p for p in plants.PLANTS if p not in tune]}
    if which == "all":
        return nets["tune"] + nets["judge"], list(plants.PLANTS)
    return nets[which], done[which]


# --------------------------------------------------------------------------- the nets and their files


def bench(name: str, work: Path, nets: ModuleType = damage_nets) -> Bench:
    """A net of a module, trained, with its data and what it answers."""
    os.environ["DAMAGE_WEIGHTS"] = str(work / "weights")
    torch.set_num_threads(1)
    damage_nets.train(name, work / "weights", nets.NETS)
    net, folder = nets.NETS[name], work / name
    x, _ = net.draw(np.random.default_rng(1), CALIBRATE)
    samples = sampled(folder / "samples", x)
    module = made(
        "stages.trace:load",
        {"samples": samples},
        folder / "module",
        {"source": {"model": f"{nets.__name__}:net_{name}"}},
        batch=BATCH,
    )
    inputs, truth = net.draw(np.random.default_rng(2), SEEN + HIDDEN)
    with torch.no_grad():
        answer = damage_nets.trained(name, nets.NETS)(torch.from_numpy(inputs))
    named = answer if isinstance(answer, dict) else {module.outputs[0].name: answer}
    return Bench(name, net, folder, module, samples, inputs, truth, {k: v.numpy() for k, v in named.items()})


def sampled(folder: Path, x: Array) -> Artifact:
    splits = ("calibrate", "select", "test")
    for split in splits:
        tensors.write_split(folder / split, {"input": x})
    spec = TensorSpec("input", (Dim("batch", 1, len(x)), *x.shape[1:]), str(x.dtype))
    return Artifact(folder, "samples", (spec,), (), {"splits": dict.fromkeys(splits, len(x))}).write()


def built(b: Bench, runtime: str, precision: str, samples: Artifact | None = None) -> Artifact:
    """The net by the planner's own calls for a runtime and a precision; `samples`: other ones for the last call."""
    model, out = b.module, b.folder / "made"
    calls = zoo_cells.zoo_road(runtime, precision)
    for i, (call, settings) in enumerate(calls):
        other = samples is not None and i == len(calls) - 1
        out = out / (call.replace(":", ".") + ("-other" if other else ""))
        module, _ = registry.call(call)
        options = config.build(module.Options, settings, call) if hasattr(module, "Options") else {"dynamic": {}}
        inputs = {"model": model, "samples": samples if other and samples else b.samples}
        model = made(call, inputs, out / "made", options, batch=BATCH)
    return model


def answers(b: Bench, runtime: str, model: Artifact, inputs: Array) -> dict[str, Array]:
    """What a file answers, under the source's names."""
    with quiet():
        session = registry.load("runtimes", runtime).open(model, 1)
    spec, found = model.inputs[0], list[list[Array]]()
    for begin in range(0, len(inputs), BATCH):
        got = session.run({spec.name: tensors.fitted(np.ascontiguousarray(inputs[begin : begin + BATCH]), spec)})
        found.append([np.array(tensors.real(np.asarray(got[s.name]), s)) for s in model.outputs])
    session.close()
    named = {s.name: np.concatenate(a) for s, a in zip(model.outputs, zip(*found, strict=True), strict=True)}
    return named if set(b.golden) <= set(named) else dict(zip(b.golden, named.values(), strict=True))


# --------------------------------------------------------------------------- the cases


def cases(b: Bench, done: Sequence[str], judge: Judge) -> Iterator[Case]:
    """The clean files of a net, then the damaged ones."""
    for runtime in RUNTIMES:
        for precision in PRECISIONS:
            yield case(b, runtime, precision, answers(b, runtime, built(b, runtime, precision), b.inputs), judge)
        for i, plant in enumerate(plants.PLANTS):
            if plant in done:
                seed = np.random.default_rng([SPLIT, i, RUNTIMES.index(runtime), *map(ord, b.name)])
                yield case(b, runtime, plant, damaged(b, runtime, plant, seed), judge)


def damaged(b: Bench, runtime: str, plant: str, drawn: np.random.Generator) -> dict[str, Array]:
    """What a file answers that was damaged in some way."""
    if plant == plants.WRONG_CALIBRATION:
        x = tensors.load(b.samples, "calibrate", "input")
        other = sampled(b.folder / f"other-{runtime}", plants.wrong_data(drawn, {"input": x})["input"])
        return answers(b, runtime, built(b, runtime, "int8", other), b.inputs)
    model = built(b, runtime, "fp32")
    if plant in plants.IN_FILE:
        model = plants.copied(model, b.folder / "damaged")
        with plants.constants(model) as arrays:
            plants.IN_FILE[plant](drawn, arrays)
    inputs = plants.IN_INPUT[plant](drawn, b.inputs) if plant in plants.IN_INPUT else b.inputs
    outputs = answers(b, runtime, model, inputs)
    return plants.IN_OUTPUT[plant](drawn, outputs) if plant in plants.IN_OUTPUT else outputs


def case(b: Bench, runtime: str, done: str, outputs: dict[str, Array], judge: Judge) -> Case:
    hidden, truth = slice(SEEN, None), b.truth[SEEN:]
    before, after = (b.net.metric({k: v[hidden] for k, v in side.items()}, truth) for side in (b.golden, outputs))
    lost = after / before - 1 if b.net.lower else 1 - after / before
    seen = [{k: v[:SEEN] for k, v in side.items()} for side in (b.golden, outputs)]
    return Case(b.name, b.net.task, runtime, done, float(lost), judge(seen[0], seen[1], b.module.outputs))


def refusals(golden: dict[str, Array], outputs: dict[str, Array], specs: Sequence[TensorSpec]) -> list[str]:
    """What a deploy with default limits and no metric says against it."""
    differences = [output_error.compare(golden[name], outputs[name], name) for name in golden]
    if any(d.bad for d in differences):
        return ["finite"]
    layouts = {spec.name: spec.layout for spec in specs}
    compared = output_channels.compare(golden, outputs, layouts)
    every = (c for name, facts in compared.items() for c in output_checks.checks(name, facts, Limits()))
    return [check.says for check in every if check.ok is False]


# --------------------------------------------------------------------------- the figures


def report(found: Sequence[Case]) -> str:
    """By task: damaged files caught, clean ones refused; then the misses."""
    rows = [("task", "damaged", "caught", "clean int8/fp16", "refused", "harmless damage", "refused", "not counted")]
    for task in [*dict.fromkeys(c.task for c in found), "all"]:
        own = [c for c in found if task in (c.task, "all")]
        damaged = [c for c in own if c.lost > DAMAGED]
        clean = [c for c in own if c.lost < CLEAN and not c.planted]
        harmless = [c for c in own if c.lost < CLEAN and c.planted]
        rest = len(own) - len(damaged) - len(clean) - len(harmless)
        rows.append((task, *(cell for group in (damaged, clean, harmless) for cell in counted(group)), str(rest)))
    missed = [c for c in found if c.lost > DAMAGED and not c.refused]
    wrong = [c for c in found if c.lost < CLEAN and not c.planted and c.refused]
    lines = [f"missed: {c.net} {c.runtime} {c.done}: loses {c.lost:.2%}" for c in missed]
    lines += [f"refused: {c.net} {c.runtime} {c.done}: loses {c.lost:.2%}: {c.refused[0]}" for c in wrong]
    return "\n".join([figures.aligned(rows), "", *lines])


def counted(group: Sequence[Case]) -> tuple[str, str]:
    """How many, and how many of them are refused."""
    refused = sum(bool(c.refused) for c in group)
    return str(len(group)), f"{refused} ({refused / len(group):.1%})" if group else "-"


if __name__ == "__main__":
    raise SystemExit(main())
