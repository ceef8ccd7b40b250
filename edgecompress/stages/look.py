"""The passes of a profile: one more look at each of the last two variants, in an agent of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from edgecompress import registry
from edgecompress.errors import EdgeError
from edgecompress.model import Artifact, Request
from edgecompress.stages.measure import SLACK, START_S, connected, named, variants


def run(request: Request) -> Artifact:
    """One pass over each variant, in an agent of its own. options: "pass", "options", "runtimes", "profile"."""
    name, options = request.options["pass"], dict(request.options["options"])
    module = registry.load("passes", name)
    deadline_s = START_S + SLACK * float(module.estimate_s(module.Options(**options)))
    asked = {"name": name, "module": module.__name__, "options": options}
    found = {}
    with connected(request) as bench:
        sensors = [named(s) for s in bench.sensors]
        for variant in variants(request):
            request.progress(0.0, f"{name} of {variant}")
            try:
                with tempfile.TemporaryDirectory() as scratch:
                    more = {"pass": asked, "sensors": sensors}
                    found[variant] = bench.ask("look", variant, Path(scratch), deadline_s, **more)
            except EdgeError as error:
                found[variant] = {"crashed": str(error)}
    facts = {"pass": name, "options": options, "variants": found}
    return Artifact(request.out, "pass", facts=facts).write()
