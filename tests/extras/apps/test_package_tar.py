"""The board package: what is in it, what its runner takes and refuses, that it installs and serves here, offline."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import package_inputs
import pins
import pytest

from edgecompress.core import config
from edgecompress.core.errors import EdgeError, InputError, StageFailed
from edgecompress.core.package_contents import PackageCheck, digest
from edgecompress.extras.apps import archive, golden, model_card, package, verify
from edgecompress.extras.apps.board_runner import bundled, inputs
from edgecompress.extras.apps.packagers import _tar_wheels, tar
from edgecompress.reporting import external_results

SMALL = {"wheels": False}
HOSTILE = "\"; touch /tmp/owned; $(reboot) `id` '\n[Service]\nUser=root\n%n\u202e</script>\\"


def opened(file: Path, into: Path) -> Path:
    into.mkdir()
    archive.unpack(file, into)
    return archive.top(into, file)


def packed(folder: Path, shipped: Path, **settings: Any) -> Path:
    """The tree of a package, without wheels unless they are asked for."""
    return opened(package.package(shipped, "tar", folder / "package.tar.gz", {**SMALL, **settings}), folder / "opened")


@pytest.fixture(scope="module")
def null(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of a net that needs NumPy alone."""
    folder = tmp_path_factory.mktemp("null")
    return packed(folder, package_inputs.null(folder / "dist"))


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-B", str(root / "run.pyz"), *words], capture_output=True, text=True, timeout=60
    )


def failed(root: Path) -> dict[str, str]:
    """The steps of the self-test that fail, and why."""
    done = run(root, "self-test")
    steps = json.loads(done.stdout)
    assert done.returncode == (0 if all(step["ok"] for step in steps) else 1)
    return {step["step"]: step["detail"] for step in steps if not step["ok"]}


def folder(place: Path, name: str) -> Path:
    (place / name).mkdir()
    return place / name


def judged(root: Path, tmp_path: Path) -> dict[str, PackageCheck]:
    return {c.name: c for c in tar.checks(root, model_card.read(root / "model_card.json"), tmp_path)}


# --------------------------------------------------------------------------- what is in it


def test_it_holds_what_a_board_needs(null: Path) -> None:
    names = {file.relative_to(null).as_posix() for file in null.rglob("*") if file.is_file()}
    assert {"README.md", "install.sh", "run", "run.pyz", "null-net.service", "requirements.txt"} <= names
    assert all(os.access(null / name, os.X_OK) for name in ("install.sh", "run"))


def test_its_checks_pass_and_say_what_they_could_not_look_at(null: Path, tmp_path: Path) -> None:
    found = {name: check.status for name, check in judged(null, tmp_path).items()}
    assert found == {"requirements": "skipped", "installation": "skipped"}


def test_a_packed_model_is_unpacked_where_it_is_installed_and_verified(tmp_path: Path) -> None:
    file = package.package(
        package_inputs.null(tmp_path / "dist"), "tar", tmp_path / "p.tar.gz", {**SMALL, "packed": True}
    )
    assert [check for check in verify.verify(file) if check.status == "fail"] == []
    root = opened(file, tmp_path / "opened")
    (packed,) = (root / "payload/model").iterdir()
    assert packed.name == "model.null.packed"
    assert failed(root) == {}
    assert (root / "payload/model/model.null").read_bytes() == (tmp_path / "dist/artifact/model.null").read_bytes()
    (root / "payload/model/model.null").unlink()
    packed.write_bytes(packed.read_bytes()[:-1])
    done = run(root, "self-test")
    assert done.returncode == 2 and "model.null.packed: is damaged" in done.stderr and done.stderr.count("\n") == 1


def test_what_no_wheel_runs_comes_without_a_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = package_inputs.null(tmp_path / "dist")
    monkeypatch.setattr(bundled, "opens_with", lambda runtime: None)
    root = packed(tmp_path, shipped)
    assert not (root / "run.pyz").exists()
    assert "no wheel for boards" in (root / "README.md").read_text()
    assert judged(root, tmp_path)["runner"].status == "skipped"


@pytest.mark.parametrize(
    "wrong", [{"platform": "windows-x86_64"}, {"python": "2.7"}, {"python": "3.11;id"}, {"port": 80}], ids=str
)
def test_an_option_that_does_not_do_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        package.package(package_inputs.null(tmp_path / "dist"), "tar", tmp_path / "x", {**SMALL, **wrong})


@pytest.mark.parametrize(
    ("platforms", "machine"), [(["linux-aarch64"], "aarch64"), (["*-x86_64"], "x86_64"), ([], "aarch64")], ids=str
)
def test_the_board_is_that_of_the_target(platforms: list[str], machine: str, tmp_path: Path) -> None:
    shipped = package_inputs.null(tmp_path / "dist")
    told = json.loads((shipped / "report.json").read_text())
    package_inputs.report(shipped, target={**told["target"], "platforms": platforms})
    assert f'"{machine}"' in (packed(tmp_path, shipped) / "install.sh").read_text()


def test_a_target_of_other_machines_needs_a_platform(tmp_path: Path) -> None:
    shipped = package_inputs.null(tmp_path / "dist")
    told = json.loads((shipped / "report.json").read_text())
    package_inputs.report(shipped, target={**told["target"], "platforms": ["ios-*"]})
    with pytest.raises(InputError, match=r"ios-.*platform=linux-aarch64"):
        packed(tmp_path, shipped)


def test_it_pins_the_versions_that_were_tried_together() -> None:
    assert {
        name: version for name, version in _tar_wheels.PINS.items() if pins.PINS.get(name, version) != version
    } == {}


def test_offline_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(_tar_wheels.OFFLINE, "1")
    with pytest.raises(InputError, match=r"numpy==.*wheels=false"):
        packed(tmp_path, package_inputs.null(tmp_path / "dist"), wheels=True)


def test_where_no_index_answers_it_is_said_what_is_fetched_and_how_to_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    with pytest.raises(StageFailed, match=r"no wheel of numpy==.*check the network.*wheels=false"):
        packed(tmp_path, package_inputs.null(tmp_path / "dist"), wheels=True)
    assert "fetching the wheel of numpy==" in (said := capsys.readouterr().err) and "--set wheels=false" in said


def test_a_board_needs_the_glibc_of_its_most_demanding_wheel() -> None:
    names = ["a-1-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl", "b-1-py3-none-any.whl"]
    assert _tar_wheels.glibc(names) == 27
    assert _tar_wheels.glibc([*names, "c-1-cp311-cp311-manylinux_2_35_aarch64.whl"]) == 35


# --------------------------------------------------------------------------- hostile texts


def test_a_hostile_name_stays_a_text(tmp_path: Path) -> None:
    root = packed(tmp_path, package_inputs.null(tmp_path / "dist", HOSTILE, description=HOSTILE, licence=HOSTILE))
    slug = root.name.removesuffix("-tar")
    assert re.fullmatch("[a-z][a-z0-9-]*", slug)
    for name in ("install.sh", "run", f"{slug}.service", "requirements.txt"):
        assert not re.search(r"(?m)touch /tmp|reboot\)|^User=|\u202e", (root / name).read_text()), name
    readme = (root / "README.md").read_text()
    assert "\u202e" not in readme and "</script>" not in readme and "$(reboot)" not in readme
    found = {name: check.status for name, check in judged(root, tmp_path).items()}
    assert "fail" not in found.values()
    assert not failed(root)


@pytest.mark.slow
def test_hostile_labels_are_answered_as_they_are(tmp_path: Path) -> None:
    labels = (HOSTILE, "dog", "f\0x", "o" * 100_000)
    root = packed(tmp_path, package_inputs.shipped(tmp_path / "dist", labels=labels))
    answer = json.loads(run(root, "predict", str(root / "payload/golden/raw.bin")).stdout)
    assert {row["label"] for row in answer["classes"]} == set(labels)


# --------------------------------------------------------------------------- the self-test


def test_the_self_test_passes(null: Path) -> None:
    assert not failed(null)


@pytest.mark.parametrize(
    "name", ["model/model.null", "golden/input-0.bin", "golden/output-0.bin", "labels.json", "model_card.json"]
)
def test_one_changed_byte_fails_the_self_test(name: str, null: Path, tmp_path: Path) -> None:
    shutil.copytree(null, tmp_path / "x")
    package_inputs.flip(tmp_path / "x/payload" / name)
    assert "files" in failed(tmp_path / "x")


def test_a_missing_golden_file_fails_the_self_test(null: Path, tmp_path: Path) -> None:
    shutil.copytree(null, tmp_path / "x")
    (tmp_path / "x/payload/golden/output-0.bin").unlink()
    assert failed(tmp_path / "x") == {"files": "golden/output-0.bin is missing"}


def recompiled(root: Path, **changes: Any) -> None:
    """Changes keys of the card that is compiled in, and of the one beside it."""
    told = {**json.loads((root / "payload/model_card.json").read_text()), **changes}
    for place in (root / "payload/model_card.json", root / "model_card.json"):
        place.write_text(model_card.text(told))
    with zipfile.ZipFile(root / "run.pyz") as old:
        entries = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(root / "run.pyz", "w") as new:
        for name, data in {**entries, bundled.CARD: model_card.text(told).encode()}.items():
            new.writestr(name, data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value"), [("mean", [0.5, 0.456, 0.406]), ("std", [0.3, 0.2, 0.2]), ("scale", 1 / 256)]
)
def test_a_changed_constant_of_the_processing_fails_the_self_test(key: str, value: Any, tmp_path: Path) -> None:
    root = packed(tmp_path, package_inputs.shipped(tmp_path / "dist"))
    told = json.loads((root / "model_card.json").read_text())
    recompiled(root, preprocess={**told["preprocess"], key: value})
    assert set(failed(root)) == {"processing"}


def test_a_card_beside_that_is_not_the_one_compiled_in_fails(null: Path, tmp_path: Path) -> None:
    shutil.copytree(null, tmp_path / "x")
    file = tmp_path / "x/payload/model_card.json"
    told = json.loads(file.read_text())
    file.write_text(model_card.text({**told, "golden": {**told["golden"], "tolerance": 9.0}}))
    assert failed(tmp_path / "x") == {"files": "model_card.json: golden differs from what is compiled in"}


# --------------------------------------------------------------------------- checks of a changed package


@pytest.mark.parametrize(
    "wall",
    ["DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "IPAddressDeny=any"],
)
def test_the_service_has_its_walls(wall: str, null: Path) -> None:
    assert (null / "null-net.service").read_text().splitlines().count(wall) == 1


def test_a_wheel_that_is_not_pinned_fails_its_check(null: Path, tmp_path: Path) -> None:
    root = shutil.copytree(null, tmp_path / "x")
    (root / "wheels").mkdir()
    (root / "wheels/numpy.whl").write_bytes(b"one")
    pins = _tar_wheels.requirements({"numpy==2.3.5": [root / "wheels/numpy.whl"]})
    (root / "requirements.txt").write_text(pins)
    assert judged(root, folder(tmp_path, "before"))["requirements"].status == "pass"
    (root / "wheels/numpy.whl").write_bytes(b"two")
    assert "wheels/numpy.whl" in judged(root, folder(tmp_path, "after"))["requirements"].reason


def test_the_unit_file_is_what_systemd_reads(null: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("systemd-analyze is not installed (Debian: apt-get install systemd)")
    unit = tmp_path / "null-net.service"
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o755)
    unit.write_text((null / unit.name).read_text().replace("/opt/null-net/", f"{tmp_path}/"))
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# --------------------------------------------------------------------------- what the runner takes


def test_it_predicts_what_the_golden_answer_says(null: Path, tmp_path: Path) -> None:
    told = json.loads((null / "model_card.json").read_text())["golden"]
    array = golden.load(null / "payload", told["inputs"][0])
    np.save(tmp_path / "item.npy", array[0])
    np.savez(tmp_path / "item.npz", x=array)
    answers = [
        json.loads(run(null, "predict", str(file)).stdout)["outputs"]["y"]
        for file in (tmp_path / "item.npy", tmp_path / "item.npz", null / "payload/golden/input-0.bin")
    ]
    for answer in answers:
        np.testing.assert_allclose(answer, golden.load(null / "payload", told["outputs"][0]), rtol=1e-6)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes: neither"),
        (b"\x93NUMPY\x01\x00", "not a .npy"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "not a readable image|Pillow"),
        (b"PK\3\4", "not a .npz"),
        (b"\0" * 15, "15 bytes: neither"),
    ],
    ids=["empty", "npy", "png", "npz", "short"],
)
def test_bad_input_is_one_clear_line(data: bytes, says: str, null: Path, tmp_path: Path) -> None:
    (tmp_path / "item").write_bytes(data)
    done = run(null, "predict", str(tmp_path / "item"))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert re.search(says, done.stderr)


def npy(header: str, body: bytes = b"") -> bytes:
    text = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + body


@pytest.mark.parametrize(
    "data",
    [
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4)}", b"\0" * 16),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n(S'id'\ntR."),
        npy("__import__('os').system('id')"),
    ],
    ids=["huge", "negative", "objects", "code"],
)
def test_a_hostile_array_is_refused_before_it_takes_memory(data: bytes) -> None:
    with pytest.raises(InputError):
        inputs.npy(data)


def test_a_npz_that_unpacks_to_more_than_it_may_is_refused() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("x.npy", b"\0" * (inputs.LARGEST + 1))
    with pytest.raises(InputError, match="unpacks to more"):
        inputs.arrays(stream.getvalue(), ["x"], "", None)


@pytest.mark.parametrize("array", [np.full(4, np.nan, np.float32), np.zeros(5, np.float32), np.zeros(4, complex)])
def test_numbers_that_are_not_the_models_are_refused(array: Any, null: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "item.npy", array)
    done = run(null, "predict", str(tmp_path / "item.npy"))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_picture_is_processed_as_the_card_says(tmp_path: Path) -> None:
    from PIL import Image

    root = packed(tmp_path, package_inputs.shipped(tmp_path / "dist"))
    told = json.loads((root / "model_card.json").read_text())
    Image.fromarray(golden.load(root / "payload", told["golden"]["raw"])).save(tmp_path / "pet.png")
    classes = json.loads(run(root, "predict", str(tmp_path / "pet.png")).stdout)["classes"]
    assert {c["label"]: c["probability"] for c in classes} == pytest.approx(expected(root / "payload"), rel=1e-4)
    Image.new("RGB", (900_000, 1)).save(tmp_path / "thin.png")
    assert "too narrow" in run(root, "predict", str(tmp_path / "thin.png")).stderr


def expected(payload: Path) -> dict[str, float]:
    """What the golden answer means."""
    told = json.loads((payload / "model_card.json").read_text())
    scores = golden.load(payload, told["golden"]["outputs"][0]).reshape(-1)
    powers = np.exp(scores - scores.max())
    return dict(zip(package_inputs.LABELS, (float(p) for p in powers / math.fsum(powers)), strict=True))


def test_its_benchmark_is_what_the_report_reads(null: Path) -> None:
    done = run(null, "benchmark", "20")
    told = config.build(external_results.Measurement, json.loads(done.stdout), "")
    assert told.self_test == "pass" and len(told.latencies_ns) == 20
    assert told.model.sha256 == digest(json.loads((null / "model_card.json").read_text()))
    assert told.clock == "time.perf_counter_ns"


def test_a_benchmark_of_a_changed_package_says_so_and_nothing_of_it_is_served(null: Path, tmp_path: Path) -> None:
    root = shutil.copytree(null, tmp_path / "x")
    (root / "payload/labels.json").write_text("[ ]")
    done = run(root, "benchmark", "20")
    assert done.returncode == 1 and json.loads(done.stdout)["self_test"] == "fail"
    assert run(root, "serve", "--port", "0").returncode == 1


# --------------------------------------------------------------------------- the service


@pytest.fixture(scope="module")
def service(null: Path) -> Iterator[str]:
    with served([sys.executable, "-I", "-B", str(null / "run.pyz")]) as url:
        yield url


class served:
    """A runner that serves at `url`, and ends with the test."""

    def __init__(self, command: list[str]) -> None:
        self.command = [*command, "serve", "--port", "0"]

    def __enter__(self) -> str:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout
        said = self.process.stdout.readline()
        found = re.search(r"http://\S+:[0-9]+", said)
        assert found, said
        return found[0]

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.communicate()


def post(url: str, data: bytes, headers: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{url}", data, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_it_serves_the_golden_answer(service: str, null: Path) -> None:
    told = json.loads((null / "model_card.json").read_text())["golden"]
    status, answer = post(f"{service}/predict", (null / "payload/golden/input-0.bin").read_bytes())
    assert status == 200
    np.testing.assert_allclose(answer["outputs"]["y"], golden.load(null / "payload", told["outputs"][0]), rtol=1e-6)


def test_it_tells_its_health(service: str) -> None:
    with urllib.request.urlopen(f"{service}/health", timeout=30) as answer:
        told = json.load(answer)
    assert (told["status"], told["self_test"], told["model"]["name"]) == ("ok", "pass", "Null net")


def test_bad_requests_are_answered_in_a_line(service: str) -> None:
    assert post(f"{service}/predict", b"abc")[0] == 400
    assert post(f"{service}/elsewhere", b"abc")[0] == 404
    assert post(f"{service}/predict", b"abc", {"Host": "evil.example"})[0] == 403
    assert all(set(post(f"{service}/predict", data)[1]) == {"error"} for data in (b"", b"PK\3\4"))


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"Content-Length: {inputs.LARGEST + 1}", 413),
        ("Content-Length: -1", 411),
        ("Content-Length: 9e9", 411),
        ("Transfer-Encoding: chunked", 411),
        ("X: y", 411),
    ],
)
def test_a_body_without_bounds_is_refused_unread(head: str, status: int, service: str) -> None:
    host, port = service.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as link:
        link.sendall(f"POST /predict HTTP/1.1\r\nHost: {host}\r\n{head}\r\n\r\n".encode())
        assert link.recv(100).split()[1] == str(status).encode()


def test_a_crowd_is_told_to_come_back_and_the_service_goes_on(service: str) -> None:
    host, port = service.removeprefix("http://").split(":")
    crowd = [socket.create_connection((host, int(port)), timeout=10) for _ in range(30)]
    answers = []
    for link in crowd[20:]:
        link.settimeout(5)
        answers.append(link.recv(20))
    for link in crowd:
        link.close()
    assert all(answer.startswith(b"HTTP/1.0 503") for answer in answers)
    for _ in range(50):
        if post(f"{service}/predict", b"abc")[0] == 400:
            return
    pytest.fail("it does not answer any longer")


# --------------------------------------------------------------------------- installing


def offline(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command without any network."""
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    told = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/tmp"), **env}
    return subprocess.run([*alone, *words], env=told, capture_output=True, text=True, timeout=300)


def installed(root: Path, prefix: Path | str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        [root / "install.sh", prefix], capture_output=True, text=True, timeout=60, env=environment, check=False
    )


@pytest.mark.parametrize("prefix", ["relative", "/tmp/a b", "/tmp/$(id)", "/tmp/x;id", "/tmp/../etc", "/tmp/x|y"])
def test_a_prefix_that_a_script_could_trip_over_is_refused(prefix: str, null: Path) -> None:
    done = installed(null, prefix)
    assert done.returncode == 1 and done.stderr.startswith("install.sh: PREFIX")


def test_a_changed_package_is_not_installed(null: Path, tmp_path: Path) -> None:
    root = shutil.copytree(null, tmp_path / "x")
    script = (root / "install.sh").read_text().replace('"aarch64"', f'"{os.uname().machine}"')
    (root / "install.sh").write_text(script)  # its own sum is wrong now
    done = installed(root, tmp_path / "app")
    assert "missing or changed" in done.stderr and not (tmp_path / "app").exists()


def test_a_machine_that_it_is_not_for_is_told(null: Path, tmp_path: Path) -> None:
    done = installed(null, tmp_path / "app")
    if os.uname().machine == "aarch64":
        pytest.skip("this machine is one that it is for")
    assert done.returncode == 1 and "is for 64-bit Linux on aarch64" in done.stderr


@pytest.mark.slow
def test_it_installs_here_offline_and_serves_the_golden_prediction(tmp_path: Path) -> None:
    if os.uname().machine != "x86_64" or sys.version_info[:2] > (3, 13):
        pytest.skip("the wheels of this test are for Linux x86_64")
    options = {"wheels": True, "platform": "linux-x86_64", "python": f"3.{sys.version_info[1]}"}
    try:
        root = packed(tmp_path, package_inputs.shipped(tmp_path / "dist"), **options)
    except EdgeError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no wheels: {error}")
    assert judged(root, tmp_path)["requirements"].status == "pass"
    app = tmp_path / "app"
    for _ in range(2):  # once more renews it
        done = offline(str(root / "install.sh"), str(app), PYTHON=sys.executable, PIP_NO_INDEX="1", PIP_NO_COMPILE="0")
        assert done.returncode == 0, done.stderr
    assert (app / "small-pets.service").read_text().count(f"ExecStart={app}/run serve --port 8000") == 1
    told = next(line for line in (root / "README.md").read_text().splitlines() if "run predict /opt" in line)
    asked = subprocess.run(shlex.split(told.replace("/opt/small-pets", str(app))), capture_output=True, check=True)
    assert json.loads(asked.stdout)["classes"][0]["label"] in package_inputs.LABELS
    with served([str(app / "run")]) as url:
        status, answer = post(f"{url}/predict", (root / "payload/golden/raw.bin").read_bytes())
    assert status == 200
    found = {row["label"]: row["probability"] for row in answer["classes"]}
    assert found == pytest.approx(expected(root / "payload"), rel=1e-4)
    (app / "mine").write_text("kept")
    assert offline(str(app / "install.sh"), "--uninstall", str(app)).returncode == 0
    assert os.listdir(app) == ["mine"]


def test_the_options_are_documented_where_they_are_read() -> None:
    names = [field.name for field in dataclasses.fields(tar.Options)]
    assert all(f"`{name}`" in (tar.__doc__ or "") for name in names)
