"""The checks of a technique, on a small net of each kind that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgecompress.core import config, registry
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.core.plugins import TechniquePlugin
from edgecompress.testing.conformance.common import (
    check_artifact,
    check_described,
    check_same_inputs_and_outputs,
    default_options,
    stage,
)
from edgecompress.testing.conformance.nets import net, samples
from edgecompress.testing.conformance.sessions import check_outputs


def check_technique(name: str, tmp_path: Path, options: Mapping[str, Json] | None = None) -> None:
    """A technique has a default for every option, and keeps its promises on a small net of each kind it reads.

    `options`: brief ones, for the trial on the small nets.
    """
    module = registry.load("techniques", name)
    says = f"technique {name}"
    check_described(module, TechniquePlugin, says)
    assert module.READS, f"{says}: READS names no kind"
    default_options(module, says)
    asked = config.build(module.Options, options or {}, says)
    for kind in module.READS:
        folder = tmp_path / name / kind
        model = net(kind, folder)
        inputs = {"model": model, **{role: _needed(role, model, folder) for role in module.NEEDS}}
        first, second = (stage(module.apply, inputs, folder / out, asked) for out in ("first", "second"))
        check_artifact(first, module.WRITES, f"{says} on {kind}")
        assert first.sha256 == second.sha256, f"{says}: the same request gave other bytes the second time"
        check_same_inputs_and_outputs(first, model, says)
        for role, artifact in inputs.items():
            assert artifact.digest() == artifact.sha256, f"{says}: it changed its input '{role}'"
        if not first.facts.get("lost"):
            # where a runtime runs this kind, it runs the artifact
            runner = next((m for _, m in registry.every("runtimes") if first.kind == m.FORMAT), None)
            if runner:
                session = runner.open(first, 1)
                check_outputs(session, first, samples(first, folder), says)
                session.close()


def _needed(role: str, model: Artifact, folder: Path) -> Artifact:
    """What a technique needs beside the model: the model is its own dense net; nothing is there to train on."""
    if role == "dense":
        return model
    if role == "samples":
        return samples(model, folder)
    out = folder / "training"
    out.mkdir(parents=True)
    return Artifact(out, "samples", facts={"splits": {"train": 0}}).write()
