"""A matrix cell by cell, on this machine: what its cells are, how they end, its page, and gates over two sweeps."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nulls
import pytest

from edgecompress.commands.compare import ComparisonRequest
from edgecompress.core.errors import ConfigError, EdgeError, InputError, MissingDependency, Unreachable
from edgecompress.core.model import Context, Stage
from edgecompress.extras.fleet import gate, health, matrix, page, sweep
from edgecompress.extras.fleet.lease import leased
from edgecompress.pipeline import stage_order
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.stage_order import Order
from edgecompress.pipeline.store import Store
from edgecompress.reporting import history

PLAIN = 'targets = ["{target}"]\nprofiles = ["quick"]\n'


def written(folder: Path, nets: int = 2, more: str = "", **behaviour: float) -> Path:
    """A matrix of null nets on this machine."""
    made = [nulls.make(folder / f"n{i}", scale=1.0 + i, **behaviour) for i in range(nets)]
    settings = "".join(f'"{key}" = {value}\n' for key, value in nulls.FAST.items())
    sources = "".join(f'[[source]]\nname = "n{i}"\nmodel = "n{i}/net.null"\ndata = "n{i}/data"\n' for i in range(nets))
    head = PLAIN.format(target=made[0]["target"]) if "targets" not in more else ""
    (folder / "matrix.toml").write_text(f"{head}{more}\n{sources}[settings]\n{settings}", encoding="utf-8")
    return folder / "matrix.toml"


def swept(file: Path, folder: Path, **options: Any) -> sweep.Swept:
    cells, notes = matrix.read(file)
    made = Options(store=folder / "store", out=folder / "out", progress=False, **options)
    return sweep.run(cells, made, notes)


# --------------------------------------------------------------------------- cells


def test_cells_are_the_product_less_what_is_excluded_and_with_what_is_included(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        3,
        'targets = ["x86", "arm64"]\ndevices = ["host", "rpi5"]\nprofiles = ["quick", "strict"]\n'
        'exclude = [{ source = "n0", profile = "strict" }, { device = "rpi5" }]\n'
        'include = [{ source = "n2", target = "arm64", device = "rpi4", profile = "cold" }]',
    )
    cells, left = matrix.read(file)
    names = [cell.name for cell in cells]
    here = platform.machine()
    theirs = "arm64" if here == "x86_64" else "x86"
    (why,) = left  # of what is excluded nothing is said
    assert why.startswith(f"{theirs} does not run on host (linux-{here})")
    assert not any(name.split("/")[1:3] == [theirs, "host"] for name in names)
    assert "n2/arm64/rpi4/cold" in names and not any(name.startswith("n0/") and "strict" in name for name in names)
    assert not any("rpi5" in name for name in names) and len(names) == len({*names})
    assert cells[0].name.startswith("n0/") and cells[0].request["model"] == str(tmp_path / "n0/net.null")
    assert [cell.name for cell in matrix.named(cells, ["*/cold"])] == ["n2/arm64/rpi4/cold"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('targets = ["x86"]', "key 'source' is missing"),
        ('targets = []\n[[source]]\nmodel = "a.onnx"', "targets is empty"),
        ('targets = ["x86"]\nonly = []\n[[source]]\nmodel = "a.onnx"', "only is empty; leave it out"),
        ('targets = ["x86"]\ndevices = []\n[[source]]\nmodel = "a.onnx"', "devices is empty; leave it out"),
        ('targets = ["x86"]\ntarget = "x86"\n[[source]]\nmodel = "a.onnx"', "unknown key 'target'"),
        ('targets = ["x68"]\n[[source]]\nmodel = "a.onnx"', "no target 'x68', did you mean 'x86'"),
        ('targets = ["x86"]\n[[source]]\nmodel = "a.onnx"\n[[source]]\nmodel = "b/a.onnx"', "two are called 'a'"),
        ('targets = ["x86"]\n[[source]]\nname = "../up"\nmodel = "a.onnx"', "'../up' is no name"),
        ('targets = ["x86"]\nexclude = [{ source = "*" }]\n[[source]]\nmodel = "a.onnx"', "no cell is left"),
        ('targets = ["x86"]\nexclude = [{ source = "b" }]\n[[source]]\nmodel = "a.onnx"', "b/*/*/* fits no cell"),
        ('targets = ["x86"]\ninclude = [{ source = "b", target = "x86" }]\n[[source]]\nmodel = "a.onnx"', "source 'b'"),
    ],
)
def test_a_wrong_matrix_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(says)):
        matrix.read(tmp_path / "matrix.toml")


def test_a_remedy_is_a_key_of_the_matrix(tmp_path: Path) -> None:
    made = nulls.make(tmp_path)
    file = tmp_path / "matrix.toml"
    file.write_text(
        f'targets = ["{made["target"]}"]\nonly = ["plian"]\n[[source]]\nmodel = "net.null"\n', encoding="utf-8"
    )
    with pytest.raises(EdgeError) as raised:
        sweep.planned(matrix.read(file)[0], Options(store=tmp_path / "store", out=tmp_path / "out"))
    assert "--" not in str(raised.value) and re.search("`(only|data)`", str(raised.value))


# --------------------------------------------------------------------------- a sweep


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sweep.Swept]:
    """Two nets, one of which no variant of is right, and one source that is no model."""
    folder = tmp_path_factory.mktemp("sweep")
    file = written(folder, 2)
    text = file.read_text(encoding="utf-8")
    bad = '[[source]]\nname = "gone"\nmodel = "gone.null"\ndata = "n0/data"\n[settings]'
    file.write_text(text.replace("[settings]", bad), encoding="utf-8")
    return folder, swept(file, folder)


def test_a_cell_that_fails_does_not_stop_the_others_and_the_gravest_exit_code_is_told(
    two: tuple[Path, sweep.Swept],
) -> None:
    folder, found = two
    states = {row["source"]: row["state"] for row in found.rows}
    assert states == {"n0": "shipped", "n1": "shipped", "gone": "refused"}
    assert found.exit_code == 2
    assert sweep.read(folder / "out") == list(found.rows)
    assert (folder / "out/n0/null/host/quick/report.html").is_file()
    row = found.rows[0]
    assert row["numbers"]["latency"]["unit"] == "ms" and row["loss"] == 0 and row["variant"] == "plain"


def test_a_sweep_again_finds_everything_and_ships_nothing_twice(two: tuple[Path, sweep.Swept]) -> None:
    folder, _ = two
    place = folder / "out/n0/null/host/quick"
    before = place.stat().st_ino, (place / "report.json").stat().st_mtime_ns
    again = swept(folder / "matrix.toml", folder)
    assert [row["state"] for row in again.rows] == ["shipped", "shipped", "refused"]
    assert (place.stat().st_ino, (place / "report.json").stat().st_mtime_ns) == before
    shutil.rmtree(place)
    swept(folder / "matrix.toml", folder)
    assert json.loads((place / "artifact/model.null").read_text(encoding="utf-8"))["scale"] == 1.0


def test_some_cells_again_leave_the_others_in_the_matrix(two: tuple[Path, sweep.Swept]) -> None:
    folder, found = two
    cells, notes = matrix.read(folder / "matrix.toml")
    options = Options(store=folder / "store", out=folder / "out", progress=False)
    again = sweep.run(cells[:1], options, notes, beside=cells[1:])
    assert [row["cell"] for row in again.rows] == [cells[0].name]
    assert {row["cell"]: row["state"] for row in sweep.read(folder / "out")} == {
        r["cell"]: r["state"] for r in found.rows
    }


def test_a_cell_without_the_number_of_a_gate_is_not_judged_and_one_that_runs_is_not_finished(
    two: tuple[Path, sweep.Swept], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from edgecompress.cli.main import main

    folder, found = two
    gates = ["--fail-if", "instructions > 1.1x"]
    assert main(["compare", str(folder / "out"), str(folder / "out"), *gates]) == 2
    assert re.search(r"n0/null/host/quick +not judged", capsys.readouterr().out)
    (tmp_path / sweep.FILE).write_text(
        json.dumps({"schema": sweep.SCHEMA, "rows": [{**found.rows[0], "state": "running"}]}), encoding="utf-8"
    )
    judged = gate.judge(folder / "out", tmp_path, ComparisonRequest())
    assert (judged.cells[0].exit_code, judged.cells[0].says) == (4, "not finished: sweep again")


def test_the_page_shows_each_cell_with_its_report_and_escapes_names(two: tuple[Path, sweep.Swept]) -> None:
    folder, found = two
    text = (folder / "out/matrix.html").read_text(encoding="utf-8")
    assert 'href="n0/null/host/quick/report.html"' in text and "<script" not in text
    hostile = page.of([{**found.rows[0], "source": "<b>", "says": "<i>", "state": "failed"}], [])
    assert "<b>" not in hostile and "<i>" not in hostile


def test_a_gate_over_two_sweeps_names_the_cells(two: tuple[Path, sweep.Swept], tmp_path: Path) -> None:
    folder, found = two
    rows: list[Mapping[str, Any]] = [dict(row) for row in found.rows]
    after = tmp_path / "after"
    (after / "n1/null/host").mkdir(parents=True)
    (after / "n1/null/host/quick").symlink_to(folder / "out/n1/null/host/quick")
    (after / sweep.FILE).write_text(json.dumps({"schema": sweep.SCHEMA, "rows": rows[1:]}), encoding="utf-8")
    assert gate.is_matrix([folder / "out", after])
    with pytest.raises(InputError, match="is a sweep; give two sweeps"):
        gate.is_matrix([folder / "out", folder])
    with pytest.raises(InputError, match="nowhere: no such file or folder"):
        gate.is_matrix([folder / "out", tmp_path / "nowhere"])
    kept = gate.judge(folder / "out", folder / "out", ComparisonRequest(("size_bytes > 1.01x",)))
    assert kept.exit_code == 0
    judged = gate.judge(folder / "out", after, ComparisonRequest(("size_bytes > 10",)))
    assert {cell.cell: cell.exit_code for cell in judged.cells if cell.exit_code} == {
        "n0/null/host/quick": 1,
        "n1/null/host/quick": 1,
    }
    assert judged.cells[0].says == "is gone" and "broken" in judged.cells[1].says
    with pytest.raises(InputError, match="no metric"):
        gate.judge(folder / "out", after, ComparisonRequest(("weight > 1",)))
    (after / sweep.FILE).write_text('{"schema": "x", "rows": []}', encoding="utf-8")
    with pytest.raises(InputError, match="not a matrix"):
        gate.judge(folder / "out", after, ComparisonRequest())


def test_variants_are_asked_of_the_targets_that_have_them(tmp_path: Path) -> None:
    file = written(
        tmp_path, 1, f'targets = ["{tmp_path}/n0/null.toml", "{tmp_path}/two.toml"]\nonly = ["plain", "other"]'
    )
    (tmp_path / "two.toml").write_text(nulls.TARGET.replace('"plain"', '"other"'), encoding="utf-8")
    cells, _ = matrix.read(file)
    made, refused = sweep.planned(cells, Options(store=tmp_path / "store"))
    assert [whole.only for _, whole, _ in made] == [("plain",), ("other",)] and not refused
    file.write_text(file.read_text(encoding="utf-8").replace('"other"]', '"othr"]'), encoding="utf-8")
    with pytest.raises(InputError, match="no target has such a variant, did you mean 'other'"):
        sweep.planned(matrix.read(file)[0], Options(store=tmp_path / "store"))


def test_a_dry_run_lists_the_cells_with_minutes_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from edgecompress.cli.main import main

    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    assert main(["sweep", "matrix.toml", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "n0/null/host/quick" in said and "2 of 2 cells" in said and not (tmp_path / "dist").exists()
    assert main(["sweep", "matrix.toml", "--dry-run", "--cells", "n9/*"]) == 2


# --------------------------------------------------------------------------- orders, leases, health, history


def test_an_order_is_the_same_behind_its_text() -> None:
    stage = Stage("a/b", "techniques.x:apply", {"model": "source"}, {"ratio": 0.5}, ("a",), plugins=("runtimes.null",))
    order = Order(stage, {"model": "/tmp/x"}, {"call": "x", "n": 1}, Context(seed=3, device={"transport": "host"}))
    assert stage_order.of_text(stage_order.as_text(order)) == order


def _hold(root: str, began: Any) -> None:
    with leased(Store(Path(root)), "rpi5", "int8/bench", 1.0):
        began.set()
        time.sleep(30)


def test_a_device_has_one_user_and_the_end_of_its_process_gives_it_back(tmp_path: Path) -> None:
    store, context = Store(tmp_path / "store"), multiprocessing.get_context("spawn")
    began = context.Event()
    other = context.Process(target=_hold, args=(str(store.root), began))
    other.start()
    assert began.wait(30)
    with (
        pytest.raises(Unreachable, match=rf"device rpi5: in use .* by int8/bench on .* \(process {other.pid}\)"),
        leased(store, "rpi5", "fp32/bench", 0.3),
    ):
        pass
    with leased(store, "rpi4", "fp32/bench", 0.3):
        pass
    other.kill()
    other.join()
    with leased(store, "rpi5", "fp32/bench", 5.0):
        pass


FIT = "cpu 100 0 100 800 0 0 0 0\ncpu 110 0 110 980 0 0 0 0\nMemTotal: 1000 kB\nMemAvailable: 600 kB\nheat 45000\n"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (FIT, ""),
        ("", ""),
        (FIT.replace("980", "810"), "keep 67% of its cores busy"),
        (FIT.replace("45000", "45000\nheat 91000"), "temperature is 91 °C"),
        (FIT.replace("600", "20"), "2.0% of its memory are free"),
        (FIT + "clock 600000 2400000\n", "its clock is limited to less than 50%"),
        (FIT + "clock 2400000 2400000\n", ""),
    ],
)
def test_a_device_that_is_hot_busy_full_or_slow_is_not_measured_on(told: str, says: str) -> None:
    reasons = "; ".join(health.reasons(told, health.Fit()))
    assert says in reasons and bool(says) == bool(reasons)


def test_a_device_of_here_is_looked_at_and_its_file_says_what_it_keeps() -> None:
    device = {"transport": "host", "platform": "", "options": {"health": {"busy": 1.0, "hot_c": 500.0, "free": 0.0}}}
    assert health.ill(device) == ""
    assert "memory" in health.ill({**device, "options": {"health": {"busy": 1.0, "free": 1.0}}})
    with pytest.raises(ConfigError, match="unknown key 'bussy', did you mean 'busy'"):
        health.ill({**device, "options": {"health": {"bussy": 1.0}}})


def test_histories_of_two_machines_become_one_and_a_stranger_file_is_refused(
    two: tuple[Path, sweep.Swept], tmp_path: Path
) -> None:
    folder, _ = two
    mine = tmp_path / "mine"
    assert history.merge(mine, folder / "store") == 2
    assert history.merge(mine, folder / "store/history.sqlite") == 0
    assert {row["target"] for row in history.rows(mine)} == {"null"}
    with sqlite3.connect(tmp_path / "other.sqlite") as database:
        database.execute("CREATE TABLE results (x)")
    with pytest.raises(InputError, match="cannot be read"):
        history.merge(mine, tmp_path / "other.sqlite")
    with pytest.raises(InputError, match=r"no history\.sqlite there"):
        history.merge(mine, tmp_path)


def test_without_ray_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgecompress.core import environments

    monkeypatch.setattr(environments, "missing", lambda _: ["ray[client]>=2.55"])
    with pytest.raises(MissingDependency, match=r"--on ray://x:1 needs ray.*fleet"):
        swept(written(tmp_path), tmp_path, on="ray://x:1")


@pytest.mark.slow
def test_the_nightly_workflow_sweeps_and_compares(tmp_path: Path) -> None:
    """Its own steps, twice: the second night is compared with the first."""
    yaml = pytest.importorskip("yaml")
    file = Path(__file__).resolve().parents[3] / "examples/ci/sweep.yml"
    steps = {
        step.get("name"): step for step in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]["sweep"]["steps"]
    }
    written(tmp_path, 1)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = []
    for name in ("Sweep", "Compare", "Keep this sweep") * 2:
        words = next(step["run"] for step_name, step in steps.items() if step_name and step_name.startswith(name))
        ran = subprocess.run(
            ["sh", "-ec", words], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        told.append(ran.stdout)
    assert told[1] == "" and "n0/null/host/quick" in told[4]
