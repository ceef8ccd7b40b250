"""What ships, and where: only what a deploy wrote is replaced, whole or not at all; what ships was verified."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import nulls
import pytest
from small_onnx import conv_net, images

import edgecompress
from edgecompress.cli import main
from edgecompress.core import atomic_file, work_folder
from edgecompress.core.errors import EdgeError, InputError, StageFailed
from edgecompress.core.model import SETTINGS, Artifact
from edgecompress.pipeline import shipping
from edgecompress.pipeline.store import Store

pytestmark = pytest.mark.slow

THESIS = "years of work"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    made: dict[str, object] = {**nulls.make(tmp_path_factory.mktemp("net"))}
    return {**made, "profile": "quick", "settings": nulls.FAST}


@pytest.fixture(scope="module")
def results(asked: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store where every stage is a hit."""
    folder = tmp_path_factory.mktemp("results")
    assert deploy(asked, folder / "store", folder / "out").exit_code == 0
    return folder / "store"


@pytest.fixture
def out(asked: dict[str, object], results: Path, tmp_path: Path) -> Path:
    assert deploy(asked, results, tmp_path / "out").exit_code == 0
    return tmp_path / "out"


def deploy(asked: dict[str, object], store: Path, out: Path, **more: object) -> edgecompress.Result:
    return edgecompress.deploy(**asked, options=edgecompress.Options(store=store, out=out, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(("umask", "folders", "files"), [(0o022, 0o755, 0o644), (0o027, 0o750, 0o640)])
def test_who_may_read_what_ships_is_for_the_umask_to_say(asked, results, tmp_path, umask, folders, files):
    before = os.umask(umask)
    try:
        deploy(asked, results, tmp_path / "out")
    finally:
        os.umask(before)
    paths = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    assert {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in paths} == {True: folders, False: files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {folders, files}


def test_what_a_deploy_wrote_is_replaced(asked, results, out):
    assert deploy(asked, results, out).exit_code == 0
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_what_is_there_whole_is_not_shipped_again_and_what_is_damaged_is(asked, results, out):
    made = out.stat().st_ino
    assert deploy(asked, results, out).exit_code == 0
    assert out.stat().st_ino == made
    for name in ("report.html", "deploy.json"):
        (out / name).unlink()
        assert deploy(asked, results, out).exit_code == 0
        assert (out / name).stat().st_size


@pytest.mark.parametrize(
    ("name", "factor", "source", "warned"),
    [("other", 0.01, "", True), ("other", 100.0, "", False), ("plain", 0.01, "", False), ("other", 0.01, "x", False)],
)
def test_a_faster_variant_that_this_run_left_out_is_not_replaced_without_a_word(
    asked, results, out, name, factor, source, warned, capsys
):
    report = json.loads((out / "report.json").read_text())
    report["choice"]["variant"] = report["variants"][0]["name"] = name
    latency = report["variants"][0]["numbers"]["latency"]
    latency.update(value=latency["value"] * factor, low=None, high=None)
    report["variants"][0]["sessions"] = []
    report["source"]["model"] += source
    (out / "report.json").write_text(json.dumps(report))
    assert deploy(asked, results, out).exit_code == 0
    said = capsys.readouterr().err
    assert ("takes the place of other" in said and "deploy without --only" in said) is warned


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("place", ["thesis.tex", "artifact/thesis.tex", "mine/thesis.tex", "measured/thesis.tex"])
def test_a_folder_with_a_file_of_somebody_else_is_refused_before_anything_runs(
    asked, tmp_path, results, out, listed, place
):
    if listed:  # as a stranger's deploy.json may claim
        told = json.loads((out / "deploy.json").read_text())
        names = [*shipping.files(out), place, "../thesis.tex"]
        (out / "deploy.json").write_text(json.dumps({**told, "files": names}))
    (out / place).parent.mkdir(exist_ok=True)
    (out / place).write_text(THESIS)
    heard: list[object] = []
    with pytest.raises(InputError) as raised:
        deploy(asked, results, out, listener=heard.append)
    inside = place.startswith("artifact")  # whose sha256 then holds for none of its files
    assert str(raised.value).startswith(f"{out / place}: was not written by edgecompress") or inside
    assert "\n" not in str(raised.value) and not heard and (out / place).read_text() == THESIS


def test_a_report_alone_does_not_make_a_folder_ours(asked, results, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.json").write_text("{}")
    with pytest.raises(InputError, match=r"report\.json: was not written by edgecompress, and a deploy replaces"):
        deploy(asked, results, tmp_path / "mine")
    assert (tmp_path / "mine" / "report.json").exists()


def test_siblings_that_are_called_like_leftovers_stay(asked, results, out):
    for name in (".out.old", ".out.part", ".out.edgecompress-x"):
        (out.parent / name).mkdir()
        (out.parent / name / "thesis.tex").write_text(THESIS)
    assert deploy(asked, results, out).exit_code == 0
    assert len(list(out.parent.glob(".out.*/thesis.tex"))) == 3


def test_places_that_are_no_folder_of_their_own_are_refused(asked, results, tmp_path, monkeypatch):
    (tmp_path / "file").write_text(THESIS)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    for place in (Path(), tmp_path, Path("/"), tmp_path / "file", tmp_path / "file" / "x", results):
        with pytest.raises(InputError) as raised:
            deploy(asked, results, place)
        assert "--out" in str(raised.value) and "\n" not in str(raised.value)
    assert (tmp_path / "empty").is_dir()


def test_what_a_killed_report_left_is_no_file_of_somebody_else(asked, results, out):
    (out / "measured").mkdir()
    for name in (".report.html.17.part", ".report.md.part", "measured/.0123456789ab.json.17.part"):
        (out / name).write_text("half")
    assert deploy(asked, results, out).exit_code == 0
    assert not list(out.rglob(".*.part"))


def test_a_link_stays_and_the_folder_that_it_names_is_replaced(asked, results, out):
    link = out.with_name("link")
    link.symlink_to(out)
    assert deploy(asked, results, link).out == out
    assert link.is_symlink()


@pytest.mark.parametrize("exchanges", [True, False])
def test_what_breaks_in_the_middle_leaves_what_shipped_before(asked, results, out, monkeypatch, exchanges):
    before = (out / "deploy.json").read_bytes()
    (out / "report.md").write_text("")  # what is there whole is not shipped again
    rename = Path.rename

    def full(*paths: Path) -> bool:
        raise OSError(28, "No space left on device")

    def breaks(self: Path, target: Path) -> Path:
        return full() if Path(target) == out and self.name == "new" else rename(self, target)

    monkeypatch.setattr(atomic_file, "exchange", full if exchanges else lambda *paths: False)
    monkeypatch.setattr(Path, "rename", breaks)
    with pytest.raises(StageFailed, match="No space left"):
        deploy(asked, results, out)
    assert (out / "deploy.json").read_bytes() == before
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_there_is_no_moment_without_what_shipped(asked, results, out, monkeypatch):
    (out / "report.md").write_text("")  # what is there whole is not shipped again
    renamed, exchanged = list[Path](), list[Path]()
    rename, exchange = Path.rename, atomic_file.exchange
    monkeypatch.setattr(Path, "rename", lambda self, target: renamed.append(self) or rename(self, target))
    monkeypatch.setattr(atomic_file, "exchange", lambda one, other: exchanged.append(other) or exchange(one, other))
    assert deploy(asked, results, out).exit_code == 0
    assert exchanged == [out] and not [path for path in renamed if path == out or path.name == "new"]


# Where the file system cannot exchange two folders there are two renames.
KILLED = """
import os, sys
from pathlib import Path
from typing import Any
from edgecompress.core import atomic_file as durable
from edgecompress.pipeline import shipping

durable.exchange = lambda *paths: False

def fill(part):
    (part / "report.json").write_text("{}")

rename = Path.rename
def dying(self, target):
    if Path(target).name == "out":
        os.kill(os.getpid(), 9)
    return rename(self, target)
Path.rename = dying
shipping.ship(Path(sys.argv[1]), fill)
"""


def test_a_kill_between_the_two_renames_is_mended_by_the_next_deploy(asked, results, out):
    before = (out / "artifact" / "model.null").read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False)
    assert done.returncode == -9 and not out.exists()
    with pytest.raises(EdgeError):  # one that ends before it ships
        deploy(asked, results, out, until="nothing-such")
    shipping.check(out, results)
    assert (out / "artifact" / "model.null").read_bytes() == before
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_a_working_folder_is_for_one_process_at_a_time_and_never_a_link(tmp_path):
    with work_folder.folder(tmp_path / "x86") as work:
        (work / "new").mkdir()
        work_folder.sweep(tmp_path / "x86")
        with pytest.raises(BlockingIOError), work_folder.folder(tmp_path / "x86", wait=False):
            pass
        with work_folder.folder(tmp_path / "x86.v2", wait=False) as other:
            assert (work / "new").is_dir() and other != work
    assert not list(tmp_path.iterdir())
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text(THESIS)
    work.symlink_to(tmp_path / "thesis")
    work_folder.sweep(tmp_path / "x86")
    with pytest.raises(NotADirectoryError), work_folder.folder(tmp_path / "x86"):
        pass
    assert os.listdir(tmp_path / "thesis") == ["thesis.tex"]


TURNS = """
import os, sys
from pathlib import Path
from edgecompress.core import work_folder
for _ in range(200):
    with work_folder.folder(Path(sys.argv[1])) as work:
        (work / "mine").mkdir()
        assert os.listdir(work / "mine") == []
        (work / "mine" / str(os.getpid())).touch()
"""


def test_who_waits_for_a_working_folder_gets_it_empty(tmp_path):
    turns = [subprocess.Popen([sys.executable, "-c", TURNS, str(tmp_path / "out")]) for _ in range(3)]
    assert [turn.wait(timeout=120) for turn in turns] == [0, 0, 0]
    assert not list(tmp_path.iterdir())


def test_a_stored_model_that_was_damaged_is_made_again_and_never_ships(asked, results, tmp_path):
    store = shutil.copytree(results, tmp_path / "store")
    entry = next(e for e in Store(store).entries() if e.artifact.kind == "null")
    file = entry.artifact.file(".null")
    whole = file.read_bytes()
    file.write_bytes(bytes(len(whole)))
    result = deploy(asked, store, tmp_path / "out")
    assert result.exit_code == 0
    assert [o.stage for o in result.outcomes.values() if o.why_run == "its stored bytes were damaged"]
    assert (tmp_path / "out" / "artifact" / file.name).read_bytes() == whole


def test_bytes_that_change_after_they_were_verified_do_not_ship(asked, results, tmp_path, monkeypatch):
    copyfile = shutil.copyfile

    def corrupts(source: Path, place: Path) -> None:
        copyfile(source, place)
        if place.suffix == ".null":
            place.write_bytes(b"x" + place.read_bytes()[1:])

    monkeypatch.setattr(shutil, "copyfile", corrupts)
    with pytest.raises(StageFailed, match="changed after it was verified; deploy again"):
        deploy(asked, results, tmp_path / "out")
    assert not os.listdir(tmp_path)


def test_an_artifact_of_another_deploy_is_refused_in_a_shipped_folder(asked, results, out, tmp_path):
    other = {**asked, **nulls.make(tmp_path / "net", scale=2.0)}
    assert deploy(other, results, tmp_path / "other").exit_code == 0
    shutil.rmtree(out / "artifact")
    shutil.copytree(tmp_path / "other" / "artifact", out / "artifact")
    for command in (edgecompress.profile, edgecompress.verify, edgecompress.package):
        with pytest.raises(InputError, match=r"is not the artifact that shipped with .*deploy again"):
            command(out)


def test_the_settings_of_a_session_are_sealed_with_the_bytes(tmp_path):
    (tmp_path / "artifact").mkdir()
    artifact = Artifact(tmp_path / "artifact", "any", facts={SETTINGS: {"streams": 1}}).write()
    card = tmp_path / "artifact" / "artifact.json"
    assert shipping.sound(artifact.path) == artifact
    card.write_text(card.read_text().replace('"streams": 1', '"streams": 2'))
    with pytest.raises(InputError, match="changed after it was shipped"):
        shipping.sound(artifact.path)


@pytest.mark.parametrize("files", [["thesis.tex"], {"thesis.tex": ""}, "thesis.tex", [], [["thesis.tex"]]])
def test_a_deploy_json_of_another_tool_makes_no_folder_ours(tmp_path, files):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text(THESIS)
    (tmp_path / "out" / "deploy.json").write_text(json.dumps({"files": files}))
    with pytest.raises(InputError, match="was not written by edgecompress"):
        shipping.check(tmp_path / "out", tmp_path / "store")


# --------------------------------------------------------------------------- where nothing ships


def told(result: edgecompress.Result) -> dict[str, Any]:
    """What the three faces of a report say where nothing ships."""
    assert result.out is None and result.report
    assert {f.name for f in result.report.iterdir()} >= {"report.json", "report.md", "report.html"}
    report = result.read_report()
    assert report["exit_code"] == result.exit_code
    return dict(report["summary"])


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("untrusted", [False, True])
def test_where_every_variant_is_lost_a_report_says_why(
    asked: dict[str, Any], results: Path, tmp_path: Path, untrusted: bool, elsewhere: bool
) -> None:
    """On the target's device and on none, with models that run their author's code and without."""
    target = tmp_path / "target.toml"
    target.write_text('platforms = ["plan9-*"]\n' * elsewhere + Path(asked["target"]).read_text())
    lost = {**asked, "target": str(target), "settings": {**nulls.FAST, "limits.size_bytes": 1}}
    result = deploy(lost, results, tmp_path / "out", untrusted=untrusted)
    said = told(result)
    assert (result.exit_code, said["outcome"]) == (1, "nothing")
    assert re.search(r"plain is lost: \d+ bytes, limit 1\b", said["sentence"])
    assert ("not measured on the target" in said["sentence"]) is elsewhere


def test_where_every_variant_broke_a_report_says_why(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "breaks.py").write_text("def metric(outputs, labels):\n    raise ValueError('no such thing')\n")
    result = deploy({**asked, "metric": "breaks:metric"}, tmp_path / "store", tmp_path / "out")
    said = told(result)
    assert (result.exit_code, said["outcome"]) == (2, "failed")
    assert "it raised ValueError: no such thing" in said["sentence"] and "(log: " not in said["sentence"]
    assert "it raised ValueError: no such thing" in result.message


def test_where_nothing_ships_the_report_is_in_the_output_folder_until_something_does(
    asked: dict[str, Any], results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = {**asked, "settings": {**nulls.FAST, "limits.size_bytes": 1}}
    for _ in range(2):
        assert deploy(lost, results, tmp_path / "out").report == tmp_path / "out"
        assert shipping.files(tmp_path / "out") == sorted(shipping.REPORT)
        assert main.main(["report", str(tmp_path / "out")]) == 0
    assert "limit 1" in capsys.readouterr().out
    for command in ("verify", "profile", "package"):
        assert main.main([command, str(tmp_path / "out")]) == 2
        assert "out: nothing was shipped, see `edgecompress report " in capsys.readouterr().err
    assert deploy(asked, results, tmp_path / "out").exit_code == 0
    shipped = {name: (tmp_path / "out" / name).read_bytes() for name in shipping.files(tmp_path / "out")}
    told(result := deploy(lost, results, tmp_path / "out"))
    assert result.report and result.report.is_relative_to(results)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in shipping.files(tmp_path / "out")} == shipped


TWO = """
description = "a net as it is, and in int8"
runtime = "onnx"
[limits]
items_lost = 0
[[variant]]
name = "fp32"
[[variant]]
name = "int8"
compress = [{ use = "int8" }]
"""


@pytest.mark.prove
def test_strict_limits_refuse_what_few_items_leave_undecided_and_take_equal_answers(tmp_path: Path) -> None:
    conv_net(tmp_path / "net.onnx", weight=10)
    images(tmp_path / "data.npz")
    (tmp_path / "two.toml").write_text(TWO)
    asked = {"model": str(tmp_path / "net.onnx"), "data": str(tmp_path / "data.npz"), "target": tmp_path / "two.toml"}
    settings = {**nulls.FAST, "limits.strict": True}
    ships = deploy({**asked, "profile": "quick", "settings": settings}, tmp_path / "store", tmp_path / "out")
    report = ships.read_report()
    lost = {variant["name"]: variant["verify"]["lost"] for variant in report["variants"]}
    assert (ships.exit_code, report["subject"], report["summary"]["undecided"]) == (0, "fp32", [])
    assert lost["fp32"] is None and lost["int8"].startswith("net 0 of 16 items lost (0 became wrong, 0 became right): ")
    assert lost["int8"].endswith("strict limits refuse that")
