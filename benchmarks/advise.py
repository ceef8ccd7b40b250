"""Is what then ships among the first three rows of `edgecompress advise`, and does it take as long as it said?

    python benchmarks/advise.py prior [--work DIR]
    python benchmarks/advise.py recorded
    python benchmarks/advise.py judge [--nets NET,...] [--work DIR] [--json FILE]

`prior` makes edgecompress/extras/search/expected_gains.json, the table that ships: what deploys to x86 recorded in this
folder, and the features of their nets, which are built and analyzed once more. Nothing is deployed.

`recorded` ranks the target's variants for each recorded net by the records of the others: whether what shipped then is
among the first three, and whether it is in the best constant list of three of the others. It takes a second.

`judge` takes the judged nets of advise.toml, written down before the ranking was, each through `edgecompress advise`
and then `edgecompress deploy --target x86 --profile quick` with an empty store; a net that FILE has is not tried again.
A hit is a net whose shipped variant is among the first three rows. Constant lists of three variants are held against
that: the one with most hits on the recorded nets, and the one with most hits on the judged nets themselves, which
nobody could have known. Exit 1 where the first of these has as many hits, or a time is off by more than TIMES.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import check as nets
import figures
import strangers

from edgecompress.core import catalog
from edgecompress.extras.search import expected_gains
from edgecompress.extras.search.expected_gains import PRIOR, Record, key
from edgecompress.pipeline.job import job

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
LIST = Path(__file__).with_suffix(".toml")
STRANGERS, X86, FIRST_X86 = (HERE / f"{n}.json" for n in ("strangers-2026-11-25", "x86-2026-11-21", "x86-2026-11-20"))
INT4, PRUNING = HERE / "int4-race-2026-11-26.json", HERE / "pruning-2026-11-21.json"
PLATFORM = "linux-x86_64"
CONVOLUTIONS = ("resnet20", "mobilenetv2")  # of X86: there the best of each runtime is its int8
INT4_FILES = {
    "onnx fp32": "onnx fp32",
    "onnx_int4": "onnx int4",
    "onnx_int8_weights": "onnx int8-weights",
    "int8_dynamic": "onnx int8-dynamic",
    "openvino fp32": "openvino fp32",
    "nncf_int4": "openvino int4",
    "nncf_int8_weights": "openvino int8-weights",
}
FIRST, TIMES = 3, 3.0
VARIANTS = catalog.target("x86").value.variant
NAMES = {v.name: key(v.runtime or "onnx", [str(step["use"]) for step in v.compress]) for v in VARIANTS}


def main() -> int:
    parser = figures.flags(__doc__, "work", "json")
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    parser.add_argument("what", choices=("prior", "recorded", "judge"))
    parser.add_argument("--nets", default=",".join(listed["judged"]))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(asked.work or scratch).resolve()
        if asked.what == "prior":
            return prior(work)
        if asked.what == "recorded":
            return recorded()
        known = json.loads(asked.json.read_text(encoding="utf-8"))["nets"] if asked.json and asked.json.exists() else []
        rows = {row["net"]: row for row in known}
        for net in asked.nets.split(","):
            if net not in rows:
                rows[net] = judged(net, work, listed["samples"].get(net))
                told = {"date": time.strftime("%Y-%m-%d"), "machine": dict(job().context.here)}
                figures.write(asked.json, {**told, "nets": [*rows.values()]})
    return report([row for row in rows.values() if row["net"] in asked.nets.split(",")])


# --------------------------------------------------------------------------- the table that ships


def prior(work: Path) -> int:
    records = [*of_strangers(work), *of_x86(work), of_int4()]
    pruned = [row["speedup"] for net in json.loads(PRUNING.read_text()) for row in net["rows"] if row.get("speedup")]
    factors = {
        "prune_channels": {"gain": spread(pruned), "source": PRUNING.name},
        **{name: {"gain": [1.0, 1.0, 1.0], "source": "it changes weights alone"} for name in ("qat", "finetune")},
    }
    table = {
        "made by": "python benchmarks/advise.py prior",
        "factors": factors,
        "records": [dataclasses.asdict(record) for record in records],
    }
    text = json.dumps(table, indent=1, ensure_ascii=False)
    PRIOR.write_text(re.sub(r"(\d+\.\d{3})\d+", r"\1", text) + "\n", encoding="utf-8")
    print(f"{PRIOR}: {len(records)} nets")
    return 0


def spread(values: Sequence[float]) -> list[float]:
    return [min(values), statistics.geometric_mean(values), max(values)]


# --------------------------------------------------------------------------- the recorded nets


def recorded() -> int:
    """Prints each recorded net whose shipped variant is told, and the sums."""
    ships, every = shipped_before(), expected_gains.prior().records
    known = {r.net: r for r in every}
    hits = constant = 0
    for net, (name, unreached) in ships.items():
        others = [r for r in every if r.net != net]
        told = {
            v.name: expected_gains.expected(NAMES[v.name], known[net].features, others, "latency", "") for v in VARIANTS
        }
        fits = sorted({*told} - {*unreached}, key=lambda n: expected_gains.place(told[n].kept, told[n].gain))
        three = best_three([one for other, (one, _) in ships.items() if other != net])
        hits, constant = hits + (name in fits[:FIRST]), constant + (name in three)
        print(f"{'hit ' if name in fits[:FIRST] else 'miss'} {net}: shipped {name}, advised {', '.join(fits[:FIRST])}")
    print(f"{hits} of {len(ships)} are among the first {FIRST}, {constant} in the best list of the others")
    return hits <= constant


def shipped_before() -> dict[str, tuple[str, list[str]]]:
    """By net what shipped to x86, and which variants no way leads to."""
    found = {}
    for file in (FIRST_X86, X86):
        found |= {row["net"]: (row["shipped"], []) for row in json.loads(file.read_text(encoding="utf-8"))}
    for case in json.loads(STRANGERS.read_text(encoding="utf-8"))["cases"]:
        if case["target"] == "x86":
            unreached = [name for name, said in case["variants"].items() if said.startswith("unreached")]
            found[case["net"]] = (case["shipped"], unreached)
    return found


def of_strangers(work: Path) -> Iterator[Record]:
    """Each variant's time is told as times that of what shipped."""
    for case in json.loads(STRANGERS.read_text(encoding="utf-8"))["cases"]:
        if case["target"] != "x86" or not case["shipped"]:
            continue
        times = {name: time_of(said, case["variants"]) for name, said in case["variants"].items()}
        base = min(t for v in VARIANTS if v.reference and (t := times[v.name]))
        lost = [n for n, said in case["variants"].items() if said.startswith(("lost", "failed")) and not times[n]]
        gains = {NAMES[n]: {"latency": base / t} for n, t in times.items() if t} | {NAMES[n]: {} for n in lost}
        ours = analyzed(case["net"], work)
        planned = case["seconds"] / planned_s(case["net"], work)
        yield Record(case["net"], f"benchmarks/{STRANGERS.name}", PLATFORM, ours, gains, planned)


def time_of(said: str, others: Mapping[str, str]) -> float | None:
    if said.startswith("shipped"):
        return 1.0
    if found := re.match(r"equal: the same file as ([\w-]+)", said):
        return time_of(others[found[1]], {})
    found = re.search(r"([\d.]+)x \(", said)
    return float(found[1]) if found and not said.startswith(("lost", "failed")) else None


def of_x86(work: Path) -> Iterator[Record]:
    """Gains over ONNX Runtime's fp32, or over the fastest uncompressed one; sizes over fp32 of the same format."""
    for file in (X86, FIRST_X86):
        for row in json.loads(file.read_text(encoding="utf-8")):
            best = row.get("best", {}) if row["net"] in CONVOLUTIONS else {}
            gains = {key(name, ["int8"]): {"latency": ratio} for name, ratio in best.items()}
            gains[NAMES[row["shipped"]]] = {"latency": row["ratio"]}
            gains[NAMES[row.get("over", "fp32")]] = {"latency": 1.0}
            source = f"benchmarks/{file.name}"
            yield Record(row["net"], source, PLATFORM, analyzed(f"examples/{row['net']}", work), gains)


def of_int4() -> Record:
    """Eight layers of 2048 x 2048, batch 1."""
    ratios = {row["file"]: row["ratio"] for row in json.loads(INT4.read_text(encoding="utf-8"))["rows"]}
    gains = {name: {"latency": ratios[file]} for file, name in INT4_FILES.items()}
    layers = [{"type": "Linear", "macs": 2048**2, "parameters": 2048**2}] * 8
    total = {"parameters": 8 * 2048**2, "activation_bytes": 8 * 2048 * 4}
    ours = expected_gains.features({"layers": layers, "total": total})
    return Record("eight layers of 2048 x 2048", f"benchmarks/{INT4.name}", PLATFORM, ours, gains)


def analyzed(net: str, work: Path) -> dict[str, float]:
    """The features of a net, told once."""
    folder, words = made(net, work)
    file = folder / "features.json"
    if not file.exists():
        words += ["--store", str(folder / "store")]
        try:
            told = expected_gains.features(answer(["analyze", *words], folder))
        except RuntimeError:  # shapes that are known at run time only
            told = answer(["advise", *words, "--target", "x86"], folder)["features"]
        file.write_text(json.dumps(told), encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def planned_s(net: str, work: Path) -> float:
    folder, words = made(net, work)
    return float(answer(["plan", *words, "--profile", "quick", "--store", str(folder / "store")], folder)["estimate_s"])


def answer(words: Sequence[str], folder: Path) -> Any:
    """The JSON that a command prints, behind its progress."""
    code, told = nets.run([*words, "--json"], folder)
    if code:
        raise RuntimeError(f"edgecompress {' '.join(words)}: {strangers.last_line(told)}")
    return json.loads(told[told.index("{") :])


def made(net: str, work: Path) -> tuple[Path, list[str]]:
    """The folder of a net, and its words on the command line."""
    if net.startswith("examples/"):
        folder = work / net.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        return folder, [str(EXAMPLES / net.partition("/")[2] / "source.toml")]
    folder = work / net.replace("/", "-")
    file = folder / "made.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(nets.made(net, folder)), encoding="utf-8")
    model, data = json.loads(file.read_text(encoding="utf-8"))
    return folder, [model, *(["--data", data] if data else [])]


# --------------------------------------------------------------------------- judging


def judged(net: str, work: Path, samples: int | None) -> dict[str, Any]:
    """What is advised for a net, in a store that knows no deploy, and what its deploy then came to."""
    folder, words = made(net, work)
    words += ["--samples", str(samples)] if samples else []
    told = ["--target", "x86", "--profile", "quick"]
    try:
        advised = answer(["advise", *words, *told, "--store", str(folder / "advised")], folder)
    except RuntimeError as error:  # refused, as a deploy refuses it
        return {"net": net, "shipped": "", "says": str(error).partition("error: ")[2]}
    out, began = folder / "dist", time.monotonic()
    code, log = nets.run(["deploy", *words, *told, "--out", str(out), "--store", str(folder / "deployed")], folder)
    seconds = time.monotonic() - began
    file = out / "report.json"
    found: dict[str, Any] = {"variants": [], "choice": {"variant": ""}}
    if file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
    rows = {v["name"]: {"verdict": v["verdict"], "ms": v["numbers"]["latency"]["value"]} for v in found["variants"]}
    said = {r["variant"]: r["gains"]["latency"] for r in advised["rows"] if r["own"] and r["rank"]}
    row = {"net": net, "first": [*said][:FIRST], "features": advised["features"], "said": said}
    row |= {"shipped": found["choice"]["variant"], "variants": rows, "code": code}
    row |= {"said_s": 60 * advised["minutes"], "took_s": seconds, "says": strangers.last_line(log) if code else ""}
    print(f"{net}: {row['shipped']} of {row['first']}, {row['said_s']:.0f} s said, {seconds:.0f} s", file=sys.stderr)
    return row


def report(every: Sequence[Mapping[str, Any]]) -> int:
    rows = [row for row in every if row["shipped"] and row["variants"][row["shipped"]]["ms"]]
    for row in every:
        if row not in rows:
            why = row["says"] or f"{row['shipped']} by rough times, too noisy to compare"
            print(f"not counted: {row['net']}: {why}")
    for row in rows:
        hit = "hit " if row["shipped"] in row["first"] else "miss"
        print(f"{hit} {row['net']}: ships {row['shipped']}, advised {', '.join(row['first'])}; "
              f"{row['said_s']:.0f} s said, {row['took_s']:.0f} s taken {row['says']}")  # fmt: skip
    shipped = [row["shipped"] for row in rows]
    hits = sum(row["shipped"] in row["first"] for row in rows)
    constant = best_three([name for name, _ in shipped_before().values()])
    by_constant = sum(name in constant for name in shipped)
    off = [max(r["said_s"] / r["took_s"], r["took_s"] / r["said_s"]) for r in rows]
    print(f"{hits} of {len(rows)} are among the first {FIRST}")
    print(f"{by_constant} are in the best list of the recorded nets: {', '.join(constant)}")
    hindsight = best_three(shipped)
    print(f"{sum(name in hindsight for name in shipped)} are in the best list of these: {', '.join(hindsight)}")
    told = [inside for row in rows for inside in within(row)]
    print(f"{sum(told)} of {len(told)} gains that were measured are in the interval told")
    print(f"times: off by a factor of {statistics.median(off):.2f} (median), {max(off):.2f} at most")
    return hits <= by_constant or max(off) > TIMES


def within(row: Mapping[str, Any]) -> Iterator[bool]:
    """Of each variant that was measured and expected, whether its gain is in the interval told; of fp32 too."""
    times = {name: v["ms"] for name, v in row["variants"].items() if v["ms"]}
    best = min((times[v.name] for v in VARIANTS if v.reference and v.name in times), default=None)
    for name, ms in times.items():
        if best and (told := row["said"].get(name)):
            yield bool(told["low"] <= best / ms <= told["high"])


def best_three(shipped: Sequence[str]) -> tuple[str, ...]:
    lists = itertools.combinations([v.name for v in VARIANTS], FIRST)
    return max(lists, key=lambda three: sum(name in three for name in shipped))


if __name__ == "__main__":
    sys.exit(main())
