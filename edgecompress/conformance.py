"""The conformance suite: what every plug-in and every target keeps, ours and other people's. Plain asserts.

Call the check of your kind from a test: `conformance.check_technique("mine", tmp_path)`. The nets are small and built
here; the first net that a plug-in reads is made by other plug-ins on the way (a technique on "onnx" meets an ONNX net).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import shutil
import sys
import tempfile
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from edgecompress import agent, api, catalog, config, dispatch, envs, lifeline, registry, routes, tensors, zoo
from edgecompress.errors import EdgeError, InputError, MissingDependency
from edgecompress.model import CARD, Artifact, Context, Dim, Measured, Request, Status, TensorSpec
from edgecompress.packaging import archive, pack, sample, verify
from edgecompress.settings import Target, Variant
from edgecompress.stages import outputs

ITEMS = 8  # in each split
SPLITS = ("calibrate", "select", "test")
WINDOW_S = 0.3  # of a sensor's trial
ZOO_ITEMS = 32  # in each split: enough to calibrate with
ZOO_S = 900.0  # that a runtime may take for its cells of the zoo
ZOO_DB = {"fp32": 100.0, "int8": 20.0}  # the least SQNR against torch, by precision: of the zoo's small random nets
ZOO_STRENGTH = {"prune_channels": {"ratio": 0.5, "align": 4}, "low_rank": {"ratio": 0.5}}  # options, where not default

# --------------------------------------------------------------------------- techniques


def check_technique(name: str, tmp_path: Path) -> None:
    """A technique keeps its promises on a small net of each kind it reads."""
    module = registry.load("techniques", name)
    says = f"technique {name}"
    texts = dict.fromkeys(("WRITES", "PROVIDES", "EXTRA"), str)
    _check_constants(module, says, {"READS": tuple, "NEEDS": tuple, **texts})
    assert module.READS, f"{says}: READS names no kind"
    options = _default_options(module, says)
    for kind in module.READS:
        folder = tmp_path / name / kind
        model = net(kind, folder)
        inputs = {"model": model, **{role: _needed(role, model, folder) for role in module.NEEDS}}
        first, second = (_stage(module.apply, inputs, folder / out, options) for out in ("first", "second"))
        _check_artifact(first, module.WRITES, f"{says} on {kind}")
        assert first.sha256 == second.sha256, f"{says}: the same request gave other bytes the second time"
        _check_same_ends(first, model, says)
        for role, given in inputs.items():
            assert given.digest() == given.sha256, f"{says}: it changed its input '{role}'"
        if not first.facts.get("lost"):
            _check_runs(first, folder, says)


def _needed(role: str, model: Artifact, folder: Path) -> Artifact:
    """What a technique needs beside the model: the model is its own dense net; nothing is there to train on."""
    if role == "dense":
        return model
    return samples(model, folder) if role == "samples" else _no_training(folder)


def _no_training(folder: Path) -> Artifact:
    out = folder / "training"
    out.mkdir(parents=True)
    return Artifact(out, "samples", facts={"splits": {"train": 0}}).write()


def _default_options(module: ModuleType, says: str) -> Any:
    options = getattr(module, "Options", None)
    assert dataclasses.is_dataclass(options), f"{says}: Options must be a dataclass"
    assert vars(options)["__dataclass_params__"].frozen, f"{says}: Options must be frozen"
    wanting = [f.name for f in dataclasses.fields(options) if _has_no_default(f)]
    assert not wanting, f"{says}: options without a default: {wanting}; `use = ...` alone must do something sensible"
    return config.build(options, {}, says)  # type: ignore[arg-type]


def _has_no_default(field: Any) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _check_same_ends(result: Artifact, model: Artifact, says: str) -> None:
    for end in ("inputs", "outputs"):
        before, after = ([spec.name for spec in getattr(a, end)] for a in (model, result))
        assert before == after, f"{says}: {end} were {before}, are {after}; an app finds tensors by these names"


def _check_runs(artifact: Artifact, folder: Path, says: str) -> None:
    """Where a runtime runs this kind, it runs the artifact."""
    runner = next((m for _, m in registry.every("runtimes") if artifact.kind == m.FORMAT), None)
    if runner:
        session = runner.open(artifact, 1)
        _check_answers(session, artifact, samples(artifact, folder), says)
        session.close()


# --------------------------------------------------------------------------- runtimes


def check_runtime(name: str, tmp_path: Path) -> None:
    """A runtime exports from each kind it reads, runs what it exported, profiles it, and reads files of its format."""
    module = registry.load("runtimes", name)
    says, folder = f"runtime {name}", tmp_path / name
    _check_constants(module, says, {"FORMAT": str, "READS": tuple, "SUFFIX": str, "EXTRA": str})
    assert module.FORMAT, f"{says}: FORMAT is empty"
    assert not module.SUFFIX or module.SUFFIX.startswith("."), f"{says}: SUFFIX starts with a dot, or is empty"
    options = config.build(module.Options, {}, says) if hasattr(module, "Options") else {}
    found = []
    for kind in module.READS:
        with contextlib.suppress(MissingDependency):  # of a converter that this one kind needs
            found.append(_exported(module, kind, folder / kind, options))
    assert found or not module.READS, f"{says}: no kind that it reads can be exported here"
    artifact = found[0] if found else net(module.FORMAT, folder / "own")
    data = samples(artifact, folder)
    for profile in (False, True):
        session = _opened(module, artifact, profile)
        answers = _check_answers(session, artifact, data, says)
        _check_ops(session.ops(_item(data), 3), says, profile)
        again = _check_answers(session, artifact, data, says)
        assert all((answers[k] == again[k]).all() for k in answers), f"{says}: the same input gave another output"
        session.close()
    if module.SUFFIX:
        _check_read(module, artifact, folder, says)


def _opened(module: ModuleType, artifact: Artifact, profile: bool) -> Any:
    """A session, in this process or where the plug-in's libraries are."""
    return _Apart(module, artifact) if envs.environment(module) else module.open(artifact, 1, profile=profile)


@dataclass(frozen=True)
class _Apart:
    """A session in the environment that a plug-in has of its own: an agent for each call."""

    module: ModuleType
    artifact: Artifact

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as scratch:
            self._ask("outputs", inputs, Path(scratch))
            answered = Artifact(Path(scratch), "golden")
            return {s.name: tensors.load(answered, "test", s.name).copy() for s in self.artifact.outputs}

    def ops(self, inputs: Mapping[str, Any], runs: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as scratch:
            found = self._ask("ops", inputs, Path(scratch))
        return {key: value for key, value in found.items() if key != "environment"}

    def close(self) -> None: ...

    def _ask(self, mode: str, inputs: Mapping[str, Any], out: Path) -> dict[str, Any]:
        tensors.write_split(out / "samples" / "test", inputs)
        data = Artifact(out / "samples", "samples", self.artifact.inputs, (), {"splits": {"test": 1}}).write()
        asked = {
            "mode": mode,
            "runtime": {"name": "apart", "module": self.module.__name__},
            "artifact": str(self.artifact.path),
            "samples": str(data.path),
            "threads": 1,
            "batch": len(next(iter(inputs.values()))),
            "profile": {"ops_runs": 3},
        }
        return dispatch.ask(registry.load("transports", "host").connect({}), asked, out, ZOO_S)


def _exported(module: ModuleType, kind: str, folder: Path, options: Any) -> Artifact:
    model = net(kind, folder)
    artifact = _stage(module.export, {"model": model}, folder / "exported", options)
    _check_artifact(artifact, module.FORMAT, f"export of {kind} to {module.FORMAT}")
    _check_same_ends(artifact, model, f"export of {kind} to {module.FORMAT}")
    assert model.digest() == model.sha256, f"export of {kind} to {module.FORMAT}: it changed its input"
    return artifact


def _check_answers(session: Any, artifact: Artifact, data: Artifact, says: str) -> dict[str, Any]:
    """One run gives every output of the specs, in their shapes and dtypes, finite, and leaves its input alone."""
    import numpy as np

    given = _item(data)
    kept = {name: array.copy() for name, array in given.items()}
    answers = {name: np.array(array) for name, array in session.run(given).items()}
    batch = len(next(iter(given.values())))
    assert set(answers) == {s.name for s in artifact.outputs}, f"{says}: it answered {sorted(answers)}"
    for spec in artifact.outputs:
        found = answers[spec.name]
        wanted = spec.concrete(batch)
        assert found.shape == wanted, f"{says}: '{spec.name}' is {found.shape}, its spec says {wanted}"
        assert str(found.dtype) == spec.dtype, f"{says}: '{spec.name}' is {found.dtype}, its spec says {spec.dtype}"
        assert np.isfinite(found).all(), f"{says}: '{spec.name}' holds NaN or infinity"
    assert all((kept[name] == given[name]).all() for name in given), f"{says}: a run changed its input"
    return answers


def _check_ops(table: Mapping[str, Any], says: str, profile: bool) -> None:
    assert set(table) == {"ops", "why", "fallback"}, f"{says}: ops answers ops, why and fallback, not {sorted(table)}"
    assert table["ops"] or table["why"] or not profile, f"{says}: no operator times, and no reason why"
    json.dumps(dict(table), allow_nan=False)
    for op in table["ops"]:
        assert set(op) == {"name", "type", "ms", "where"}, f"{says}: an operator has name, type, ms and where: {op}"
        assert math.isfinite(op["ms"]) and op["ms"] >= 0, f"{says}: {op['name']} took {op['ms']} ms"


def _check_read(module: ModuleType, artifact: Artifact, folder: Path, says: str) -> None:
    marker = getattr(module, "FOLDER", "")  # of a source that is a folder
    file = artifact.file(marker or module.SUFFIX)
    again = _stage(module.read, {}, folder / "read", {"path": str(file.parent if marker else file)})
    _check_artifact(again, module.FORMAT, f"{says}: read")
    _check_same_ends(again, artifact, f"{says}: read")
    cut, noise = folder / f"cut{module.SUFFIX}", folder / f"noise{module.SUFFIX}"
    cut.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    noise.write_bytes(bytes(range(256)) * 8)
    for bad in (cut, noise, folder / f"missing{module.SUFFIX}"):
        try:
            _stage(module.read, {}, folder / "bad" / bad.stem, {"path": str(bad)})
        except InputError as error:
            assert "\n" not in str(error) and bad.name in str(error), f"{says}: not one line with the file: {error}"
        else:
            raise AssertionError(f"{says}: read took {bad.name}, which is no model")


# --------------------------------------------------------------------------- the zoo: real nets through a runtime


@dataclass(frozen=True)
class Cell:
    """How a net of the zoo fared in a runtime: no `error` where it answers as torch does, else a line of what broke."""

    error: str = ""
    sqnr_db: float | None = None  # the lowest of its outputs; None: identical, or it broke
    fixed: bool = False  # the net takes any batch, a file only its own: one was made for each that was asked for


def check_zoo(runtime: str, folder: Path, cells: Sequence[str]) -> dict[str, Cell]:
    """Each cell in processes of their own: a crash costs only the cell it was in.

    A cell is a net and a precision, "lstm fp32"; what follows are techniques on a "module" that the net goes through
    first, "lstm fp32 low_rank": what comes out then is the source, and what torch answers with that is the truth.
    `folder` keeps what was made on the way: runtimes that share a road share it too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    answers, log = folder / f"{runtime}.jsonl", folder / f"{runtime}.log"
    shell = registry.load("transports", "host").connect({})
    found: dict[str, Cell] = {}
    while rest := [cell for cell in cells if cell not in found]:
        answers.write_text("", encoding="utf-8")
        code = shell.run([sys.executable, "-m", "edgecompress.conformance", runtime, str(folder), *rest], ZOO_S, log)
        lines = map(json.loads, answers.read_text(encoding="utf-8").splitlines())
        found |= {line["cell"]: Cell(**line["found"]) for line in lines}
        if crashed := next((cell for cell in rest if cell not in found), None):
            found[crashed] = Cell(f"the process {dispatch.ending(code, ZOO_S)}; its log is {log.name}")
    return {cell: found[cell] for cell in cells}


def main() -> int:
    """The process of `check_zoo`: RUNTIME FOLDER CELL...; a line of JSON for each cell that did not crash it."""
    lifeline.tie()
    runtime, folder, *cells = sys.argv[1:]
    with (Path(folder) / f"{runtime}.jsonl").open("a", encoding="utf-8", buffering=1) as answers:
        for cell in cells:
            print(f"--- {cell}", file=sys.stderr, flush=True)
            found = dataclasses.asdict(_survived(runtime, cell, Path(folder)))
            answers.write(json.dumps({"cell": cell, "found": found}) + "\n")
    return 0


def _survived(runtime: str, cell: str, folder: Path) -> Cell:
    """One cell; whatever it raises as one line, its traceback in the log."""
    try:
        return zoo_cell(runtime, cell, folder)
    except Exception as error:  # the boundary: of converters and runtimes
        traceback.print_exc()
        said = " ".join(str(error).split())[:300]
        return Cell(said if isinstance(error, (EdgeError, AssertionError)) else f"{type(error).__name__}: {said}")


def zoo_cell(runtime: str, cell: str, folder: Path) -> Cell:
    """A net of the zoo on the planner's own road to a runtime, run by it in each of the net's batches, against torch.

    It runs in this process and raises what a technique, the planner, the converter or the runtime raises.
    """
    name, precision, *techniques = cell.split()
    calls = zoo_road(runtime, precision)
    source = zoo_source(name, techniques, folder)
    found: list[Cell] = []
    model = None
    for batch in zoo.NETS[name].batches:
        if model is None or _fixed(model):
            model = _travelled(source, calls, batch)
        with tempfile.TemporaryDirectory() as scratch:
            answered = _answered(runtime, source.samples, model, (Path(scratch), batch))
            sqnr_db = _nearness(source.golden, answered, ZOO_DB[precision])
        found.append(Cell(sqnr_db=sqnr_db, fixed=_fixed(model) and bool(source.net.dynamic)))
    return min(found, key=lambda cell: math.inf if cell.sqnr_db is None else cell.sqnr_db)


def zoo_road(runtime: str, precision: str) -> list[routes.Call]:
    """The planner's calls from a torch net to a runtime; raises ConfigError where there are none."""
    variant = Variant(precision, compress=({"use": precision},) if precision != "fp32" else ())
    return routes.steps(Target("the zoo", runtime, (variant,)), variant, "module", "the zoo")


@dataclass(frozen=True)
class Source:
    """A net of the zoo, what goes in and what torch answers; `folder` keeps what is made of it."""

    folder: Path
    net: zoo.Net
    model: Artifact
    samples: Artifact
    golden: Artifact


def zoo_source(name: str, techniques: Sequence[str], folder: Path) -> Source:
    """A net of the zoo after some techniques on a "module"; raises what they raise."""
    source = dense = _zoo_source(name, folder / name)
    for technique in techniques:
        source = _compressed(source, dense.model, technique)
    return source


def _zoo_source(name: str, folder: Path) -> Source:
    net = zoo.NETS[name]
    for seed, split in enumerate(SPLITS):
        tensors.write_split(folder / "samples" / split, zoo.draw(net, ZOO_ITEMS, seed))
    batch = Dim("batch", 1, ZOO_ITEMS)
    specs = tuple(TensorSpec(n, (batch, *i.shape), "int64" if i.below else "float32") for n, i in net.inputs.items())
    facts = {"splits": dict.fromkeys(SPLITS, ZOO_ITEMS), "random": True}
    data = Artifact(folder / "samples", "samples", specs, (), facts).write()
    options = {"model": f"{zoo.__name__}:{name}", "dynamic": net.dynamic}
    model = _once("stages.trace:load", Request({"samples": data}, folder / "module", options))
    return Source(folder, net, model, data, _golden(model, data, folder))


def _compressed(source: Source, dense: Artifact, technique: str) -> Source:
    """The source after a technique; where that has nothing to do it is an AssertionError."""
    module, folder = registry.load("techniques", technique), source.folder / technique
    options = config.build(module.Options, ZOO_STRENGTH.get(technique, {}), technique)
    inputs = {"model": source.model, "samples": source.samples, "dense": dense}
    model = _once(f"techniques.{technique}:apply", Request(inputs, folder / "module", options))
    assert not model.facts.get("lost"), f"technique {technique}: {model.facts['lost']}"
    golden = _golden(model, source.samples, folder)
    return dataclasses.replace(source, folder=folder, model=model, golden=golden)


def _golden(model: Artifact, samples: Artifact, folder: Path) -> Artifact:
    asked = {"splits": ["test"], "metric": "none"}
    return _once("stages.golden:run", Request({"model": model, "samples": samples}, folder / "golden", asked))


def _travelled(source: Source, calls: Sequence[routes.Call], batch: int) -> Artifact:
    """The net after the planner's calls."""
    model, out = source.model, source.folder / f"batch-{batch}"
    for call, given in calls:
        out = out / call.replace(":", ".")
        module, _ = registry.call(call)
        has_options = hasattr(module, "Options")
        options = config.build(module.Options, given, call) if has_options else {"dynamic": source.net.dynamic}
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
    return isinstance(model.inputs[0].shape[0], int)


def _answered(runtime: str, samples: Artifact, model: Artifact, how: tuple[Path, int]) -> Artifact:
    """What the runtime answers to the test split, in a folder and by a batch."""
    folder, batch = how
    asked = {
        "mode": "outputs",
        "runtime": {"name": runtime, "module": registry.load("runtimes", runtime).__name__},
        "artifact": str(model.path),
        "samples": str(samples.path),
        "threads": 1,
        "batch": batch,
    }
    if envs.environment(registry.load("runtimes", runtime)):
        dispatch.ask(registry.load("transports", "host").connect({}), asked, folder, ZOO_S)
    else:
        agent.outputs(asked, folder)
    return Artifact(folder, "golden")


def _nearness(golden: Artifact, answered: Artifact, limit: float) -> float | None:
    """The lowest SQNR of the outputs, None where all are identical; below the limit it is an AssertionError."""
    worst: float | None = None
    for name in (spec.name for spec in golden.outputs):
        ours, theirs = (tensors.load(side, "test", name) for side in (golden, answered))
        facts = outputs.compare(ours, theirs, name).facts()
        found = facts["sqnr_db"]
        assert found is not None or facts["reason"] == "identical", f"output '{name}': {facts['reason']}"
        assert found is None or found >= limit, f"output '{name}' is {found:.1f} dB from torch's, limit {limit:g} dB"
        worst = min((v for v in (worst, found) if v is not None), default=None)
    return worst


# --------------------------------------------------------------------------- sensors


def check_sensor(name: str, tmp_path: Path, device: Mapping[str, Any] | None = None, root: Path = Path("/")) -> None:
    """A sensor says why it cannot read, or reads: its energy grows with the window.

    `device`: this machine's file; `root`: where /sys is looked for.
    """
    module = registry.load("sensors", name)
    says = f"sensor {name}"
    _check_constants(module, says, {"STATUS": str, "SCOPE": str})
    assert module.STATUS in typing.get_args(Status), f"{says}: STATUS {module.STATUS!r} is no status"
    here = {**dataclasses.asdict(catalog.device("host").value), "cores": 1} if device is None else device
    nowhere = tmp_path / "nowhere"
    for where, place in (({}, nowhere), (here, nowhere), (here, root)):
        reason = module.unavailable(where, place)
        assert isinstance(reason, str) and "\n" not in reason, f"{says}: unavailable says one line, or nothing"
    if module.unavailable(here, root):
        return
    meter = module.open(here, root)
    meter.start()
    short, long = _windows(meter)
    meter.stop()
    for measured in (short, long):
        _check_measured(measured, module, says)
    if short.value is not None and long.value is not None:
        assert long.value >= short.value, f"{says}: {short.value} J in a part of a window that took {long.value} J"


def _windows(meter: Any) -> tuple[Measured, Measured]:
    """The energy of half a window, and of all of it."""
    import time

    begin = time.monotonic()
    while time.monotonic() < begin + WINDOW_S:  # busy, so that there is something to measure
        pass
    end = time.monotonic()
    whole = meter.energy(begin, end)
    return meter.energy(begin, (begin + end) / 2), whole


def _check_measured(measured: Measured, module: ModuleType, says: str) -> None:
    assert measured.unit == "J", f"{says}: energy is in J, not {measured.unit!r}"
    if measured.value is None:
        assert measured.status == "unavailable" and measured.reason, f"{says}: no value, and no reason why"
        return
    assert math.isfinite(measured.value) and measured.value >= 0, f"{says}: {measured.value} J"
    assert measured.status == module.STATUS, f"{says}: it is {measured.status}, the plug-in says {module.STATUS}"
    assert measured.source and measured.scope, f"{says}: a number names its source and its scope"


# --------------------------------------------------------------------------- passes


def check_pass(name: str, tmp_path: Path, options: Mapping[str, Any] | None = None) -> None:
    """A pass has a default for every option, says how long it takes, and answers in JSON and in lines.

    `options`: brief ones, for the trial on a small net.
    """
    module = registry.load("passes", name)
    says = f"pass {name}"
    _check_constants(module, says, {})
    seconds = module.estimate_s(_default_options(module, says))
    assert math.isfinite(seconds) and seconds > 0, f"{says}: estimate_s says {seconds!r} s by default"
    config.build(module.Options, options or {}, says)
    answer = agent.look(_looked(module, tmp_path / name, options or {}), tmp_path / name)
    lines = module.lines(json.loads(json.dumps(answer, allow_nan=False)))
    assert lines, f"{says}: lines says nothing"
    assert all(isinstance(line, str) and "\n" not in line for line in lines), f"{says}: lines are single lines of text"


def _looked(module: ModuleType, folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The request of a pass over the null net, under no sensor."""
    model = net("null", folder)
    return {
        "mode": "look",
        "runtime": {"name": "null", "module": registry.load("runtimes", "null").__name__},
        "artifact": str(model.path),
        "samples": str(samples(model, folder).path),
        "threads": 1,
        "batch": 1,
        "profile": {"warmup_s": 0.02, "warmup_runs": 2, "warmup_tolerance": 0.5, "warmup_cap_s": 0.1},
        "device": {"options": {}},
        "pass": {"name": "tried", "module": module.__name__, "options": dict(options)},
    }


# --------------------------------------------------------------------------- transports


def check_transport(name: str, tmp_path: Path, device: Mapping[str, Any] | None = None) -> None:
    """A transport says why it cannot be reached; runs programs with their exit code, ends them at the deadline, and
    carries files both ways.
    """
    module = registry.load("transports", name)
    says = f"transport {name}"
    _check_constants(module, says, {})
    tmp_path.mkdir(parents=True, exist_ok=True)
    log = tmp_path / "log"
    asked = {"options": {}} if device is None else device
    why_not = module.unavailable(asked)
    assert isinstance(why_not, str) and "\n" not in why_not, f"{says}: unavailable() says why in one line: {why_not!r}"
    try:
        shell = module.connect(asked)
    except EdgeError as error:  # nothing to reach from here
        assert "\n" not in str(error), f"{says}: its error is not one line: {error}"
        assert why_not, f"{says}: unavailable() found nothing wrong, connect() says {error}"
        return
    assert not why_not, f"{says}: connect() reached what unavailable() said cannot be: {why_not}"
    assert isinstance(shell.here, bool), f"{says}: here is True for this machine, False for another"
    facts = dict(shell.facts())
    assert facts, f"{says}: facts says nothing of the device"
    json.dumps(facts, allow_nan=False)
    assert shell.run(["sh", "-c", "echo heard; exit 0"], 30, log) == 0, f"{says}: a program that ended well"
    assert "heard" in log.read_text(encoding="utf-8"), f"{says}: what a program prints belongs into the log"
    assert shell.run(["sh", "-c", "exit 7"], 30, log) == 7, f"{says}: it must return the program's exit code"
    _check_deadline(shell, log, says)
    _check_carries(shell, tmp_path, says)
    _check_scratch(shell, tmp_path, log, says)
    shell.close()


def _check_deadline(shell: Any, log: Path, says: str) -> None:
    import time

    begin = time.monotonic()
    code = shell.run(["sleep", "20"], 0.5, log)
    assert code != 0, f"{says}: a program ended at its deadline did not end well"
    assert time.monotonic() - begin < 15, f"{says}: a program outlived its deadline"


def _check_carries(shell: Any, folder: Path, says: str) -> None:
    here, back = folder / "pushed", folder / "pulled"
    (here / "inner").mkdir(parents=True, exist_ok=True)
    (here / "inner" / "file.bin").write_bytes(bytes(range(256)))
    there = shell.push(here)
    shell.pull(there, back)
    carried = back / "inner" / "file.bin"
    assert carried.read_bytes() == bytes(range(256)), f"{says}: a file came back with other bytes"
    assert shell.push(here) == there, f"{says}: what is there already has its place"


def _check_scratch(shell: Any, folder: Path, log: Path, says: str) -> None:
    """What a run writes into a scratch folder comes back; the folder goes when it is discarded."""
    mine = folder / "scratch"
    mine.mkdir(exist_ok=True)
    (mine / "request").write_text("asked", encoding="utf-8")
    place = shell.scratch(mine)
    assert shell.run(["sh", "-c", f"cat '{place}/request' > '{place}/answer'"], 30, log) == 0, (
        f"{says}: scratch holds a copy"
    )
    shell.pull(place, mine)
    assert (mine / "answer").read_text(encoding="utf-8") == "asked", f"{says}: what a run wrote must come back"
    shell.discard(place)
    gone = shell.run(["sh", "-c", f"test ! -e '{place}'"], 30, log) == 0
    assert gone or shell.here, f"{says}: a discarded folder is still there"


# --------------------------------------------------------------------------- packagers


PACKED_FIRST = ("onnx", "null")  # the formats that a small net is packed in where a packager takes them
NUMBERED = re.compile(r"^ {0,3}(\d+)[.)] ", re.MULTILINE)
STEPS = 3  # at most, of a README
ODD_NAME = "odd \"'`\\ ${x} </script> ]]> */ \u202e --\n" + "x" * 300


def check_packager(name: str, tmp_path: Path) -> None:
    """A packager packs a small net: the same bytes twice, whole, verified; what is changed or missing is found."""
    module = registry.load("packages", name)
    says = f"packager {name}"
    _check_constants(module, says, {"SUFFIX": str, "FORMATS": tuple, "EXTRA": str, "CARRIED": tuple})
    assert module.SUFFIX in (".zip", ".tar.gz"), f"{says}: SUFFIX is .zip or .tar.gz, not {module.SUFFIX}"
    _default_options(module, says)
    folder = shipped_net(_packed_kind(module), tmp_path / "shipped", "Small net")
    first, second = (api.package(folder, name, tmp_path / str(i) / f"a{module.SUFFIX}") for i in range(2))
    assert first.read_bytes() == second.read_bytes(), f"{says}: the same artifact gave other bytes the second time"
    _check_sound(first, says)
    root = _opened_package(first, tmp_path / "opened")
    _check_readme(root / "README.md", says)
    _check_payload(module, root, folder, tmp_path / "payload", says)
    _check_finds(first, root, module.SUFFIX, says)
    _check_code(first, root, module, says)
    odd = shipped_net(_packed_kind(module), tmp_path / "odd", ODD_NAME)
    _check_sound(api.package(odd, name, tmp_path / f"odd{module.SUFFIX}"), f"{says}, of a net with an odd name")


def _packed_kind(module: ModuleType) -> str:
    known = [kind for kind in PACKED_FIRST if kind in module.FORMATS or not module.FORMATS]
    return known[0] if known else str(module.FORMATS[0])


def shipped_net(kind: str, folder: Path, name: str) -> Path:
    """The small net of a kind in a folder as a deploy writes it, with what its runtime answers."""
    import numpy as np

    runtime, module = next((n, m) for n, m in registry.every("runtimes") if kind == m.FORMAT and not envs.missing(m))
    small = net(kind, folder.with_name(f"{folder.name}-nets"))
    shutil.copytree(small.path, folder / "artifact")
    model = Artifact.read(folder / "artifact")
    data = samples(model, folder.with_name(f"{folder.name}-nets"))
    session = _opened(module, model, False)
    answers = [session.run(item) for item in tensors.batches(data, "test", 1)]
    session.close()
    found = {s.name: np.concatenate([np.asarray(a[s.name]) for a in answers]) for s in model.outputs}
    inputs = {s.name: np.array(tensors.load(data, "test", s.name)) for s in model.inputs}
    labels = [f"class {i}" for i in range(model.outputs[0].concrete()[-1])]
    source = {"name": name, "model": "nets:build", "metric": "top1", "labels": labels, "licence": "CC0-1.0"}
    return sample.write(model, runtime, inputs, found, source)


def _check_sound(file: Path, says: str) -> None:
    failed = [check for check in verify.verify(file) if check.status == "fail"]
    assert not failed, f"{says}: its own package fails {failed[0].name}: {failed[0].reason}"
    for check in verify.verify(file):
        assert check.reason or check.status == "pass", f"{says}: {check.name} is {check.status}, and does not say why"


def _opened_package(file: Path, into: Path) -> Path:
    into.mkdir()
    archive.unpack(file, into)
    return archive.top(into, file)


def _check_readme(file: Path, says: str) -> None:
    steps = [int(number) for number in NUMBERED.findall(file.read_text(encoding="utf-8"))]
    assert steps and max(steps) <= STEPS, f"{says}: its README has the steps {steps}: one to three are enough"


def _check_payload(module: ModuleType, root: Path, folder: Path, work: Path, says: str) -> None:
    """The payload has the artifact's bytes, whatever it is wrapped in."""
    work.mkdir()
    found = module.payload(root, work) / "model"
    wanted = Artifact.read(folder / "artifact")
    for file in wanted.files():
        place = found / file.relative_to(wanted.path)
        assert place.read_bytes() == file.read_bytes(), f"{says}: {place.name} has other bytes than the artifact"


def _check_finds(file: Path, root: Path, suffix: str, says: str) -> None:
    """A changed byte of the largest file, and of the card; a file that is missing; one that is more."""
    largest = max((p for p in root.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    card = root / "model_card.json"
    for place in (largest, card):
        kept = place.read_bytes()
        middle = len(kept) // 2
        place.write_bytes(kept[:middle] + bytes([kept[middle] ^ 1]) + kept[middle + 1 :])
        _check_fails(file, root, suffix, f"{says}: a changed byte of {place.name}")
        place.unlink()
        _check_fails(file, root, suffix, f"{says}: {place.name} that is missing")
        place.write_bytes(kept)
    more = root / "more.txt"
    more.write_text("more", encoding="utf-8")
    _check_fails(file, root, suffix, f"{says}: a file that nobody lists")
    more.unlink()


def _check_code(file: Path, root: Path, module: ModuleType, says: str) -> None:
    """What is changed in its code, or added to it, is found though the sums are made again."""
    readme, more = root / "README.md", root / "more.sh"
    kept = readme.read_bytes()
    for place, content, what in ((readme, kept + b"\n", "a changed file"), (more, b"true\n", "a file more")):
        place.write_bytes(content)
        (root / pack.SUMS).write_text(pack.sums(root), encoding="utf-8")
        _check_fails(file, root, module.SUFFIX, f"{says}: {what} of its code, with sums made again,", "code")
        readme.write_bytes(kept)


def _check_fails(file: Path, root: Path, suffix: str, says: str, by: str = "") -> None:
    """A check fails; the one of this name, where one is named."""
    changed = file.with_name(f"changed{suffix}")
    archive.write(root.parent, changed, suffix)
    failed = [check.name for check in verify.verify(changed) if check.status == "fail"]
    assert by in failed if by else failed, f"{says} is not found"


# --------------------------------------------------------------------------- targets


def check_target(path: Path) -> None:
    """A target parses, its device exists, and each of its variants can be reached from some source."""
    found = catalog.target(str(path))
    target = found.value
    assert target.description, f"{path}: a target says what it is for"
    assert any(v.reference for v in target.variant), f"{path}: no variant is the reference: nothing to compare with"
    for variant in target.variant:
        runtime = variant.runtime or target.runtime
        assert runtime in registry.names("runtimes"), f"{path}: variant {variant.name}: no runtime '{runtime}'"
    modules = routes.plugins(target)
    assert modules, f"{path}: nothing is run"
    _check_packed(target, path)
    device = catalog.device(target.device).value
    assert device.transport in registry.names("transports"), f"{path}: no transport '{device.transport}'"
    unknown = set(device.sensors) - set(registry.names("sensors"))
    assert not unknown, f"{path}: the device names sensors that are not there: {sorted(unknown)}"


def _check_packed(target: Target, path: Path) -> None:
    """Its packager takes what each of its runtimes writes."""
    assert target.package in registry.names("packages"), f"{path}: no packager '{target.package}'"
    taken = registry.load("packages", target.package).FORMATS
    for name in {variant.runtime or target.runtime for variant in target.variant}:
        kind = registry.load("runtimes", name).FORMAT
        assert not taken or kind in taken, f"{path}: packager '{target.package}' does not take {kind} of {name}"


# --------------------------------------------------------------------------- small nets


def net(kind: str, folder: Path) -> Artifact:
    """A small net of a kind: built here, or exported by the runtime whose format it is."""
    out = folder / f"net-{kind}"
    if out.exists():
        return Artifact.read(out)
    makers: dict[str, Callable[[Path], Artifact]] = {
        "null": _null_net,
        "onnx": _onnx_net,
        "module": _module_net,
        "program": lambda out: _program_net(folder, out),
        "savedmodel": _savedmodel_net,
    }
    if kind in makers:
        out.mkdir(parents=True)
        return makers[kind](out)
    runtime = next((m for _, m in registry.every("runtimes") if kind == m.FORMAT), None)
    assert runtime and runtime.READS, f"the conformance suite has no net of kind '{kind}', and no runtime makes one"
    options = config.build(runtime.Options, {}, kind) if hasattr(runtime, "Options") else {}
    return _stage(runtime.export, {"model": net(runtime.READS[0], folder)}, out, options)


def _null_net(out: Path) -> Artifact:
    batch = Dim("batch", 1, 64)
    inputs, outputs = (TensorSpec("x", (batch, 4)),), (TensorSpec("y", (batch, 3)),)
    specs = {"inputs": [dataclasses.asdict(s) for s in inputs], "outputs": [dataclasses.asdict(s) for s in outputs]}
    (out / "model.null").write_text(json.dumps({**specs, "scale": 1.234}), encoding="utf-8")
    return Artifact(out, "null", inputs, outputs).write()


def _onnx_net(out: Path) -> Artifact:
    """Two convolutions, a shortcut, a pool and a matrix product: image [1, 3, 8, 8] -> scores [1, 16]."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    seeded = np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "w3": (16, 16)}
    weights = {n: (seeded.normal(size=s) / math.prod(s[1:]) ** 0.5).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["d"], "add"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], "pool"),
        helper.make_node("Flatten", ["e"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "w3"], ["scores"], "product"),
    ]
    ends = [TensorSpec("image", (1, 3, 8, 8)), TensorSpec("scores", (1, 16))]
    values = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape) for s in ends]
    constants = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(proto, out / "model.onnx")
    return Artifact(out, "onnx", tuple(ends[:1]), tuple(ends[1:])).write()


def torch_net() -> Any:
    """The factory of the torch net: image [n, 3, 8, 8] -> scores [n, 16]."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 16)).eval()


def _image_samples(folder: Path) -> Artifact:
    image = (TensorSpec("input", (Dim("batch", 1, ITEMS), 3, 8, 8)),)
    return samples(Artifact(folder, "module", image), folder)


def _module_net(out: Path) -> Artifact:
    load, _ = registry.call("stages.trace:load")
    inputs = {"samples": _image_samples(out.parent)}
    return load.load(Request(inputs, out, {"model": f"{__name__}:torch_net", "dynamic": {}}))  # type: ignore[no-any-return]


def _program_net(folder: Path, out: Path) -> Artifact:
    trace, _ = registry.call("stages.trace:run")
    inputs = {"model": net("module", folder), "samples": _image_samples(folder)}
    return trace.run(Request(inputs, out, {"dynamic": {}}))  # type: ignore[no-any-return]


def _savedmodel_net(out: Path) -> Artifact:
    """The same in Keras: image [n, 8, 8, 3] -> scores [n, 16], read from a file as a user's is."""
    import keras

    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    features = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    features = keras.layers.BatchNormalization()(keras.layers.Conv2D(16, 3, padding="same")(features))
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(features))
    file = out.parent / "net.keras"
    keras.Model(image, {"scores": keras.layers.Dense(16)(pooled)}).save(file)
    return registry.load("runtimes", "tensorflow").read(Request({}, out, {"path": str(file)}))  # type: ignore[no-any-return]


def samples(model: Artifact, folder: Path) -> Artifact:
    """Random data for a model's inputs, in every split: normal numbers, or whole ones of 0 and 1."""
    import numpy as np

    out = folder / f"samples-{model.kind}"
    if (out / CARD).exists():
        return Artifact.read(out)
    seeded = np.random.default_rng(1)
    for split in SPLITS:
        arrays = {}
        for spec in model.inputs:
            shape = (ITEMS, *spec.concrete()[1:])
            drawn = seeded.normal(size=shape) if spec.dtype.startswith("float") else seeded.integers(0, 2, shape)
            arrays[spec.name] = drawn.astype(spec.dtype)
        tensors.write_split(out / split, arrays)
    specs = tuple(dataclasses.replace(s, shape=(Dim("batch", 1, ITEMS), *s.concrete()[1:])) for s in model.inputs)
    facts = {"splits": dict.fromkeys(SPLITS, ITEMS), "random": True}
    return Artifact(out, "samples", specs, (), facts).write()


# --------------------------------------------------------------------------- what all share


def _check_constants(module: ModuleType, says: str, wanted: Mapping[str, type]) -> None:
    assert (module.__doc__ or "").strip(), f"{says}: a docstring: its first line is shown in lists and help"
    for name, kind in {"REQUIRES": tuple, **wanted}.items():
        value = getattr(module, name, None)
        assert isinstance(value, kind), f"{says}: {name} must be a {kind.__name__}, not {value!r}"


def _stage(
    function: Callable[[Request], Artifact], inputs: Mapping[str, Artifact], out: Path, options: Any
) -> Artifact:
    out.mkdir(parents=True, exist_ok=True)
    return function(Request(inputs, out, options))


def _check_artifact(artifact: Artifact, kind: str, says: str) -> None:
    assert artifact.kind == kind, f"{says}: promised {kind}, made {artifact.kind}"
    assert artifact.sha256 == artifact.digest(), f"{says}: its sha256 is not that of its content"
    assert Artifact.read(artifact.path) == artifact, f"{says}: the card on disk is not what was returned"
    assert artifact.files(), f"{says}: the artifact is empty"
    assert artifact.inputs and artifact.outputs, f"{says}: an artifact has input and output specs"
    places = [p for p in artifact.path.rglob("*") if p.is_dir() and not any(p.iterdir())]
    assert not places, f"{says}: it left empty folders behind: {[p.name for p in places]}"


def _item(data: Artifact) -> dict[str, Any]:
    """One item of the test split, as a batch of one."""
    return next(tensors.batches(data, "test", 1))


if __name__ == "__main__":
    sys.exit(main())
