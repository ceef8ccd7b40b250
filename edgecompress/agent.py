"""Runs an artifact where it will live and measures it: a process of its own, one request in, one result out.

    python -m edgecompress.agent REQUEST.json

The request is JSON: `mode` (one of MODES), `runtime` {name, module}, `artifact` (modes turns and taps: `artifacts`, by
label), `samples`, `split`, `threads`, `batch`, `profile`, `sensors` [{name, module}], `pass` {name, module, options},
`device`, `root` (of /sys), `out` (empty: the request's own folder), `tied` (the end of stdin ends the agent; else it
ends itself after `deadline_s`).
The answer is `result.json` in `out`; exit 1 and {"error": message, "class": name} when it went wrong.
The same file runs on the host, a board, an emulator: Python 3.10 and the standard library (numpy for the arrays).
"""

from __future__ import annotations

import array
import contextlib
import functools
import gc
import importlib
import importlib.metadata
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgecompress import lifeline, sketch, tensors
from edgecompress.errors import EdgeError, InputError, StageFailed, kind_of
from edgecompress.model import Artifact, Meter, Session, TensorSpec

RESULT = "result.json"
TRACE = "trace.json"  # mode outputs: what is kept of each operator's output, where the runtime tells them
TRACED = 16  # items
LATENCIES = "latencies.ns"  # nanoseconds per run, 64-bit whole numbers of this machine, in run order
ITEMS = 32  # batches of samples held in memory and rotated through
BLOCKS = 4  # the shortest warm-up is so many blocks long
BLOCK_RUNS = 3
COUNT_WARM = 3  # inferences before any is counted: the first ones allocate
ENERGY_RUNS = 10  # an energy window holds at least so many
AT = "at"  # mode turns: a file with the label of the artifact that is loaded or run
TURN_RUNS = 3  # a window of mode turns holds at least so many
TURN_ITEMS = 4  # batches of samples that each of its artifacts rotates through: they are all in memory at once
START = "import sys\nsys.path[:] = {path!r}\nfrom edgecompress.agent import main\nsys.exit(main())\n"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Asked = Mapping[str, Any]
Answer = dict[str, Any]
Run = Callable[[Mapping[str, Any]], Any]


def main() -> int:
    """Answers the request that the first argument names."""
    file = Path(sys.argv[1])
    asked = json.loads(file.read_text(encoding="utf-8"))
    if asked.get("tied", True):
        lifeline.tie()
    else:
        lifeline.end_after(asked["deadline_s"])
    out = Path(asked.get("out") or file.parent)
    for name in THREADS:  # before anything that reads them is loaded
        os.environ[name] = str(asked.get("threads", 1))
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it would tell of models, on a thread beside what is measured
    answer = _answer(asked, out)
    (out / RESULT).write_text(json.dumps(answer, allow_nan=False), encoding="utf-8")
    return 1 if "error" in answer else 0


def _answer(asked: Asked, out: Path) -> Answer:
    try:
        mode = MODES.get(asked["mode"])
        if mode is None:
            raise InputError(f"agent: no mode '{asked['mode']}'; known: {', '.join(MODES)}")
        return mode(asked, out)
    except EdgeError as error:
        traceback.print_exc()
        return {"error": str(error), "class": type(error).__name__}
    except ModuleNotFoundError as error:
        traceback.print_exc()
        lacking = f"the Python that runs it ({sys.executable}) has no module '{error.name}': install it there"
        return {"error": lacking, "class": StageFailed.__name__}
    except Exception as error:  # the boundary: whatever a runtime raises becomes one line, its traceback is in the log
        traceback.print_exc()
        said = " ".join(str(error).split())[:300]
        return {"error": f"{type(error).__name__}: {said}", "class": StageFailed.__name__}


# --------------------------------------------------------------------------- what is asked


def _runtime(asked: Asked) -> Any:
    """The runtime's module; the libraries in its IMPORTS are loaded: they are baseline, not the model's load."""
    runtime = importlib.import_module(asked["runtime"]["module"])
    for name in getattr(runtime, "IMPORTS", ()):
        with contextlib.suppress(ImportError):  # `open` says it with the command that installs it
            importlib.import_module(name)
    return runtime


def _batch(model: Artifact, asked: int) -> int:
    """The batch that the model is made for, where it is fixed; else the one asked for."""
    shape = model.inputs[0].shape if model.inputs else ()
    return shape[0] if shape and isinstance(shape[0], int) else asked


def _feed(asked: Asked, model: Artifact, limit: int | None) -> Any:
    """Batches of the split by the model's input names; inputs that an output feeds start at zero for each."""
    import numpy as np

    samples = Artifact.read(Path(asked["samples"]))
    names = tensors.check_inputs(model, samples)
    batch = _batch(model, asked["batch"])
    rest = {s.name: np.zeros(s.concrete(batch), s.dtype) for s in model.inputs if s.name not in names}
    for inputs in tensors.batches(samples, asked.get("split", "test"), batch, limit, model):
        yield {**inputs, **rest}


def _preloaded(asked: Asked, model: Artifact, items: int = ITEMS) -> list[dict[str, Any]]:
    """The split's first items, in memory. Raises InputError when there are none or the model's batch is another."""
    batch = _batch(model, asked["batch"])
    if batch != asked["batch"]:
        raise InputError(f"{model.path}: made for batch {batch}, measured with {asked['batch']}; use --batch {batch}")
    inputs = list(_feed(asked, model, items * batch))
    if not inputs:
        raise InputError(
            f"{asked['samples']}: split '{asked.get('split', 'test')}' is empty; give it at least one item"
        )
    return inputs


# --------------------------------------------------------------------------- mode outputs


def outputs(asked: Asked, out: Path) -> Answer:
    """The artifact's outputs for a whole split, as SPLIT/OUTPUT.npy: item i is the split's item i.

    Where the session can be traced, TRACE holds a sketch of each operator's output for the first items.
    """
    runtime = _runtime(asked)
    model = Artifact.read(Path(asked["artifact"]))
    split = asked.get("split", "test")
    total = tensors.count(Artifact.read(Path(asked["samples"])), split)
    opened = runtime.open(model, asked["threads"])
    writer = tensors.Appender(out / split)
    batch = _batch(model, asked["batch"])
    if hasattr(opened, "trace"):
        lines = sketch.trace(opened.trace(inputs) for inputs in _feed(asked, model, TRACED))
        (out / TRACE).write_text(json.dumps(lines, allow_nan=False), encoding="utf-8")
    for inputs in _feed(asked, model, None):
        kept = min(batch, total - writer.count)
        result = opened.run(inputs)
        writer.append({s.name: _items(s, result[s.name], batch)[:kept] for s in model.outputs if not s.feeds})
    writer.close()
    opened.close()
    return {"n": writer.count, "batch": batch, "environment": _environment(asked, runtime)}


def _items(spec: TensorSpec, value: Any, batch: int) -> Any:
    """An output with its items on axis 0. Raises when it has another number of rows, or a name that is no file name."""
    import numpy as np

    found = tensors.real(np.asarray(value), spec)
    if not found.ndim or len(found) != batch:
        raise StageFailed(
            f"output '{spec.name}' has shape {list(found.shape)} for a batch of {batch}: axis 0 is not the batch"
        )
    if Path(spec.name).name != spec.name:
        raise InputError(f"output '{spec.name}' cannot be a file's name; rename the output in the model")
    return found


def taps(asked: Asked, out: Path) -> Answer:
    """All outputs of each of `artifacts` for the first `items`, as LABEL/SPLIT/OUTPUT.npy: row k is of batch k."""
    import numpy as np

    runtime = _runtime(asked)
    for label, place in asked["artifacts"].items():
        model = Artifact.read(Path(place))
        opened = runtime.open(model, asked["threads"])
        writer = tensors.Appender(out / label / asked["split"])
        for inputs in _feed(asked, model, asked["items"]):
            result = opened.run(inputs)
            writer.append({s.name: tensors.real(np.asarray(result[s.name]), s)[None] for s in model.outputs})
        writer.close()
        opened.close()
        if not writer.count:
            raise InputError(f"{asked['samples']}: split '{asked['split']}' is empty; give it at least one item")
    return {"environment": _environment(asked, runtime)}


# --------------------------------------------------------------------------- mode session


def session(asked: Asked, out: Path) -> Answer:
    """Load, first inference, warm-up, timed window, memory: the protocol of one session."""
    begin = time.perf_counter_ns()
    runtime = _runtime(asked)
    import_ms = _since_ms(begin)
    model = Artifact.read(Path(asked["artifact"]))
    inputs = _preloaded(asked, model)
    memory = _Memory()
    begin = time.perf_counter_ns()
    opened = runtime.open(model, asked["threads"])
    load_ms = _since_ms(begin)
    begin = time.perf_counter_ns()
    opened.run(inputs[0])
    first_ms = _since_ms(begin)
    warm = _warm_up(opened.run, inputs, asked["profile"])
    before = memory.peak()
    window = _window(opened.run, inputs, asked["profile"], out)
    answer = {"import_ms": import_ms, "load_ms": load_ms, "first_ms": first_ms, **warm, **window}
    answer["memory"] = {**memory.facts(before, 8 * window["n"]), **_arena(opened, asked)}
    opened.close()
    return {**answer, "batch": asked["batch"], "environment": _environment(asked, runtime)}


def _since_ms(begin_ns: int) -> float:
    return (time.perf_counter_ns() - begin_ns) / 1e6


def timed(run: Run, inputs: Sequence[Mapping[str, Any]], seconds: float, runs: int) -> array.array[int]:
    """Nanoseconds of each run, for at least `seconds` and `runs`. Nothing but the clock stands around a run."""
    times = array.array("q")
    append, clock, turn = times.append, time.perf_counter_ns, itertools.cycle(inputs)
    end = clock() + int(seconds * 1e9)
    for given in turn:
        begin = clock()
        run(given)
        after = clock()
        append(after - begin)
        if after >= end and len(times) >= runs:
            break
    return times


def _warm_up(run: Run, inputs: Sequence[Mapping[str, Any]], profile: Mapping[str, Any]) -> Answer:
    """At least warmup_s and warmup_runs, then until the medians of the last two blocks agree, or the cap."""
    begin, runs, medians = time.perf_counter(), 0, []
    while True:
        block = timed(run, inputs, profile["warmup_s"] / BLOCKS, BLOCK_RUNS)
        runs += len(block)
        medians.append(statistics.median(block) / 1e6)
        spent = time.perf_counter() - begin
        enough = spent >= profile["warmup_s"] and runs >= profile["warmup_runs"] and len(medians) > 1
        warm = enough and abs(medians[-1] - medians[-2]) < profile["warmup_tolerance"] * medians[-2]
        if warm or spent >= max(profile["warmup_cap_s"], profile["warmup_s"]):
            return {"warm": warm, "warmup_s": spent, "warmup_runs": runs, "warmup_blocks_ms": medians}


def _window(run: Run, inputs: Sequence[Mapping[str, Any]], profile: Mapping[str, Any], out: Path) -> Answer:
    """The timed window: latencies to a file, and what disturbed them."""
    gc.collect()
    gc.disable()
    ticks, preempted, busy, begin = _ticks(), _preempted(), time.process_time(), time.perf_counter()
    times = timed(run, inputs, profile["window_s"], profile["window_runs"])
    window_s = time.perf_counter() - begin
    noise = {"preempted": _preempted() - preempted, "cpu_s": time.process_time() - busy}
    noise.update(_neighbours(ticks, _ticks(), noise["cpu_s"]))
    gc.enable()
    with (out / LATENCIES).open("wb") as file:
        times.tofile(file)
    return {"n": len(times), "window_s": window_s, **noise}


def _ticks() -> list[int]:
    """Of all processors since boot: user, nice, system, idle, iowait, irq, softirq, steal; empty where none tells."""
    try:
        return [int(n) for n in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return []


def _neighbours(before: list[int], after: list[int], cpu_s: float) -> Answer:
    """Processor seconds that other guests of the hypervisor took, and that other processes here did."""
    if len(before) < 8 or len(after) < 8:
        return {"stolen_s": None, "others_s": None}
    spent = [(b - a) / os.sysconf("SC_CLK_TCK") for a, b in zip(before, after)]  # noqa: B905 (Python 3.9)
    busy_s = sum(spent[:3]) + sum(spent[5:7])
    return {"stolen_s": max(0.0, spent[7]), "others_s": max(0.0, busy_s - cpu_s)}


def _preempted() -> int:
    """Times the kernel took the processor away from this process (its threads too); 0 where nothing counts them."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _arena(opened: Session, asked: Asked) -> Answer:
    planned = getattr(opened, "arena_bytes", None)
    reason = "" if planned is not None else f"runtime {asked['runtime']['name']} does not tell its arena"
    return {"arena_bytes": planned, "arena_reason": reason}


class _Memory:
    """Resident memory since the imports. Linux only: elsewhere None, with the reason.

    VmHWM is read in this process: the ru_maxrss of a child would hold the peak of its parent.
    """

    def __init__(self) -> None:
        self.fresh = _reset_peak()
        self.base, self.base_file = _status("VmRSS"), _status("RssFile")

    def peak(self) -> int | None:
        """The highest resident size so far."""
        return _status("VmHWM")

    def facts(self, before: int | None, buffer_bytes: int) -> Answer:
        """Peak over the baseline, less the window's own record (`before`: the peak when the window began)."""
        peak, file = self.peak(), _status("RssFile")
        if peak is None or self.base is None or before is None:
            reason = f"no /proc/self/status on {platform.system()}"
            return {"peak_rss_bytes": None, "file_backed_bytes": None, "rss_reason": reason}
        mine = min(buffer_bytes, peak - before)
        backed = max(0, file - self.base_file) if file is not None and self.base_file is not None else None
        reason = "" if self.fresh else "the peak could not be reset after the imports: it may be theirs"
        over = {"peak_rss_bytes": max(0, peak - mine - self.base), "file_backed_bytes": backed}
        return {**over, "baseline_rss_bytes": self.base, "rss_reason": reason}


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(key: str) -> int | None:
    """Bytes of an entry of /proc/self/status."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def _environment(asked: Asked, runtime: Any) -> Answer:
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "python": platform.python_version(),
        "runtime": asked["runtime"]["name"],
        "versions": _versions(runtime.REQUIRES),
        "threads": asked["threads"],
        "affinity": affinity,
    }


def _versions(requires: Sequence[str]) -> dict[str, str]:
    found = {}
    for requirement in requires:
        name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


# --------------------------------------------------------------------------- mode turns


def turns(asked: Asked, out: Path) -> Answer:
    """Median milliseconds of each of `artifacts` in each of `rounds`, in one process; the order rotates every round.

    They all take the inputs of `samples`. A window lasts `window_s`, after a warm-up of `warmup_s`. The file AT tells
    who took the process down.
    """
    runtime = _runtime(asked)
    opened: dict[str, Session] = {}
    runs: dict[str, Callable[[float], Sequence[int]]] = {}
    for label, path in asked["artifacts"].items():
        _at(out, label)
        model = Artifact.read(Path(path))
        inputs = _preloaded(asked, model, TURN_ITEMS)
        opened[label] = runtime.open(model, asked["threads"])
        runs[label] = functools.partial(timed, opened[label].run, inputs, runs=TURN_RUNS)
        runs[label](asked["warmup_s"])
    medians_ms = _in_turns(runs, asked, out)
    for each in opened.values():
        each.close()
    return {"medians_ms": medians_ms, "environment": _environment(asked, runtime)}


def _in_turns(runs: Mapping[str, Callable[[float], Sequence[int]]], asked: Asked, out: Path) -> Answer:
    medians_ms: dict[str, list[float]] = {label: [] for label in runs}
    order = list(runs)
    gc.collect()
    gc.disable()
    for number in range(asked["rounds"]):
        turn = number % len(order)
        for label in (*order[turn:], *order[:turn]):
            _at(out, label)
            medians_ms[label].append(statistics.median(runs[label](asked["window_s"])) / 1e6)
    gc.enable()
    return medians_ms


def _at(out: Path, label: str) -> None:
    (out / AT).write_text(label, encoding="utf-8")


# --------------------------------------------------------------------------- modes energy, ops, facts


def energy(asked: Asked, out: Path) -> Answer:
    """Idle, windows back to back, idle, under the first of `sensors`; {"why_not": reason} when it cannot read."""
    sensor = importlib.import_module(asked["sensors"][0]["module"])
    root = Path(asked.get("root", "/"))
    if why_not := sensor.unavailable(asked["device"], root):
        return {"why_not": why_not}
    runtime = _runtime(asked)
    model = Artifact.read(Path(asked["artifact"]))
    inputs, profile = _preloaded(asked, model), asked["profile"]
    opened = runtime.open(model, asked["threads"])
    meter = sensor.open(asked["device"], root)
    warm = _warm_up(opened.run, inputs, profile)
    rest = functools.partial(_rest, profile["idle_s"])
    work = functools.partial(_work, opened.run, inputs, profile["energy_window_s"])
    meter.start()
    try:
        idle = [_metered(meter, rest, 0)]
        windows = [_metered(meter, work, asked["batch"]) for _ in range(profile["energy_windows"])]
        idle.append(_metered(meter, rest, 0))
    finally:
        meter.stop()
    opened.close()
    return {"why_not": "", "warm": warm["warm"], "idle": idle, "windows": windows, "trace": _trace(meter)}


def _trace(meter: Meter) -> Answer:
    """The samples of power that the sensor took, where it keeps them."""
    samples = meter.samples() if hasattr(meter, "samples") else []
    return {"t_s": [t for t, _ in samples], "watts": [w for _, w in samples]}


def _rest(seconds: float) -> int:
    time.sleep(seconds)
    return 0


def _work(run: Run, inputs: Sequence[Mapping[str, Any]], seconds: float) -> int:
    return len(timed(run, inputs, seconds, ENERGY_RUNS))


def _metered(meter: Meter, act: Callable[[], int], batch: int) -> Answer:
    """The energy of `act`, asked for at its end; `n` is the inferences that it made."""
    begin = time.monotonic()
    runs = act()
    end = time.monotonic()
    energy = asdict(meter.energy(begin, end))
    return {"n": runs * batch, "begin_s": begin, "seconds": end - begin, "energy": energy}


def ops(asked: Asked, out: Path) -> Answer:
    """Milliseconds per operator, from a session made for profiling."""
    runtime = _runtime(asked)
    model = Artifact.read(Path(asked["artifact"]))
    inputs = _preloaded(asked, model)
    opened = runtime.open(model, asked["threads"], True)
    found = dict(opened.ops(inputs[0], asked["profile"]["ops_runs"]))
    opened.close()
    return {**found, "environment": _environment(asked, runtime)}


def facts(asked: Asked, out: Path) -> Answer:
    """What this device says of itself, and of each sensor why it cannot read ("" when it can)."""
    root = Path(asked.get("root", "/"))
    sensors = {s["name"]: importlib.import_module(s["module"]) for s in asked.get("sensors", ())}
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "sensors": {name: module.unavailable(asked["device"], root) for name, module in sensors.items()},
    }


# --------------------------------------------------------------------------- modes count, look, start


def count(asked: Asked, out: Path) -> Answer:
    """Instructions of single inferences of one input, and of empty marks, by the first of `sensors`."""
    sensor, root = importlib.import_module(asked["sensors"][0]["module"]), Path(asked.get("root", "/"))
    if why_not := sensor.unavailable(asked["device"], root):
        return {"why_not": why_not}
    subject = Subject(asked, out)
    opened, inputs = subject.open(), subject.inputs()[0]
    counter = sensor.open(asked["device"], root)
    for _ in range(COUNT_WARM):
        opened.run(inputs)
    times = range(asked["profile"]["count_runs"])
    gc.collect()
    gc.disable()
    empty = [counter.count(lambda: None) for _ in times]
    runs = [counter.count(lambda: opened.run(inputs)) for _ in times]
    opened.close()
    return {"why_not": "", "empty": empty, "runs": runs, "environment": _environment(asked, subject.runtime)}


def look(asked: Asked, out: Path) -> Answer:
    """What a pass finds."""
    module = importlib.import_module(asked["pass"]["module"])
    subject = Subject(asked, out)
    found = module.measure(subject, module.Options(**asked["pass"]["options"]))
    return {**found, "batch": subject.batch, "environment": _environment(asked, subject.runtime)}


def start(asked: Asked, out: Path) -> Answer:
    """Import, load, first and second inference of a process that has done nothing else."""
    runtime, import_ms = _clocked(lambda: _runtime(asked))
    model = Artifact.read(Path(asked["artifact"]))
    inputs = _preloaded(asked, model)[0]
    opened, load_ms = _clocked(lambda: runtime.open(model, asked["threads"]))
    first_ms, second_ms = (_clocked(lambda: opened.run(inputs))[1] for _ in range(2))
    opened.close()
    return {"import_ms": import_ms, "load_ms": load_ms, "first_ms": first_ms, "second_ms": second_ms}


def _clocked(act: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter_ns()
    return act(), _since_ms(begin)


class Subject:
    """What a pass is given: model.Subject says what each part is."""

    def __init__(self, asked: Asked, out: Path) -> None:
        self.asked, self.out = asked, out
        self.profile: Mapping[str, Any] = asked["profile"]
        self.batch: int = asked["batch"]
        self.threads: int = asked["threads"]
        self.root = Path(asked.get("root", "/"))
        self.runtime = _runtime(asked)
        self.model = Artifact.read(Path(asked["artifact"]))

    def open(self, profile: bool = False) -> Session:
        """A new session."""
        opened: Session = self.runtime.open(self.model, self.threads, profile)
        return opened

    def start(self) -> Answer:
        """What mode `start` answers, from a process of its own that ends with this one."""
        with tempfile.TemporaryDirectory(dir=self.out) as folder:
            file, script = Path(folder) / "request.json", Path(folder) / "start.py"
            file.write_text(json.dumps({**self.asked, "mode": "start", "tied": True, "out": ""}), encoding="utf-8")
            script.write_text(START.format(path=sys.path), encoding="utf-8")
            with subprocess.Popen([sys.executable, str(script), str(file)], stdin=subprocess.PIPE) as child:
                code = child.wait()
            if not file.with_name(RESULT).exists():
                raise StageFailed(f"a fresh process ended with code {code} and no result")
            answer: Answer = json.loads(file.with_name(RESULT).read_text(encoding="utf-8"))
        if "error" in answer:
            raise kind_of(answer["class"])(answer["error"])
        return answer

    def inputs(self, batch: int | None = None) -> list[dict[str, Any]]:
        """Batches of real inputs, in memory. Raises InputError where the model is made for another batch."""
        return _preloaded({**self.asked, "batch": batch or self.batch}, self.model)

    def timed(self, run: Run, inputs: Sequence[Mapping[str, Any]], seconds: float, runs: int) -> array.array[int]:
        """Nanoseconds of each run, for at least `seconds` and `runs`."""
        return timed(run, inputs, seconds, runs)

    def warm_up(self, run: Run, inputs: Sequence[Mapping[str, Any]]) -> Answer:
        """Runs until the latency is steady."""
        return _warm_up(run, inputs, self.profile)

    def meter(self) -> tuple[Meter | None, str]:
        """The first of the device's sensors of energy that reads, or why none does."""
        reasons = []
        for named in self.asked.get("sensors", ()):
            sensor = importlib.import_module(named["module"])
            why_not = sensor.unavailable(self.asked["device"], self.root)
            if not why_not and sensor.STATUS != "estimated":
                return sensor.open(self.asked["device"], self.root), ""
            reasons.append(f"{named['name']}: {why_not or 'it only estimates'}")
        return None, "; ".join(reasons) or "the device names no sensor of energy"


MODES: dict[str, Callable[[Asked, Path], Answer]] = {
    "outputs": outputs,
    "taps": taps,
    "session": session,
    "turns": turns,
    "energy": energy,
    "ops": ops,
    "facts": facts,
    "count": count,
    "look": look,
    "start": start,
}


if __name__ == "__main__":
    sys.exit(main())
