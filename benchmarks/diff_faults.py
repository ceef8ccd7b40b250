"""Does `edgecompress diff` name the guilty operator, and the kind of its fault? Plants and clean pairs.

    python benchmarks/diff_faults.py [--only NAME,..] [--list] [--check] [--strangers] [--seed N] [--write DIR]

A plant (diff_plants.py) is a net of diff_nets.py with one fault. It is right where the first operator's name in A or in
B, or its module, is one of those that the guilty operator has; of a fused one, those of its parts. A clean pair is the
same net by two exporters or precisions: naming an operator there is a false first, as it is where two outputs are
swapped. --check runs all in their own runtimes alone: a plant has to cost decibels against its sound twin.
--strangers: how many of a source's compute operators are aligned with files of plain calls of converters; --onnx2tf is
a Python with onnx2tf, whose pins suit no other environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import diff_nets
import figures
import numpy as np
from diff_plants import CHANGED, FILED, Pair, planted, sound, written
from torch import nn

COUNT = {"mobilenet": 4, "squeezenet": 4, "speech": 4, "unet": 4}  # items; of others 8
LEAST_DB = {"8": 12.0, "6": 30.0}  # of a clean pair, by the last letter of its form; of others 90
COSTS_DB, MOST_DB = 6.0, 100.0  # what a plant has to cost against its twin; what it leaves in fp32 at most
VERDICTS = ("equal", "differ", "undecided")  # others are errors
COMPUTE = (nn.Conv1d, nn.Conv2d, nn.Linear, nn.LSTM, nn.GRU)
Net = Any


# --------------------------------------------------------------------------- clean pairs and strangers

CLEAN: Mapping[str, tuple[str, str, str]] = {
    f"{net}-{a}-{b}": (net, a, b)
    for net, pairs in {
        "resnet": "torch-onnx onnx13-dynamo torch-tflite pt2-coreml torch-coreml16 onnx-onnx8 onnx-shipped",
        "mobilenet": "torch-openvino onnx-tflite torch-coreml16 torch-onnx8",
        "encoder": "torch-dynamo onnx13-dynamo torch-tflite pt2-coreml16",
        "texts": "torch-onnx onnx-coreml",
        "speech": "torch-openvino",
        "unet": "torch-tflite onnx-openvino dynamo-folded",
        "heads": "torch-coreml",
        "keras": "keras-ktflite keras-tf2onnx saved-ktflite16 keras-ktflite8",
    }.items()
    for a, b in (pair.split("-") for pair in pairs.split())
}
STRANGERS = ("onnx", "dynamo", "tflite", "coreml", "onnx2tf")
OF_KERAS = ("tf2onnx", "ktflite")


def clean(name: str, work: Path) -> Pair:
    net, a, b = CLEAN[name]
    made = sound(net)
    one = written(a, net, made, work / "a")
    two = shipped(net, work) if b == "shipped" else written(b, net, made, work / "b")
    return Pair(name, net, one, two, least=LEAST_DB.get(b[-1], 90.0))


def shipped(net: str, work: Path) -> str:
    """The folder that a deploy wrote."""
    import edgecompress

    held = data_file(net, 120, 5, work / "many.npz")
    model = written("onnx", net, sound(net), work / "source")
    options = edgecompress.Options(out=work / "out", store=work / "store")
    edgecompress.deploy(model, data=held, metric="none", profile="quick", only=["int8"], options=options)
    return str(work / "out")


def data_file(net: str, count: int, seed: int, file: Path) -> str:
    np.savez(file, **{diff_nets.INPUT.get(net, "image"): diff_nets.items(net, count, seed)})
    return str(file)


def strangers(work: Path, only: Sequence[str], python: str) -> Iterator[tuple[Pair, str, int]]:
    """A pair for each converter of ten nets; the converter; the source's compute operators as they are counted here."""
    for net in [*diff_nets.NETS, "keras"]:
        made = sound(net)
        count = 5 if net == "keras" else sum(isinstance(m, COMPUTE) for m in made.modules())
        count += {"encoder": 6, "texts": 1}.get(net, 0)  # products of two activations, and with a bare matrix
        for form in OF_KERAS if net == "keras" else STRANGERS:
            name = f"{net}-{form}"
            if (only and name not in only and net not in only) or (form == "onnx2tf" and not python):
                continue
            place = work / name
            place.mkdir(parents=True, exist_ok=True)
            pair = Pair(name, net, written("keras" if net == "keras" else "torch", net, made, place / "a"), "")
            try:
                pair.b = (
                    onnx2tf(net, made, place, python) if form == "onnx2tf" else written(form, net, made, place / "b")
                )
            except Exception as error:
                print(f"{name}: not made: {str(error).strip()[-160:]!r}")
                continue
            yield pair, form, count


def onnx2tf(net: str, made: Net, place: Path, python: str) -> str:
    file = written("onnx", net, made, place / "b")
    pictures = np.random.default_rng(0).random((20, 128, 128, 3), np.float32)  # of its own it would fetch
    np.save(place / "calibration_image_sample_data_20x128x128x3_float32.npy", pictures)
    code = f"import onnx2tf; onnx2tf.convert({file!r}, output_folder_path={str(place / 'tf')!r}, non_verbose=True)"
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])  # of onnxsim, which it calls
    env = {**os.environ, "PATH": path}
    run = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=place, env=env)
    found = next(place.glob("tf/*_float32.tflite"), None)
    if found is None:
        raise RuntimeError((run.stdout + run.stderr)[-400:])
    return str(found)


# --------------------------------------------------------------------------- the judge


def judged(pair: Pair, work: Path, seed: int, check: bool) -> dict[str, Any]:
    """What it costs in decibels, and whether what is told of it is right."""
    held = data_file(pair.net, COUNT.get(pair.net, 8), seed, work / "items.npz")
    x = diff_nets.items(pair.net, COUNT.get(pair.net, 8), seed)
    row: dict[str, Any] = {"name": pair.name, "net": pair.net, "kinds": [*pair.kinds], "files": [pair.a, pair.b]}
    files = {"db": (pair.a, pair.b), "sound_db": (pair.a, pair.twin)}
    for key, (a, b) in files.items():
        runs = bool(b) and not (Path(b) / "deploy.json").exists()
        row[key] = round(diff_nets.decibels(*(diff_nets.answers(m, x) for m in (a, b))), 1) if runs else None
    worth = MOST_DB if row["sound_db"] is None else row["sound_db"] - COSTS_DB
    row["made"] = row["db"] is None or (row["db"] < worth if pair.kinds else row["db"] >= pair.least)
    if pair.kinds and not pair.operators and "swapped outputs" not in pair.kinds:
        row |= {"made": False, "why": "nothing is called guilty"}
    row["accepted"] = sorted(pair.operators)
    if check:
        return row
    import edgecompress

    began = time.monotonic()
    try:
        facts = edgecompress.diff(pair.a, pair.b, data=held).facts
    except Exception as error:
        facts = {"verdict": f"{type(error).__name__}: {error}"}
    first, kind = facts.get("first"), facts.get("kind", "")
    told = {str(first.get(key) or "").removesuffix(":0") for key in ("a", "b", "module")} - {""} if first else set()
    row |= {"seconds": time.monotonic() - began, "verdict": facts["verdict"], "first": first, "kind": kind}
    row |= {"aligned": facts.get("aligned"), "precision": facts.get("precision")}
    row["operator_right"] = bool(told & pair.operators) if pair.operators else first is None
    parts = {str(each) for each in (first or {}).get("segment", ())}
    row["in_segment"] = bool(parts & pair.operators)
    row["kind_right"] = kind in (pair.kinds or [""])
    if facts["verdict"] not in VERDICTS:
        row["operator_right"] = row["kind_right"] = False
    return row


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Counts over the pairs that the command was asked of."""
    asked = [row for row in rows if "verdict" in row]
    plants, sound = ([row for row in asked if bool(row["kinds"]) == side] for side in (True, False))
    accused = [row for row in asked if row["first"] and (not row["kinds"] or "swapped outputs" in row["kinds"])]
    return {
        "plants": len(plants),
        "operator_right": sum(row["operator_right"] and row["verdict"] == "differ" for row in plants),
        "in_segment": sum(row["in_segment"] for row in plants),
        "kind_right": sum(row["kind_right"] and row["verdict"] == "differ" for row in plants),
        "clean": len(sound),
        "clean_equal": sum(row["verdict"] == "equal" for row in sound),
        "false_firsts": len(accused),
        "undecided": sum(row["verdict"] == "undecided" for row in asked),
        "errors": sum(row["verdict"] not in VERDICTS for row in asked),
    }


def line(row: Mapping[str, Any]) -> str:
    """A row of the table, in 80 columns."""
    db = " ".join(f"{'-' if row.get(key) is None else format(row[key], '.0f'):>4}" for key in ("db", "sound_db"))
    if "verdict" not in row:
        return f"{row['name']:28.28} {db}  {'' if row['made'] else 'NOT AS PLANNED '}{row.get('why', '')}"[:80]
    first = row["first"] or {}
    marks = "".join("+" if row[key] else "-" for key in ("operator_right", "kind_right"))
    name = first.get("module") or first.get("a") or first.get("b") or ""
    return f"{row['name']:22.22} {db} {row['verdict']:9.9} {marks} {row['kind']:12.12} {name:.22}"[:80]


def main() -> int:
    parser = figures.flags(__doc__, "only", "json")
    for name, text in (("list", "the names"), ("check", "no diff"), ("strangers", "alignment with converters' files")):
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument("--seed", type=int, default=0, help="of the items")
    parser.add_argument("--write", help="a folder where the files stay")
    parser.add_argument("--onnx2tf", default=os.environ.get("DIFF_ONNX2TF", ""), help="a Python that has it")
    asked = parser.parse_args()
    makers: dict[str, Callable[[str, Path], Pair]] = {
        **dict.fromkeys([*CHANGED, *FILED], planted),
**dict.fromkeys(CLEAN, clean)
    }  # fmt: skip
    if asked.list:
        print(*makers, sep="\n")
        return 0
    only, rows = [name for name in asked.only.split(",") if name], []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        work = Path(asked.write or scratch).resolve()
        weights = work / "weights"
        weights.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("DIFF_WEIGHTS", str(weights))
        if asked.strangers:
            return aligned(work, only, asked)
        for name in only or makers:
            place = work / name
            place.mkdir(exist_ok=True)
            began = time.monotonic()
            try:
                rows.append(judged(makers[name](name, place), place, asked.seed, asked.check))
            except Exception as error:
                rows.append({"name": name, "made": False, "why": f"{type(error).__name__}: {error}"[:300]})
            rows[-1]["all_seconds"] = time.monotonic() - began
            print(line(rows[-1]), flush=True)
    found = {"date": time.strftime("%Y-%m-%d"), "machine": figures.machine(), "seed": asked.seed, **summary(rows)}
    figures.write(asked.json, {**found, "rows": rows})
    print("decibels of B, of B without the fault; operator and kind right (+)", json.dumps(summary(rows)), sep="\n")
    lost = [row["name"] for row in rows if not row["made"]]
    print(
        f"{len(rows)} pairs, {sum(bool(r.get('kinds')) for r in rows)} plants; not as planned: {', '.join(lost) or 0}"
    )
    return int(bool(lost))


def aligned(work: Path, only: Sequence[str], asked: Any) -> int:
    """Compute operators that have a counterpart in files of plain calls of converters."""
    rows = []
    for pair, form, count in strangers(work, only, asked.onnx2tf):
        row = {**judged(pair, work / pair.name, asked.seed, asked.check), "form": form, "compute_here": count}
        told = row.get("aligned") or {}
        row["share"] = told.get("compute", 0) / max(count, told.get("compute_of", 0)) if told else None
        rows.append(row)
        words = f"{told.get('compute', '-')} of {told.get('compute_of', '-')} ({count} counted here)"
        print(f"{pair.name:24.24} {row['db']:6.0f} dB  {words}", flush=True)
    for form in (*STRANGERS, *OF_KERAS):
        shares = [row["share"] for row in rows if row["form"] == form and row["share"] is not None]
        if shares:
            print(f"{form:10} {sum(shares) / len(shares):.1%} of {len(shares)} nets, least {min(shares):.1%}")
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), "machine": figures.machine(), "rows": rows})
    lost = [row["name"] for row in rows if not row["made"]]  # faults of converters: nothing was planted
    print(f"{len(rows)} files; in their own runtimes unlike their source: {', '.join(lost) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
