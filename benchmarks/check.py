"""Does `edgecompress check` say, before anything is built, what a deploy then builds and the runtimes then report?

    python benchmarks/check.py [--nets NET,...] [--targets TARGET,...] [--work DIR] [--json FILE]

The nets of check.toml, written down before the tables of `check` were, go through `edgecompress check` and then
`edgecompress deploy --profile quick`. Each variant gives cells: whether it is reached (built, whatever its accuracy
is), each type of operator that its runtime reports outside of its accelerator, and whether operators that multiply stay
in float in an int8 variant. A miss is a cell that the deploy reports and `check` did not say; a false alarm is one that
`check` said and the deploy does not report. Runtimes that report no operators (Core ML here, OpenVINO) give no cells.

Exit 1 where misses are above 5 % of what is reported, or false alarms above 10 % of what is said.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import figures
import numpy as np
import strangers
import strangers_nets

from edgecompress.testing import zoo

LIST = Path(__file__).with_suffix(".toml")
WILD = "wild/"
MISSES, FALSE_ALARMS = 0.05, 0.10
LIMIT_S = 20.0
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
        out = folder / "dist" / target
        log = folder / f"deploy-{target}.log"
        if not log.exists():
            _, deployed = run(["deploy", *words, "--profile", "quick", "--out", str(out)], folder)
            log.write_text(deployed, encoding="utf-8")
        try:
            said = next(iter(json.loads(told[told.index("{") :])["targets"].values()))["variants"]
        except ValueError:
            said = {}
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


def made(net: str, folder: Path) -> tuple[str, str]:
    """The model and the data as the command line takes them."""
    if net.startswith(WILD):
        shared = Path(os.environ["EDGECOMPRESS_SHARED"])
        return str(shared / net), "random"
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
