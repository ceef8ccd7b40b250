"""Synthetic inputs of the report stage: realistic in shape, invented in every number, never a measurement."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgecompress.core.model import Artifact, Context, Dim, Measured, Request, TensorSpec
from edgecompress.reporting import model, report_json

HOSTILE = "</svg><script>alert('1')</script>\"&|`*\x1b[31m\u202eعربي"
MEDIANS = {"int8": 0.302, "openvino-int8": 0.335, "int8-dynamic": 2.9, "fp32": 0.581, "openvino-fp32": 0.552}
SIZES = {
    "int8": 310_482,
    "openvino-int8": 402_110,
    "int8-dynamic": 318_020,
    "fp32": 1_093_412,
    "openvino-fp32": 1_120_008,
}
RIGHT = {"int8": 460, "openvino-int8": 461, "int8-dynamic": 459, "fp32": 462, "openvino-fp32": 462, "fp16-odd": 391}
RUNTIMES = {name: "openvino" if name.startswith("openvino") else "onnx" for name in (*MEDIANS, "fp16-odd", "broken")}
KIND = {"onnx": "onnx", "openvino": "openvino"}
SPECS = (
    (TensorSpec("image", (Dim("batch", 1, 1), 3, 32, 32), layout="NCHW"),),
    (TensorSpec("logits", (Dim("batch", 1, 1), 10)),),
)


def write(folder: Path, kind: str, facts: Mapping[str, Any], files: Mapping[str, bytes] | None = None) -> Artifact:
    """An artifact folder of any kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (files or {}).items():
        (folder / name).write_bytes(content)
    return Artifact(folder, kind, *SPECS, facts=facts).write()


def latencies(name: str, session: int, runs: int, seed: int = 7) -> list[float]:
    """A skewed cloud about the median, a few spikes, a slow drift in one session."""
    rng = random.Random(f"{seed} {name} {session}")
    base = MEDIANS[name] * (1 + 0.008 * rng.uniform(-1, 1))
    drift = 0.04 if session == 3 else 0.0
    times = [base * (1 + drift * i / runs) * (1 + abs(rng.gauss(0, 0.012))) for i in range(runs)]
    for _ in range(max(1, runs // 300)):
        times[rng.randrange(runs)] *= rng.uniform(1.5, 3)
    return times


def round_facts(name: str, times: list[float]) -> dict[str, Any]:
    """What one session says of itself."""
    ordered = sorted(times)
    memory = {
        "artifact_bytes": SIZES[name],
        "arena_bytes": None,
        "arena_reason": "ONNX Runtime does not report its arena",
        "arena_peak": "",
    }
    if name == "int8-dynamic":
        memory |= {"arena_bytes": 49_568, "arena_reason": "", "arena_peak": "relu1 (32,768 bytes) at CONV_2D:3"}
    peak = 31_000_000 + 3 * SIZES[name] + int(1e5 * times[0])
    memory |= {"peak_rss_bytes": peak, "file_backed_bytes": 17_000_000}
    numbers = {
        "median_ms": ordered[len(ordered) // 2],
        "p90_ms": ordered[int(len(ordered) * 0.9)],
        "min_ms": ordered[0],
    }
    numbers |= {
        "p95_ms": ordered[int(len(ordered) * 0.95)],
        "p99_ms": ordered[int(len(ordered) * 0.99)] if len(ordered) > 299 else None,
    }
    numbers |= {"max_ms": ordered[-1], "outliers": sum(t > 1.2 * ordered[len(ordered) // 2] for t in times)}
    numbers |= {
        "mean_ms": sum(times) / len(times),
        "n": len(times),
        "load_ms": 18 + 4 * times[1],
        "first_ms": 3 * times[2],
        "call_ms": None if name == "openvino-fp32" else 0.0041,
        "call_reason": "its runtime has no empty model" if name == "openvino-fp32" else "",
    }
    return {**numbers, "warmup_s": 3.2, "warm": True, "flags": [], "memory": memory}


def a_round(folder: Path, number: int, names: list[str], runs: int) -> Artifact:
    """One session of each variant."""
    raw = {name: latencies(name, number, runs) for name in names}
    facts = {"variants": {name: round_facts(name, times) for name, times in raw.items()}, "environment": ENVIRONMENT}
    return write(
        folder, "round", facts, {f"{n}.json": json.dumps({"latencies_ms": t}).encode() for n, t in raw.items()}
    )


ENVIRONMENT = {
    "cpu": "Synthetic CPU @ 2.0 GHz",
    "cores": 2,
    "features": ["avx512f", "avx512_vnni"],
    "os": "Linux 6.1 x86_64",
    "virtual": "kvm",
    "governor": None,
    "python": "3.11.7",
    "threads": 1,
}


def verdict(folder: Path, name: str, n: int = 500, reason: str = "") -> Artifact:
    """What verify found of one variant."""
    lost, kept = max(0, 462 - RIGHT[name]) + 2, 2
    metric = {"name": "top1", "before": 462 / n, "after": RIGHT[name] / n, "unit": "fraction", "items_lost": lost}
    metric |= {"items_gained": kept, "net_lost": lost - kept, "low": -(lost + 2) / n, "high": 2 / n, "n": n}
    exact = "fp32" in name
    output = {"name": "logits", "max_abs_error": 3.1e-6 if exact else 0.41, "sqnr_db": 119.0 if exact else 28.4}
    output |= {"reason": "", "cosine": 1.0 if exact else 0.99931, "agreement": 1.0 if exact else 0.984}
    check = {
        "name": "items_lost",
        "ok": not reason,
        "value": lost - kept,
        "limit": 5,
        "says": reason or f"net {lost - kept} of 500, limit 5",
    }
    facts: dict[str, Any] = {
        "n": n,
        "outputs": [output],
        "metric": metric,
        "checks": [FINITE, check, OTHER],
        "reasons": {},
        **LEFT.get(name, {"fallback": []}),
    }
    return write(folder, "verdict", facts | ({"lost": reason} if reason else {}))


LEFT: dict[str, dict[str, Any]] = {  # off the accelerator, or why nobody knows
    "int8-dynamic": {
        "fallback": [
            *({"name": f"/layer{i}/pool", "type": "AveragePool", "ms": 0.02, "share": 0.007} for i in range(4)),
            {"name": "/resize", "type": "Resize", "ms": 0.3, "share": 0.104},
        ]
    },
    "openvino-int8": {"reasons": {"fallback": "the per-operator pass broke: no counters"}},
    "fp32": {
        "fallback": [{"name": "/gather", "type": "", "ms": None, "share": None}],
        "reasons": {"fallback": "its runtime tells no times"},
    },
}
FINITE = {"name": "finite", "ok": True, "value": 0, "limit": 0, "says": "every output is finite"}
OTHER = {"name": "metric_ratio", "ok": None, "value": None, "limit": 1.01}
OTHER |= {"says": "metric_ratio is not judged: top1 has no such number"}


def energy_facts(status: str = "estimated") -> dict[str, Any]:
    """Of the two finalists."""
    found = {}
    for name in ("int8", "openvino-fp32"):
        mj = 4.24 * MEDIANS[name]
        band = {"low": mj * 0.5, "high": mj * 1.5}
        same = {
            "status": status,
            "n": 1,
            "source": "power model: a synthetic citation" if status == "estimated" else "rapl",
            "scope": "package",
        }
        numbers = [Measured("energy_gross", mj, "mJ", **band, **same), Measured("energy_net", 0.82 * mj, "mJ", **same)]
        rate = Measured("inferences_per_joule", 1e3 / mj, "1/J", low=1e3 / band["high"], high=1e3 / band["low"], **same)
        found[name] = [dataclasses.asdict(m) for m in (*numbers, rate, Measured("power", 4.24, "W", **same))]
    return {
        "variants": found,
        "sensor": "power_model",
        "why_not": {"rapl": "no /sys/class/powercap/intel-rapl on this machine"},
    }


def ops_facts() -> dict[str, Any]:
    """Per-operator times of the two finalists."""
    kinds = ["Conv"] * 9 + ["Relu"] * 3 + ["Add"] * 3 + ["GlobalAveragePool", "Gemm"]
    found = {}
    for name in ("int8", "openvino-fp32"):
        ops = [
            {
                "name": f"/layer{i // 4}/{kind.lower()}_{i}",
                "type": kind,
                "ms": MEDIANS[name] * (0.14 / (1 + i * 0.4)),
                "where": "CPU",
            }
            for i, kind in enumerate(kinds)
        ]
        found[name] = {"ops": ops, "total_ms": sum(op["ms"] for op in ops), "why": "", "fallback": []}
    slow = [
        {"name": f"/layer{i}/conv_quant", "type": "ConvInteger", "ms": 0.9, "where": "CPU uint8×int8"} for i in range(3)
    ]
    slow.append({"name": "/gemm", "type": "Gemm", "ms": 0.1, "where": "CPU"})
    found["int8-dynamic"] = {"ops": slow, "total_ms": 2.8, "why": "", "fallback": []}
    return {"variants": found}


def options(**changes: Any) -> dict[str, Any]:
    """The stage's options, as a deploy gives them."""
    names = [*MEDIANS, "fp16-odd", "broken"]
    variants = [
        {"name": n, "runtime": RUNTIMES[n], "compress": [], "reference": "fp32" in n, "export": {}} for n in names
    ]
    table = {
        n: {"verdict": "slower", "reason": f"{MEDIANS[n] / 0.302:.2f}x the time of int8", "median_ms": MEDIANS[n]}
        for n in MEDIANS
    }
    table["int8"] = {"verdict": "shipped", "reason": "the fastest that keeps the budget", "median_ms": MEDIANS["int8"]}
    table["fp16-odd"] = {"verdict": "lost", "reason": "net 71 of 500 items lost, limit 5", "median_ms": None}
    table["broken"] = {"verdict": "failed", "reason": "the converter ended with signal 6", "median_ms": None}
    ended = {"variant": "", "status": "ok", "reason": "", "wall_s": 1.4, "log": ".edgecompress/logs/a.log"}
    broken = {
        "stage": "broken/export",
        "variant": "broken",
        "status": "failed",
        "reason": "the converter ended with signal 6",
        "wall_s": 9.0,
        "log": "b.log",
    }
    plain = {
        "title": "Synthetic example: made by the tests, not measured",
        "command": "edgecompress deploy nets:build --target x86",
        "target": {
            "name": "x86",
            "runtime": "onnx",
            "variant": variants,
            "limits": {"items_lost": 5},
            "package": "tar",
        },
        "device": {"name": "host", "description": "a synthetic machine", "sensors": ["rapl", "power_model"]},
        "profile": {"name": "standard", "sessions": 6, "warmup_s": 3.0, "window_s": 10.0},
        "source": {"model": "nets:build", "data": "nets:data", "metric": "top1", "licence": "Apache-2.0"},
        "config": [
            {"key": "context.threads", "value": 1, "origin": "default"},
            {"key": "limits.items_lost", "value": 5, "origin": "targets/x86.toml"},
        ],
        "choice": {"variant": "int8", "reason": "the fastest that keeps the budget", "table": table},
        "outcomes": [
            {"stage": "data", **ended},
            {"stage": "trace", **ended},
            {"stage": "int8/ptq_int8", **ended, "wall_s": 12.9},
            broken,
        ],
        "exit_code": 0,
        "versions": {"edgecompress": "0.1.0", "onnxruntime": "1.31.1"},
        "date": "2026-01-01T12:00:00+00:00",
    }
    return plain | changes


def request(folder: Path, sessions: int = 6, runs: int = 1200, **changes: Any) -> Request:
    """A whole deploy: five raced variants, one lost in verify, one that broke."""
    inputs = {
        "samples": write(folder / "samples", "samples", SAMPLES),
        "source": write(folder / "source", "module", {}, {"w": b"w" * 4000}),
    }
    inputs["golden"] = write(folder / "golden", "golden", {})
    for name in (*MEDIANS, "fp16-odd"):
        inputs |= {f"{name}/{role}": make(folder / name / role, name) for role, make in MAKERS.items()}
    for number in range(1, sessions + 1):
        raced = list(MEDIANS) if number <= 2 else ["int8", "openvino-int8", "openvino-fp32", "fp32"]
        inputs[f"round-{number}"] = a_round(folder / f"round-{number}", number, raced, runs)
    inputs["energy"] = write(folder / "energy", "energy", energy_facts())
    inputs["ops"] = write(folder / "ops", "ops", ops_facts())
    given = options(**changes)
    given["profile"] = given["profile"] | {"sessions": sessions}
    (folder / "out").mkdir()
    return Request(inputs, folder / "out", given, Context())


def _artifact(folder: Path, name: str) -> Artifact:
    return write(folder, KIND[RUNTIMES[name]], {}, {"model.onnx": bytes(SIZES.get(name, 550_000))})


def _verdict(folder: Path, name: str) -> Artifact:
    return verdict(folder, name, reason="net 71 of 500 items lost, limit 5" if name == "fp16-odd" else "")


MAKERS: dict[str, Callable[[Path, str], Artifact]] = {"artifact": _artifact, "verdict": _verdict}
SAMPLES = {
    "splits": {"calibrate": 200, "select": 200, "test": 500},
    "origin": "nets:data",
    "split_by_seed": False,
    "cut": [],
    "random": False,
    "labelled": True,
    "label_names": [],
    "preprocess": None,
}


def written(asked: Request) -> dict[str, Any]:
    """The report.json that the stage writes for a request."""
    table: dict[str, Any] = model.to_json(report_json.report(asked))
    return table
