"""The stage that measures each operator."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact, Request
from edgecompress.core.protocols import OperatorTimes
from edgecompress.device.agent.operators import OperatorsAnswer
from edgecompress.stages.device_bench import DeviceBench, connected, variants

OPS_S = 10.0  # the per-operator run of a variant is cut to about so long: some are a thousand times slower


# --------------------------------------------------------------------------- operators


def ops(request: Request) -> Artifact:
    """Milliseconds per operator of each variant, in a run of its own; `total_ms` is their sum, never rescaled.

    A variant that is slow by `options["latency_ms"]` runs fewer times.
    """
    operators = {}
    with connected(request) as bench:
        for variant in variants(request):
            request.progress(0.0, f"operators of {variant}")
            operators[variant] = _ops(bench, variant)
    return Artifact(request.out, "ops", facts={"variants": operators}).write()


class Operators(OperatorTimes):
    """The operators of a variant and the sum of their times."""

    total_ms: float | None


def _ops(bench: DeviceBench, variant: str) -> Operators:
    latency_ms = bench.request.options.get("latency_ms", {}).get(variant) or 0.0
    runs = bench.profile["ops_runs"]
    if latency_ms:
        runs = min(runs, int(1e3 * OPS_S / latency_ms) + 1)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            request = replace(bench.agent_request("ops", variant), profile={**bench.profile, "ops_runs": runs})
            answer: OperatorsAnswer = bench.ask(request, Path(scratch))
    except EdgeError as error:
        return {"ops": [], "total_ms": None, "why": f"crashed: {error}", "fallback": []}
    total = sum(op["ms"] for op in answer["ops"]) if answer["ops"] else None
    return {"ops": answer["ops"], "total_ms": total, "why": answer["why"], "fallback": answer["fallback"]}
