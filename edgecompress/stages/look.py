"""The passes of a profile: one more look at each of the last two variants, in an agent of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgecompress import registry
from edgecompress.errors import EdgeError
from edgecompress.model import Artifact, Request
from edgecompress.stages.measure import SLACK, START_S, Bench, connected, named, raise_if_all_crashed, variants


def run(request: Request) -> Artifact:
    """One pass over each variant, in an agent of its own. options: "pass", "options", "runtimes", "profile".

    Raises StageFailed when every variant crashed.
    """
    with connected(request) as bench:
        found = {variant: _answer(bench, variant) for variant in variants(request)}
    raise_if_all_crashed(found)
    facts = {"pass": request.options["pass"], "options": dict(request.options["options"]), "variants": found}
    return Artifact(request.out, "pass", facts=facts).write()


def _answer(bench: Bench, variant: str) -> Mapping[str, Any]:
    """What the pass finds in a variant, or {"crashed": why}."""
    name, options = bench.request.options["pass"], dict(bench.request.options["options"])
    module = registry.load("passes", name)
    deadline_s = START_S + SLACK * float(module.estimate_s(module.Options(**options)))
    asked = {"name": name, "module": module.__name__, "options": options}
    sensors = [named(sensor) for sensor in bench.sensors]
    bench.request.progress(0.0, f"{name} of {variant}")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            more = {"pass": asked, "sensors": sensors}
            return bench.ask("look", variant, Path(scratch), deadline_s, **more)
    except EdgeError as error:
        return {"crashed": str(error)}
