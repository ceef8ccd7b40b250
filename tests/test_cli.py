"""The command line: exit codes, what goes where, every command's help, lists, init; the pipeline on null nets."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_inputs
import fake_sys
import nulls
import pytest

from edgecompress.cli import console, main
from edgecompress.cli import progress as progress_module
from edgecompress.cli.progress import Progress
from edgecompress.commands import deploy, init
from edgecompress.core import catalog, config, environments, package_files, settings
from edgecompress.core.model import Artifact, Outcome, Stage
from edgecompress.pipeline.job import SOURCE_FLAGS
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.runner import Event

pytestmark = pytest.mark.slow

Told = pytest.CaptureFixture[str]
QUICK = [f"--set={key}={value}" for key, value in nulls.FAST.items()]


def run(*words: str) -> int:
    """One command in this process."""
    return main.main(list(words))


def commands(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command that can be run, with its help text."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield path, parser.format_help()
    for action in below:
        for name, child in action.choices.items():
            yield from commands(child, (*path, name))


ALL = dict(commands(main.parser()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(folder: Path) -> list[str]:
    """The words that deploy a null net."""
    made = nulls.make(folder / "net")
    return [made["model"], "--data", made["data"], "--target", made["target"]]


# --------------------------------------------------------------------------- grammar


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_every_command_has_help_with_examples_that_parse(command: tuple[str, ...]) -> None:
    examples = ALL[command].partition("examples:\n")[2].splitlines()
    assert examples
    for line in examples:
        words = list(itertools.takewhile(lambda word: word != ">", shlex.split(line)))
        assert words[0] == "edgecompress"
        own = " ".join(command).split()  # `package verify` is one command of two words
        assert words[1 : 1 + len(own)] == own
        main.parser().parse_args(words[1:])


def test_every_command_but_those_that_answer_programs_answers_in_json_too() -> None:
    without = [command for command, text in ALL.items() if "--json" not in text]
    assert without == [("mcp",), ("completion",)]


OF_A_MODEL = {command: text for command, text in ALL.items() if "\n  MODEL " in text} | {("trim",): ALL["trim",]}
WITHOUT_ACCURACY = {("schedule", "check"), ("schedule", "show"), ("trim",)}


@pytest.mark.parametrize("command", OF_A_MODEL, ids=" ".join)
def test_a_command_on_a_model_takes_all_flags_of_its_source_or_says_that_it_does_not(
    command: tuple[str, ...], capsys: Told
) -> None:
    lacks = [flag for flag in SOURCE_FLAGS if f"\n  --{flag} " not in OF_A_MODEL[command]]
    assert bool(lacks) is (command in WITHOUT_ACCURACY)
    example = shlex.split(OF_A_MODEL[command].partition("examples:\n")[2].splitlines()[0])[1:]
    for flag in lacks:
        assert run(*example, f"--{flag}=1") == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"unrecognized arguments: --{flag}=1; deploy takes it, {' '.join(command)} does not (see" in said


def test_a_word_that_is_no_command_is_the_users_input() -> None:
    assert run("deplyo") == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_the_commands(shell: str, capsys: Told) -> None:
    assert run("completion", shell) == 0
    script = capsys.readouterr().out
    assert all(command[0].split()[0] in script for command in ALL)


COMPLETE = """
source {script} && complete -p edgecompress > /dev/null
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_edgecompress edgecompress "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}"
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "completed"),
    [("dep", "deploy"), ("deploy --targ", "--target"), ("init mine --kind e", "engine"), ("cache wh", "why")],
)
def test_bash_completes_a_command_an_option_and_a_choice(
    words: str, completed: str, folder: Path, capsys: Told
) -> None:
    assert run("completion", "bash") == 0
    script = folder / "script"
    script.write_text(capsys.readouterr().out)
    code = COMPLETE.format(script=script, words=f"edgecompress {words}")
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == [completed], done.stderr


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_reads_its_script(folder: Path, capsys: Told) -> None:
    assert run("completion", "zsh") == 0
    (folder / "_edgecompress").write_text(capsys.readouterr().out)
    done = subprocess.run(["zsh", "-f", "-n", "_edgecompress"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


# --------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "--target", "x68"], "no target 'x68', did you mean 'x86'?"),
        (["plan", "--device", "hots"], "no device 'hots', did you mean 'host'?"),
        (["plan", "--profile", "quik"], "no profile 'quik', did you mean 'quick'?"),
        (["plan", "--set", "limits.items_lost"], "--set limits.items_lost: write --set KEY=VALUE"),
        (["plan", "--only", "int9"], "has no such variant, did you mean 'int8'?"),
        (["plan", "none.onnx"], "none.onnx: no such model file; give a file, a folder, or a factory as pkg.mod:fn"),
        (["plan", "my.mod:fn"], "my.mod:fn: no data to calibrate and verify with; give --data"),
        (
            ["plan", "net.xyz", "--data", "random"],
            "a model must be a factory pkg.mod:fn, a SavedModel, a Hugging Face folder, or a file",
        ),
        (["cache", "gc", "--older-than", "-1"], "--older-than -1: must be a number of days, at least 0"),
        (["report", "dist/none"], "dist/none: no such file or folder; give the folder that a deploy wrote"),
        (["cache", "ls"], ".edgecompress: no store of results here"),
        (["techniques", "ptq_int"], "no technique 'ptq_int', did you mean 'ptq_int8'?"),
        (["init", "a", "--runtime", "onx"], "no runtime 'onx', did you mean 'onnx'?"),
    ],
)
def test_a_mistake_is_one_line_with_exit_code_2(words: list[str], says: str, folder: Path, capsys: Told) -> None:
    assert run(*words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("edgecompress: error: ") and told.err.count("\n") == 1
    assert says in told.err
    assert list(folder.iterdir()) == []


def test_a_fault_of_ours_shows_its_traceback_and_where_to_report_it(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], capsys: Told
) -> None:
    monkeypatch.setattr(deploy, "run", lambda *_: 1 / 0)
    assert run("deploy", *asked) == 3
    err = capsys.readouterr().err
    assert "ZeroDivisionError" in err and "this is a bug" in err


# --------------------------------------------------------------------------- lists


@pytest.mark.parametrize("kind", ["targets", "devices", "profiles", "techniques", "runtimes", "sensors"])
def test_a_list_names_everything_and_each_can_be_shown(kind: str, folder: Path, capsys: Told) -> None:
    assert run(kind, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows and all(row["description"] for row in rows)
    assert run(kind) == 0
    text = capsys.readouterr().out
    assert all(row["name"] in text for row in rows)
    assert run(kind, rows[0]["name"]) == 0
    assert rows[0]["name"] in capsys.readouterr().out


def test_a_file_of_ones_own_is_listed_and_a_broken_one_says_what_is_wrong(folder: Path, capsys: Told) -> None:
    (folder / "targets").mkdir()
    (folder / "targets" / "mine.toml").write_text(nulls.TARGET)
    (folder / "targets" / "broken.toml").write_text(nulls.TARGET + "runtim = 1")
    assert run("targets", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mine"]["description"] == "a null net"
    assert "unknown key 'runtim', did you mean 'runtime'?" in rows["broken"]["error"]


def test_the_options_of_a_technique_are_shown_with_their_defaults(capsys: Told) -> None:
    assert run("techniques", "ptq_int8", "--json") == 0
    options = {o["name"]: o for o in json.loads(capsys.readouterr().out)["options"]}
    assert options["calibrator"] == {
        "name": "calibrator",
        "type": "minmax or percentile or entropy or mse",
        "default": "minmax",
    }


# --------------------------------------------------------------------------- init


def uncommented(text: str, without: tuple[str, ...] = ()) -> str:
    """The file with every key that is commented out put in, but for those `without`."""
    lines = []
    for line in text.splitlines():
        key = line.removeprefix("# ")
        is_key = key != line and (key.startswith("[") or " = " in key.split("#")[0])
        is_key = is_key and key.split(" ")[0] not in without
        lines.append(key if is_key else line)
    return "\n".join(lines)


PICTURES = ("resize", "crop", "colour", "mean", "std")  # what audio has not


@pytest.mark.parametrize(
    ("kind", "without"),
    [("target", ()), ("source", ("spectrogram",)), ("source", PICTURES), ("device", ()), ("profile", ())],
)
def test_init_writes_a_file_that_is_valid_as_it_is_and_with_every_key_put_in(
    kind: str, without: tuple[str, ...], folder: Path
) -> None:
    assert run("init", "mine", "--kind", kind) == 0
    file = folder / "mine.toml" if kind == "source" else folder / f"{kind}s" / "mine.toml"
    shape = {"source": settings.Source, **{k.removesuffix("s"): v for k, v in catalog.KINDS.items()}}[kind]
    config.build(shape, config.read_toml(file), str(file))
    file.write_text(uncommented(file.read_text(), without))
    config.build(shape, config.read_toml(file), str(file))


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("target", settings.Limits),
        ("source", settings.Source),
        ("source", settings.Preprocess),
        ("device", settings.Device),
        ("device", settings.PowerModel),
        ("profile", settings.Profile),
    ],
)
def test_init_tells_of_every_key(kind: str, shape: Any) -> None:
    import dataclasses
    import re

    asked = {"name": "a", "runtime": [], "model": "m", "data": "d"}
    told = set(re.findall(r"^(?:# )?\[?(\w+)[.\w]*(?: =|\])", init.text(kind, asked), re.MULTILINE))
    assert {f.name for f in dataclasses.fields(shape)} <= told


def test_init_makes_variants_for_each_runtime_it_is_given(folder: Path, capsys: Told) -> None:
    assert run("init", "mine", "--runtime", "onnx") == 0
    target = catalog.target("mine").value
    assert [v.name for v in target.variant][-1] == "onnx-fp32"
    assert "onnx-int8" in [v.name for v in target.variant]
    capsys.readouterr()
    assert run("plan", "--target", "mine") == 0
    assert "onnx-int8/ptq_int8" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [["devices"], ["runtimes"], ["targets"], ["techniques"], ["sensors"], ["profiles"], ["plan", "--target", "arm64"]],
    ids=lambda words: words[0],
)
def test_lists_and_plans_fit_eighty_columns_and_split_no_name(
    words: list[str], folder: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    names = [*catalog.names(words[0])] if words[0] in ("targets", "devices", "profiles") else []
    names = ["golden", "export-litert"] if words[0] == "plan" else names
    assert all(any(name in line.split() for line in lines) for name in names)


def test_init_overwrites_nothing(folder: Path, capsys: Told) -> None:
    file = folder / "targets" / "mine.toml"
    file.parent.mkdir()
    file.write_text("mine")
    assert run("init", "mine") == 2
    assert "already exists" in capsys.readouterr().err
    assert file.read_text() == "mine"


# --------------------------------------------------------------------------- plan


def test_plan_prints_stages_bound_and_time_and_leaves_nothing_behind(
    asked: list[str], folder: Path, capsys: Told
) -> None:
    before = sorted(folder.rglob("*"))
    assert run("plan", *asked, *QUICK) == 0
    out = capsys.readouterr().out
    assert "plain/verify" in out and "race: at most 6 rounds" in out
    said = " ".join(out.split())
    assert "by the stages' own estimates, when nothing is stored; the remaining time also depends on stored" in said
    assert sorted(folder.rglob("*")) == before


def test_plan_says_where_each_value_comes_from(asked: list[str], capsys: Told) -> None:
    assert run("plan", *asked, "--set", "limits.items_lost=3", "--json") == 0
    told = {s["key"]: s for s in json.loads(capsys.readouterr().out)["settings"]}
    assert told["target.limits.items_lost"] == {
        "key": "target.limits.items_lost",
        "value": 3,
        "origin": "command line",
    }
    assert told["target.runtime"]["origin"] == "null.toml"
    assert told["target.package"]["origin"] == "default"


# --------------------------------------------------------------------------- progress and text


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0123, "12 ms"), (5.21, "5.2 s"), (42.4, "42 s"), (150, "2.5 min"), (3000, "50 min")]
)
def test_durations_read_as_people_say_them(seconds: float, words: str) -> None:
    assert console.duration(seconds) == words


def args(**named: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"json": False, "verbose": 0, "quiet": False, **named})


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome("export", "ok", why_run="first run", wall_s=2.0), "ran   export 2.0 s first run"),
        (Outcome("export", "ok", why_run="hit", wall_s=2.0), "hit   export"),
        (Outcome("a/verify", "lost", reason="cosine 0.5", wall_s=1.0), "lost  a/verify 1.0 s cosine 0.5"),
        (Outcome("a/int8", "failed", reason="[bold]broke", wall_s=1.0), "FAIL  a/int8 1.0 s [bold]broke"),
    ],
)
def test_a_stage_that_ended_is_one_plain_line_off_a_terminal(outcome: Outcome, says: str, capsys: Told) -> None:
    with Progress(console.open(args()), args(verbose=1)) as progress:
        progress(Event("started", Stage("export", "x:y"), why="first run"))
        progress(Event("progress", Stage("export", "x:y"), fraction=0.5, what="half"))
        progress(Event("ended", Stage("export", "x:y", variants=("a",)), outcome=outcome))
    assert capsys.readouterr().out.split() == says.split()


def test_off_a_terminal_each_epoch_is_a_line_and_else_each_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(progress_module, "time", clock)
    words = ["resuming after epoch 1 of 4, from its checkpoint", "epoch 2 of 4, loss 2", "after epoch 2 of 4, loss 1"]
    for quiet, expected in ((False, [words[0], words[2], "epoch 3 of 4"]), (True, [])):
        clock.now = 100.0
        with Progress(console.open(args()), args(quiet=quiet)) as progress:
            for what in words:
                progress(Event("progress", Stage("qat", "x:y"), fraction=0.5, what=what))
            clock.now = 161.0
            for _ in range(2):
                progress(Event("progress", Stage("qat", "x:y"), fraction=0.5, what="epoch 3 of 4"))
        said = capsys.readouterr().out.splitlines()
        assert [text.strip().removeprefix("qat: ").partition(" (50%")[0] for text in said] == expected


def test_off_a_terminal_what_all_variants_wait_for_says_how_far_it_is_after_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(progress_module, "time", clock)
    with Progress(console.open(args()), args()) as progress:
        for variants, begin in (((), 110.0), (("int8",), 120.0)):
            for clock.now, kind in ((begin, "started"), (begin + 1, "progress"), (begin + 6, "progress")):
                event = Event(kind, Stage("s", "x:y", variants=variants), fraction=0.5, what=f"{clock.now:.0f}")  # type: ignore[arg-type]
                progress(event)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["s:", "116"]]


def test_the_time_left_counts_down_between_two_events(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(progress_module, "time", clock)
    with Progress(console.open(args()), args()) as progress:
        progress(Event("started", Stage("race", "x:y"), why="first run", number=7, of=23, left_s=60.0))
        shown = []
        for clock.now in (100.0, 110.0, 130.0, 170.0):
            shown.append(progress.bar.columns[2].render(progress.bar.tasks[0]).plain)  # type: ignore[attr-defined]
    assert shown == [
        f"stage 7 of 23, {says}"
        for says in ("about 60 s left", "about 50 s left", "about 30 s left", "longer than expected")
    ]


def test_the_time_left_of_several_targets_counts_those_that_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(deploy, "run", lambda job, steps, options, later_s: asked.append(later_s))
    plans = [
        (SimpleNamespace(target=SimpleNamespace(name=name)), SimpleNamespace(estimate_s=lambda took_s=took_s: took_s))
        for name, took_s in (("a", 10.0), ("b", 200.0), ("c", 3000.0))
    ]
    deploy.run_all(plans, Options())  # type: ignore[arg-type]
    assert asked == [3200.0, 3000.0, 0.0]


def test_quiet_says_nothing_of_stages(capsys: Told) -> None:
    with Progress(console.open(args()), args(quiet=True)) as progress:
        progress(Event("ended", Stage("a", "x:y"), outcome=Outcome("a", "ok")))
    assert capsys.readouterr().out == ""


# --------------------------------------------------------------------------- the whole pipeline


def test_deploy_then_everything_that_works_on_what_it_shipped(asked: list[str], folder: Path, capsys: Told) -> None:
    words = [*asked, "--profile", "quick", *QUICK]
    assert run("deploy", *words, "--out", "out") == 0
    out = capsys.readouterr().out
    assert "building    1 of 1 variant\n" in out and "OK plain ships: " in out and len(out.splitlines()) <= 30
    assert run("deploy", *words, "--out", "out", "--json") == 0
    told = capsys.readouterr()
    stages = json.loads(told.out)["stages"]
    assert {s["why_run"] for s in stages if s["stage"] != "report"} == {"hit"}
    assert "building    1 of 1 variant, all stored\n" in told.err
    for command in (["report", "out"], ["report", "out", "--json"], ["package", "out"], ["cache", "ls"]):
        assert run(*command) == 0
        assert capsys.readouterr().out
    assert run("cache", "why", "plain/verify") == 0
    assert "options.limits.items_lost" in capsys.readouterr().out
    assert run("verify", "out") == 0
    assert "equal to its source within the limits" in capsys.readouterr().out
    assert run("verify", "out", "--set", "limits.size_bytes=1", "--json") == 1
    assert json.loads(capsys.readouterr().out)["verify"]["lost"]
    assert run("profile", "out", "--profile", "quick", *QUICK, "--json") == 0
    assert json.loads(capsys.readouterr().out)["summary"]
    assert run("profile", "out", "--set", 'target.platforms=["jetson*"]') == 2
    assert "out: nothing can be measured: " in capsys.readouterr().err
    origin = json.loads(Path("out/deploy.json").read_text())
    Path("out/deploy.json").write_text(json.dumps({**origin, "limits": {**origin["limits"], "size_bytes": 1}}))
    assert run("verify", "out") == 1  # the limits it was deployed with
    assert run("verify", "out", "--set", "limits.size_bytes=1000000") == 0
    assert run("verify", "out", "--target", asked[asked.index("--target") + 1]) == 0
    capsys.readouterr()
    for damaged in ("{", "[]", '{"target": 1}', '{"limits": []}', '{"limits": {"cosine": "x"}}'):
        Path("out/deploy.json").write_text(damaged)
        assert run("profile", "out", "--profile", "quick") == 2
        assert capsys.readouterr().err.startswith("edgecompress: error: out/deploy.json: ")


def test_a_check_that_fails_ships_nothing_and_exits_with_1(asked: list[str], folder: Path, capsys: Told) -> None:
    assert run("deploy", *asked, *QUICK, "--profile", "quick", "--set", "limits.size_bytes=1", "--out", "out") == 1
    assert "lost" in capsys.readouterr().out
    assert not (folder / "out" / "artifact").exists()


def test_until_stops_there(asked: list[str], folder: Path, capsys: Told) -> None:
    assert run("deploy", *asked, "--until", "golden", "-q") == 0
    assert capsys.readouterr().out == "stopped after golden\n"
    assert not (folder / "dist").exists()


def test_cache_verify_finds_the_byte_that_changed(asked: list[str], folder: Path, capsys: Told) -> None:
    assert run("deploy", *asked, "--until", "source", "-q") == 0
    assert run("cache", "verify") == 0
    file = next((folder / ".edgecompress" / "store").rglob("model.null"))
    file.write_bytes(file.read_bytes().replace(b"float32", b"float64"))
    assert run("cache", "verify") == 1
    assert ": damaged; the next deploy" in capsys.readouterr().out
    assert run("cache", "gc", "--older-than", "0") == 0
    assert list((folder / ".edgecompress" / "store").iterdir()) == []


def test_no_color_and_pipes_get_no_escape_codes(asked: list[str], folder: Path) -> None:
    command = [sys.executable, "-m", "edgecompress.cli.main", "deploy", *asked, "--until", "source"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "NO_COLOR": "1"}, timeout=60)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout


# --------------------------------------------------------------------------- energy that has to be measured

BRIEF = {"profile.energy_windows": 2, "profile.energy_window_s": 0.2, "profile.idle_s": 0.2}


def measured(asked: list[str], sensors: str, **options: str) -> int:
    """A deploy that asks for measured energy, of a device with these sensors."""
    more = {**BRIEF, "device.sensors": sensors, **{f"device.options.{name}": value for name, value in options.items()}}
    words = [f"--set={key}={value}" for key, value in more.items()]
    return run("deploy", *asked, *QUICK, *words, "--profile", "quick", "--require-measured", "--out", "out")


def test_without_a_sensor_required_energy_exits_with_1_before_anything_runs(
    asked: list[str], folder: Path, capsys: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGECOMPRESS_ROOT", str(folder))
    assert measured(asked, '["rapl", "power_model"]') == 1
    told = capsys.readouterr()
    assert "--require-measured: device host cannot measure energy: rapl: no RAPL package domain" in told.err
    assert "ran" not in told.out and not (folder / "out").exists()


@pytest.mark.prove
def test_replayed_energy_is_none_that_was_measured(asked: list[str], folder: Path, capsys: Told) -> None:
    rows = [f"{t / 10},{2 + t % 3}" for t in range(600)]
    (folder / "trace.csv").write_text("\n".join(["t_s,power_w", *rows]))
    assert measured(asked, '["replay"]', **{"replay.file": str(folder / "trace.csv")}) == 1
    assert "Nothing ships" in capsys.readouterr().out and not (folder / "out" / "artifact").exists()


@pytest.mark.prove
def test_energy_that_a_sensor_measured_ships(asked: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGECOMPRESS_ROOT", str(folder))
    counter = bench_inputs.RaplTree(folder).zone("intel-rapl:0", "package-0") / "energy_uj"
    with fake_sys.running(lambda: fake_sys.put(counter, int(counter.read_text()) + 10_000)):
        assert measured(asked, '["rapl"]') == 0
    report = json.loads((folder / "out" / "report.json").read_text())
    energy = report["variants"][0]["numbers"]["energy_gross"]
    assert (energy["status"], energy["scope"]) == ("measured", "package") and energy["value"] > 0


def test_what_comes_next_begins_with_the_install_of_a_packager_that_lacks_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result: Any = SimpleNamespace(read_report=lambda: {"target": {"package": "android"}})
    monkeypatch.setattr(environments, "missing", lambda module: ["jinja2>=3.1"])
    assert console._packaging(result) == f"{package_files.install('package')}; "
    monkeypatch.setattr(environments, "missing", lambda module: [])
    assert console._packaging(result) == ""


def test_the_file_that_is_told_is_the_one_for_the_device(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "artifact"
    folder.mkdir(parents=True)
    (folder / "model.tflite").write_bytes(b"1" * 90)  # what runs here
    (folder / "model_vela.tflite").write_bytes(b"1" * 40)
    Artifact(folder, "vela", (), (), {"here": ["model.tflite"]}).write()
    result: Any = SimpleNamespace(out=tmp_path / "out", report=None, read_report=lambda: {"target": {}})
    assert "artifact/model_vela.tflite" in next(iter(console._places(result)))
    (folder / "model.mlpackage").mkdir()
    (folder / "model.mlpackage" / "weight.bin").write_bytes(b"1" * 91)
    assert next(iter(console._places(result))).endswith("  artifact/model.mlpackage")  # not the file in it
