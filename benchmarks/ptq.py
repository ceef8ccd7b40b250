"""Is static int8 of edgecompress as good as each runtime's own converter?

    python benchmarks/ptq.py --work DIR [--nets NET,...] [--converters NAME,...]

Ten nets with real data (ptq_nets.py) go through five converters (ptq_vendors.py), as their documentation calls them,
and through the int8 variants of the target x86 with default settings. Both start from the same float file and see the
same CALIBRATE items; all others judge. Against the source's fp32 answers: SQNR of the outputs, and the share of items
whose largest output is another one. The differences have paired intervals of 95 %. Ours may be MOST_DB below and lose
MOST_LOST more. What is done stands in DIR/lines.jsonl and is not done again.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import multiprocessing
import os
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import numpy as np
import ptq_nets
import ptq_vendors as vendors
from stage_calls import made, quiet

from edgecompress.core import catalog, config, limit_decision, registry
from edgecompress.core.errors import NoPath
from edgecompress.core.model import CARD, Artifact
from edgecompress.core.settings import Source
from edgecompress.core.source import resolved
from edgecompress.data import paired_proportions, tensors
from edgecompress.pipeline import conversion

CALIBRATE, SEED = 200, 0
MOST_DB, MOST_LOST = 1.0, 0.005
DRAWS = 2000  # of a bootstrap
TARGET = "x86"

Array = Any  # numpy's


@dataclass(frozen=True)
class Converter:
    """A vendor's converter: the variant of ours beside it, the kind of float file that both take."""

    call: vendors.Vendor
    variant: str
    kind: str
    own: str = ""  # a kind of source that it reads itself


CONVERTERS = {
    "TFLiteConverter": Converter(vendors.tflite_converter, "litert-int8", "tflite", "savedmodel"),
    "ai-edge-quantizer": Converter(vendors.ai_edge_quantizer, "litert-int8", "tflite"),
    "ONNX Runtime": Converter(vendors.onnx_runtime, "int8", "onnx"),
    "NNCF": Converter(vendors.nncf, "openvino-int8", "openvino"),
    "XNNPACKQuantizer": Converter(vendors.xnnpack_quantizer, "executorch-int8", "program"),
}


@dataclass(frozen=True)
class Line:
    """A net and a converter: ours and the vendor's, and ours less the vendor's with an interval."""

    net: str
    converter: str
    n: int = 0
    ours_db: float = 0.0
    vendor_db: float = 0.0
    below_db: float = 0.0
    below_interval: tuple[float, float] = (0.0, 0.0)
    ours_lost: float = 0.0
    vendor_lost: float = 0.0
    more_lost: float = 0.0
    more_interval: tuple[float, float] = (0.0, 0.0)
    error: str = ""

    @property
    def words(self) -> tuple[str, str]:
        """How both differences lie to their limits."""
        return (
            limit_decision.decide(self.below_db, self.below_interval, MOST_DB).word,
            limit_decision.decide(self.more_lost, self.more_interval, MOST_LOST).word,
        )


def main() -> int:
    parser = figures.flags(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where files and figures stay for the next time")
    parser.add_argument("--nets", default=",".join(ptq_nets.NETS))
    parser.add_argument("--converters", default=",".join(CONVERTERS))
    asked = parser.parse_args()
    nets, converters, kept = asked.nets.split(","), asked.converters.split(","), asked.work.resolve() / "lines.jsonl"
    for net in nets:
        done = {line.converter for line in read(kept) if line.net == net}
        if rest := [name for name in converters if name not in done]:
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
                alone.submit(measure, net, rest, kept).result()  # the nets' modules have the same name
    found = {(line.net, line.converter): line for line in read(kept)}
    lines = [found[key] for key in itertools.product(nets, converters) if key in found]
    print(table(lines))
    return int(any(word == "outside" for line in lines if not line.error for word in line.words))


def read(file: Path) -> list[Line]:
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
    return [Line(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in rows]


def measure(net: str, converters: Sequence[str], kept: Path) -> None:
    """A line for each converter, in a process of its own."""
    bench = opened(net, kept.parent)
    for name in converters:
        began = time.monotonic()
        try:
            line = compared(bench, name)
        except NoPath as error:
            line = Line(net, name, error=error.what)
        except Exception as error:  # of converters and runtimes
            traceback.print_exc()
            line = Line(net, name, error=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(line)) + "\n")
        print(f"{net}, {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


# --------------------------------------------------------------------------- a net, its items, its files


@dataclass(frozen=True)
class Bench:
    """A net as loaded, its items ("calibrate" and "test") and what it answers to the test."""

    name: str
    folder: Path
    model: Artifact
    samples: Artifact
    golden: Array


def opened(name: str, work: Path) -> Bench:
    net, folder = ptq_nets.NETS[name], work / name
    model = net.model
    if model == "fashion.keras":
        model = str(folder / model)
        ptq_nets.train_fashion(Path(model))
    sys.path.insert(0, str(net.folder))
    os.chdir(net.folder)
    source = catalog.source(model, net.flags).value
    samples = sampled(source, folder / "samples")
    known = resolved(source)
    loaded = made(known.call, {"samples": samples}, folder / "source", known.for_model())
    golden = made("stages.golden:run", {"model": loaded, "samples": samples}, folder / "golden",
                  {"splits": ["test"], "metric": "none"})  # fmt: skip
    return Bench(name, folder, loaded, samples, np.array(tensors.load(golden, "test", golden.outputs[0].name)))


def sampled(source: Source, out: Path) -> Artifact:
    """CALIBRATE items, of the source's split for that as far as it goes, and all others, as the split "test"."""
    if (out / CARD).exists():
        return Artifact.read(out)
    every = made("stages.data:run", {}, out.with_name("data"), resolved(source).for_data())
    name = every.inputs[0].name
    drawn = np.random.default_rng(SEED)
    rows = [tensors.load(every, split, name) for split in every.facts["splits"]]
    order = [(row, i) for row in rows for i in drawn.permutation(len(row))]
    chosen = list({row[i].tobytes(): (row, i) for row, i in order}.values())  # some are in two splits
    parts = {"calibrate": chosen[:CALIBRATE], "test": chosen[CALIBRATE:]}
    for split, items in parts.items():
        tensors.write_split(out / split, {name: np.stack([row[i] for row, i in items])})
    spec = dataclasses.replace(every.inputs[0], shape=(dataclasses.replace(every.inputs[0].shape[0], max=len(chosen)),
                                                       *every.inputs[0].shape[1:]))  # fmt: skip
    shutil.rmtree(every.path)
    return Artifact(out, "samples", (spec,), (), {"splits": {s: len(i) for s, i in parts.items()}}).write()


def travelled(b: Bench, calls: Sequence[conversion.Call], folder: str) -> Artifact:
    """The net after some of the planner's calls, each in its own folder below `folder`."""
    model, out = b.model, b.folder / folder
    for call, settings in calls:
        module, out = registry.call(call)[0], out / call.replace(":", ".")
        options = config.build(module.Options, settings, call) if hasattr(module, "Options") else {"dynamic": {}}
        model = made(call, {"model": model, "samples": b.samples}, out / "made", options)
    return model


def ours(b: Bench, converter: Converter) -> Artifact:
    target = catalog.target(TARGET).value
    variant = next(v for v in target.variant if v.name == converter.variant)
    return travelled(b, conversion.steps(target, variant, b.model.kind, TARGET), "ours")


def vendors_own(b: Bench, name: str) -> Artifact:
    converter, out = CONVERTERS[name], b.folder / name.replace(" ", "-")
    if (out / CARD).exists():
        return Artifact.read(out)
    goal = converter.own if b.model.kind == converter.own else converter.kind
    path = conversion.shortest_path(b.model.kind, [goal])
    if path is None:
        raise NoPath(name, f"no path from {b.model.kind} to {goal}")
    model = travelled(b, [(call, {}) for call in path], "float")
    items = list(tensors.batches(b.samples, "calibrate", 1, model=model))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with quiet():
        return converter.call(model, items, out)


def answers(b: Bench, runtime: str, model: Artifact) -> Array:
    """The first output of each test item, one at a time, as float32."""
    kept = model.path / "answers.bin"
    if not kept.exists():
        with quiet():
            session = registry.load("runtimes", runtime).open(model, 1)
            spec = model.outputs[0]
            rows = [
                np.array(tensors.real(np.asarray(session.run(item)[spec.name]), spec), np.float32)
                for item in tensors.batches(b.samples, "test", 1, model=model)
            ]
            session.close()
        np.concatenate(rows).tofile(kept)
    return np.fromfile(kept, np.float32).reshape(b.golden.shape)


# --------------------------------------------------------------------------- the figures


def compared(b: Bench, name: str) -> Line:
    """Ours and a vendor's on the same items."""
    variants = {v.name: v.runtime or catalog.target(TARGET).value.runtime for v in catalog.target(TARGET).value.variant}
    runtime = variants[CONVERTERS[name].variant]
    both = [answers(b, runtime, model) for model in (ours(b, CONVERTERS[name]), vendors_own(b, name))]
    signal = float(np.square(b.golden, dtype=np.float64).sum())
    errors = np.stack([np.square(a.astype(np.float64) - b.golden).reshape(len(a), -1).sum(1) for a in both])
    first, second = (10 * np.log10(signal / max(e.sum(), 1e-30)) for e in errors)
    top = b.golden.reshape(len(b.golden), -1).argmax(1)
    same = [a.reshape(len(a), -1).argmax(1) == top for a in both]
    lost, gained = int((~same[0] & same[1]).sum()), int((same[0] & ~same[1]).sum())
    low, high = paired_proportions.interval(gained, lost, len(top))
    return Line(
        b.name, name, len(top), first, second, second - first, below(errors),
        float((~same[0]).mean()), float((~same[1]).mean()), (lost - gained) / len(top), (-high, -low),
    )  # fmt: skip


def below(errors: Array) -> tuple[float, float]:
    """The 95 % interval of how far, in dB, the first row's SQNR is below the second's: a bootstrap of the items."""
    n, drawn = errors.shape[1], np.random.default_rng(SEED)
    sums = np.stack([errors @ drawn.multinomial(n, np.full(n, 1 / n)) for _ in range(DRAWS)])
    ratios = 10 * np.log10(np.maximum(sums[:, 0], 1e-30) / np.maximum(sums[:, 1], 1e-30))
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def table(lines: Sequence[Line]) -> str:
    rows = [("net", "converter", "items", "SQNR ours", "vendor's", "below by, dB", "", "lost ours, %", "vendor's",
             "more by, points", "")]  # fmt: skip
    for x in lines:
        if x.error:
            rows.append((x.net, x.converter, "-", "", "", "", "", "", "", "", x.error[:90]))
            continue
        (a, b), (c, d), words = x.below_interval, x.more_interval, x.words
        rows.append(
            (x.net, x.converter, str(x.n), f"{x.ours_db:.1f}", f"{x.vendor_db:.1f}",
             f"{x.below_db:+.2f} ({a:+.2f}..{b:+.2f})", words[0],
             f"{100 * x.ours_lost:.2f}", f"{100 * x.vendor_lost:.2f}",
             f"{100 * x.more_lost:+.2f} ({100 * c:+.2f}..{100 * d:+.2f})", words[1])
        )  # fmt: skip
    return figures.aligned(rows)


if __name__ == "__main__":
    raise SystemExit(main())
