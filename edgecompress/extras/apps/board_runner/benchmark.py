"""N inferences of the golden input, one by one, as the JSON that `edgecompress report --add` reads."""

from __future__ import annotations

import datetime
import gc
import time
from pathlib import Path

from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import digest
from edgecompress.device import machine
from edgecompress.extras.apps import golden
from edgecompress.extras.apps.board_runner.predictor import PAYLOAD, Predictor

SCHEMA = "edgecompress/measured/1"
LEAST, MOST = 20, 1_000_000  # inferences
WARM = 10  # before those that count


def measured(opened: Predictor, root: Path, runs: int, passed: bool) -> dict[str, object]:
    """The measurement; `passed`: the self-test passed. Raises InputError for too few or too many runs."""
    if not LEAST <= runs <= MOST:
        raise InputError(f"benchmark: {runs} inferences is out of range; give {LEAST} to {MOST}")
    card, started = opened.card, datetime.datetime.now(datetime.UTC)
    here = machine.facts(machine.here())
    return {
        "schema": SCHEMA,
        "model": {"name": card["name"], "sha256": digest(card)},
        "runtime": {"name": card["runtime"]["name"], "version": card["runtime"]["version"]},
        "device": {
            "name": here["board"] or here["cpu"] or here["machine"],
            "platform": here["platform"],
            "os": here["os"],
            "cpu": here["cpu"] or "",
            "cores": here["cores"],
            "browser": None,
        },
        "run": {
            "threads": opened.threads,
            "batch": 1,
            "warmup": WARM,
            "started": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        "self_test": "pass" if passed else "fail",
        "latencies_ns": _latencies(opened, root, runs),
        "clock": "time.perf_counter_ns",
        "clock_step_ns": max(1, round(time.get_clock_info("perf_counter").resolution * 1e9)),
    }


def _latencies(opened: Predictor, root: Path, runs: int) -> list[int]:
    """Nanoseconds of each inference; nothing but the clock stands around it."""
    inputs = {item["name"]: golden.load(root / PAYLOAD, item) for item in opened.card["golden"]["inputs"]}
    for _ in range(WARM):
        opened.session.run(inputs)
    latencies, run, clock = [], opened.session.run, time.perf_counter_ns
    gc.collect()
    gc.disable()
    for _ in range(runs):
        begin = clock()
        run(inputs)
        latencies.append(clock() - begin)
    gc.enable()
    return latencies
