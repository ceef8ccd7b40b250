"""The checks of a runtime: export, outputs, operator times, and files of its format."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import config, registry
from edgecompress.core.errors import InputError, MissingDependency
from edgecompress.core.model import Artifact
from edgecompress.core.plugins import OpenedSession, RuntimePlugin
from edgecompress.testing.conformance.common import (
    check_artifact,
    check_described,
    check_parts,
    check_same_inputs_and_outputs,
    item,
    stage,
)
from edgecompress.testing.conformance.nets import net, samples
from edgecompress.testing.conformance.sessions import check_answers_stay, check_outputs, opened

if TYPE_CHECKING:
    from edgecompress.core.protocols import OperatorTimes


def check_runtime(name: str, tmp_path: Path) -> None:
    """A runtime exports from each kind it reads, runs what it exported, profiles it, and reads files of its format."""
    module = registry.load("runtimes", name)
    says, folder = f"runtime {name}", tmp_path / name
    check_described(module, RuntimePlugin, says)
    assert module.FORMAT, f"{says}: FORMAT is empty"
    suffix = getattr(module, "SUFFIX", "")
    assert not suffix or suffix.startswith("."), f"{says}: SUFFIX starts with a dot, or is empty"
    if suffix or getattr(module, "FOLDER", ""):
        assert hasattr(module, "read"), f"{says}: SUFFIX and FOLDER tell what `read` takes, and it has no read"
    options = config.build(module.Options, {}, says) if hasattr(module, "Options") else {}
    exported = []
    for kind in module.READS:
        with contextlib.suppress(MissingDependency):  # of a converter that this one kind needs
            exported.append(_exported(module, kind, folder / kind, options))
    assert exported or not module.READS, f"{says}: no kind that it reads can be exported here"
    artifact = exported[0] if exported else net(module.FORMAT, folder / "own")
    data = samples(artifact, folder)
    left = {}
    for profile in (False, True):
        session = opened(module, artifact, profile)
        check_parts(session, OpenedSession, f"{says}: its session")
        answers = check_outputs(session, artifact, data, says)
        left[profile] = _check_ops(session.ops(item(data), 3), says, profile)
        again = check_outputs(session, artifact, data, says)
        assert all((answers[k] == again[k]).all() for k in answers), f"{says}: the same input gave another output"
        check_answers_stay(session, data, says)
        session.close()
    assert left[False] in (None, left[True]), f"{says}: fallback is {left[False]}, but {left[True]} under a profile"
    _check_empty(module, folder / "empty", says)
    if suffix:
        _check_read(module, artifact, folder, says)


def _exported(module: ModuleType, kind: str, folder: Path, options: object) -> Artifact:
    model = net(kind, folder)
    artifact = stage(module.export, {"model": model}, folder / "exported", options)
    check_artifact(artifact, module.FORMAT, f"export of {kind} to {module.FORMAT}")
    check_same_inputs_and_outputs(artifact, model, f"export of {kind} to {module.FORMAT}")
    assert model.digest() == model.sha256, f"export of {kind} to {module.FORMAT}: it changed its input"
    return artifact


def _check_ops(table: OperatorTimes, says: str, profile: bool) -> list[str] | None:
    """What left the accelerator; verify believes a session that was not opened for profiling that nothing did."""
    assert set(table) == {"ops", "why", "fallback"}, f"{says}: ops answers ops, why and fallback, not {sorted(table)}"
    assert table["ops"] or table["why"] or not profile, f"{says}: no operator times, and no reason why"
    json.dumps(dict(table), allow_nan=False)
    for op in table["ops"]:
        assert set(op) == {"name", "type", "ms", "where"}, f"{says}: an operator has name, type, ms and where: {op}"
        assert math.isfinite(op["ms"]) and op["ms"] >= 0, f"{says}: {op['name']} took {op['ms']} ms"
    return table["fallback"]


def _check_empty(module: ModuleType, folder: Path, says: str) -> None:
    """Its empty model, where it has one, answers what it is given."""
    if not hasattr(module, "empty"):
        return
    import numpy as np

    folder.mkdir()
    model = module.empty(folder)
    check_artifact(model, module.FORMAT, f"{says}: empty")
    given = {spec.name: np.full(spec.concrete(), 5, spec.dtype) for spec in model.inputs}
    session = opened(module, model, profile=False)
    answers = session.run(given)
    assert set(answers) == {spec.name for spec in model.outputs}, f"{says}: the empty model answered {sorted(answers)}"
    assert all((array == 5).all() for array in answers.values()), f"{says}: the empty model changed its input"
    session.close()


def _check_read(module: ModuleType, artifact: Artifact, folder: Path, says: str) -> None:
    marker = getattr(module, "FOLDER", "")  # of a source that is a folder
    file = artifact.file(marker or module.SUFFIX)
    again = stage(module.read, {}, folder / "read", {"path": str(file.parent if marker else file)})
    check_artifact(again, module.FORMAT, f"{says}: read")
    check_same_inputs_and_outputs(again, artifact, f"{says}: read")
    cut, noise = folder / f"cut{module.SUFFIX}", folder / f"noise{module.SUFFIX}"
    cut.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    noise.write_bytes(bytes(range(256)) * 8)
    for bad in (cut, noise, folder / f"missing{module.SUFFIX}"):
        try:
            stage(module.read, {}, folder / "bad" / bad.stem, {"path": str(bad)})
        except InputError as error:
            assert "\n" not in str(error) and bad.name in str(error), f"{says}: not one line with the file: {error}"
        else:
            raise AssertionError(f"{says}: read took {bad.name}, which is no model")
