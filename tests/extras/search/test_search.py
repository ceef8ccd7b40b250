"""Searching recipes: the space, the study that goes on after `kill -9`, the front, and a search of null nets."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nulls
import plugins
import prove
import pytest

from edgecompress.core import catalog, config, environments
from edgecompress.core.errors import ConfigError, InputError, MissingDependency, NotFound
from edgecompress.core.settings import Knob, SearchSpace, Target
from edgecompress.extras.search import front, recipe_space, search
from edgecompress.extras.search.recipe_space import Fixed, RecipeSpace
from edgecompress.extras.search.sections import recipe_search
from edgecompress.extras.search.study import TrialStudy
from edgecompress.pipeline.job import Job, job
from edgecompress.reporting import html, markdown, model
from edgecompress.reporting.request import ReportRequest

ROOT = Path(__file__).resolve().parents[3]
SQUEEZE = '''"""Takes bytes off a null net; the more, the louder it answers."""
import json
from dataclasses import dataclass
from edgecompress.core.model import Artifact, Context, Request
from edgecompress.core.settings import Knob

REQUIRES = ()
EXTRA = ""
READS = ("null",)
WRITES = "null"
PROVIDES = "squeezed"
NEEDS: tuple[str, ...] = ()
KNOBS = {"by": Knob(low=0.0, high=1.0), "loud": Knob(choices=("no", "yes"))}


@dataclass(frozen=True)
class Options:
    by: float = 0.5  # part of the bytes
    loud: str = "no"  # louder still


def apply(request):
    net = json.loads(request.model.file(".null").read_text())
    net["scale"] *= 1 + 0.05 * request.options.by ** 2 + (0.04 if request.options.loud == "yes" else 0)
    (request.out / "model.null").write_text(json.dumps(net))
    (request.out / "weights.bin").write_bytes(b"0" * int(1000 * (1 - request.options.by)))
    return Artifact(request.out, "null", request.model.inputs, request.model.outputs).write()
'''


@pytest.fixture
def null_net(tmp_path: Path) -> Callable[..., list[str]]:
    """Words of a command for a null net, after a plug-in that squeezes null nets was put on the path."""
    asked = nulls.make(tmp_path / "net")
    (tmp_path / "site").mkdir()
    plugins.plugin(tmp_path / "site", "techniques", "squeeze", SQUEEZE)
    quick = [f"--set={key}={value}" for key, value in nulls.FAST.items()]
    common = ["--profile", "quick", "--data", asked["data"], "--metric", "none", *quick]
    return lambda *words: [words[0], asked["model"], "--target", asked["target"], *common, *words[1:]]


def run(folder: Path, words: list[str], code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "edgecompress", *words], **_where(folder), text=True, timeout=300)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def _where(folder: Path) -> dict[str, Any]:
    path = os.pathsep.join([str(folder / "site"), str(ROOT)])
    return {"cwd": folder, "env": {**os.environ, "PYTHONPATH": path}, "stdout": -1, "stderr": -1}


# --------------------------------------------------------------------------- the space


def x86(**settings: object) -> Job:
    """A job of the demo with values of the table `search`."""
    return job(None, "x86", settings={f"search.{key}": value for key, value in settings.items()})  # type: ignore[misc]


@pytest.fixture(scope="module")
def space() -> RecipeSpace:
    """What the demo reaches on x86."""
    return recipe_space.of(x86())


def test_every_runtime_of_the_target_begins_with_each_precision_and_nothing_turned(space: RecipeSpace) -> None:
    plain = [space.draw(Fixed(values)) for values in space.plain()]
    assert {"onnx fp32", "onnx int8", "openvino int8", "litert int8", "executorch int8"} <= {p.words() for p in plain}
    assert all(p.compress()[:-1] == () and p.kept == 0 for p in plain)
    assert len({p.words() for p in plain}) == len(plain)


def test_a_recipe_has_what_shrinks_the_net_before_what_quantizes_it(space: RecipeSpace) -> None:
    values = {
        "runtime": "onnx",
        "precision on onnx": "int8",
        "net": "prune_channels",
        "prune_channels.latency_ratio": 0.8,
    }
    recipe = space.draw(Fixed({**values, "ptq_int8.calibration": "entropy", "ptq_int8.kept": 2}))
    pruned, quantized = recipe.compress({"skip": ["a", "b"]})
    assert pruned == {"use": "prune_channels", "latency_ratio": 0.8}
    assert quantized == {"use": "int8", "calibrator": "entropy", "skip": ["a", "b"]}
    assert recipe.words() == "onnx int8 entropy, prune_channels latency_ratio 0.8, keep 2"


def test_techniques_narrow_the_space_and_training_is_asked_for(space: RecipeSpace) -> None:
    narrow = recipe_space.of(x86(techniques=["int8", "finetune"], runtimes=["onnx"], train=True))
    assert narrow.ways == {"onnx": {"int8": "ptq_int8"}}
    assert not narrow.nets and [t.name for t in narrow.trainers] == ["finetune"] and not space.trainers
    assert recipe_space.of(x86(techniques=["prune_channels"], runtimes=["onnx"])).ways == {"onnx": {"fp32": ""}}


def test_with_training_a_search_goes_on_with_what_is_narrow_and_trained() -> None:
    wanted = {"runtimes": ["openvino"], "techniques": ["int8", "prune_channels", "finetune"], "train": True}
    within = recipe_space.of(x86(**wanted))
    recipes = [within.draw(Fixed(values)) for values in within.trained(lambda values: (False, 0.0))]
    shares = [f"openvino int8, prune_channels latency_ratio {share}, finetune epochs 4" for share in (0.8, 0.7)]
    assert [recipe.words() for recipe in recipes] == shares


@pytest.mark.parametrize(
    ("settings", "turned"),
    [
        ({}, {"latency_ratio"}),
        ({"objectives": ["size", "accuracy"]}, {"macs"}),
        ({"knobs": {"prune_channels": {"macs": {"low": 0.4, "high": 0.6}}}}, {"macs"}),
    ],
)
def test_channels_go_by_latency_where_that_is_measured_and_asked_for(
    settings: dict[str, object], turned: set[str]
) -> None:
    assert {*recipe_space.of(x86(techniques=["prune_channels"], **settings)).knobs["prune_channels"]} == turned


def test_the_runtime_whose_plain_int8_was_fastest_is_trained_first() -> None:
    within = recipe_space.of(x86(techniques=["int8", "prune_channels", "low_rank", "finetune"], train=True))
    seconds = {"onnx": 3.0, "openvino": 2.0, "litert": 1.0, "executorch": 4.0}
    found = within.trained(lambda values: (False, seconds[values["runtime"]]))
    order = ["litert", "openvino", "onnx", "executorch"]
    assert [values["runtime"] for values in found] == 4 * order
    assert [values["net"] for values in found] == 2 * [*4 * ["prune_channels"], *4 * ["low_rank"]]


@pytest.mark.parametrize(
    ("knob", "middle", "near"),
    [
        (Knob(low=1, high=20, log=True), 4, 9),
        (Knob(low=0.5, high=0.95, step=0.05), 0.7, 0.8),
        (Knob(low=2, high=9), 5, 7),
        (Knob(low=0.0, high=1.0), 0.5, 0.75),
        (Knob(choices=("tucker", "tt")), "tucker", "tucker"),
    ],
)
def test_what_lies_between_the_ends_of_a_knob_is_one_of_its_values(knob: Knob, middle: object, near: object) -> None:
    for part, value in ((0.5, middle), (0.75, near)):
        assert knob.at(part) == value and type(knob.at(part)) is type(value)


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        ({"techniques": ["int9"]}, NotFound, "no technique or precision 'int9', did you mean"),
        ({"runtimes": ["onx"]}, NotFound, "search.runtimes: no runtime 'onx', did you mean 'onnx'"),
        ({"runtimes": ["onnx"], "techniques": ["palette"]}, InputError, "no recipe is left to try"),
        ({"objectives": ["speed"]}, ConfigError, "'speed' is not a valid value"),
        ({"objectives": []}, ConfigError, "objectives must be at least one"),
        ({"minutes": 0}, ConfigError, "minutes must be above 0"),
        ({"knobs": {"prune_chanels": {}}}, NotFound, "no technique 'prune_chanels', did you mean 'prune_channels'"),
        ({"knobs": {"prune_channels": {"mac": {"low": 0.1, "high": 0.2}}}}, ConfigError, "unknown key 'mac'"),
        (
            {"knobs": {"prune_channels": {"macs": {"low": 0.1, "high": 1.5}}}},
            ConfigError,
            "macs must be between 0 and 1",
        ),
        ({"knobs": {"prune_channels": {"macs": {"low": 0.9, "high": 0.5}}}}, ConfigError, "low must be at most high"),
    ],
)
def test_what_is_wrong_in_the_table_is_one_line(settings: dict[str, object], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        recipe_space.of(x86(**settings))


def test_without_optuna_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "version", lambda package: None)
    with pytest.raises(MissingDependency, match=r"needs optuna>=5, not installed; run: pip install .*\[search\]'$"):
        search.search()


# --------------------------------------------------------------------------- the study


def drawn(study: TrialStudy, count: int) -> list[dict[str, object]]:
    """Asks for trials of a small landscape, and tells how they end; the values that each drew."""
    values = []
    for _ in range(count):
        trial = study.ask()
        kind = trial.suggest_categorical("kind", ["a", "b"])
        x = trial.suggest_float("x", 0.0, 1.0) if kind == "a" else trial.suggest_int("n", 1, 9) / 10
        values.append(dict(trial.params))
        study.tell(trial, [x, 1 - x] if x < 0.8 else None, {"limit": x - 0.8}, {"number": trial.number})
    return values


def test_a_study_that_was_killed_goes_on_with_the_same_trials(tmp_path: Path) -> None:
    whole = drawn(TrialStudy(tmp_path / "whole.db", "ab", seed=3), 15)
    first = drawn(TrialStudy(tmp_path / "killed.db", "ab", seed=3), 12)
    study = TrialStudy(tmp_path / "killed.db", "ab", seed=3)
    study.ask().suggest_categorical("kind", ["a", "b"])  # killed in the middle of a trial
    assert first + drawn(TrialStudy(tmp_path / "killed.db", "ab", seed=3), 3) == whole
    assert drawn(TrialStudy(None, "ab", seed=4), 15) != whole


def test_tpe_comes_nearer_to_a_known_front_than_random_draws() -> None:
    landscape: Any = prove.benchmark("search_landscape")
    within = landscape.space(kept=0)
    best = landscape.hypervolume(list(landscape.every(within)))
    tpe, random = (landscape.searched(within, sampler, 0, 40)[-1] / best for sampler in ("tpe", "random"))
    assert 1 > tpe > max(random, 0.9)


def test_a_trial_beyond_a_limit_needs_no_values_and_is_told(tmp_path: Path) -> None:
    study = TrialStudy(None, "ab")
    drawn(study, 30)
    assert [row["number"] for row in study.rows()] == [*range(30)]
    assert sum(study.importances().values()) == pytest.approx(1.0)


# --------------------------------------------------------------------------- the front


def rows(*values: tuple[float, float], inside: bool = True) -> list[front.Row]:
    """Trials with a latency and an accuracy each."""
    return [{"number": i, "values": {"latency": a, "accuracy": b}, "inside": inside} for i, (a, b) in enumerate(values)]


BOTH = ("latency", "accuracy")


def test_the_front_is_what_no_other_trial_beats() -> None:
    found = front.front(rows((0.5, 0.01), (0.4, 0.02), (0.6, 0.01), (0.9, 0.0), (0.4, 0.02)), BOTH)
    assert [row["number"] for row in found] == [1, 0, 3]
    assert front.front(rows((0.1, 0.0), inside=False), BOTH) == []


def test_the_best_of_each_objective_is_raced_and_so_are_the_fastest_behind_the_front() -> None:
    many = rows(*((0.3 + i / 100, 0.01) for i in range(9)), (0.9, 0.0))
    assert [row["number"] for row in front.finalists(many, BOTH)] == [0, 1, 2, 3, 9]
    assert [row["number"] for row in front.finalists(many, ("accuracy", "latency"))] == [9]


def test_a_gain_is_more_than_a_measurement_may_be_off() -> None:
    assert front.since_gain(rows((0.5, 0.01), (0.499, 0.0101), (0.495, 0.0103)), BOTH) == 2
    assert front.since_gain(rows((0.5, 0.01), (0.6, 0.02), (0.45, 0.02)), BOTH) == 0


def test_a_found_target_is_read_as_it_was_written(tmp_path: Path) -> None:
    base = catalog.target("x86").value
    row = {"runtime": "onnx", "precision": "int8", "number": 7, "compress": [{"use": "int8", "skip": ["a\\b"]}]}
    file = tmp_path / "found.toml"
    file.write_text(search.target_toml(search.found_target(base, [row], "found", raced=True)), encoding="utf-8")
    found = catalog.target(str(file)).value
    assert found.limits == base.limits and found.platforms == base.platforms
    assert found.variant[0] == search.variant(row)
    assert found.variant[1:] == tuple(v for v in base.variant if v.reference)


def test_a_trial_like_a_reference_is_the_reference() -> None:
    row = {"runtime": "openvino", "precision": "fp32", "number": 3, "compress": []}
    made = search.found_target(catalog.target("x86").value, [row], "found", raced=True)
    names = [v.name for v in made.variant]
    assert names[0] == "openvino-fp32" and "fp32" in names and len({*names}) == len(names)
    assert all(v.reference for v in made.variant)


@pytest.mark.parametrize(
    ("limit", "says"),
    [("speed", "'speed' is none of latency"), ("size", "size = 0 must be above 0"), ("energy", "must be above 0")],
)
def test_a_limit_has_a_known_name_and_a_value_that_can_be_kept(limit: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SearchSpace(limits={limit: math.nan if limit == "energy" else 0.0})  # type: ignore[dict-item]
    assert SearchSpace(limits={"accuracy": 0.0}).limits == {"accuracy": 0.0}


def test_a_knob_is_a_range_or_choices() -> None:
    assert config.build(Knob, {"low": 1, "high": 4}, "k").ends == (1, 4)
    assert config.build(SearchSpace, {"limits": {"size": 0.5}}, "s").limits == {"size": 0.5}
    for wrong in ({}, {"low": 1}, {"low": 0, "high": 1, "log": True}, {"low": 1, "high": 2, "choices": [1]}):
        with pytest.raises(ConfigError):
            config.build(Knob, wrong, "k")
    assert Target.__dataclass_fields__["search"].default == SearchSpace()


# --------------------------------------------------------------------------- the report


def test_the_report_shows_the_front_what_mattered_and_every_trial() -> None:
    told = [
        {"number": 0, "words": "onnx fp32", "runtime": "onnx", "values": {"latency": 1.0, "accuracy": 0.0}},
        {"number": 1, "words": "onnx int8", "runtime": "onnx", "values": {"latency": 0.4, "accuracy": 0.002}},
        {"number": 3, "words": "litert int8", "runtime": "litert", "values": {"latency": 0.5, "accuracy": 0.004}},
    ]
    shared = {"inside": True, "change": "-0.20 pt", "reason": "", "took_s": 3.0}
    broken = {"number": 4, "words": "onnx int4", "runtime": "onnx", "values": {}, "inside": False, "change": ""}
    every = [*({**row, **shared} for row in told), {**shared, **broken, "reason": "changed nothing"}]
    facts = {"id": "ab", "objectives": ["latency", "accuracy"], "baseline": "fp32", "why": "4 trials", "trials": every}
    from edgecompress.core.model import Context, Request

    request = ReportRequest(search={**facts, "front": [1, 0], "importances": {"runtime": 0.75}})  # type: ignore[typeddict-item]
    report = model.Report(schema=model.SCHEMA, variants=[])
    report.rest = {recipe_search.KEY: recipe_search.found(Request({}, Path(), {}, Context()), request, report)}
    page, text = html.page(report), markdown.page(report)
    assert page.count('aria-roledescription="trial"') == 3 and "What the search found" in page
    for words in (
        "What the search found: 4 trials",
        "| 1 | onnx int8 | -0.20 pt | 0.40",
        "runtime | 75 %",
        "changed nothing",
    ):
        assert words in text


# --------------------------------------------------------------------------- searches of null nets

ASKED = ("--objectives", "size,accuracy", "--trials", "4", "--seed", "5", "--set", 'search.techniques=["squeeze"]')


def trials(folder: Path) -> list[tuple[str, dict[str, float]]]:
    """The trials of the only search in a store."""
    (file,) = folder.glob(".edgecompress/searches/*/search.json")
    return [(row["words"], row["values"]) for row in json.loads(file.read_text())["trials"]]


@pytest.mark.slow
@pytest.mark.prove
def test_a_search_that_was_killed_goes_on_with_the_same_trials(
    tmp_path: Path, null_net: Callable[..., list[str]]
) -> None:
    told = json.loads(run(tmp_path, null_net("search", *ASKED, "--json")).stdout)
    assert told["exit_code"] == 0 and len(told["search"]["trials"]) == 4
    whole = trials(tmp_path)
    (tmp_path / ".edgecompress").rename(tmp_path / "whole")
    killed = subprocess.Popen([sys.executable, "-m", "edgecompress", *null_net("search", *ASKED)], **_where(tmp_path))
    try:
        assert killed.stdout
        lines = (line for line in killed.stdout if b"squeezed" in line)
        for _ in range(2):
            next(lines)
        time.sleep(0.3)
    finally:
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
    again = run(tmp_path, null_net("search", *ASKED)).stdout
    assert again.count(", stored") >= 2 and trials(tmp_path) == whole
    best = max(row["number"] for row in told["search"]["trials"] if row["number"] in told["search"]["front"])
    found = told["search"]["id"]
    assert (tmp_path / "dist" / "null" / "artifact" / "weights.bin").is_file()
    stage = f"null-squeezed-{best}/verify"
    shipped = run(tmp_path, ["deploy", "--from-search", f"{found}/{best}", "--until", stage, "-v"]).stdout
    assert f"hit   {stage.removesuffix('/verify')}/squeeze" in shipped
    for wrong, says in ((f"{found}/99", "no trial 99"), ("abc", "holds no such search")):
        assert says in run(tmp_path, ["deploy", "--from-search", wrong], 2).stderr
