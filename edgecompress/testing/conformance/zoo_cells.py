"""The zoo: small real nets through a runtime, compared with torch."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgecompress.core import child_process, config, environments, registry
from edgecompress.core.errors import EdgeError, brief
from edgecompress.core.model import CARD, Artifact, Context, Dim, Request, TensorSpec
from edgecompress.core.settings import Target, Variant
from edgecompress.data import output_error, tensors
from edgecompress.device import agent_client
from edgecompress.device.agent import outputs
from edgecompress.device.request import AgentRequest
from edgecompress.pipeline import conversion
from edgecompress.testing import zoo
from edgecompress.testing.conformance.nets import SPLITS
from edgecompress.testing.conformance.sessions import AGENT_S

ZOO_ITEMS = 32  # in each split: enough to calibrate with
ZOO_DB = {"fp32": 100.0, "int8": 20.0}  # the least SQNR against torch, by precision: of the zoo's small random nets
ZOO_STRENGTH = {"prune_channels": {"ratio": 0.5, "align": 4}, "low_rank": {"ratio": 0.5}}  # options, where not default


@dataclass(frozen=True)
class ZooOutcome:
    """How a net of the zoo fared in a runtime: no `error` where it answers as torch does, else a line of what broke."""

    error: str = ""
    sqnr_db: float | None = None  # the lowest of its outputs; None: identical, or it broke
    fixed: bool = False  # the net takes any batch, a file only its own: one was made for each that was asked for


def check_zoo(runtime: str, folder: Path, cells: Sequence[str]) -> dict[str, ZooOutcome]:
    """Each cell in processes of their own: a crash costs only the cell it was in.

    A cell is a net and a precision, "lstm fp32"; what follows are techniques on a "module" that the net goes through
    first, "lstm fp32 low_rank": what comes out then is the source, and what torch answers with that is the truth.
    `folder` keeps what was made on the way: runtimes that share a road share it too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    answers, log = folder / f"{runtime}.jsonl", folder / f"{runtime}.log"
    shell = registry.load("transports", "host").connect({})
    done: dict[str, ZooOutcome] = {}
    while rest := [cell for cell in cells if cell not in done]:
        answers.write_text("", encoding="utf-8")
        code = shell.run(
            child_process.python("edgecompress.testing.conformance", runtime, str(folder), *rest), AGENT_S, log
        )
        lines = map(json.loads, answers.read_text(encoding="utf-8").splitlines())
        done |= {line["cell"]: ZooOutcome(**line["found"]) for line in lines}
        if crashed := next((cell for cell in rest if cell not in done), None):
            done[crashed] = ZooOutcome(f"the process {child_process.ending(code, AGENT_S)}; its log is {log.name}")
    return {cell: done[cell] for cell in cells}


def main() -> int:
    """The process of `check_zoo`: RUNTIME FOLDER CELL...; a line of JSON for each cell that did not crash it."""
    child_process.tie()
    runtime, folder, *cells = sys.argv[1:]
    with (Path(folder) / f"{runtime}.jsonl").open("a", encoding="utf-8", buffering=1) as answers:
        for cell in cells:
            print(f"--- {cell}", file=sys.stderr, flush=True)
            outcome = dataclasses.asdict(_survived(runtime, cell, Path(folder)))
            answers.write(json.dumps({"cell": cell, "found": outcome}) + "\n")
    return 0


def _survived(runtime: str, cell: str, folder: Path) -> ZooOutcome:
    """One cell; whatever it raises as one line, its traceback in the log."""
    try:
        return zoo_cell(runtime, cell, folder)
    except Exception as error:  # the boundary: of converters and runtimes
        traceback.print_exc()
        message = brief(str(error))
        return ZooOutcome(
            message if isinstance(error, (EdgeError, AssertionError)) else f"{type(error).__name__}: {message}"
        )


def zoo_cell(runtime: str, cell: str, folder: Path) -> ZooOutcome:
    """A net of the zoo on the planner's own road to a runtime, run by it in each of the net's batches, against torch.

    It runs in this process and raises what a technique, the planner, the converter or the runtime raises.
    """
    name, precision, *techniques = cell.split()
    calls = zoo_road(runtime, precision)
    source = zoo_source(name, techniques, folder)
    outcomes: list[ZooOutcome] = []
    model = None
    for batch in zoo.NETS[name].batches:
        if model is None or _fixed(model):
            model = travelled(source, calls, batch)
        with tempfile.TemporaryDirectory() as scratch:
            answered = _answered(runtime, source.samples, model, (Path(scratch), batch))
            sqnr_db = _nearness(source.golden, answered, ZOO_DB[precision])
        outcomes.append(ZooOutcome(sqnr_db=sqnr_db, fixed=_fixed(model) and bool(source.net.dynamic)))
    return min(outcomes, key=lambda cell: math.inf if cell.sqnr_db is None else cell.sqnr_db)


def zoo_road(runtime: str, precision: str) -> list[conversion.Call]:
    """The planner's calls from a torch net to a runtime; raises ConfigError where there are none."""
    variant = Variant(precision, compress=({"use": precision},) if precision != "fp32" else ())
    return conversion.steps(Target("the zoo", runtime, (variant,)), variant, "module", "the zoo")


@dataclass(frozen=True)
class ZooSource:
    """A net of the zoo, what goes in and what torch answers; `folder` keeps what is made of it."""

    folder: Path
    net: zoo.ZooNet
    model: Artifact
    samples: Artifact
    golden: Artifact


def zoo_source(name: str, techniques: Sequence[str], folder: Path) -> ZooSource:
    """A net of the zoo after some techniques on a "module"; raises what they raise."""
    source = dense = _zoo_source(name, folder / name)
    for technique in techniques:
        source = _compressed(source, dense.model, technique)
    return source


def _zoo_source(name: str, folder: Path) -> ZooSource:
    net = zoo.NETS[name]
    for seed, split in enumerate(SPLITS):
        tensors.write_split(folder / "samples" / split, zoo.draw(net, ZOO_ITEMS, seed))
    batch = Dim("batch", 1, ZOO_ITEMS)
    specs = tuple(TensorSpec(n, (batch, *i.shape), "int64" if i.below else "float32") for n, i in net.inputs.items())
    facts = {"splits": dict.fromkeys(SPLITS, ZOO_ITEMS), "random": True}
    data = Artifact(folder / "samples", "samples", specs, (), facts).write()
    options = {"source": {"model": f"{zoo.__name__}:{name}", "dynamic": net.dynamic}}
    model = _once("stages.trace:load", Request({"samples": data}, folder / "module", options))
    return ZooSource(folder, net, model, data, _golden(model, data, folder))


def _compressed(source: ZooSource, dense: Artifact, technique: str) -> ZooSource:
    """The source after a technique; where that has nothing to do it is an AssertionError."""
    module, folder = registry.load("techniques", technique), source.folder / technique
    options = config.build(module.Options, ZOO_STRENGTH.get(technique, {}), technique)
    inputs = {"model": source.model, "samples": source.samples, "dense": dense}
    model = _once(f"techniques.{technique}:apply", Request(inputs, folder / "module", options))
    assert not model.facts.get("lost"), f"technique {technique}: {model.facts['lost']}"
    golden = _golden(model, source.samples, folder)
    return dataclasses.replace(source, folder=folder, model=model, golden=golden)


def _golden(model: Artifact, samples: Artifact, folder: Path) -> Artifact:
    options = {"splits": ["test"], "metric": "none"}
    return _once("stages.golden:run", Request({"model": model, "samples": samples}, folder / "golden", options))


def travelled(source: ZooSource, calls: Sequence[conversion.Call], batch: int) -> Artifact:
    """The net after the planner's calls."""
    model, out = source.model, source.folder / f"batch-{batch}"
    for call, settings in calls:
        out = out / call.replace(":", ".")
        module, _ = registry.call(call)
        has_options = hasattr(module, "Options")
        options = config.build(module.Options, settings, call) if has_options else {"dynamic": source.net.dynamic}
        inputs = {"model": model, "samples": source.samples}
        model = _once(call, Request(inputs, out / "made", options, Context(batch=batch)))
    return model


def _once(call: str, request: Request) -> Artifact:
    """What a stage makes in a folder, or made there before."""
    if (request.out / CARD).exists():
        return Artifact.read(request.out)
    shutil.rmtree(request.out, ignore_errors=True)  # left by one that broke
    request.out.mkdir(parents=True)
    module, function = registry.call(call)
    return getattr(module, function)(request)  # type: ignore[no-any-return]


def _fixed(model: Artifact) -> bool:
    return isinstance(model.batch, int)


def _answered(runtime: str, samples: Artifact, model: Artifact, how: tuple[Path, int]) -> Artifact:
    """What the runtime answers to the test split, in a folder and by a batch."""
    folder, batch = how
    request = AgentRequest(
        "outputs",
        runtime=agent_client.plugin("runtimes", runtime),
        artifact=str(model.path),
        samples=str(samples.path),
        batch=batch,
    )
    if environments.environment(registry.load("runtimes", runtime)):
        agent_client.ask(registry.load("transports", "host").connect({}), request, folder, AGENT_S)
    else:
        outputs.run(request, folder)
    return Artifact(folder, "golden")


def _nearness(golden: Artifact, answered: Artifact, limit: float) -> float | None:
    """The lowest SQNR of the outputs, None where all are identical; below the limit it is an AssertionError."""
    worst: float | None = None
    for name in (spec.name for spec in golden.outputs):
        ours, theirs = (tensors.load(side, "test", name) for side in (golden, answered))
        facts = output_error.compare(ours, theirs, name).facts()
        sqnr_db = facts["sqnr_db"]
        assert sqnr_db is not None or facts["reason"] == "identical", f"output '{name}': {facts['reason']}"
        assert sqnr_db is None or sqnr_db >= limit, (
            f"output '{name}' is {sqnr_db:.1f} dB from torch's, limit {limit:g} dB"
        )
        worst = min((v for v in (worst, sqnr_db) if v is not None), default=None)
    return worst
