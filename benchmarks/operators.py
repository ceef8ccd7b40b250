"""What becomes of each operator in each engine: every sample of PyTorch's own test databases, on the planner's roads.

    python benchmarks/operators.py [--engines onnx,litert] [--precisions fp32] [--sample 99 --seed 1] [--work DIR]

Each sample of `operator_nets` is built, exported, opened and verified by the plug-ins' own code, in a process per
engine; a crash or a hang costs one sample. What is done is not done again, but for the engines of --again.
The judge is torch in float64. Outcomes:

    equal           within 1e-5 of the largest value     tolerance   within 1e-3 (fp16 1e-2, int8 5e-2), or
                                                                      ten times torch's own error
    wrong           verify refuses it                     ACCEPTED    verify takes it, and it is neither of the above
    refused         by an error that names an operator    raw         by any other
    crash, hang     of the process
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import operator_nets

from edgecompress.core import config, registry
from edgecompress.core.errors import EdgeError, first_line
from edgecompress.core.model import CARD, Artifact, Context, Request, TensorSpec
from edgecompress.core.settings import Target, Variant
from edgecompress.data import tensors
from edgecompress.formats import torch_faults
from edgecompress.pipeline import conversion
from edgecompress.stages import reference_answers, verify

ENGINES = ("onnx", "openvino", "litert", "executorch", "coreml", "mnn")
OUTCOMES = ("equal", "tolerance", "wrong", "ACCEPTED", "refused", "raw", "crash", "hang")
SQNR_DB = {"fp32": 60.0, "fp16": 40.0}  # as the targets have it
EQUAL, OWN = 1e-5, 10.0
NEAR = {"fp32": 1e-3, "fp16": 1e-2, "int8": 5e-2}  # int8: five steps of 127, of inputs, weights and outputs
HANG_S = 90
OURS = "does not convert the operator|has no kernel for|has no operator for|as a torch net its operators"
DROPS = re.compile("lstm|gru|rnn|scaled_dot_product|dropout")  # what draws numbers in training alone
SPLITS = ("calibrate", "select", "test")


@dataclass(frozen=True)
class Nets:
    """What is put through the engines: by words, each with samples, whose artifacts and truth `prepare` makes."""

    text: str  # of --help
    script: str
    engines: Sequence[str]
    words: Callable[[], Iterable[str]]
    samples: Callable[[str], Iterable[str]]
    prepare: Callable[[str, Path], dict[str, Any]]
    draw: Callable[[int, int], Sequence[str]] | None = None  # words of a seed, instead of some of `words`


def main(nets: Nets) -> int:
    parser = argparse.ArgumentParser(description=nets.text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default=",".join(nets.engines))
    parser.add_argument("--precisions", default="fp32")
    parser.add_argument("--sample", type=int, default=0, help="so many operators, chosen by --seed; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="operators whose names match")
    parser.add_argument("--again", default="", help="engines whose results are made again")
    place = Path(tempfile.gettempdir()) / f"edgecompress-{Path(nets.script).stem}"
    parser.add_argument("--work", type=Path, default=place)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--record", type=Path, help="what docs/reference/operators.md is made of; adds to it")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("-v", "--verbose", action="store_true", help="each sample that is neither equal nor refused")
    asked = parser.parse_args()
    if asked.worker:
        return worker(nets, *asked.worker, asked.work)
    asked.work.mkdir(parents=True, exist_ok=True)
    words = [word for word in nets.words() if re.search(asked.only, word)]
    if nets.draw:
        words = [*nets.draw(asked.sample or 60, asked.seed)]
    elif asked.sample:
        words = sorted(random.Random(asked.seed).sample(words, min(asked.sample, len(words))))
    index = prepared(nets, words, asked.work)
    names = [name for name, facts in index.items() if not facts["left"]]
    found = {}
    for engine in asked.engines.split(","):
        for precision in asked.precisions.split(","):
            again = engine in asked.again.split(",")
            found[engine, precision] = ran(nets, [engine, precision], names, asked.work, again)
    rows = [
        [f"{engine} {precision}", *(str(counts[o]) for o in OUTCOMES), f"{good(counts):.1%}"]
        for (engine, precision), told in found.items()
        for counts in [Counter(each["outcome"] for each in told.values())]
    ]
    left: dict[str, list[str]] = defaultdict(list)
    for name, facts in index.items():
        if facts["left"]:
            left[facts["left"].partition(":")[0]].append(name)
    figures.show(
        f"{len(names)} samples of {len(index)}",
        ["", *OUTCOMES, "right"],
        rows,
        *(f"left out: {len(n)} {w}{': ' + ', '.join(n) if asked.verbose else ''}" for w, n in left.items()),
    )
    if asked.verbose:
        for (engine, precision), told in found.items():
            for name, each in told.items():
                if each["outcome"] not in ("equal", "tolerance", "refused"):
                    print(f"{engine} {precision} {name}: {each['outcome']}: {each['says'][:200]}")
    figures.write(asked.json, {" ".join(key): told for key, told in found.items()})
    if asked.record:
        record(asked.record, index, found)
    bad = sum(each["outcome"] in ("ACCEPTED", "crash", "hang") for told in found.values() for each in told.values())
    return 1 if bad else 0


def record(file: Path, index: Mapping[str, Any], found: Mapping[Any, Mapping[str, Any]]) -> None:
    """Adds to a file: the samples with their arguments, and of each engine what is not right, with the reason."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"samples": {}, "found": {}}
    date = time.strftime("%Y-%m-%d")
    for (engine, precision), told in found.items():
        kept["samples"] |= {name: [index[name]["operator"], index[name]["class"]] for name in told}
        wrong = {
            name: [each["outcome"], reason(each["says"])]
            for name, each in told.items()
            if each["outcome"] not in ("equal", "tolerance")
        }
        before = kept["found"].get(f"{engine} {precision}", {"tried": [], "not right": {}})
        wrong = {name: each for name, each in before["not right"].items() if name not in told} | wrong
        tried = sorted({*before["tried"], *(name.rpartition("_")[0] for name in told)})
        kept["found"][f"{engine} {precision}"] = {"date": date, "tried": tried, "not right": wrong}
    lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in kept["samples"].items())
    whole = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in kept["found"].items())
    texts = ['"samples": {\n' + ",\n".join(lines) + "}", '"found": {\n' + ",\n".join(whole) + "}"]
    file.write_text("{" + ",\n".join(texts) + "}\n", encoding="utf-8")


def reason(says: str) -> str:
    """What an engine says of a sample, without what each of them says and without places of this machine."""
    says = re.sub(r"^(\w+: )*(runtime \w+: )?([\w.]+: )?", "", says)
    says = re.sub(r"compute it by other operators, or outside of the net|in layer '[^']*'|/\w[\w.-]*/\S+ ?", "", says)
    return re.sub(r"\s+", " ", says)[:120]


def good(counts: Mapping[str, int]) -> float:
    """The share that runs right."""
    return (counts["equal"] + counts["tolerance"]) / max(1, sum(counts.values()))


# --------------------------------------------------------------------------- what all engines share


def prepared(nets: Nets, words: Sequence[str], work: Path) -> dict[str, Any]:
    """Each sample of some operators made: its net, its program, what torch answers; {name: facts}, "left": why it is
    left out."""
    file = work / "index.jsonl"
    supervised(nets.script, ["prepare", "fp32"], work, file, words)
    lines = known(file)
    return {name: line for name, line in lines.items() if line.get("word") in words}


def prepare(name: str, work: Path, nets: Any = operator_nets) -> dict[str, Any]:
    """The artifacts of a sample of the module `nets`, and the truth: torch in float64."""
    import torch

    sample = nets.sample(name)
    facts = {
        "operator": sample.operator,
        "class": sample.argument_class,
        "left": "",
        "atens": [],
    }
    given, folder = nets.items(sample), work / "nets" / name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        torch.manual_seed(1)
        first = nets.Net(sample)(**given)
        torch.manual_seed(2)
        again = nets.Net(sample)(**given)
    except Exception as error:
        return facts | {"left": f"torch does not run it: {first_line(error)}"}
    if not first or any(not torch.equal(first[n].nan_to_num(), again[n].nan_to_num()) for n in first):
        return facts | {"left": "random: its answers change from run to run" if first else "no tensor comes out"}
    if all(not value.numel() for value in first.values()):
        return facts | {"left": "nothing comes out: its outputs are empty"}
    data = kept_items({n: x.numpy() for n, x in given.items()}, folder / "samples")
    source = {"source": {"model": f"{nets.__name__}:{name}"}}
    try:
        model = stage("stages.trace:load", {"samples": data}, folder / "module", source)
        stage(
            "stages.golden:run",
            {"model": model, "samples": data},
            folder / "golden",
            {"splits": ["test"], "metric": "none"},
        )
        program = stage(conversion.TRACE, {"model": model, "samples": data}, folder / "program", {"dynamic": {}})
    except Exception as error:
        return facts | {"left": f"not traced: {first_line(error)}"}
    graph = torch.export.load(program.path / "program.pt2").graph
    drawing = [n.target for n in graph.nodes if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())]
    if not all(DROPS.match(each._opname) for each in drawing):
        return facts | {"left": "random: it draws numbers"}
    facts["atens"] = sorted({str(n.target) for n in graph.nodes if n.op == "call_function"})
    keep_truth(nets.Net(sample).double(), given, first, folder)
    return facts


def kept_items(given: Mapping[str, Any], folder: Path) -> Artifact:
    """Inputs as the samples of each split."""
    import numpy as np

    specs = tuple(TensorSpec(n, x.shape, str(x.dtype)) for n, x in given.items())
    for split in SPLITS:
        (folder / split).mkdir(parents=True)
        for n, x in given.items():
            np.save(folder / split / f"{n}.npy", x)
    count = len(next(iter(given.values())))
    return Artifact(folder, "samples", specs, (), {"splits": dict.fromkeys(SPLITS, count), "random": True}).write()


def keep_truth(net: Any, given: Mapping[str, Any], answers: Mapping[str, Any], folder: Path) -> None:
    """What the net answers in float64, or `answers` where it does not, and `answers`: what an engine is judged by."""
    import numpy as np
    import torch

    try:
        truth = net(**{n: x.double() for n, x in given.items()})
    except Exception:  # not in float64
        truth = answers
    for who, values in (("truth", truth), ("torch", answers)):
        for n, value in values.items():
            like = (value if value.shape == answers[n].shape else answers[n]).detach().resolve_conj().resolve_neg()
            np.save(folder / f"{who}-{n}.npy", (like.float() if like.dtype == torch.bfloat16 else like).numpy())


def stage(call: str, inputs: Mapping[str, Artifact], out: Path, options: Mapping[str, Any]) -> Artifact:
    """What a stage makes."""
    if (out / CARD).exists():
        return Artifact.read(out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    module, function = registry.call(call)
    made: Artifact = getattr(module, function)(Request(inputs, out, options, Context(batch=1)))
    return made


# --------------------------------------------------------------------------- an engine


def ran(nets: Nets, what: Sequence[str], names: Sequence[str], work: Path, again: bool) -> dict[str, Any]:
    """The outcome of each sample in an engine and a precision, those that are known not made again."""
    file = work / f"{'-'.join(what)}.jsonl"
    if again:
        kept = [line for line in known(file).values() if line["name"] not in names]
        file.write_text("".join(json.dumps(line) + "\n" for line in kept))
    supervised(nets.script, what, work, file, names)
    told = known(file)
    return {name: told[name] for name in names}


def known(file: Path) -> dict[str, Any]:
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    return {line["name"]: line for line in lines}


def supervised(script: str, what: Sequence[str], work: Path, file: Path, names: Sequence[str]) -> None:
    """Runs workers until each sample has a line: one that crashes or hangs costs the sample that it was at."""
    began = file.with_suffix(".at")
    while rest := [name for name in names if name not in known(file)]:
        began.unlink(missing_ok=True)
        command = [sys.executable, script, "--work", str(work), "--worker", *what]
        log = file.with_suffix(".log").open("a")
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=Path(__file__).parent)
        assert child.stdin
        child.stdin.write("\n".join(rest).encode())
        child.stdin.close()
        seen = time.time()
        while child.poll() is None:
            time.sleep(0.2)
            if began.exists():
                seen = max(seen, began.stat().st_mtime)
            if time.time() - seen > HANG_S + (60 if not began.exists() else 0):
                child.kill()
                child.wait()
                break
        at = began.read_text() if began.exists() else ""
        if child.returncode and at and at not in known(file):
            outcome = "hang" if child.returncode == -9 and time.time() - seen > HANG_S else "crash"
            line = {
                "name": at,
                "outcome": outcome,
                "says": f"exit {child.returncode}",
                "left": outcome,
                "word": at if at in names else at.rpartition("_")[0],
                "operator": at,
                "class": "",
                "atens": [],
            }
            with file.open("a") as answers:
                answers.write(json.dumps(line) + "\n")
        elif child.returncode and not at:
            raise SystemExit(f"the worker of {what} does not start: see {log.name}")


def worker(nets: Nets, engine: str, precision: str, work: Path) -> int:
    """Reads names, appends a line for each."""
    from edgecompress.device import agent_client
    from edgecompress.device.agent.__main__ import MODES

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)

    def ask(_shell: object, request: Any, out: Path, _deadline_s: float) -> Any:
        return MODES[request.mode](request, out)  # the agent's own code, without a process of its own

    agent_client.ask = ask
    file = work / ("index.jsonl" if engine == "prepare" else f"{engine}-{precision}.jsonl")
    index, done = known(work / "index.jsonl"), known(file)
    with file.open("a", buffering=1) as answers:
        for word in sys.stdin.read().split()[: 3000 if engine == "prepare" else 300]:  # engines leak
            made = nets.samples(word) if engine == "prepare" else ()
            for name in dict.fromkeys([*made, word]):
                if name in done:
                    continue
                file.with_suffix(".at").write_text(name)
                start = time.time()
                try:
                    if engine != "prepare":
                        line = judged(engine, precision, name, index[name], work)
                    elif name in made:
                        line = {"word": word, **nets.prepare(name, work)}
                    else:
                        line = {"left": "the operator itself"}
                except Exception as error:
                    line = {"outcome": "raw", "says": first_line(error), "left": f"harness: {first_line(error)}"}
                answers.write(json.dumps({"name": name, **line, "s": round(time.time() - start, 2)}) + "\n")
    return 0


def judged(engine: str, precision: str, name: str, facts: Mapping[str, Any], work: Path) -> dict[str, Any]:
    """One sample through an engine."""
    import numpy as np

    if "outcome" in facts:  # what no engine gets
        return {key: facts[key] for key in ("outcome", "says")}
    folder = work / "nets" / name
    inputs = {role: Artifact.read(folder / role) for role in ("samples", "golden")}
    variant = Variant(precision, compress=({"use": precision},) if precision != "fp32" else ())
    source = model = Artifact.read(folder / "module")
    calls = conversion.steps(Target("operators", engine, (variant,)), variant, source.kind, "operators")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for i, (call, settings) in enumerate(calls):
                if call == conversion.TRACE and model.kind == "module" and not i:
                    model = Artifact.read(folder / "program")
                    continue
                module, _ = registry.call(call)
                options = (
                    config.build(module.Options, settings, call) if hasattr(module, "Options") else {"dynamic": {}}
                )
                out = Path(scratch) / str(i)
                model = stage(call, {"model": model, **inputs, "dense": source}, out, options)
            limits = {"sqnr_db": SQNR_DB.get(precision), "cosine": 0.95}
            told = {"runtime": engine, "metric": "none", "limits": limits}
            out = Path(scratch) / "verdict"
            verdict = stage("stages.verify:run", {"model": model, **inputs}, out, told)
        except Exception as error:
            says = first_line(error)
            return {
                "outcome": "refused" if named(error, says, facts) else "raw",
                "says": f"{type(error).__name__}: {says}",
            }
        if verdict.facts.get("lost"):
            return {"outcome": "wrong", "says": str(verdict.facts["lost"])}
        pairs = verify.pairs(inputs["golden"], model)
        ours = {spec: tensors.load(verdict, reference_answers.ANSWERS, own)[0] for spec, own in pairs.items()}
    worst = max(
        (departed(ours[n], *(np.load(folder / f"{who}-{n}.npy")[0] for who in ("truth", "torch"))) for n in ours),
        default=0.0,
    )
    return {
        "outcome": "equal" if worst <= EQUAL else "tolerance" if worst <= NEAR[precision] else "ACCEPTED",
        "says": f"{worst:.1e}",
    }


def departed(ours: Any, truth: Any, torchs: Any) -> float:
    """The largest error as a share of the largest value; within OWN times torch's own error it counts as near."""
    import numpy as np

    if ours.shape != truth.shape:
        return float("inf")
    kind = complex if np.iscomplexobj(truth) or np.iscomplexobj(ours) else float
    ours, truth, torchs = (np.asarray(each).astype(kind) for each in (ours, truth, torchs))
    settled = np.isfinite(torchs) & np.isfinite(truth)
    if not np.array_equal(np.isfinite(ours) | ~settled, np.ones_like(settled)):
        return float("inf")
    off, own = np.abs(ours - truth)[settled], np.abs(torchs - truth)[settled]
    scale = max(float(np.abs(truth[settled]).max(initial=0.0)), 1e-6)
    error = float(off.max(initial=0.0)) / scale
    return min(error, NEAR["fp32"]) if np.all(off <= OWN * own + EQUAL * scale) else error


def named(error: Exception, says: str, facts: Mapping[str, Any]) -> bool:
    """Whether an error is one of ours that names an operator of the net."""
    words = {re.sub(r"[^a-z0-9]", "", each) for aten in facts["atens"] for each in aten.split(".")[1:2]}
    text = re.sub(r"[^a-z0-9]", "", says.lower())
    faults = [fault.what for fault in torch_faults.FAULTS]
    known = re.search(OURS, says) is not None or any(what in says for what in faults)
    return isinstance(error, EdgeError) and (known or any(word and word in text for word in words))


if __name__ == "__main__":
    names = operator_nets.operators, operator_nets.samples
    sys.exit(main(Nets(__doc__, __file__, ENGINES, *names, prepare)))
