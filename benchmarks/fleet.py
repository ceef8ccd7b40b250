"""A fleet on this machine: a Ray cluster of separate nodes (processes with resources of their own), and sweeps.

    python benchmarks/fleet.py --what cells,speedup,lookups,loop [--work DIR] [--json FILE]

cells:   eight real cells (four nets, on this machine and on an emulated ARM64) and 36 null ones on three fake devices,
         on a head and three workers, one of which is killed on the way; every stored result that a serial run has, too,
         by sha256; whether two stages used a device at once.
speedup: 200 cells whose one stage sleeps 10 s (as many as WORKERS need for two minutes, the last of them all), against
         one worker; the overhead of a stage, and what that makes of 1,000 cells on as many workers as they keep busy.
lookups: a store of 100,000 results: finding one, missing one, opening it.
loop:    five nets x three targets as one sweep, as a loop of deploys with one store, and with a store for each.

Exit 1 where a result differs, a device was used twice at once, the speed-up is below 0.85 of linear, or a look-up takes
50 ms.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import figures

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "tests/extras/fleet")]  # whose null nets and nodes these are

import nulls  # noqa: E402
from ray_nodes import TOKEN, RayNodes  # noqa: E402

from edgecompress.core.model import Artifact  # noqa: E402
from edgecompress.pipeline.store import Store, key_of  # noqa: E402

LINEAR, LOOKUP_MS = 0.85, 50.0
WORKERS = (2, 4, 8)
SLEEP_S = 10.0
CELLS = 200
ENTRIES = 100_000
REAL = {name: f"examples/{name}/source.toml" for name in ("resnet20", "fsdd", "shapes", "depthwise")}
FAKES = ("fake-a", "fake-b", "fake-c")
FAKE = 'description = "fake {name}"\ntransport = "host"\n[options.health]\nbusy = 1.0\n'
HOST = 'description = "this machine"\ntransport = "host"\n[options.health]\nbusy = 1.0\n'
SLOW = """import time
import numpy as np


def data(split):
    if split == "test":
        time.sleep({seconds})
    return [(np.zeros(4, dtype="float32"), 0)] * 4
"""

UNTIL = """import sys
from pathlib import Path
from edgecompress.extras.fleet import matrix, sweep
from edgecompress.pipeline.job_request import Options
options = Options(on=sys.argv[1], store="store", out="out", until="data", progress=False)
sweep.run(matrix.read(Path("matrix.toml"))[0], options, [])
"""


def main() -> int:
    parser = figures.flags(__doc__, "work", "json")
    parser.add_argument("--what", default="lookups,speedup,cells,loop")
    asked = parser.parse_args()
    os.environ.update(TOKEN)
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "machine": figures.machine()}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        work = Path(asked.work or scratch).resolve()
        for name in asked.what.split(","):
            folder = work / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            found[name] = {"cells": cells, "speedup": speedup, "lookups": lookups, "loop": loop}[name](folder)
            print(json.dumps({name: found[name]}, indent=1), flush=True)
    figures.write(asked.json, found)
    return int(any(part.get("failed") for part in found.values() if isinstance(part, dict)))


def edgecompress(words: Sequence[str], folder: Path, log: str = "log") -> tuple[int, float]:
    """A command: its exit code, and the seconds that it took."""
    began = time.monotonic()
    with (folder / log).open("ab") as stream:
        command = [sys.executable, "-P", "-m", "edgecompress", *words]
        code = subprocess.run(command, cwd=folder, stdout=stream, stderr=stream).returncode
    return code, time.monotonic() - began


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "sweep.jsonl").read_text(encoding="utf-8").splitlines()]


# --------------------------------------------------------------------------- cells


def cells(folder: Path) -> dict[str, Any]:
    real = "".join(f'[[source]]\nname = "{n}"\nmodel = "{ROOT / p}"\n' for n, p in REAL.items())
    for name in FAKES:
        (folder / f"{name}.toml").write_text(FAKE.format(name=name), encoding="utf-8")
    (folder / "bench.toml").write_text(HOST, encoding="utf-8")
    made = [nulls.make(folder / f"null{i}", scale=1.0 + i) for i in range(12)]
    null = "".join(
        f'[[source]]\nname = "null{i}"\nmodel = "null{i}/net.null"\ndata = "null{i}/data"\n' for i in range(12)
    )
    fake = ", ".join(f'"{name}.toml"' for name in FAKES)
    (folder / "matrix.toml").write_text(
        f'targets = ["{made[0]["target"]}", "x86", "arm64"]\n'
        f'devices = [{fake}, "bench.toml", "qemu-cortex-a76"]\nprofiles = ["quick"]\nonly = ["int8", "plain"]\n'
        'exclude = [{ source = "null*", target = "x86" }, { source = "null*", target = "arm64" }, '
        '{ target = "null", device = "bench" }, { target = "null", device = "qemu-cortex-a76" }, '
        '{ device = "fake-*", target = "x86" }, { device = "fake-*", target = "arm64" }, '
        + ", ".join(f'{{ source = "{name}", target = "null" }}' for name in REAL)
        + ', { target = "arm64", device = "bench" }, { target = "x86", device = "qemu-cortex-a76" }]\n'
        f"{real}{null}",
        encoding="utf-8",
    )
    with cluster(folder, 3, {"bench": 1, "qemu-cortex-a76": 1}, [{name: 1} for name in FAKES]) as nodes:
        words = ["sweep", "matrix.toml", "--on", nodes.address, "--store", "store", "--out", "out"]
        killer = threading.Timer(30.0, nodes.kill, ("worker2",))
        killer.start()
        code, took_s = edgecompress(words, folder)
        killer.cancel()
        if "worker2" not in nodes.nodes:  # what only its device can measure goes on when it is back
            nodes.add("worker2", {FAKES[2]: 1})
            code, again_s = edgecompress(words, folder)
            took_s += again_s
    serial, serial_s = edgecompress(["sweep", "matrix.toml", "--store", "serial", "--out", "out-serial"], folder)
    ours, theirs = (results(folder / name) for name in ("store", "serial"))
    common = ours.keys() & theirs.keys()
    unlike = [ours[key][0] for key in common if ours[key] != theirs[key]]
    told = rows(folder / "out")
    twice = overlaps(told)
    ends = json.loads((folder / "out/matrix.json").read_text(encoding="utf-8"))["rows"]
    states = {state: sum(row["state"] == state for row in ends) for state in {row["state"] for row in ends}}
    return {
        "cells": len(ends),
        "states": states,
        "exit_code": code,
        "serial_exit_code": serial,
        "stages": sum("pid" in row for row in told),
        "devices": sorted({row["device"] for row in told if row.get("device")}),
        "compared": len(common),
        "unlike": unlike,
        "used_twice_at_once": twice,
        "cluster_s": took_s,
        "serial_s": serial_s,
        "failed": bool(unlike or twice or code != serial),
    }


@contextmanager
def cluster(
    folder: Path, workers: int, head: Mapping[str, float], devices: Sequence[Mapping[str, float]] = ()
) -> Iterator[RayNodes]:
    """A head without work of its own but its devices', and workers called worker0, worker1, ..."""
    with RayNodes(folder, head) as nodes:
        for number in range(workers):
            nodes.add(f"worker{number}", devices[number] if number < len(devices) else {})
        yield nodes


def results(store: Path) -> dict[str, tuple[str, str]]:
    """The stage and the sha256 of each result that is none of a measurement."""
    found = {}
    for receipt in (store / "store").glob("*/receipt.json"):
        told = json.loads(receipt.read_text(encoding="utf-8"))
        measured = any(name.startswith("context.device") for name in told["parts"])
        if not measured and not any(word in told["stage"] for word in ("verify", "race", "report", "agree")):
            found[receipt.parent.name] = (told["stage"], Artifact.read(receipt.parent / "artifact").sha256)
    return found


def overlaps(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Devices that two stages used at once."""
    spans = sorted((row["device"], row["began"], row["ended"]) for row in told if row.get("device"))
    return [one[0] for one, other in pairwise(spans) if one[0] == other[0] and other[1] < one[2]]


# --------------------------------------------------------------------------- speed-up


def speedup(folder: Path) -> dict[str, Any]:
    rates: dict[int, float] = {}
    overheads: list[float] = []
    for workers in (1, *WORKERS):
        count = CELLS if workers == max(WORKERS) else 12 * workers
        place = folder / str(workers)
        sleeping(place, count)
        with RayNodes(place, {"host": 1}, cpus=0) as nodes:
            for number in range(workers):
                nodes.add(f"worker{number}")
            began = time.monotonic()
            with (place / "log").open("wb") as log:
                command = [sys.executable, "-P", "-c", UNTIL, nodes.address]
                code = subprocess.run(command, cwd=place, stdout=log, stderr=log).returncode
            took_s = time.monotonic() - began
        told = [row for row in rows(place / "out") if row.get("stage") == "data"]
        spent = [row["ended"] - row["began"] for row in told]
        begin, end = min(row["began"] for row in told), max(row["ended"] for row in told)
        rates[workers] = len(told) / (end - begin)
        overheads += [seconds - SLEEP_S for seconds in spent]
        print(f"{workers} workers: {len(told)} cells in {took_s:.0f} s, exit code {code}", file=sys.stderr, flush=True)
    shares = {workers: rates[workers] / (workers * rates[1]) for workers in WORKERS}
    overhead = statistics.median(overheads)
    driver_s = max(0.0, 1 / rates[max(WORKERS)] - (SLEEP_S + overhead) / max(WORKERS))
    return {
        "cells_per_minute": {workers: 60 * rate for workers, rate in rates.items()},
        "share_of_linear": shares,
        "overhead_of_a_stage_s": overhead,
        "driver_s_of_a_cell": driver_s,
        # on paper: a cell takes its sleep and the overhead, spread over 64 workers, and the driver's time
        "1000_cells_on_64_workers_min": 1000 * max((SLEEP_S + overhead) / 64, driver_s) / 60,
        "failed": min(shares.values()) < LINEAR,
    }


def sleeping(folder: Path, count: int) -> None:
    """A matrix of cells that sleep, each for itself."""
    folder.mkdir()
    made = nulls.make(folder / "net")
    sources = []
    for number in range(count):
        (folder / f"slow{number}.py").write_text(SLOW.format(seconds=SLEEP_S), encoding="utf-8")
        sources.append(f'[[source]]\nname = "s{number}"\nmodel = "net/net.null"\ndata = "slow{number}:data"\n')
    (folder / "matrix.toml").write_text(f'targets = ["{made["target"]}"]\n' + "".join(sources), encoding="utf-8")


# --------------------------------------------------------------------------- look-ups


def lookups(folder: Path) -> dict[str, Any]:
    store = Store(folder / "store")
    first = None
    for number in range(ENTRIES):  # as a run stores them
        parts = {"call": "techniques.x:apply", "options.number": number}
        scratch = store.scratch(key_of(parts))
        (scratch / "artifact/a.bin").write_bytes(b"%d" % number)
        Artifact(scratch / "artifact", "null").write()
        receipt = {"stage": f"s{number % 40}", "wall_s": 1.0, "log": "", "files": {}, "modules": []}
        entry = store.commit(scratch, parts, receipt)  # type: ignore[arg-type]
        store.remember(f"scope{number // 40}:s{number % 40}", parts, entry.receipt)
        first = first or parts
    again = Store(folder / "store")
    found_ms, missed_ms = [], []
    for number in range(0, ENTRIES, ENTRIES // 200):
        parts = {"call": "techniques.x:apply", "options.number": number}
        found_ms.append(timed(lambda parts=parts: again.find(parts)))
        missed_ms.append(timed(lambda parts=parts: again.find({**parts, "more": 1})))
    expected_ms = timed(lambda: Store(folder / "store").expected_s("other:s1"))
    worst = max(*found_ms, *missed_ms)
    return {
        "entries": ENTRIES,
        "found_ms": statistics.median(found_ms),
        "missed_ms": statistics.median(missed_ms),
        "worst_ms": worst,
        "first_estimate_ms": expected_ms,
        "failed": worst >= LOOKUP_MS,
    }


def timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


# --------------------------------------------------------------------------- a loop of deploys


def loop(folder: Path) -> dict[str, Any]:
    nets = {**REAL, "digits": "edgecompress/demo/source.toml"}
    targets = ("android", "ios", "web")
    real = "".join(f'[[source]]\nname = "{n}"\nmodel = "{ROOT / p}"\n' for n, p in nets.items())
    listed = ", ".join(f'"{target}"' for target in targets)
    matrix = f'targets = [{listed}]\nprofiles = ["quick"]\nonly = ["int8", "fp16", "fp32"]\n{real}'
    (folder / "matrix.toml").write_text(matrix, encoding="utf-8")
    code, sweep_s = edgecompress(["sweep", "matrix.toml", "--store", "store-sweep", "--out", "out"], folder)
    took: dict[str, float] = {}
    for way in ("shared", "own"):
        took[way] = 0.0
        for name, path in nets.items():
            for target in targets:
                store = "store-shared" if way == "shared" else f"store-{name}-{target}"
                words = ["deploy", str(ROOT / path), "--target", target, "--profile", "quick", "--store", store]
                only = ["--only", {"android": "int8,fp16,fp32", "ios": "fp16,fp32", "web": "int8,fp32"}[target]]
                took[way] += edgecompress([*words, *only, "--out", f"{way}/{name}/{target}"], folder)[1]
    return {
        "cells": len(nets) * len(targets),
        "exit_code": code,
        "sweep_s": sweep_s,
        "loop_with_one_store_s": took["shared"],
        "loop_with_own_stores_s": took["own"],
        "times_as_fast": {way: seconds / sweep_s for way, seconds in took.items()},
        "failed": code not in (0, 1, 4),
    }


if __name__ == "__main__":
    sys.exit(main())
