"""A sweep on a real Ray cluster of separate nodes, and what nodes, drivers, devices and disks do to it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nulls
import pytest
from ray_nodes import TOKEN, RayNodes
from test_fleet import written

from edgecompress.core.errors import InputError, Unreachable
from edgecompress.core.model import Artifact
from edgecompress.extras.fleet import cluster, matrix, sweep
from edgecompress.pipeline.job_request import Options

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra fleet is not installed"),
]

FAKE = 'description = "fake {name}"\ntransport = "host"\n[options.health]\nbusy = 1.0\n'
DEVICES = ("fake-a", "fake-b", "fake-c")
# Data that takes its time, and once ends the process on the node that has it made
SLOW = """
import os, pathlib, signal, time
import numpy as np

HERE = pathlib.Path(__file__).parent


def data(split):
    with (HERE / "runs").open("a") as file:
        file.write(f"{os.getpid()} {split}\\n")
    if (HERE / "die").exists() and b"ray::" in pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_bytes():
        (HERE / "die").unlink()
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.5)
    rng = np.random.default_rng(len(split))
    return [(rng.normal(size=4).astype("float32"), int(rng.integers(0, 3))) for _ in range(20)]
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """A head with one device, a worker with another; every test may add more."""
    before = {name: os.environ.get(name) for name in TOKEN}
    os.environ.update(TOKEN)
    with RayNodes(tmp_path_factory.mktemp("ray"), {"fake-a": 1}) as made:
        made.add("worker", {"fake-b": 1})
        yield made
        import ray

        ray.shutdown()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matrix of two nets on two fake devices."""
    for name in DEVICES:
        (tmp_path / f"{name}.toml").write_text(FAKE.format(name=name), encoding="utf-8")
    file = written(
        tmp_path,
        2,
        f'targets = ["{tmp_path}/n0/null.toml"]\nprofiles = ["quick"]\ndevices = ["fake-a.toml", "fake-b.toml"]',
    )
    text = file.read_text(encoding="utf-8").replace('data = "n1/data"', 'data = "slow:data"')
    file.write_text(text, encoding="utf-8")
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def swept(folder: Path, nodes: RayNodes | None, out: str = "out", patterns: tuple[str, ...] = ()) -> sweep.Swept:
    cells, notes = matrix.read(folder / "matrix.toml")
    on = nodes.address if nodes else "local"
    options = Options(store=folder / f"store-{out}", out=folder / out, progress=False, on=on)
    return sweep.run(matrix.named(cells, list(patterns)), options, notes)


def artifacts(out: Path) -> dict[str, str]:
    return {
        str(card.parent.relative_to(out)): Artifact.read(card.parent).sha256
        for card in out.rglob("artifact/artifact.json")
    }


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / sweep.LOG).read_text(encoding="utf-8").splitlines()]


def overlaps(told: list[dict[str, Any]]) -> list[str]:
    """Devices that two stages used at once."""
    spans = sorted((row["device"], row["began"], row["ended"]) for row in told if row.get("device"))
    return [one[0] for one, other in itertools.pairwise(spans) if one[0] == other[0] and other[1] < one[2]]


def test_a_cluster_ships_the_bytes_of_a_serial_run_and_uses_no_device_twice_at_once(
    folder: Path, nodes: RayNodes
) -> None:
    on_cluster, serial = swept(folder, nodes), swept(folder, None, "serial")
    assert [row["state"] for row in on_cluster.rows] == ["shipped"] * 4, [row["says"] for row in on_cluster.rows]
    assert artifacts(folder / "out") == artifacts(folder / "serial") and len(artifacts(folder / "out")) == 4
    told = rows(folder / "out")
    assert {row["device"] for row in told if row.get("device")} == {"fake-a", "fake-b"} and overlaps(told) == []
    assert len({row["pid"] for row in told if "pid" in row}) > 1
    assert [row["state"] for row in serial.rows] == ["shipped"] * 4


def test_the_stage_of_a_killed_process_is_done_again(folder: Path, nodes: RayNodes) -> None:
    (folder / "die").touch()
    found = swept(folder, nodes, patterns=("n1/*",))
    assert not (folder / "die").exists()
    assert [row["state"] for row in found.rows] == ["shipped"] * 2, [row["says"] for row in found.rows]


@pytest.mark.prove
def test_a_killed_driver_goes_on_from_the_store_and_ships_once(folder: Path, nodes: RayNodes) -> None:
    words = ["sweep", "matrix.toml", "--on", nodes.address, "--store", "store-out", "--out", "out"]
    command = [sys.executable, "-P", "-m", "edgecompress", *words]
    driver = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = folder / "out/n0/null/fake-a/quick"
    end = time.monotonic() + 120
    while not first.is_dir() and time.monotonic() < end and driver.poll() is None:
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    inode = first.stat().st_ino
    done = {path.name for path in (folder / "store-out/store").iterdir()}
    assert subprocess.run(command, cwd=folder, capture_output=True).returncode == 0
    assert first.stat().st_ino == inode and done <= {path.name for path in (folder / "store-out/store").iterdir()}
    assert len(artifacts(folder / "out")) == 4 and overlaps(rows(folder / "out")) == []


@pytest.mark.prove
def test_a_device_that_goes_costs_its_own_cells(folder: Path, nodes: RayNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "GONE_S", 3.0)
    monkeypatch.setattr(cluster, "ANSWER_S", 1.0)
    nodes.add("lost", {"fake-c": 1})
    file = folder / "matrix.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("fake-b", "fake-c"), encoding="utf-8")
    known = cluster.connected(nodes.address)
    end = time.monotonic() + 60
    while not known.has("fake-c") and time.monotonic() < end:
        time.sleep(0.2)
    real, killed = known.facts_of, list[str]()

    def asked(name: str, device: Any) -> Any:
        told = real(name, device)
        if name == "fake-c" and not killed:
            killed.append(name)
            nodes.kill("lost")
        return told

    monkeypatch.setattr(known, "facts_of", asked)
    found = {row["device"]: row for row in swept(folder, nodes).rows if row["source"] == "n0"}
    assert found["fake-a"]["state"] == "shipped"
    assert found["fake-c"]["state"] in ("failed", "refused")
    assert "fake-c" in found["fake-c"]["says"] and "no node of" in found["fake-c"]["says"]


def test_a_device_that_no_node_has_is_one_line(folder: Path, nodes: RayNodes) -> None:
    with pytest.raises(
        Unreachable, match=r"device fake-c: no node .* has it; .*--resources '\{\"device:fake-c\": 1\}'"
    ):
        cluster.connected(nodes.address).facts_of("fake-c", {"transport": "host"})


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk, which root alone may")
@pytest.mark.prove
def test_a_full_store_is_told_and_what_is_there_stays(folder: Path, nodes: RayNodes) -> None:
    (folder / "store-out").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", folder / "store-out"]).returncode:
        pytest.skip("this machine mounts no disk")
    try:
        found = swept(folder, nodes, patterns=("n0/*",))
        assert {row["state"] for row in found.rows} == {"failed"}
        assert all("MiB free" in row["says"] for row in found.rows)
    finally:
        subprocess.run(["umount", "-l", folder / "store-out"], check=True)
    assert [row["state"] for row in swept(folder, nodes, patterns=("n0/*",)).rows] == ["shipped"] * 2


def test_a_node_of_another_version_is_refused_with_both(
    nodes: RayNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import edgecompress

    other = tmp_path / "other"
    package = Path(edgecompress.__file__).parent
    shutil.copytree(package, other / "edgecompress", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "edgecompress/core/model.py").open("a", encoding="utf-8") as file:
        file.write("\n# another one\n")
    for kind in ("targets", "devices", "profiles"):
        shutil.copytree(package.parent / kind, other / kind)
    nodes.add("old", {}, PYTHONPATH=str(other))
    known, end = cluster.connected(nodes.address), time.monotonic() + 90
    while not known.refused and time.monotonic() < end:
        known.has("fake-a")
        time.sleep(0.5)
    says = " ".join(known.refused.values())
    assert "has edgecompress " in says and ", here " in says and "install the same there" in says
    assert f"warning: {says}; nothing is done on it" in capsys.readouterr().err
    nodes.kill("old")


@pytest.mark.prove
def test_ctrl_c_ends_what_waits_for_a_node(folder: Path, nodes: RayNodes) -> None:
    words = ["sweep", "matrix.toml", "--on", nodes.address, "--store", "store-out", "--out", "out"]
    (folder / "slow.py").write_text(SLOW.replace("time.sleep(0.5)", "time.sleep(120)"), encoding="utf-8")
    driver = subprocess.Popen([sys.executable, "-P", "-m", "edgecompress", *words], cwd=folder, stderr=subprocess.PIPE)
    end = time.monotonic() + 240
    while not (folder / "runs").exists() and time.monotonic() < end:
        time.sleep(0.1)
    began = time.monotonic()
    driver.send_signal(signal.SIGINT)
    assert driver.wait(100) == 130 and time.monotonic() - began < 60  # not the 120 s of the stage
    states = {row["state"] for row in sweep.read(folder / "out")}
    assert states <= {"waiting", "running", "shipped"}  # nothing broke: what did not end has not ended
    assert (folder / "out" / sweep.PAGE).is_file()


def test_an_address_that_nobody_listens_on_is_one_line(nodes: RayNodes) -> None:
    with pytest.raises(Unreachable, match="nobody listens there"):
        cluster.connected("ray://127.0.0.1:1")
    with pytest.raises(InputError, match="give local, or the address of a cluster"):
        cluster.connected("http://127.0.0.1:1")


@pytest.mark.prove  # the first test does as much with cells
def test_a_deploy_runs_on_a_cluster(folder: Path, nodes: RayNodes) -> None:
    from edgecompress.commands import deploy

    made = {"model": str(folder / "n0/net.null"), "data": str(folder / "n0/data")}
    options = Options(store=folder / "store", out=folder / "one", progress=False, on=nodes.address)
    found = deploy.deploy(
        made["model"],
        folder / "n0/null.toml",
        data=made["data"],
        device=str(folder / "fake-b.toml"),
        profile="quick",
        settings=nulls.FAST,
        options=options,
    )
    assert found.exit_code == 0 and found.out == folder / "one"
