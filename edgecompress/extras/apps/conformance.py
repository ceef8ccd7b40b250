"""The checks of a packager: the same bytes twice, and every change found."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from edgecompress.core import environments, registry
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.core.plugins import PackagerPlugin
from edgecompress.data import tensors
from edgecompress.extras.apps import archive, pack, package, shipped_sample, verify
from edgecompress.testing.conformance.common import check_described, default_options
from edgecompress.testing.conformance.nets import net, samples
from edgecompress.testing.conformance.sessions import opened

PACKED_FIRST = ("onnx", "null")  # the formats that a small net is packed in where a packager takes them
NUMBERED = re.compile(r"^ {0,3}(\d+)[.)] ", re.MULTILINE)
STEPS = 3  # at most, of a README
ODD_NAME = "odd \"'`\\ ${x} </script> ]]> */ \u202e --\n" + "x" * 300


def check_packager(name: str, tmp_path: Path, options: Mapping[str, Json] | None = None) -> None:
    """A packager packs a small net: the same bytes twice, whole, verified; what is changed or missing is found.

    `options`: its own, where a package by default is large.
    """
    module = registry.load("packagers", name)
    says = f"packager {name}"
    check_described(module, PackagerPlugin, says)
    assert module.SUFFIX in (".zip", ".tar.gz"), f"{says}: SUFFIX is .zip or .tar.gz, not {module.SUFFIX}"
    default_options(module, says)
    folder = shipped_net(_packed_kind(module), tmp_path / "shipped", "Small net")
    first, second = (package.package(folder, name, tmp_path / str(i) / f"a{module.SUFFIX}", options) for i in range(2))
    assert first.read_bytes() == second.read_bytes(), f"{says}: the same artifact gave other bytes the second time"
    _check_sound(first, says)
    place = tmp_path / "opened"
    place.mkdir()
    archive.unpack(first, place)
    root = archive.top(place, first)
    steps = [int(number) for number in NUMBERED.findall((root / "README.md").read_text(encoding="utf-8"))]
    assert steps and max(steps) <= STEPS, f"{says}: its README has the steps {steps}: one to three are enough"
    _check_payload(module, root, folder, tmp_path / "payload", says)
    _check_finds(first, root, module.SUFFIX, says)
    _check_code(first, root, module, says)
    odd = shipped_net(_packed_kind(module), tmp_path / "odd", ODD_NAME)
    packed = package.package(odd, name, tmp_path / f"odd{module.SUFFIX}", options)
    _check_sound(packed, f"{says}, of a net with an odd name")


def _packed_kind(module: ModuleType) -> str:
    known = [kind for kind in PACKED_FIRST if kind in module.FORMATS or not module.FORMATS]
    return known[0] if known else str(module.FORMATS[0])


def shipped_net(kind: str, folder: Path, name: str) -> Path:
    """The small net of a kind in a folder as a deploy writes it, with what its runtime answers."""
    import numpy as np

    runtime, module = next(
        (n, m) for n, m in registry.every("runtimes") if kind == m.FORMAT and not environments.missing(m)
    )
    small = net(kind, folder.with_name(f"{folder.name}-nets"))
    shutil.copytree(small.path, folder / "artifact")
    model = Artifact.read(folder / "artifact")
    data = samples(model, folder.with_name(f"{folder.name}-nets"))
    session = opened(module, model, False)
    answers = [session.run(item) for item in tensors.batches(data, "test", 1)]
    session.close()
    outputs = {s.name: np.concatenate([np.asarray(a[s.name]) for a in answers]) for s in model.outputs}
    inputs = {s.name: np.array(tensors.load(data, "test", s.name)) for s in model.inputs}
    labels = [f"class {i}" for i in range(model.outputs[0].concrete()[-1])]
    source = {"name": name, "model": "nets:build", "metric": "top1", "labels": labels, "licence": "CC0-1.0"}
    return shipped_sample.write(model, runtime, inputs, outputs, source)


def _check_sound(file: Path, says: str) -> None:
    checks = verify.verify(file)
    failed = [check for check in checks if check.status == "fail"]
    assert not failed, f"{says}: its own package fails {failed[0].name}: {failed[0].reason}"
    for check in checks:
        assert check.reason or check.status == "pass", f"{says}: {check.name} is {check.status}, and does not say why"


def _check_payload(module: ModuleType, root: Path, folder: Path, work: Path, says: str) -> None:
    """The payload has the artifact's bytes, whatever it is wrapped in."""
    work.mkdir()
    packed = module.payload(root, work) / "model"
    artifact = Artifact.read(folder / "artifact")
    for file in artifact.files():
        place = packed / file.relative_to(artifact.path)
        assert place.read_bytes() == file.read_bytes(), f"{says}: {place.name} has other bytes than the artifact"


def _check_finds(file: Path, root: Path, suffix: str, says: str) -> None:
    """A changed byte of the largest file, and of the card; a file that is missing; one that is more."""
    largest = max((p for p in root.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    card = root / "model_card.json"
    for place in (largest, card):
        kept = place.read_bytes()
        middle = len(kept) // 2
        place.write_bytes(kept[:middle] + bytes([kept[middle] ^ 1]) + kept[middle + 1 :])
        _check_fails(file, root, suffix, f"{says}: a changed byte of {place.name}")
        place.unlink()
        _check_fails(file, root, suffix, f"{says}: {place.name} that is missing")
        place.write_bytes(kept)
    more = root / "more.txt"
    more.write_text("more", encoding="utf-8")
    _check_fails(file, root, suffix, f"{says}: a file that is not listed")
    more.unlink()


def _check_code(file: Path, root: Path, module: ModuleType, says: str) -> None:
    """What is changed in its code, or added to it, is found though the sums are made again."""
    readme, more = root / "README.md", root / "more.sh"
    kept = readme.read_bytes()
    for place, content, what in ((readme, kept + b"\n", "a changed file"), (more, b"true\n", "a file more")):
        place.write_bytes(content)
        (root / pack.SUMS).write_text(pack.sums(root), encoding="utf-8")
        _check_fails(file, root, module.SUFFIX, f"{says}: {what} of its code, with sums made again,", "code")
        readme.write_bytes(kept)


def _check_fails(file: Path, root: Path, suffix: str, says: str, by: str = "") -> None:
    """A check fails; the one of this name, where one is named."""
    changed = file.with_name(f"changed{suffix}")
    archive.write(root.parent, changed, suffix)
    failed = [check.name for check in verify.verify(changed) if check.status == "fail"]
    assert by in failed if by else failed, f"{says} is not found"
