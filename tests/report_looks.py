"""Synthetic inputs for what a device adds to a report: traces, passes, counts, agreement; none of it a measurement."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import report_inputs
from report_inputs import ENVIRONMENT, MEDIANS, options, write

from edgecompress.core.model import Artifact, Context, Dim, Measured, Request, TensorSpec

RASPBERRY = {
    "name": "rpi5",
    "description": "a synthetic board",
    "transport": "ssh",
    "sensors": ["rpi5_pmic"],
    "options": {"host": "board"},
}
NOW = {"before": {"cpu_mhz": 1500.0, "temperature_c": 41.2, "loadavg": [0.02, 0.1, 0.1]}}
NOW |= {"after": {"cpu_mhz": 2400.0, "temperature_c": 63.9, "loadavg": [1.02, 0.6, 0.3]}}
RUNTIME = {"runtime": "onnx", "versions": {"onnxruntime": "1.31.1"}, "python": "3.11.2", "threads": 1}
BOARD = {**ENVIRONMENT, "board": "Synthetic Board Rev 1.0", "cpu": "Cortex-A76", "governor": "ondemand"}
BOARD |= {"kernel": "6.6.31", "machine": "aarch64", "features": ["asimd", "asimddp"], "memory_bytes": 8 << 30}
BOARD |= {"now": NOW, "virtual": None, "runtimes": {"int8": RUNTIME, "fp32": RUNTIME}}
PAIR = ("int8", "openvino-fp32")


# ------------------------------------------------------------------ energy with its trace


def joules(value: float | None, status: str = "measured", reason: str = "") -> dict[str, Any]:
    same = {"source": "rpi5_pmic", "scope": "board", "reason": reason}
    status = status if value is not None else "unavailable"
    return dataclasses.asdict(Measured("energy", value, "J", status, **same))  # type: ignore[arg-type]


def energy_answer(name: str, samples: int = 9000, status: str = "measured") -> dict[str, Any]:
    """What an agent answers: idle, three windows, idle, and samples with one spike."""
    rng, busy, spans, at = random.Random(name), 4.1 + MEDIANS[name], [], 1000.0
    for kind, seconds in (("idle", 5.0), ("window", 10.0), ("window", 10.0), ("window", 10.0), ("idle", 5.0)):
        watts = 2.6 if kind == "idle" else busy
        n = int(seconds / MEDIANS[name] * 1e3) if kind == "window" else 0
        spans.append((kind, {"n": n, "begin_s": at, "seconds": seconds, "energy": joules(watts * seconds, status)}))
        at += seconds + 0.02
    at -= 0.02
    times = [1000.0 + i * (at - 1000.0) / samples for i in range(samples)]
    watts_at = [2.6 if t < 1005 or t > at - 5.0 else busy for t in times]
    power = [w + rng.gauss(0, 0.08) for w in watts_at]
    if samples:
        power[samples // 2] = 9.9
    found: dict[str, Any] = {"why_not": "", "warm": True, "trace": {"t_s": times, "watts": power}}
    return found | {
        k: [s for kind, s in spans if kind == word] for k, word in (("idle", "idle"), ("windows", "window"))
    }


def energy_facts(status: str = "measured") -> dict[str, Any]:
    """The figures that such answers give."""
    found = {}
    for name in PAIR:
        watts = 4.1 + MEDIANS[name]
        gross = watts * MEDIANS[name]
        same = {"status": status, "n": 3, "source": "rpi5_pmic", "scope": "board"}
        numbers = [("energy_gross", gross, "mJ"), ("energy_net", gross - 2.6 * MEDIANS[name], "mJ")]
        numbers += [("inferences_per_joule", 1e3 / gross, "1/J"), ("power", watts, "W")]
        made = [Measured(m, v, u, low=0.98 * v, high=1.02 * v, **same) for m, v, u in numbers]  # type: ignore[arg-type]
        found[name] = [dataclasses.asdict(m) for m in made]
    return {"variants": found, "sensor": "rpi5_pmic", "why_not": {}}


def energy(folder: Path, status: str = "measured", samples: int = 9000) -> Artifact:
    """The artifact, with each variant's answer beside its card."""
    files = {f"{name}.json": json.dumps(energy_answer(name, samples, status)).encode() for name in PAIR}
    return write(folder, "energy", energy_facts(status), files)


# ------------------------------------------------------------------ passes


def a_pass(folder: Path, name: str, variants: Mapping[str, Any], **given: Any) -> Artifact:
    return write(folder, "pass", {"pass": name, "options": given, "variants": variants})


def sustained(name: str, throttles: bool = False) -> dict[str, Any]:
    """Thirty windows of ten seconds; after a third of them the clock falls."""
    rate, rows = 1e3 / MEDIANS[name], []
    for i in range(30):
        slow = 1 - 0.28 * min(1.0, max(0, i - 9) / 6) if throttles else 1.0
        now = rate * slow * (1 + 0.004 * math.sin(i))
        row = {"t_s": 10.0 * i, "seconds": 10.0, "runs": int(10 * now), "median_ms": 1e3 / now, "p95_ms": 1.05e3 / now}
        told = {"cpu_mhz": 2400 * slow - i % 3, "temperature_c": 45 + min(38, 2.6 * i), "power_w": None}
        rows.append({**row, "items_per_s": now, **told})
    ends = {"burst": rows[:3], "sustained": rows[-8:]}
    parts = {
        k: {"windows": len(r), "items_per_s": r[1]["items_per_s"], "median_ms": r[1]["median_ms"]}
        for k, r in ends.items()
    }
    ratio = parts["sustained"]["items_per_s"] / parts["burst"]["items_per_s"]
    why = f"the last quarter does {ratio:.1%} of the first windows' items per second"
    flag = {
        "flagged": throttles,
        "reason": why,
        "p": 0.003,
        "evidence": ["clock 2400 to 1728 MHz"] if throttles else [],
    }
    same = {"seconds": 300, "every_s": 10, "batch": 1, "warm": True, "warmup_s": 3.0, "series": rows, **parts}
    quiet = {
        "clock_reason": "",
        "temperature_reason": "",
        "power": {"status": "unavailable", "source": "", "scope": "", "reason": "none"},
    }
    return {**same, "ratio": ratio, "throttling": flag, **quiet, "environment": RUNTIME}


def periodic(name: str) -> dict[str, Any]:
    rng, ms = random.Random(name), MEDIANS[name]
    times = [ms * (1 + abs(rng.gauss(0, 0.05))) for _ in range(600)]
    times[300:305] = [41.0, 36.0, 24.0, 12.0, 2.0]
    spread = {"p50": 1.02 * ms, "p95": 1.1 * ms, "p99": 12.0, "max": 41.0}
    unknown = dataclasses.asdict(Measured("power", None, "W", "unavailable", reason="the device names no sensor"))
    mj = dataclasses.asdict(Measured("energy_per_period", 86.0, "mJ", "estimated", 1, 60.0, 110.0, "model", "board"))
    found = {"rate_hz": 30.0, "period_ms": 1e3 / 30, "seconds": 20.0, "batch": 1, "due": 600, "n": 600}
    found |= {
        "response_ms": spread,
        "service_ms": {**spread, "max": 38.0},
        "wake_ms": {"p50": 0.06, "p95": 0.1, "p99": 0.2, "max": 0.4},
    }
    found |= {"floor": False, "saturated": False, "missed": 2, "missed_share": 2 / 600, "duty": ms * 30 / 1e3}
    return {
        **found,
        "responses_ms": times,
        "every": 1,
        "energy_per_period": mj,
        "power": unknown,
        "environment": RUNTIME,
    }


def throughput(name: str) -> dict[str, Any]:
    rows = []
    for batch in (1, 2, 4, 8, 16):
        ms = MEDIANS[name] * batch / (batch / (1 + batch / 5)) / 1.2 * 1.0
        mj = dataclasses.asdict(
            Measured("energy_per_item", 4 * ms / batch, "mJ", "measured", 1, source="rpi5_pmic", scope="board")
        )
        row = {"batch": batch, "runs": 900, "items_per_s": 1e3 * batch / ms, "median_ms": ms, "p95_ms": 1.1 * ms}
        rows.append({**row, "ms_per_item": ms / batch, "energy_per_item": mj})
    named = {"knee": {"batch": 8, "items_per_s": rows[3]["items_per_s"], "reason": "near the most"}}
    named["best"] = {"batch": 16, "items_per_s": rows[4]["items_per_s"]}
    return {"rows": rows, **named, "left_out": {"64": "the artifact takes batches up to 16"}, "fixed": "", "batch": 1}


def cold(name: str) -> dict[str, Any]:
    def times(slow: float) -> dict[str, Any]:
        all_ms = {
            "import_ms": 210.0,
            "load_ms": 18 * slow,
            "first_ms": 3 * slow * MEDIANS[name],
            "second_ms": MEDIANS[name],
        }
        all_ms |= {"ready_ms": all_ms["load_ms"] + all_ms["first_ms"]}
        all_ms |= {"total_ms": all_ms["import_ms"] + all_ms["ready_ms"]}
        return {key: {"median": ms, "min": 0.97 * ms, "max": 1.1 * ms} for key, ms in all_ms.items()}

    summary = {"warm": times(1.0), "dropped": times(2.6) if name == "int8" else None}
    starts = [{"cache": "warm", **{key: t["median"] for key, t in times(1.0).items()}}]
    said = (
        {"dropped": "the artifact's files", "dropped_reason": ""}
        if name == "int8"
        else {"dropped": "", "dropped_reason": "a file system in memory"}
    )
    return {"starts": starts, "summary": summary, **said, "batch": 1}


def memory(name: str) -> dict[str, Any]:
    """A load that peaks and falls."""
    base, size, points = 48 << 20, 4 * report_inputs.SIZES[name], []
    for i in range(400):
        t = i * 0.005
        over = 0 if t < 0.2 else size * 2 if t < 0.5 else size
        phase = "before" if t < 0.2 else "load" if t < 0.5 else "first inference" if t < 0.55 else "steady"
        points.append({"t_s": t, "rss_bytes": base + over, "phase": phase})
    phases = []
    for phase, begin, end, runs in (
        ("before", 0.0, 0.2, 0),
        ("load", 0.2, 0.5, 0),
        ("first inference", 0.5, 0.55, 1),
        ("steady", 0.55, 2.0, 4000),
    ):
        own = [p["rss_bytes"] for p in points if p["phase"] == phase]
        told = {
            "end_bytes": own[-1],
            "anon_bytes": own[-1] // 2,
            "file_bytes": own[-1] - own[-1] // 2,
            "peak_bytes": max(own),
        }
        phases.append({"name": phase, "begin_s": begin, "end_s": end, "runs": runs, **told})
    ends = {"baseline_bytes": base, "peak_over_bytes": 2 * size, "reason": "", "split_reason": ""}
    return {"every_ms": 5.0, "gap_ms": 5.0, "timeline": points, "phases": phases, **ends, "batch": 1}


OPS = (
    ("/conv0", "Conv", 0.11),
    ("/conv1", "Conv", 0.06),
    ("/add", "Add", 0.05),
    ("/gemm", "Gemm", 0.004),
    ("/odd", "Odd", 0.01),
)


def roofline(name: str) -> dict[str, Any]:
    compute = {"gflops": 38.4, "dtype": "float32", "runs": 20, "method": "matrix products", "reason": ""}
    bandwidth = {
        "gb_per_s": 11.2,
        "copy_gb_per_s": 11.2,
        "triad_gb_per_s": 10.1,
        "array_bytes": 1 << 27,
        "cache_bytes": 1 << 21,
    }
    ops = [{"name": n, "type": kind, "ms": ms, "where": "CPU"} for n, kind, ms in OPS]
    roofs = {
        "threads": 1,
        "compute": compute,
        "int8": {"gops": None, "reason": "no"},
        "bandwidth": {**bandwidth, "method": "copy", "reason": ""},
    }
    return {**roofs, "batch": 1, "ridge_flops_per_byte": 38.4 / 11.2, "ops": ops, "why": "", "fallback": []}


def net(folder: Path) -> Artifact:
    """A real ONNX file whose operators bear the names of OPS: its costs can be counted."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def weights(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(np.zeros(shape, np.float32), name)

    nodes = [
        helper.make_node("Conv", ["image", "w0"], ["a"], "/conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w1"], ["b"], "/conv1"),
        helper.make_node("Add", ["a", "b"], ["c"], "/add"),
        helper.make_node("Flatten", ["c"], ["d"], "/flatten"),
        helper.make_node("Gemm", ["d", "w2"], ["logits"], "/gemm"),
    ]
    constants = [weights("w0", 16, 3, 3, 3), weights("w1", 16, 16, 1, 1), weights("w2", 16 * 32 * 32, 10)]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("image", [1, 3, 32, 32]), ("logits", [1, 10]))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "net", ends[:1], ends[1:], constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    specs = (TensorSpec("image", (Dim("batch", 1, 1), 3, 32, 32)),), (TensorSpec("logits", (Dim("batch", 1, 1), 10)),)
    return Artifact(folder, "onnx", *specs).write()


PASSES = {"periodic": periodic, "throughput": throughput, "cold": cold, "memory": memory, "roofline": roofline}


def passes(folder: Path) -> dict[str, Artifact]:
    """All passes of both finalists; the slower one throttles, and crashed in the last pass."""
    found = {f"pass/{name}": a_pass(folder / name, name, {v: make(v) for v in PAIR}) for name, make in PASSES.items()}
    series = {"int8": sustained("int8"), "openvino-fp32": sustained("openvino-fp32", throttles=True)}
    found["pass/sustained"] = a_pass(folder / "sustained", "sustained", series, seconds=300)
    return found | {"pass/odd": a_pass(folder / "odd", "odd", {"int8": {"crashed": "signal 9; log: odd.log"}})}


# ------------------------------------------------------------------ agreement and counts


def agreement(folder: Path, moved: float | None, limit: float | None = 0.05) -> Artifact:
    ok = None if limit is None else moved is not None and moved <= limit
    says = (
        "output 'logits' holds NaN"
        if moved is None
        else f"output 'logits' on the device is {100 * moved:.3g} % from that of the same artifact on this machine"
    )
    check = {"name": "on_device", "ok": ok, "value": moved, "limit": limit, "says": says}
    output = {
        "name": "logits",
        "moved": moved,
        "reason": "" if moved is not None else "holds NaN",
        "operator": "" if ok else "/conv1 (Conv)",
    }
    facts = {"outputs": [output], "checks": [check], "limit": limit, "environment": BOARD}
    return write(folder, "agreement", {**facts, **({"lost": says} if ok is False else {})})


COUNTS = {
    "int8": {"instructions": 204_172, "classes": {"dot_i8": 62_528, "mlal": 3_120, "fmla_f32": 812, "sve": 0}},
    "fp32": {"instructions": 477_520, "classes": {"dot_i8": 0, "mlal": 0, "fmla_f32": 251_904, "sve": 0}},
}


def counted(classes: Mapping[str, Mapping[str, Any]] = COUNTS, apart: int = 0) -> dict[str, Any]:
    """The facts of a count; `apart`: by how much the last process differs."""
    found = {}
    for name, row in classes.items():
        n = row["instructions"]
        same = {"overhead": 1406, "processes": [n, n, n + apart], "identical": not apart, "runs": 5}
        found[name] = {**row, **same}
    return {
        "variants": found,
        "order": list(found),
        "sensor": "instructions",
        "status": "simulated",
        "environment": BOARD,
    }


# ------------------------------------------------------------------ whole requests


def on_a_board(folder: Path, **changes: Any) -> Request:
    """A deploy measured on a board, with everything that a profile can ask for."""
    given = report_inputs.request(folder, device=RASPBERRY, **changes)
    more = {
        "energy": energy(folder / "energy-of-board"),
        **passes(folder / "passes"),
        "int8/artifact": net(folder / "net"),
    }
    more |= {
        "int8/agree": agreement(folder / "agree-int8", 0.003),
        "openvino-fp32/agree": agreement(folder / "agree-fp32", 0.0),
    }
    rounds = {role: a for role, a in given.inputs.items() if a.kind == "round"}
    for role, a in rounds.items():
        files = {f.name: f.read_bytes() for f in a.files()}
        more[role] = write(folder / f"{role}-on-board", "round", {**a.facts, "environment": BOARD}, files)
    return Request({**given.inputs, **more}, given.out, given.options, given.context)


def simulated(folder: Path, facts: Mapping[str, Any] | None = None) -> Request:
    """A deploy to an emulated device: instructions, and not one latency."""
    given = report_inputs.request(folder, sessions=1, runs=30)
    kept = {role: a for role, a in given.inputs.items() if a.kind != "round" and role not in ("energy", "ops")}
    kept = {role: a for role, a in kept.items() if "/" not in role or role.split("/")[0] in COUNTS}
    kept["count"] = write(folder / "count", "count", facts or counted())
    kept["int8/agree"] = agreement(folder / "agree", 0.003)
    device = {
        "name": "qemu-cortex-a76",
        "description": "an emulated core",
        "transport": "qemu",
        "sensors": ["instructions"],
    }
    target = {
        **given.options["target"],
        "variant": [v for v in given.options["target"]["variant"] if v["name"] in COUNTS],
    }
    table = {
        "int8": {"verdict": "shipped", "reason": "the fewest instructions per inference", "instructions": 204_172},
        "fp32": {"verdict": "slower", "reason": "2.34x the instructions of int8 (simulated)", "instructions": 477_520},
    }
    choice = {"variant": "int8", "reason": "the fewest instructions", "table": table}
    asked = options(device=device, target=target, choice=choice) | {"profile": {"name": "quick", "sessions": 1}}
    asked["outcomes"] = [o for o in asked["outcomes"] if not o["variant"]]
    return Request(kept, given.out, asked, Context())
