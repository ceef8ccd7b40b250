"""Does an .onnx reach as much as the torch net that it was exported from?

    python benchmarks/any_source.py [--reach] [--only NET,...] [--work DIR] [--json FILE]

Each net of the zoo and of the examples is exported by torch.onnx.export, and both go through any_source.toml by the
stages of a deploy; each runtime runs what was made for it (Core ML's the interpreter), on the net's own data. Exit 1
where one of these does not hold:

  import       the imported net answers in torch as ONNX Runtime does, to 100 dB
  formats      LiteRT (fp32, int8), ExecuTorch and Core ML are as near to their source as from torch: 3 dB are let
               through, and what is left of an fp32 above 100 dB
  pruning      as many multiply-accumulates are left
  training     accuracy after pruning and a short training is the other's, by the interval of the paired loss

With --reach: which of android, ios and arm64 strangers' files reach in fp32, and whether one that is reached is wrong.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import figures
import numpy as np
import reach
import torch

import edgecompress
from edgecompress.commands import deploy
from edgecompress.core.model import Artifact, Outcome
from edgecompress.data import metrics, tensors
from edgecompress.formats import torch_module
from edgecompress.pipeline import job, plan
from edgecompress.testing import zoo

HERE = Path(__file__).parent
TARGET, EXAMPLES = HERE / "any_source.toml", HERE.parent / "examples"
FORMATS = ("litert-fp32", "litert-int8", "executorch-fp32", "coreml-fp32")
DEMO = HERE.parent / "edgecompress" / "demo" / "source.toml"
TUNED = "digits"  # the demo: trained after pruning, from both
REAL = (TUNED, "resnet20", "textgenrnn", "bert", "squeezenet", "mobilenetv2", "lstm_lm")
IMPORT_DB, EXACT_DB, SLACK_DB = 100.0, 100.0, 3.0
ITEMS = 64  # in each split, but for the net that is trained


@dataclass(frozen=True)
class Net:
    """A torch net, as MODEL, with its data where the source file does not name it."""

    name: str
    model: str
    data: str | None = None
    metric: str | None = None


@dataclass(frozen=True)
class Side:
    """What a net came to from one of its sources: by variant, None where all is identical."""

    db: Mapping[str, float | None]
    macs: int | None  # after pruning
    wrong: Mapping[str, str]  # variant -> why there is none


@dataclass(frozen=True)
class Row:
    """A net from torch and from its .onnx; `broken` is what does not hold."""

    net: str
    import_db: float | None
    torch: Side
    onnx: Side
    trained: Mapping[str, Any] | None  # the other way's accuracy after training, and this one's, item by item
    seconds: float
    broken: Sequence[str] = field(default_factory=list)


def main() -> int:
    """Prints the table of the nets that are asked for."""
    parser = figures.flags(__doc__, "only", "work", "json")
    parser.add_argument("--reach", action="store_true", help="strangers' files instead, on three targets")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(asked.work or scratch).resolve()
        if asked.reach:
            return reached([*filter(None, asked.only.split(","))], work, asked.json)
        found = []
        for name in [n for n in (*zoo.NETS, *REAL) if not asked.only or n in asked.only.split(",")]:
            found.append(row(name, work))
            if asked.json:
                written(asked.json, "rows", found)
    show(found)
    return 1 if any(row.broken for row in found) else 0


def reached(only: Sequence[str], work: Path, path: Path | None) -> int:
    """Prints what each stranger's file reaches, a line as it is known."""
    found = []
    for case in reach.cases(only, work):
        found.append(case)
        off = "" if case.off is None else f", off by {case.off:.2%}"
        says = case.says or f"{db_words(case.db)} dB{off}"
        print(f"{case.net} {case.target} {case.variant}: {case.outcome}, {says} ({case.seconds:.0f} s)", flush=True)
        if path:
            written(path, "reach", found)
    return any(case.outcome == "WRONG" for case in found)


# --------------------------------------------------------------------------- a net from both of its sources


def row(name: str, work: Path) -> Row:
    """A net from torch, exported, and from its file."""
    began = time.monotonic()
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    net = real(name) if name in REAL else drawn(name, folder)
    before = outcomes(net, {}, folder)
    source, samples = (before[stage].artifact for stage in ("source", "data"))
    assert source and samples, before["source"].reason or before["data"].reason
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # its modules are called as those of the next net
        pool.submit(export, (source.path, samples.path), Path(net.model).parent, folder / "net.onnx").result()
    after = outcomes(net, {"source.model": str(folder / "net.onnx")}, folder)
    imported = after["onnx_import"]
    sides, trained = (side(before), side(after)), paired(before, after) if name == TUNED else None
    found = Row(name, imported.facts.get("parity_db"), *sides, trained, time.monotonic() - began)
    return dataclasses.replace(found, broken=tuple(broken(found)))


def real(name: str) -> Net:
    """The demo, or an example."""
    return Net(name, str(DEMO if name == TUNED else EXAMPLES / name / "source.toml"))


def drawn(name: str, folder: Path) -> Net:
    """A net of the zoo, with data of its own."""
    splits = {split: zoo.draw(zoo.NETS[name], ITEMS, i) for i, split in enumerate(("calibrate", "select", "test"))}
    np.savez(folder / "data.npz", **{f"{s}.{n}": array for s, arrays in splits.items() for n, array in arrays.items()})
    return Net(name, f"{zoo.__name__}:{name}", str(folder / "data.npz"), "none")


def outcomes(net: Net, settings: Mapping[str, Any], folder: Path) -> Mapping[str, Outcome]:
    """Of the stages of a deploy, up to the last variant that is asked of the net."""
    only = [*FORMATS, "pruned", *(["tuned"] if net.name == TUNED else [])]
    samples = None if net.name == TUNED else ITEMS
    how = {"data": net.data, "metric": net.metric, "samples": samples, "settings": settings}
    wanted = job.job(net.model, str(TARGET), profile="quick", only=only, **how)
    steps = plan.deploy(wanted)
    options = edgecompress.Options(store=folder / "store", until=steps.stages[-1].name)
    return deploy.run(wanted, steps, options).outcomes


def export(made: tuple[Path, Path], beside: Path, file: Path) -> None:
    """The torch net of (source, samples) as an .onnx of any batch; its modules lie in the folder `beside`."""
    sys.path.insert(0, str(beside))
    source, samples = map(Artifact.read, made)
    arrays = next(tensors.batches(samples, "calibrate", 2, model=source))
    torch.onnx.export(
        torch_module.rebuild(source),
        (),
        str(file),
        kwargs={name: torch.from_numpy(array) for name, array in arrays.items()},
        input_names=list(arrays),
        output_names=[spec.name for spec in source.outputs],
        dynamic_shapes={name: {0: torch.export.Dim("batch")} for name in arrays},
        dynamo=True,
        verbose=False,
    )


def side(found: Mapping[str, Outcome]) -> Side:
    """What its outcomes tell."""
    verdicts = {stage.partition("/")[0]: outcome for stage, outcome in found.items() if stage.endswith("/verify")}
    made = {variant: verdict.facts for variant, verdict in verdicts.items() if verdict.artifact}
    return Side(
        {variant: least_db(made[variant]) for variant in FORMATS if variant in made},
        found["pruned/prune_channels"].facts.get("macs", {}).get("after"),
        {variant: verdict.reason for variant, verdict in verdicts.items() if variant not in made},
    )


def least_db(verdict: Mapping[str, Any]) -> float | None:
    """The lowest SQNR of its outputs; None where all are identical."""
    return min((o["sqnr_db"] for o in verdict["outputs"] if o["sqnr_db"] is not None), default=None)


def paired(before: Mapping[str, Outcome], after: Mapping[str, Outcome]) -> Mapping[str, Any] | None:
    """The accuracy of both after training, item by item."""
    verdicts = [found["tuned/verify"].artifact for found in (before, after)]
    metric = metrics.find("top1", "")
    scores = [np.load(verdict.path / "after.npy") for verdict in verdicts if verdict]
    return metrics.compare(metric, *scores) if metric and len(scores) == 2 else None


def broken(found: Row) -> Iterator[str]:
    """What does not hold of a net."""
    if found.import_db is None or found.import_db < IMPORT_DB:
        yield f"import {db_words(found.import_db)}"
    for variant in FORMATS:
        ours, theirs = (s.db.get(variant, -math.inf) for s in (found.onnx, found.torch))
        exact = EXACT_DB if variant.endswith("fp32") else math.inf
        if ours is not None and ours < min(exact, (math.inf if theirs is None else theirs) - SLACK_DB):
            yield f"{variant} {db_words(ours)}, from torch {db_words(theirs)}"
    if found.onnx.macs != found.torch.macs:
        yield f"{found.onnx.macs} MACs after pruning, from torch {found.torch.macs}"
    if found.net == TUNED and (found.trained is None or not found.trained["low"] <= 0 <= found.trained["high"]):
        yield "accuracy after training"


# --------------------------------------------------------------------------- the table


def show(found: Sequence[Row]) -> None:
    """The table, what is broken and why something is missing."""
    rows, below = [], []
    for r in found:
        pairs = [f"{db_words(r.onnx.db.get(v, -math.inf))} ({db_words(r.torch.db.get(v, -math.inf))})" for v in FORMATS]
        rows.append((r.net, db_words(r.import_db), *pairs, f"{r.onnx.macs} ({r.torch.macs})", f"{r.seconds:.0f}"))
        below += [f"{r.net}: {text}" for text in r.broken]
        for way, side in (("torch", r.torch), (".onnx", r.onnx)):
            below += [f"{r.net} from {way}: no {variant}: {why}" for variant, why in side.wrong.items()]
        if (m := r.trained) is not None:
            ends = f"{m['low']:+.1%} to {m['high']:+.1%}"
            below.append(f"{r.net} pruned and trained: {m['name']} {m['after']:.1%} ({m['before']:.1%}), {ends}")
    columns = ("net", "import", *FORMATS, "MACs after pruning", "s")
    figures.show("From .onnx (from torch), SQNR in dB to each one's own source", columns, rows, *below)


def db_words(db: float | None) -> str:
    return "same" if db is None or db >= 900 else "none" if db == -math.inf else f"{db:.1f}"


def written(path: Path, part: str, found: Sequence[Any]) -> None:
    """The rows of a part beside those of other nets, and the machine."""
    told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = [row for row in told.get(part, []) if row["net"] not in {each.net for each in found}]
    told |= {"date": time.strftime("%Y-%m-%d"), "machine": job.job().context.device["fingerprint"]}
    told |= {"torch": torch.__version__, part: [*kept, *map(dataclasses.asdict, found)]}
    figures.write(path, told)


if __name__ == "__main__":
    sys.exit(main())
