"""Synthetic inputs for what pruning, low rank and training tell a report; no number of it is a measurement."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import report_inputs
from report_inputs import options, write

from edgecompress.core.model import Artifact, Context, Request

PRUNED = ("pruned-int8", "sparse-int8", "low-rank-int8")
MEDIANS = {"pruned-int8": 0.1705, "sparse-int8": 0.3008, "low-rank-int8": 0.2707, "int8": 0.3004, "fp32": 0.8213}
SIZES = {"pruned-int8": 271_000, "sparse-int8": 498_000, "low-rank-int8": 402_000, "int8": 498_000, "fp32": 1_870_000}
RIGHT = {"pruned-int8": 458, "sparse-int8": 461, "low-rank-int8": 459, "int8": 463, "fp32": 462}
STEPS: dict[str, list[dict[str, Any]]] = {
    "pruned-int8": [{"use": "prune_channels", "latency_ratio": 0.6}, {"use": "finetune"}, {"use": "int8"}],
    "sparse-int8": [{"use": "prune_nm"}, {"use": "finetune"}, {"use": "int8"}],
    "low-rank-int8": [{"use": "low_rank"}, {"use": "int8"}],
    "int8": [{"use": "int8"}],
    "fp32": [],
}


# ------------------------------------------------------------------ what the techniques tell


def groups() -> list[dict[str, Any]]:
    """A ResNet of three stages of five blocks: two blocks gone whole, the wider ones halved, in blocks of 16."""
    found = []
    for stage, width in ((1, 16), (2, 32), (3, 64)):
        for block in range(5):
            kept = {1: 0 if block in (2, 3) else 16, 2: 16, 3: 32 if block else 48}[stage]
            name = f"layer{stage}.{block}.conv1"
            told = {"name": name, "layers": [name], "channels": width, "kept": kept, "class": f"layer{stage}.*.conv1"}
            found.append({**told, "whole_block": not kept})
    return found


def pruned(first: int = 69_124_736, last: int = 34_735_000) -> dict[str, Any]:
    """Facts of prune_channels."""
    residual = "its channels are added to those of layer1.0.conv2, which no 1 x 1 convolution carries over"
    return {
        "groups": groups(),
        "refused": {"conv1": residual, "fc": "its channels are an output of the model"},
        "macs": {"before": first, "after": last, "source": 69_124_736},
        "parameters": {"before": 464_154, "after": 238_410, "source": 464_154},
        "align": 16,
        "criterion": "l2",
        "scope": "sensitivity",
    }


def trained(epochs: int = 12, split: str = "train", start: float = 0.71) -> dict[str, Any]:
    """Facts of finetune: the loss falls, the score climbs to what the dense net had."""
    rng, rows = random.Random(epochs), []
    for epoch in range(1, epochs + 1):
        done = epoch / epochs
        select = start + (0.917 - start) * (1 - (1 - done) ** 3) + rng.uniform(-0.004, 0.004)
        loss = 0.9 * (1 - done) ** 2 + 0.21 + rng.uniform(0, 0.02)
        rows.append({"epoch": epoch, "lr": 0.05 * (1 - done) + 1e-4, "loss": loss, "select": round(select, 3)})
    told = {"epochs": rows, "samples": 24_000 if split == "train" else 200, "split": split, "batch_size": 128}
    return {**told, "device": "cpu", "amp": "bfloat16", "distill": 0.9, "metric": "top1", "log": "TensorBoard"}


def sparse(kind: str = "2:4") -> dict[str, Any]:
    """Facts of prune_nm: all but the first convolution and the head."""
    rows = [
        {"name": "conv1", "elements": 432, "zeros": 0, "pruned": False, "why": "3 inputs to a sum, no multiple of 4"}
    ]
    for stage, width in ((1, 16), (2, 32), (3, 64)):
        for block in range(5):
            n = 9 * width * width
            row = {"elements": n, "zeros": n // 2, "pruned": True, "why": ""}
            rows.append({"name": f"layer{stage}.{block}.conv1", **row})
    total = {key: sum(row[key] for row in rows) for key in ("elements", "zeros")}
    return {"sparsity": {"kind": kind, "rows": rows, "total": total}}


def stored() -> dict[str, Any]:
    """Facts of what the zeros of the sparse variant save."""
    sizes = {"dense": 460_000, "bitmask": 289_000, "csr": 470_000, "zstd": 301_000, "bitmask+zstd": 281_000}
    total = {"elements": 460_000, "zeros": 229_000, "bytes": sizes, "best_bytes": 279_500}
    return {"kind": "tflite", "rows": [], "total": total, "packed": [], "files": {"bytes": 512_000, "zstd": 330_000}}


def factorized() -> dict[str, Any]:
    """Facts of low_rank: the last stage by Tucker-2, the head by SVD."""
    layers = [
        {
            "name": f"layer3.{block}.conv2",
            "method": "tucker",
            "shape": [64, 64, 3, 3],
            "ranks": [32, 32],
            "macs": [2_359_296, 851_968],
            "parameters": [36_864, 13_312],
            "error": 0.31 + 0.02 * block,
        }
        for block in range(5)
    ]
    layers.append({"name": "fc", "method": "svd", "shape": [10, 64], "ranks": [8], "macs": [640, 592]})
    layers[-1] |= {"parameters": [650, 602], "error": 0.052}
    whole = {"macs": {"before": 69_124_736, "after": 61_588_048}, "parameters": {"before": 464_154, "after": 346_346}}
    return {"layers": layers, "kept": {"conv1": "already smaller than any of its factors"}, **whole}


def made(technique: str, facts: Mapping[str, Any], reason: str = "") -> dict[str, Any]:
    return {"technique": technique, "status": "lost" if reason else "ok", "reason": reason, "facts": dict(facts)}


MADE = {
    "pruned-int8": [
        made("prune_channels", pruned()),
        made("finetune", trained()),
        made("litert_int8", {"layers": ["x"]}),
    ],
    "sparse-int8": [
        made("prune_nm", sparse()),
        made("finetune", trained(4, "calibrate", 0.88)),
        made("litert_int8", {}),
        made("storage", stored()),
    ],
    "low-rank-int8": [made("low_rank", factorized()), made("litert_int8", {})],
    "int8": [made("litert_int8", {})],
    "fp32": [],
}


# ------------------------------------------------------------------ how a strength was found


def fit(**changes: Any) -> dict[str, Any]:
    """A fit that met its goal with its third trial."""
    at = "pruned-int8/prune_channels/trial-"
    widths = {g["name"]: g["kept"] for g in groups()}
    tried = [(0.6, 0.655), (0.5221, None), (0.5643, 0.5674)]
    trials = [{"stage": f"{at}{i}", "keep": k, "ratio": r} for i, (k, r) in enumerate(tried, 1)]
    for trial, kept in zip(trials, ({**widths, "layer1.2.conv1": 16}, {}, widths), strict=True):
        reason = "" if kept else "prune_channels leaves at least 0.540 of the latency, 0.522 may stay"
        trial |= {"kept": kept, "reason": reason}
    saved = {"layer1.*.conv1@0": 0.231, "layer2.*.conv1@16": 0.164, "layer2.*.conv1@0": 0.301}
    saved |= {"layer3.*.conv1@48": 0.052, "layer3.*.conv1@32": 0.118, "layer3.*.conv1@16": 0.149, "fc@8": -0.004}
    told = {
        "goal": {"quantity": "ratio", "value": 0.6},
        "ratio": 0.6,
        "least": 0.54,
        "status": "measured",
        "simulated": "",
    }
    told |= {"chosen": f"{at}3", "reason": "0.567 of the dense latency, asked for 0.6", "saved": saved}
    return told | {"runtime": "litert", "dense_ms": 0.3011, "crashed": {}, "trials": trials} | changes


def neighbours() -> dict[str, Any]:
    """A fit between whose two nearest widths the goal lies."""
    told = fit()
    for trial, ratio in zip(told["trials"], (0.6521, None, 0.5112), strict=True):
        trial["ratio"] = ratio
    why = "no width between: 0.511 of the dense latency, the next wider one 0.652, asked for 0.6"
    return {**told, "reason": why}


def simulated_fit() -> dict[str, Any]:
    """A fit by instructions."""
    return fit(status="simulated", simulated="emulated arm64 (QEMU)", dense_ms=None)


FITS = {"pruned-int8/prune_channels": fit()}


# ------------------------------------------------------------------ whole requests


def a_round(folder: Path, number: int, runs: int) -> Artifact:
    """One session of each variant."""
    rng = random.Random(number)
    speed = 1 + 0.01 * rng.uniform(-1, 1)
    variants, files = {}, {}
    for name, ms in MEDIANS.items():
        base = ms * speed * (1 + 0.006 * rng.uniform(-1, 1))
        times = [base * (1 + abs(rng.gauss(0, 0.012))) for _ in range(runs)]
        facts = report_inputs.round_facts("int8", times)
        facts["memory"] = {**facts["memory"], "artifact_bytes": SIZES[name]}
        variants[name] = facts
        files[f"{name}.json"] = json.dumps({"latencies_ms": times}).encode()
    return write(folder, "round", {"variants": variants, "environment": report_inputs.ENVIRONMENT}, files)


def verdict(folder: Path, name: str) -> Artifact:
    """What verify found: as report_inputs, with these counts."""
    found = report_inputs.verdict(folder, "int8")
    metric = {**found.facts["metric"], "before": 462 / 500, "after": RIGHT[name] / 500}
    lost = 462 - RIGHT[name]
    metric |= {"items_lost": max(lost, 0) + 2, "items_gained": 2 + max(-lost, 0), "net_lost": lost}
    return write(folder, "verdict", {**found.facts, "metric": metric})


def target() -> dict[str, Any]:
    """vector-avx512 with two variants more."""
    variants = [{"name": n, "runtime": "litert", "compress": STEPS[n], "reference": n == "fp32"} for n in MEDIANS]
    return {"name": "vector-avx512", "runtime": "litert", "variant": [{**v, "export": {}} for v in variants]}


def request(folder: Path, sessions: int = 6, runs: int = 200, **changes: Any) -> Request:
    """A deploy of a pruned, a sparse and a factorized net beside the dense one in int8."""
    inputs = {"samples": write(folder / "samples", "samples", report_inputs.SAMPLES)}
    for name in MEDIANS:
        inputs[f"{name}/artifact"] = write(folder / name, "tflite", {}, {"model.tflite": bytes(SIZES[name])})
        inputs[f"{name}/verdict"] = verdict(folder / f"{name}-verdict", name)
    for number in range(1, sessions + 1):
        inputs[f"round-{number}"] = a_round(folder / f"round-{number}", number, runs)
    table = {
        n: {
            "verdict": "slower",
            "reason": f"{ms / MEDIANS['pruned-int8']:.2f}x the time of pruned-int8",
            "runtime": "litert",
        }
        for n, ms in MEDIANS.items()
    }
    why = "the fastest that keeps the budget"
    table["pruned-int8"] |= {"verdict": "shipped", "reason": why}
    choice = {"variant": "pruned-int8", "reason": why, "table": table}
    told = {"target": target(), "choice": choice, "outcomes": [], "made": MADE, "fits": FITS}
    profile = {"name": "standard", "sessions": sessions, "warmup_s": 3.0, "window_s": 10.0}
    (folder / "out").mkdir()
    return Request(inputs, folder / "out", options(**told, profile=profile) | changes, Context())
