"""Targets: several in one run, those whose device is not at hand, other runtimes of the same format."""

from __future__ import annotations

import dataclasses
import json
import tarfile
from pathlib import Path
from typing import Any

import nulls
import pytest

from edgecompress.cli import main
from edgecompress.commands import deploy
from edgecompress.core.errors import ConfigError, InputError, MissingDependency
from edgecompress.core.model import Artifact, Choice, Outcome
from edgecompress.core.settings import Limits, Target, Variant
from edgecompress.pipeline import plan
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.job import job
from edgecompress.pipeline.searches.race import Race

pytestmark = pytest.mark.slow

VARIANTS = '[[variant]]\nname = "second"\nreference = true\n'


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    made = nulls.make(tmp_path)
    text = nulls.TARGET + VARIANTS
    (tmp_path / "far.toml").write_text(text.replace('"null"\n', '"null"\nplatforms = ["mars-*", "venus"]\n', 1))
    (tmp_path / "here.toml").write_text(text)
    return made


def words(asked: dict[str, str], targets: str, *more: str) -> list[str]:
    return ["deploy", asked["model"], "--data", asked["data"], "--profile", "quick", "--target", targets, *more]


FAST = [part for key, value in nulls.FAST.items() for part in ("--set", f"{key}={value}")]


def test_a_target_that_is_not_at_hand_ships_in_its_own_order_and_says_so(asked: dict[str, str]) -> None:
    result = deploy.deploy(**{**asked, "target": "far.toml"})
    assert result.exit_code == 0
    assert not [name for name in result.outcomes if name.startswith("race/") or name in ("energy", "ops")]
    told = result.read_report()
    assert told["choice"]["variant"] == "plain"
    assert "the target runs on mars-* or venus" in told["choice"]["reason"]
    assert "not measured on the target" in told["summary"]["remarks"]
    assert told["notes"][0]["level"] == "warning"
    assert told["variants"][0]["numbers"]["latency"]["value"] is None
    assert [v["verdict"] for v in told["variants"]] == ["shipped", "passed"]


def test_a_variant_that_fails_leaves_its_place_to_the_next_in_the_order(asked: dict[str, str]) -> None:
    steps = plan.deploy(job(**{**asked, "target": "far.toml"}))
    outcomes = {s.name: Outcome(s.name, "ok", Artifact(Path("x"), "null")) for s in steps.stages}
    outcomes["plain/verify"] = Outcome("plain/verify", "lost", reason="too far from its source")
    choice = steps.race.step(outcomes)
    assert isinstance(choice, Choice)
    assert choice.stage == "second"
    assert choice.table["plain"]["reason"] == "too far from its source"


def test_measuring_where_the_target_does_not_run_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"--device host: it is .*, target far runs on mars-\* or venus"):
        job(**{**asked, "target": "far.toml", "device": "host"})


def test_a_device_says_its_platform_itself(asked: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "lander.toml").write_text('description = "a lander"\nplatform = "mars-arm64"\n')
    assert job(**{**asked, "target": "far.toml", "device": "lander.toml"}).at_hand


@pytest.mark.prove
def test_several_targets_share_their_stages_and_ship_apart(
    asked: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(words(asked, "here.toml,far.toml", *FAST, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    first, second = ({s["stage"]: s["why_run"] for s in told["targets"][name]["stages"]} for name in ("here", "far"))
    assert {first[name] for name in ("data", "source", "golden")} == {"first run"}
    assert {second[name] for name in ("data", "source", "golden", "plain/verify")} == {"hit"}
    assert told["peak_rss_bytes"] > 0
    assert (Path("dist/here/report.html").is_file(), Path("dist/far/report.html").is_file()) == (True, True)
    for _ in range(2):  # the report holds the command: the first of the two is another one
        assert main.main(words(asked, "here.toml,far.toml", *FAST)) == 0
    said = capsys.readouterr().out.rpartition("2 targets in")
    assert "ran " not in said[0].rpartition("2 targets in")[2]


@pytest.mark.prove
def test_a_target_that_breaks_costs_only_itself(asked: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("strict.toml").write_text(nulls.TARGET + "[variant.limits]\nsize_bytes = 1\n")
    assert main.main(words(asked, "strict.toml,far.toml")) == 1
    said = capsys.readouterr().out
    assert "no variant is left to ship" in said and "next: edgecompress package dist/far" in said
    assert said.endswith("exit code 1, the gravest of all targets, is that of strict; shipped: far\n")
    shipped = said.index("OK far")
    assert shipped < said.index("strict: ", shipped) < said.index("   did not ship:\n     plain:")
    assert Path("dist/far/artifact").is_dir() and not Path("dist/strict/artifact").exists()


@pytest.mark.prove
def test_out_holds_a_folder_per_target(asked: dict[str, str]) -> None:
    assert main.main(words(asked, "here.toml,far.toml", *FAST, "--out", "shipped")) == 0
    assert sorted(p.name for p in Path("shipped").iterdir()) == ["far", "here"]


def test_limits_of_a_variant_lie_over_the_targets(asked: dict[str, str]) -> None:
    Path("mixed.toml").write_text(nulls.TARGET + "limits = { sqnr_db = 50.0 }\n" + VARIANTS)
    found = {
        s.name: s.options["limits"]
        for s in plan.deploy(job(**{**asked, "target": "mixed.toml"})).stages
        if s.name.endswith("/verify")
    }
    assert (found["plain/verify"]["sqnr_db"], found["plain/verify"]["items_lost"]) == (50.0, 0)
    assert found["second/verify"]["sqnr_db"] is None
    Path("wrong.toml").write_text(nulls.TARGET + "limits = { sqnr = 50.0 }\n")
    with pytest.raises(ConfigError, match=r"variant plain: limits: unknown key 'sqnr', did you mean 'sqnr_db'"):
        plan.deploy(job(**{**asked, "target": "wrong.toml"}))


def test_a_source_in_another_precision_is_held_to_the_limits_of_that_precision() -> None:
    steps = plan.deploy(job(None, "android", settings={"variant.int8.limits.cosine": 0.9, "limits.tail_error": 0.2}))
    options = {s.name: s.options for s in steps.stages if s.name.endswith("/verify")}
    given = options["fp32/verify"]["given"]
    assert given["name"] == "fp32" and options["fp32/verify"]["limits"]["sqnr_db"] == 60.0
    assert {word: (own["sqnr_db"], own["cosine"]) for word, own in given["limits"].items()} == {
        "int8": (None, 0.9),
        "int8-dynamic": (None, 0.95),
        "fp16": (40.0, 0.95),
        "": (None, 0.95),
    }
    assert {own["tail_error"] for own in given["limits"].values()} == {0.2}
    assert "given" not in options["int8/verify"]
    told = plan.deploy(job(None, "android", settings={"variant.fp32.limits.sqnr_db": 50.0}))
    own = next(s.options["given"]["limits"] for s in told.stages if s.name == "fp32/verify")
    assert {limits["sqnr_db"] for limits in own.values()} == {50.0}


UNKNOWN, WRONG = "operator version 5 is not known", "net 435 of 500 items lost, limit 5"


def candidate(**asked: Any) -> Candidate:
    return Candidate(Variant("v"), "null", "made", "v/verify", also={"old": "v/verify-old"}, **asked)


@pytest.mark.parametrize(
    ("status", "asked", "passes"),
    [
        ("failed", {}, True),
        ("failed", {"min_runtime": "old"}, False),
        ("lost", {}, False),
        ("lost", {"also_told": ("old",)}, True),
        ("lost", {"also_told": ("old",), "min_runtime": "old"}, False),
        ("ok", {"min_runtime": "old"}, True),
    ],
)
def test_a_wrong_answer_in_another_runtime_loses_and_one_that_does_not_run_it_only_where_it_must(
    status: Any, asked: dict[str, Any], passes: bool
) -> None:
    lone = candidate(**asked)
    why = {"failed": UNKNOWN, "lost": WRONG, "ok": ""}[status]
    outcomes = {
        "made": Outcome("made", "ok"),
        "v/verify": Outcome("v/verify", "ok"),
        "v/verify-old": Outcome("v/verify-old", status, reason=why),
    }
    assert lone.passed(outcomes) is passes
    race = Race((lone,), job().profile.value, unmeasured="nothing is at hand")
    choice = race.step(outcomes)
    assert isinstance(choice, Choice)
    assert choice.table["v"]["also"] == {"old": why or "ok"}
    assert (choice.stage == "v") is passes
    assert passes or (choice.table["v"]["verdict"], choice.table["v"]["reason"]) == (status, f"in old: {why}")


@pytest.mark.parametrize(("made", "passes"), [({"given": True}, True), ({}, False)])
def test_the_users_own_file_is_not_lost_by_what_another_runtime_makes_of_it(
    made: dict[str, Any], passes: bool, tmp_path: Path
) -> None:
    outcomes = {
        "made": Outcome("made", "ok", Artifact(tmp_path, "null", facts=made)),
        "v/verify": Outcome("v/verify", "ok"),
        "v/verify-old": Outcome("v/verify-old", "lost", reason=WRONG),
    }
    assert candidate().passed(outcomes) is passes
    assert candidate(min_runtime="old").passed(outcomes) is False
    assert dataclasses.replace(candidate(), artifact="source").passed(outcomes) is True


@pytest.mark.slow
@pytest.mark.prove
def test_a_variant_that_tflite_must_run_and_answers_wrong_is_not_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgecompress.core import environments, registry

    if not environments.made(registry.load("runtimes", "tflite")):
        pytest.skip("tflite-runtime's own environment is not made")
    monkeypatch.chdir(tmp_path)
    Path("old.toml").write_text(
        'description = "devices with an old runtime"\nruntime = "litert"\nmin_runtime = "tflite"\n'
        "[limits]\nitems_lost = 5\n"
        '[[variant]]\nname = "int8-dynamic"\ncompress = [{ use = "int8-dynamic" }]\n'
        '[[variant]]\nname = "fp32"\nreference = true\n'
    )
    assert main.main(["deploy", "--profile", "quick", "--target", "old.toml", *FAST]) == 0
    rows = {v["name"]: v for v in json.loads(Path("dist/old/report.json").read_text())["variants"]}
    assert (rows["fp32"]["verdict"], rows["fp32"]["also"]) == ("shipped", {"tflite": "ok"})
    assert rows["int8-dynamic"]["verdict"] == "failed"
    assert rows["int8-dynamic"]["reason"].startswith("in tflite: wrong results in tflite-runtime 2.14")
    assert rows["int8-dynamic"]["verify"]["metric"]["net_lost"] <= 5  # in the runtime that it is for it is right


@pytest.mark.parametrize(
    ("status", "asked", "told"),
    [
        ("failed", {}, ""),
        ("failed", {"limits": Limits(strict=True)}, f"in old: {UNKNOWN}"),
        ("lost", {"limits": Limits(strict=True)}, f"in old: {UNKNOWN}"),
        ("failed", {"limits": Limits(strict=True), "also_told": ("old",)}, ""),
        ("ok", {"limits": Limits(strict=True)}, ""),
    ],
)
def test_strict_limits_leave_undecided_what_a_runtime_of_the_target_does_not_run(
    status: Any, asked: dict[str, Any], told: str
) -> None:
    why = "" if status == "ok" else UNKNOWN
    assert candidate(**asked).unsettled({"v/verify-old": Outcome("v/verify-old", status, reason=why)}) == told


@pytest.mark.slow
@pytest.mark.prove
def test_what_tflite_answers_wrongly_is_named_in_the_headline_and_the_card_and_strict_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgecompress.core import environments, registry

    if not environments.made(registry.load("runtimes", "tflite")):
        pytest.skip("tflite-runtime's own environment is not made")
    monkeypatch.chdir(tmp_path)
    Path("old.toml").write_text(
        'description = "devices with an old runtime"\nruntime = "litert"\nalso = ["tflite"]\npackage = "tar"\n'
        '[limits]\ncosine = 0.9\n[[variant]]\nname = "int8-dynamic"\ncompress = [{ use = "int8-dynamic" }]\n'
    )
    asked = ["deploy", "--profile", "quick", "--target", "old.toml", *FAST]
    assert main.main([*asked, "--strict", "--out", "strict"]) == 4
    held = json.loads(Path("strict/report.json").read_text())["summary"]
    assert held["sentence"] == "Undecided, nothing ships: int8-dynamic is right in litert, not in tflite."
    assert main.main([*asked, "--out", "dist"]) == 0
    told = json.loads(Path("dist/report.json").read_text())["summary"]["sentence"]
    assert told.startswith("int8-dynamic ships, right in litert, not in tflite: ")
    assert main.main(["package", "dist", "--out", "made.tar.gz", "--set", "wheels=false"]) == 0
    with tarfile.open("made.tar.gz") as packed:
        names = {Path(name).name: name for name in packed.getnames()}
        readme, card = (packed.extractfile(names[n]).read().decode() for n in ("README.md", "model_card.json"))  # type: ignore[union-attr]
    assert "wrong results" in json.loads(card)["runtime"]["also"]["tflite"]
    assert "Not for tflite, but litert " in readme


def test_what_is_told_only_must_be_another_runtime() -> None:
    with pytest.raises(ValueError, match="also_told: 'old' is not in also"):
        Target("", "null", (Variant("v"),), also=("older",), also_told=("old",))


def test_another_runtime_that_is_not_installed_is_told_of_and_a_required_one_is_the_users_to_install(
    asked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgecompress.core import environments, registry

    tflite = registry.load("runtimes", "tflite")
    real = environments.missing
    monkeypatch.setattr(environments, "missing", lambda m: ["tflite-runtime==2.14.0"] if m is tflite else real(m))
    steps = plan.deploy(job(None, "android"))
    assert not [s.name for s in steps.stages if s.name.endswith("-tflite")]
    assert (
        steps.race.entrants[0]
        .untried["tflite"]
        .endswith("run: python -m edgecompress.pipeline.requirements make tflite")
    )
    with pytest.raises(MissingDependency, match="runtime 'tflite' needs"):
        plan.deploy(job(None, "android", settings={"target.min_runtime": "tflite"}))


def test_a_runtime_that_something_stands_in_for_is_verified_and_never_measured() -> None:
    real, stand_in = (
        Candidate(Variant("real"), "null", "a", "a/verify"),
        Candidate(Variant("far"), "null", "b", "b/verify", simulated="a sim"),
    )
    race = Race((stand_in, real), job().profile.value)
    outcomes = {name: Outcome(name, "ok") for name in ("a/verify", "b/verify")}
    step = race.step(outcomes)
    assert not isinstance(step, Choice)
    assert step[0].options["order"] == ["real"]


def test_what_this_machine_cannot_compile_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgecompress.core import registry

    monkeypatch.setattr(registry.load("runtimes", "torchinductor"), "DRIVERS", ())
    steps = plan.deploy(job(None, "gpu"))
    assert steps.race.left_out == {"inductor-fp16": "a package for a GPU must be compiled on a machine with a GPU"}
    assert [e.name for e in steps.race.entrants] == ["fp16", "fp32"]
    monkeypatch.setattr(registry.load("runtimes", "torchinductor"), "DRIVERS", ("/",))
    assert not plan.deploy(job(None, "gpu")).race.left_out
