"""Does `edgecompress check` say, before anything is built, what a deploy then builds and the runtimes then report?

    python benchmarks/check.py [--nets NET,...] [--targets TARGET,...] [--work DIR] [--json FILE]

The nets of check.toml, written down before the tables of `check` were, go through `edgecompress check` and then
`edgecompress deploy --profile quick`. Each variant gives cells: whether it is reached (built, whatever its accuracy
is), each type of operator that its runtime reports outside of its accelerator, and whether operators that multiply stay
in float in an int8 variant. A miss is a cell that the deploy reports and `check` did not say; a false alarm is one that
`check` said and the deploy does not report. Runtimes that report no operators (Core ML here, OpenVINO) give no cells.

A net of check_nets.py, rare/NAME, is built by the plug-ins' own code, variant by variant: cells are whether it runs
(of a reference in fp32: and keeps its limits) and, where it does, whether operators of it were rewritten.

Exit 1 where misses are above 5 % of what is reported, or false alarms above 10 % of what is said.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import check_nets
import figures
import numpy as np
import operators
import strangers
import strangers_nets

from edgecompress.core import catalog, config, registry
from edgecompress.core.errors import first_line
from edgecompress.core.model import REWRITES, Artifact, TensorSpec
from edgecompress.formats import torch_decompositions
from edgecompress.pipeline import conversion
from edgecompress.testing import zoo

LIST = Path(__file__).with_suffix(".toml")
WILD, RARE = "wild/", "rare/"
MISSES, FALSE_ALARMS = 0.05, 0.10
LIMIT_S = 20.0
HANG_S = 300
# What engines add around an operator that they leave: shapes, copies, numbers of the graph
AROUND = {"reshape", "slice", "expand", "clone_dim_order", "to_dim_order", "view", "scalar_tensor", "full"}
INT8 = ("int8", "int8-dynamic")


@dataclass(frozen=True)
class Cell:
    """One thing that `check` says or does not, and the deploy reports or does not."""

    net: str
    target: str
    variant: str
    what: str
    said: bool
    reported: bool


@dataclass(frozen=True)
class Tried:
    """A net on a target: the cells, and the seconds that `check` took."""

    net: str
    target: str
    seconds: float
    cells: Sequence[Cell]
    says: str = ""


def main() -> int:
    parser = figures.flags(__doc__, "work", "json")
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    parser.add_argument("--nets", default=",".join(listed["nets"]), help="of the list, or zoo/NAME")
    parser.add_argument("--targets", default=",".join(listed["targets"]))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(asked.work or scratch).resolve()
        tried = [each for net in asked.nets.split(",") for each in of_net(net, asked.targets.split(","), work)]
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), "tried": [asdict(each) for each in tried]})
    return report(tried)


def of_net(net: str, targets: Sequence[str], work: Path) -> Iterator[Tried]:
    folder = work / net.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    model, data = made(net, folder)
    for target in targets:
        words = [model, *(["--data", data] if data else []), "--target", target, "--store", str(folder / "store")]
        began = time.monotonic()
        code, told = run(["check", *words, "--json"], folder)
        seconds = time.monotonic() - began
        (folder / f"check-{target}.json").write_text(told, encoding="utf-8")
        if net.startswith(RARE):
            yield Tried(net, target, seconds, list(rare_cells(net, target, told, folder)))
            continue
        out = folder / "dist" / target
        log = folder / f"deploy-{target}.log"
        if not log.exists():
            _, deployed = run(["deploy", *words, "--profile", "quick", "--out", str(out)], folder)
            log.write_text(deployed, encoding="utf-8")
        said = variants_of(told)
        file = out / "report.json"
        reported = json.loads(file.read_text(encoding="utf-8"))["variants"] if file.exists() else []
        yield Tried(
            net,
            target,
            seconds,
            list(cells(net, target, said, reported)),
            strangers.last_line(log.read_text(encoding="utf-8")) if code else "",
        )
        print(f"{net} {target}: {seconds:.1f} s", file=sys.stderr)


def variants_of(told: str) -> dict[str, Any]:
    """What `check --json` says of the variants of its target."""
    try:
        return dict(next(iter(json.loads(told[told.index("{") :])["targets"].values()))["variants"])
    except ValueError:
        return {}


def made(net: str, folder: Path) -> tuple[str, str]:
    """The model and the data as the command line takes them."""
    if net.startswith(WILD):
        shared = Path(os.environ["EDGECOMPRESS_SHARED"])
        return str(shared / net), "random"
    if net.startswith(RARE):
        name = net.removeprefix(RARE)
        np.savez(folder / "data.npz", **check_nets.data(name))
        shutil.copy(check_nets.__file__, folder)
        return f"check_nets:{name}", "data.npz"
    if net.startswith("zoo/"):
        name = net.partition("/")[2]
        np.savez(folder / "data.npz", **zoo.draw(zoo.NETS[name], 60, 0))
        return f"edgecompress.testing.zoo:{name}", "data.npz"
    built = strangers_nets.build(net, folder)
    return built.model, strangers.data_of(built, folder, 0)


def run(words: Sequence[str], folder: Path) -> tuple[int | None, str]:
    return strangers.ended([sys.executable, "-P", "-m", "edgecompress", *words], folder)


def cells(net: str, target: str, said: dict[str, Any], reported: Sequence[dict[str, Any]]) -> Iterator[Cell]:
    rows = {row["name"]: row for row in reported}
    for name, check in said.items():
        row = rows.get(name)
        built = bool(row and row["artifact"])
        yield Cell(net, target, name, "not reached", not check["reached"], not built)
        if not row or not built or not check["reached"] or not check["told"]:
            continue
        if row["verify"] and row["verify"].get("fallback") is not None:
            outside = {plain(part) for each in check["outside"] for part in each["becomes"]} - AROUND
            left = {plain(op["type"] or op["name"]) for op in row["verify"]["fallback"]} - AROUND
            for kind in sorted(outside | left):
                yield Cell(net, target, name, f"outside: {kind}", kind in outside, kind in left)
        computes = row["artifact"]["precision"]["computes"] if row["artifact"].get("precision") else None
        if computes and check["precision"] in INT8:
            floats = any(word.startswith(("fp", "bf")) for word in computes)
            yield Cell(net, target, name, "products in float", any(e["multiplies"] for e in check["floats"]), floats)


def rare_cells(net: str, target: str, told: str, folder: Path) -> Iterator[Cell]:
    """A model that no check takes reaches nothing, as one that is not traced."""
    said, results = variants_of(told), builds(net, target, folder)
    for name, result in results.items():
        row = said.get(name, {"reached": False})
        runs = result["outcome"] == "runs"
        yield Cell(net, target, name, f"not reached: {row.get('why') or result['says']}", not row["reached"], not runs)
        if runs and row["reached"]:
            yield Cell(net, target, name, "rewritten", bool(row.get("rewritten")), result["rewritten"])


POOLS: dict[str, ProcessPoolExecutor] = {}


def builds(net: str, target: str, folder: Path) -> dict[str, Any]:
    """What becomes of each variant; a process per engine, one that crashes or hangs costs the variant."""
    found = {}
    for variant in catalog.target(target).value.variant:
        engine = variant.runtime or catalog.target(target).value.runtime
        file = folder / f"built-{target}-{variant.name}.json"
        if not file.exists():
            if engine not in POOLS:
                POOLS[engine] = ProcessPoolExecutor(1, get_context("spawn"))
            try:
                result = (
                    POOLS[engine].submit(build, net.removeprefix(RARE), target, variant.name, folder).result(HANG_S)
                )
            except (BrokenProcessPool, TimeoutError) as error:
                for process in POOLS.pop(engine)._processes.values():
                    process.kill()
                result = {"outcome": "crash", "says": type(error).__name__, "rewritten": False}
            file.write_text(json.dumps(result), encoding="utf-8")
        found[variant.name] = json.loads(file.read_text(encoding="utf-8"))
    return found


def build(name: str, target: str, variant_name: str, folder: Path) -> dict[str, Any]:
    """A variant built and verified; each stage's artifact is kept for the variants that begin alike."""
    from edgecompress.device import agent_client
    from edgecompress.device.agent.__main__ import MODES

    agent_client.ask = lambda _shell, request, out, _deadline_s: MODES[request.mode](request, out)
    value = catalog.target(target).value
    variant = next(each for each in value.variant if each.name == variant_name)
    engine = variant.runtime or value.runtime
    inputs = {"samples": kept_samples(name, folder)}
    try:
        source = {"source": {"model": f"check_nets:{name}"}}
        model = operators.stage("stages.trace:load", inputs, folder / "module", source)
        dense, golden = {"dense": model}, {"splits": ["test"], "metric": "none"}
        inputs["golden"] = operators.stage("stages.golden:run", {"model": model, **inputs}, folder / "golden", golden)
        way, rewritten = "", False
        for call, settings in conversion.steps(value, variant, "module", "check_nets"):
            module, _ = registry.call(call)
            built = config.build(module.Options, settings, call) if hasattr(module, "Options") else {"dynamic": {}}
            way += f"{call} {settings}"
            out = folder / "stages" / hashlib.sha256(way.encode()).hexdigest()[:16]
            if (failed := out.with_suffix(".failed")).exists():
                return {"outcome": "fails", "says": failed.read_text(encoding="utf-8"), "rewritten": False}
            failed.parent.mkdir(exist_ok=True)
            failed.write_text("the process crashed", encoding="utf-8")
            try:
                model = operators.stage(call, {"model": model, **inputs, **dense}, out, built)
            except Exception as error:
                failed.write_text(first_line(error), encoding="utf-8")
                raise
            failed.unlink()
            rewrites = model.facts.get(REWRITES)
            rewritten |= isinstance(rewrites, Mapping) and torch_decompositions.SAYS in rewrites
        exact = variant.reference and conversion.precision(variant) == "fp32"  # else it is a matter of accuracy
        limits = dict(variant.limits) if exact else {}
        told = {"runtime": engine, "metric": "none", "limits": limits}
        with tempfile.TemporaryDirectory() as scratch:
            verdict = operators.stage("stages.verify:run", {"model": model, **inputs}, Path(scratch) / "verdict", told)
    except Exception as error:
        return {"outcome": "fails", "says": f"{type(error).__name__}: {first_line(error)}", "rewritten": False}
    lost = verdict.facts.get("lost") if exact else None
    return {"outcome": "wrong" if lost else "runs", "says": str(lost or ""), "rewritten": rewritten}


def kept_samples(name: str, folder: Path) -> Artifact:
    """A third of the items in each split."""
    specs, third = [], check_nets.ITEMS // 3
    for given, array in check_nets.data(name).items():
        specs.append(TensorSpec(given, (1, *array.shape[1:]), str(array.dtype)))
        for i, split in enumerate(operators.SPLITS):
            (folder / "samples" / split).mkdir(parents=True, exist_ok=True)
            np.save(folder / "samples" / split / f"{given}.npy", array[i * third : (i + 1) * third])
    facts = {"splits": dict.fromkeys(operators.SPLITS, third), "random": True}
    return Artifact(folder / "samples", "samples", tuple(specs), (), facts).write()


def plain(kind: str) -> str:
    """aten::mean.out and mean.dim are one operator."""
    return re.split(r"[:. ]", kind.split("::")[-1])[0].removesuffix("_copy").lower().lstrip("_").removesuffix("_v2")


def report(tried: Sequence[Tried]) -> int:
    every = [cell for each in tried for cell in each.cells]
    for cell in every:
        if cell.said != cell.reported:
            print(f"{'false alarm' if cell.said else 'MISS':<12} {cell.net} {cell.target} {cell.variant}: {cell.what}")
    for each in tried:
        if each.says or each.seconds > LIMIT_S:
            print(f"{each.net} {each.target}: {each.seconds:.1f} s {each.says}")
    count = Counter((cell.said, cell.reported) for cell in every)
    right, misses, alarms = count[True, True], count[False, True], count[True, False]
    longest = max((each.seconds for each in tried), default=0.0)
    print(
        f"{len({each.net for each in tried})} nets, {len(every)} cells: {misses} misses of {right + misses} "
        f"reported, {alarms} false alarms of {right + alarms} said; check took {longest:.1f} s at most"
    )
    return misses > MISSES * max(1, right + misses) or alarms > FALSE_ALARMS * max(1, right + alarms)


if __name__ == "__main__":
    sys.exit(main())
