"""Bad input, through the command line: one line that says what, where and what next; the exit code; nothing touched.

The lines are in golden/bad_input.json (`<tmp>` stands for the test's folder); EDGECOMPRESS_GOLDEN=write renews them.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nulls
import numpy as np
import plugins
import pytest
from small_onnx import conv_net, images

import edgecompress
from edgecompress.cli import main
from edgecompress.core import catalog, config, extras, plain_file
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.data import npy, npz, pictures
from edgecompress.engines.null.runtimes import null
from edgecompress.pipeline.store import Store
from edgecompress.reporting import external_results

GOLDEN = Path(__file__).parent / "golden" / "bad_input.json"
PACKAGE = Path(edgecompress.__file__).parent
QUICK = ["--profile", "quick", *(f"--set={key}={value}" for key, value in nulls.FAST.items())]


@dataclass(frozen=True)
class Place:
    """A folder with a null net in it, an ONNX net beside it, and a command line that runs there."""

    folder: Path

    def run(self, *words: str, path: str = "", under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"}
        argv = [*under, sys.executable, "-m", "edgecompress.cli.main", *words]
        return subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300, check=False)

    def deploy(self, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
        return self.run("deploy", *words, *QUICK, path=path)

    def shipped(self) -> dict[str, bytes]:
        files = sorted(p for root in ("dist", ".edgecompress/store") for p in (self.folder / root).rglob("*"))
        return {str(p): p.read_bytes() for p in files if p.is_file()}


NULL = ("net.null", "--data", "data", "--target", "null.toml")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    nulls.make(tmp_path)
    return Place(tmp_path)


def missing_file(place: Place) -> list[str]:
    return ["nowhere.onnx", "--data", "data"]


def unknown_suffix(place: Place) -> list[str]:
    return ["null.toml.bak", "--data", "data"]


def typo_in_a_key(place: Place) -> list[str]:
    (place.folder / "null.toml").write_text(nulls.TARGET.replace("items_lost", "items_lots"))
    return [*NULL]


def broken_toml(place: Place) -> list[str]:
    (place.folder / "null.toml").write_text("description = \n")
    return [*NULL]


def typo_in_an_option(place: Place) -> list[str]:
    return ["--set", "variant.int8.calibratr=entropy"]


def setting_without_value(place: Place) -> list[str]:
    return ["--set", "limits.items_lost"]


def no_data(place: Place) -> list[str]:
    return ["net.null", "--target", "null.toml"]


def corrupt_null_net(place: Place) -> list[str]:
    (place.folder / "net.null").write_text("{")
    return [*NULL]


def wrong_input_shape(place: Place) -> list[str]:
    for split in ("calibrate", "select", "test"):
        np.save(place.folder / "data" / split / "x.npy", np.zeros((20, 5), "float32"))
        np.save(place.folder / "data" / split / "labels.npy", np.zeros(20, "int64"))
    return [*NULL]


def labels_out_of_range(place: Place) -> list[str]:
    np.save(place.folder / "data" / "test" / "labels.npy", np.full(40, 7))
    return [*NULL]


def nan_in_the_data(place: Place) -> list[str]:
    values = np.zeros((40, 4), "float32")
    values[3, 2] = np.nan
    np.save(place.folder / "data" / "test" / "x.npy", values)
    return [*NULL]


def pickled_data(place: Place) -> list[str]:
    np.save(place.folder / "data" / "test" / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return [*NULL]


def factory_that_raises(place: Place) -> list[str]:
    (place.folder / "nets.py").write_text("def data(split):\n    raise ValueError('no camera')\n")
    return ["net.null", "--data", "nets:data", "--target", "null.toml"]


def untrusted_factory(place: Place) -> list[str]:
    (place.folder / "nets.py").write_text("def data(split):\n    raise SystemExit\n")
    return ["net.null", "--data", "nets:data", "--target", "null.toml", "--untrusted"]


def out_is_somebody_elses(place: Place) -> list[str]:
    (place.folder / "mine").mkdir()
    (place.folder / "mine" / "thesis.txt").write_text("years of work")
    return [*NULL, "--out", "mine"]


def store_cannot_be_made(place: Place) -> list[str]:
    return [*NULL, "--store", "net.null/results"]


def zero_threads(place: Place) -> list[str]:
    return [*NULL, "--threads", "0"]


def onnx_without_a_way(place: Place) -> list[str]:
    (place.folder / "null.toml").write_text(nulls.TARGET.replace('runtime = "null"', 'runtime = "onnx"'))
    return [*NULL]


def truncated_onnx(place: Place) -> list[str]:
    conv_net(place.folder / "net.onnx")
    whole = (place.folder / "net.onnx").read_bytes()
    (place.folder / "net.onnx").write_bytes(whole[: len(whole) // 2])
    return _onnx(place)


def nan_weights_in_onnx(place: Place) -> list[str]:
    conv_net(place.folder / "net.onnx", float("nan"))
    return _onnx(place)


def onnx_with_images_of_another_size(place: Place) -> list[str]:
    conv_net(place.folder / "net.onnx")
    return _onnx(place, size=9)


def onnx_that_contradicts_itself(place: Place) -> list[str]:
    """Its output is declared with 7 scores and computed with 10: ONNX Runtime would go by what is computed."""

    def declare(model: Any) -> None:
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7

    return _changed_onnx(place, declare)


def onnx_with_an_operator_of_its_own(place: Place) -> list[str]:
    """A valid file, as ONNX lets anybody have operators; ONNX Runtime has no code for this one."""

    def rename(model: Any) -> None:
        model.graph.node[1].domain, model.graph.node[1].op_type = "mine", "Swirl"
        model.opset_import.add(domain="mine", version=1)

    return _changed_onnx(place, rename)


def _changed_onnx(place: Place, change: Callable[[Any], None]) -> list[str]:
    import onnx

    conv_net(place.folder / "net.onnx")
    model = onnx.load(place.folder / "net.onnx")
    change(model)
    (place.folder / "net.onnx").write_bytes(model.SerializeToString())
    return _onnx(place)


def onnx_data_outside_its_folder(place: Place) -> list[str]:
    import onnx

    inner = place.folder / "inner"
    inner.mkdir()
    conv_net(inner / "net.onnx")
    model = onnx.load(inner / "net.onnx")
    weight = model.graph.initializer[0]
    (place.folder / "secret.bin").write_bytes(weight.raw_data)
    onnx.external_data_helper.set_external_data(weight, "../secret.bin", length=len(weight.raw_data))
    weight.ClearField("raw_data")
    (inner / "net.onnx").write_bytes(model.SerializeToString())
    images(place.folder / "images.npz")
    return ["inner/net.onnx", "--data", "images.npz"]


def _onnx(place: Place, size: int = 8) -> list[str]:
    images(place.folder / "images.npz", size=size)
    return ["net.onnx", "--data", "images.npz", "--only", "fp32"]


# What a process of its own makes a difference for; the others are commands of this process.
APART = (missing_file, factory_that_raises, untrusted_factory, pickled_data)
CASES: list[Callable[[Place], list[str]]] = [
    missing_file, unknown_suffix, typo_in_a_key, broken_toml, typo_in_an_option, setting_without_value,
    no_data, corrupt_null_net, wrong_input_shape, labels_out_of_range, nan_in_the_data,
    pickled_data, factory_that_raises, untrusted_factory, out_is_somebody_elses,
    store_cannot_be_made, zero_threads, onnx_without_a_way, truncated_onnx, nan_weights_in_onnx,
    onnx_with_images_of_another_size, onnx_that_contradicts_itself, onnx_with_an_operator_of_its_own,
    onnx_data_outside_its_folder,
]  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place where something has shipped."""
    folder = tmp_path_factory.mktemp("good")
    nulls.make(folder)
    place = Place(folder)
    ended = place.deploy(*NULL)
    assert ended.returncode == 0, ended.stderr
    return place


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_bad_input_gets_its_line_and_its_exit_code(
    case: Callable[[Place], list[str]],
    good: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = Place(Path(shutil.copytree(good.folder, tmp_path / "place")))
    Store(place.folder / ".edgecompress")  # named, a copy is one's own
    words = case(place)
    before = {k: v for k, v in place.shipped().items() if "/dist/" in k}
    if case in APART:
        ended = place.deploy(*words)
        code, errors = ended.returncode, ended.stderr
    else:
        monkeypatch.chdir(place.folder)
        monkeypatch.setenv("NO_COLOR", "1")
        code = main.main(["deploy", *words, *QUICK])
        errors = capsys.readouterr().err
    said = normal(errors.strip().splitlines()[-1], place.folder)
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else {}
    if os.environ.get("EDGECOMPRESS_GOLDEN") == "write":
        golden[case.__name__] = said
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert said == golden[case.__name__]
    assert code == 2
    assert "Traceback" not in errors
    assert {k: v for k, v in place.shipped().items() if "/dist/" in k} == before
    assert Store(place.folder / ".edgecompress").damaged() == []


def normal(line: str, folder: Path) -> str:
    """A line without what differs from run to run."""
    line = line.replace(str(catalog.shipped("targets")), "<package>/targets")
    line = line.replace(str(folder.resolve()), "<tmp>").replace(str(folder), "<tmp>").replace(str(PACKAGE), "<package>")
    return re.sub(r"log: \S+\)", "log: <log>)", line)


@pytest.mark.slow
def test_a_converter_that_aborts_costs_its_variant_not_the_deploy(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    plugins.technique(folder, "crasher", "import os\nos.abort()")
    variant = '[[variant]]\nname = "broken"\ncompress = [{ use = "crasher" }]\n'
    (place.folder / "null.toml").write_text(nulls.TARGET + variant)
    ended = place.deploy(*NULL, path=str(folder))
    assert ended.returncode == 0, ended.stderr
    table = json.loads((place.folder / "dist" / "null" / "report.json").read_text())
    broken = next(v for v in table["variants"] if v["name"] == "broken")
    assert broken["verdict"] == "failed"
    assert "SIGABRT" in broken["reason"]


@pytest.mark.slow
def test_when_every_variant_breaks_the_first_breakage_is_the_error(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    plugins.technique(folder, "crasher", "import os\nos.abort()")
    (place.folder / "null.toml").write_text(nulls.TARGET + 'compress = [{ use = "crasher" }]\n')
    ended = place.deploy(*NULL, path=str(folder))
    assert ended.returncode == 3
    assert "plain/crasher: its process was ended by SIGABRT" in ended.stderr and "ulimit" not in ended.stderr
    limited = ("sh", "-c", 'ulimit -v 8388608; exec "$@"', "limited")
    ended = place.run("deploy", *NULL, *QUICK, path=str(folder), under=limited)
    assert "(a crash in native code; `ulimit -v` allows it 8.0 GiB: raise it; log: " in ended.stderr
    assert not list((place.folder / "dist").rglob("artifact"))


@pytest.mark.slow
def test_an_artifact_that_is_wrong_ships_nothing_and_says_which_check_failed(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    body = (
        "from edgecompress.engines.null.runtimes import null\nimport dataclasses\n"
        "net = null.parse(request.model.file('.null'))\n"
        "null.write(request.out / 'model.null', dataclasses.replace(net, scale=-1.0))\n"
        'return Artifact(request.out, "null", request.model.inputs, request.model.outputs).write()'
    )
    plugins.technique(folder, "wrong", body)
    (place.folder / "null.toml").write_text(
        nulls.TARGET.replace("items_lost = 0", "items_lost = 0\ncosine = 0.9") + 'compress = [{ use = "wrong" }]\n'
    )
    ended = place.deploy(*NULL, path=str(folder))
    assert ended.returncode == 1
    assert "no variant is left to ship" in ended.stdout + ended.stderr
    assert not list((place.folder / "dist").rglob("artifact"))


@pytest.mark.slow
def test_a_full_disk_is_said_in_one_line_and_loses_nothing(place: Place) -> None:
    """A tmpfs of 34 MiB, in a mount namespace of its own: enough to begin, not enough for 37 MiB of samples."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare -rm is not allowed here")
    nulls.make(place.folder, width=4096, items=600)
    command = " ".join(["deploy", *NULL, "--profile", "quick", "--store", "small"])
    (place.folder / "small").mkdir()
    deploy = f"{sys.executable} -m edgecompress.cli.main {command}"
    script = f"mount -t tmpfs -o size=34m none small && {deploy}; echo code $?; ls small/store"
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        cwd=place.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "code 3" in ended.stdout
    assert re.search(r"edgecompress: error: data: no space left on the device; .*cache gc", ended.stderr), ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout.strip().endswith("code 3")  # nothing half-written is in the store


READERS = {
    "array": npy.mapped,
    "npz": npz.arrays,
    "picture": pictures.picture,
    "toml": config.read_toml,
    "net": null.parse,
    "measurement": external_results.read,
    **({"card": extras.part("apps", "model_card").read} if extras.is_here("apps") else {}),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize(("code", "error"), [(errno.EIO, StageFailed), (errno.EACCES, InputError)])
def test_a_file_that_the_disk_does_not_give_is_no_mistake_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Callable[[Path], object], code: int, error: type
) -> None:
    def fails(path: str, *_: object) -> int:
        raise OSError(code, os.strerror(code), path)

    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(plain_file.os, "open", fails)
    with pytest.raises(error, match=os.strerror(code)):
        reader(tmp_path / "file")
