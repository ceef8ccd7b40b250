"""Hostile inputs through the command line: nothing of them runs, each ends in one line with its exit code.

In short: every kind in this process, a few by a command of an unprivileged user. `make prove` runs them all so.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hostile_inputs
import numpy as np
import prove
import pytest
from hostile_inputs import Hostile
from hostile_run import Runner

import edgecompress
from edgecompress.cli import main
from edgecompress.core import config, plain_file
from edgecompress.core.errors import ConfigError, InputError
from edgecompress.data import npz, pictures, tensors

pytestmark = pytest.mark.slow

PACKAGE = Path(edgecompress.__file__).parent
MINUTES_S, RESIDENT = 300.0, 2 << 30
CHEAP = ("toml", "words", "keras", "savedmodel", "pt2")
WORKERS = ("onnx", "tflite", "npy", "npz", "image")  # a process is started for each of these
BY_KIND = {kind: [c for c in hostile_inputs.corpus() if c.kind.startswith(kind)] for kind in (*CHEAP, *WORKERS)}


def chosen(kind: str, count: int) -> list[Hostile]:
    """Some of a kind, by a seed; those that take minutes left out."""
    quick = [case for case in BY_KIND[kind] if not case.slow]
    return random.Random(kind).sample(quick, min(count, len(quick)))


def named(case: Hostile) -> str:
    return case.name


def test_there_are_hundreds_of_them_and_each_has_a_name_of_its_own() -> None:
    names = [case.name for case in hostile_inputs.corpus()]
    assert len(set(names)) == len(names) >= 300


def faults(case: Hostile, code: int | None, out: str, errors: str) -> list[str]:
    """What is wrong with how a command ended."""
    lines = errors.splitlines()
    told = [line for line in lines if ": error: " in line[:60]]
    control = [c for c in out + errors if not c.isprintable() and c not in "\n\t\udcff"]
    checks = {
        f"exit code {code}, not {case.codes}": code not in case.codes,
        "a traceback": "Traceback" in out + errors,
        f"{len(told)} error lines: {errors[:500]}": code in (2, 3) and (len(told) != 1 or lines[-1] != told[0]),
        f"control characters: {control[:5]}": bool(control),
        f"{len(errors)} characters of errors": code in (2, 3) and len(errors) > 4000,
    }
    return [what for what, wrong in checks.items() if wrong]


# --------------------------------------------------------------------------- in this process


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stranger's folder, to be copied."""
    return hostile_inputs.place(tmp_path_factory.mktemp("stranger") / "in")


SOME = [case for kind in CHEAP for case in chosen(kind, 10)] + [case for kind in WORKERS for case in chosen(kind, 1)]


@pytest.mark.parametrize("case", SOME, ids=named)
def test_a_hostile_input_ends_in_one_line(
    case: Hostile,
    hostile_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in hostile_inputs.GONE:
        (folder / name).symlink_to(hostile_folder / name)
    for name in ("onnx.toml", "litert.toml"):
        (folder / name).symlink_to(hostile_folder / name)
    for name in hostile_inputs.GONE:
        if name in case.words or name == "data":
            (folder / name).unlink()
            (shutil.copytree if (hostile_folder / name).is_dir() else shutil.copyfile)(
                hostile_folder / name, folder / name
            )
    case.make(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_COLOR", "1")
    try:
        code = main.main(list(case.words))
    except SystemExit as ended:  # argparse's
        code = int(ended.code or 0)
    captured = capsys.readouterr()
    assert not faults(case, code, captured.out, captured.err)
    assert not hostile_inputs.executed(folder) and not (folder.parent / "climbed").exists()


# --------------------------------------------------------------------------- by the command, watched


SOUND = Hostile("sound", ("plan", "net.null", "--data", "data", "--target", "null.toml"), lambda folder: None, (0,))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Runs commands as nobody, where it can. One that did not reach its files would be refused whatever they hold."""
    opened = Runner(str(tmp_path_factory.mktemp("view")))
    with _home() as folder:
        assert not by_command(SOUND, opened, folder), (folder / "in.stderr").read_text()
    yield opened
    opened.close()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that nobody reaches; pytest keeps its own ones to who runs it."""
    with _home() as folder:
        yield folder


@contextlib.contextmanager
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        yield Path(folder)


def by_command(case: Hostile, runner: Runner, home: Path) -> list[str]:
    """What is wrong with how it ends as a stranger's victim runs it."""
    folder, scratch = home / "in", home / "tmp"
    hostile_inputs.place(folder)
    scratch.mkdir()
    case.make(folder)
    _give(home)
    before = _there(home)
    ended = runner.run(
        [sys.executable, "-P", "-m", "edgecompress.cli.main", *case.words],
        folder,
        {
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "PYTHONPATH": str(PACKAGE.parent),
        },
        MINUTES_S,
    )
    out, errors = ((home / f"in.{name}").read_bytes().decode(errors="surrogateescape") for name in ("stdout", "stderr"))
    more = _there(home) - before
    ran = hostile_inputs.executed(folder)
    checks = {
        f"ran {ran}": bool(ran),
        f"{ended['rss_bytes'] >> 20} MiB resident": ended["rss_bytes"] > RESIDENT,
        f"still running: {ended['left']}": bool(ended["left"]),
        f"left behind: {sorted(more)[:5]}": bool(more),
    }
    return [*faults(case, ended["code"], out, errors), *(what for what, wrong in checks.items() if wrong)]


def _give(home: Path) -> None:
    """The folder belongs to whom the command runs as."""
    home.chmod(0o755)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-Rh", f"{hostile_run_nobody()}", str(home)], check=True)


def hostile_run_nobody() -> str:
    from hostile_run import NOBODY

    return f"{NOBODY}:{NOBODY}"


STAYS = re.compile(  # results, whose stores are whose, what was printed
    r"in/\.edgecompress|in\.std|tmp/\.local(/state(/edgecompress|$)|$)"
)


def _there(home: Path) -> set[str]:
    """What is below a folder, without what is meant to stay."""
    paths = (Path(folder, name) for folder, folders, files in os.walk(home) for name in (*folders, *files))
    names = (path.relative_to(home).as_posix() for path in paths)
    return {name for name in names if not STAYS.match(name)}


COMMANDS = [case for kind in (*WORKERS, "toml") for case in chosen(kind, 1)]


@pytest.mark.parametrize("case", COMMANDS, ids=named)
def test_a_hostile_input_runs_nothing_as_nobody_in_a_hostile_folder(case: Hostile, runner: Runner, home: Path) -> None:
    assert not by_command(case, runner, home)


@pytest.mark.prove
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", hostile_inputs.corpus() if prove.WHOLE else (), ids=named)
def test_every_hostile_input_runs_nothing(case: Hostile, runner: Runner, home: Path) -> None:
    assert not by_command(case, runner, home)


# --------------------------------------------------------------------------- classes


@pytest.mark.parametrize(
    ("name", "make"), list(hostile_inputs.pipes("x")), ids=lambda value: value if isinstance(value, str) else ""
)
def test_only_regular_files_are_read_and_nobody_waits(name: str, make: object, tmp_path: Path) -> None:
    make(tmp_path)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"x: is a \w+, not a regular file"):
        plain_file.read(tmp_path / "x", 1 << 20)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert plain_file.read(tmp_path / "x", 5) == b"12345"
    with pytest.raises(InputError, match="x: is larger than 4 bytes"):
        plain_file.read(tmp_path / "x", 4)


def test_an_npz_of_thousands_of_arrays_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "x.npz", **{f"x{i}": np.full((8, 1), i, "float32") for i in range(2000)})
    opened: list[Path] = []
    monkeypatch.setattr(npz.plain_file, "opened", lambda path: opened.append(path) or plain_file_opened(path))
    members = npz.arrays(tmp_path / "x.npz")
    assert [float(next(member.rows())[0]) for member in members.values()] == list(map(float, range(2000)))
    assert len(opened) == 1


plain_file_opened = plain_file.opened


def test_an_image_is_opened_by_a_decoder_that_starts_no_program() -> None:
    from PIL import Image

    Image.init()
    assert set(pictures.DECODERS) <= set(Image.ID)
    assert not {"EPS", "WMF", "FPX", "MIC", "PDF", "PSD", "FLI", "HDF5", "GRIB", "BUFR"} & set(pictures.DECODERS)


@pytest.mark.parametrize("text", ["1979-05-27", "inf", "nan", str(2**63)])
def test_a_value_that_json_does_not_have_is_an_error_of_the_toml(text: str, tmp_path: Path) -> None:
    from edgecompress.core.settings import Device

    (tmp_path / "x.toml").write_text(f'description = "x"\noptions = {{deep = [{{x = {text}}}]}}\n')
    with pytest.raises(ConfigError, match=r"x\.toml: options\.deep\[0\]\.x: must be "):
        config.build(Device, config.read_toml(tmp_path / "x.toml"), str(tmp_path / "x.toml"))


@pytest.mark.parametrize("name", ["", "a\0b", "a\x1b[2J", "\udcff", "n" * 201, "/" * 67])
def test_no_array_is_written_under_a_name_that_is_none_of_a_file(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    for write in (tensors.write_split, lambda at, arrays: tensors.Appender(at).append(arrays)):
        with pytest.raises(InputError, match="cannot be used as a file name"):
            write(folder, {name: np.zeros(1)})
    assert [path.name for path in tmp_path.rglob("*")] == ["inner"]
