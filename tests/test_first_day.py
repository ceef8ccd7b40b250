"""What goes wrong on a first day, as a user types it: one line that names what to change, exit code 2, in seconds."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from small_onnx import conv_net, images

from edgecompress.cli import main
from edgecompress.commands import deploy
from edgecompress.core import environments
from edgecompress.core.errors import Unreachable
from edgecompress.pipeline import plan
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.job_request import Options

LIMIT_S = 5.0  # of CPU, beyond importing the user's module: a busy machine changes the time on a clock alone
NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 10)
    def forward(self, image):
        return self.head(self.conv(image).mean((2, 3)))

class Masked(Net):
    def forward(self, image, mask):
        return super().forward(image * mask)

class OnGpu(Net):
    def forward(self, image):
        return super().forward(image.cuda())

def build(): return Net()
def masked(): return Masked()
def raises(): raise ValueError("no weights")
def nothing(): Net()
def on_gpu(): return OnGpu()
def weights(): return Net().load_state_dict({})
"""
SAVED = "import nets, torch; torch.manual_seed(0); torch.save(nets.build().state_dict(), 'net.pt')"


@dataclass(frozen=True)
class Mistake:
    """A command line, and what its one line says: `says` is a regular expression."""

    words: str
    says: str
    prepare: Callable[[Path], object] = lambda folder: None
    torch: bool = False  # whether its stage imports the user's module

    @property
    def slow(self) -> bool:
        """Whether a worker starts."""
        return self.words.startswith("deploy")


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    """Makes data.npz with the arrays of each split changed that end with `name`."""

    def prepare(folder: Path) -> None:
        with np.load(folder / "images.npz") as file:
            arrays = {key: change(file[key]) if key.endswith(name) else file[key] for key in file}
        np.savez(folder / "data.npz", allow_pickle=False, **arrays)

    return prepare


def pictures(*places: str) -> Callable[[Path], object]:
    """Makes images of 8 x 8 in these folders."""

    def prepare(folder: Path) -> None:
        from PIL import Image

        for place in places:
            (folder / place).mkdir(parents=True)
            for i in range(8):
                Image.fromarray(np.full((8, 8, 3), i, np.uint8)).save(folder / place / f"{i}.png")

    return prepare


def with_nan(array: np.ndarray) -> np.ndarray:
    return np.where(np.arange(array.size).reshape(array.shape) == 7, np.nan, array)


def touched(*names: str) -> Callable[[Path], object]:
    return lambda folder: [(folder / name).touch() for name in names]


ONNX = "deploy net.onnx --data data.npz"
TORCH = "deploy nets:{} --data images.npz"
MISTAKES = {
    "a_command_that_there_is_not": Mistake("deply net.onnx", "no command 'deply', did you mean 'deploy'"),
    "an_option_that_there_is_not": Mistake("deploy net.onnx --taret x86", "--taret x86, did you mean '--target'"),
    "a_target_that_there_is_not": Mistake("plan --target x68", "no target 'x68', did you mean 'x86'"),
    "a_microcontroller": Mistake("plan --target STM32-F4", "no target 'STM32-F4': for microcontrollers there"),
    "a_board_as_a_target": Mistake("plan --target rpi4", "no target 'rpi4': give --target arm64.*; --device rpi4 is"),
    "a_device_that_there_is_not": Mistake("plan --device raspi5", "no device 'raspi5', did you mean 'rpi5'"),
    "a_profile_that_there_is_not": Mistake("plan --profile quik", "no profile 'quik', did you mean 'quick'"),
    "a_variant_that_there_is_not": Mistake("plan --only int9", "--only int9: .* did you mean 'int8'"),
    "a_variant_of_no_target": Mistake("plan --target x86,web --only int9", "--only int9: no target has .*'int8'"),
    "a_setting_of_no_group": Mistake("plan --set limit.items_lost=1", "--set limit.items_lost: .* 'limits'"),
    "a_setting_that_there_is_not": Mistake("plan --set limits.item_lost=1", "unknown key 'item_lost', .* 'items_lost'"),
    "a_step_of_nothing": Mistake('plan --set variant.int8.use=""', 'variant int8: .*must not be empty; .*use = "int8"'),
    "a_step_in_a_source": Mistake(
        "plan s.toml", r"unknown key 'use'; it is a step .*\[\[variant\]\]",
        lambda folder: (folder / "s.toml").write_text('model = "net.onnx"\nuse = ""'),
    ),
    "a_stage_that_there_is_not": Mistake("plan --until goldn", "--until goldn: .* 'golden'"),
    "another_name_of_a_metric": Mistake("plan --metric accuracy", "no metric 'accuracy' .* did you mean 'top1'"),
    "a_model_that_is_not_there": Mistake("plan none.onnx --data images.npz", "none.onnx: no such model file; give"),
    "data_that_is_not_there": Mistake("plan net.onnx --data none.npz", "none.npz: no such data; give"),
    "no_data": Mistake("plan net.onnx", "no data to calibrate and verify with; give --data"),
    "data_of_another_kind": Mistake("plan net.onnx --data d.csv", "data must be .*an .npz, a folder", touched("d.csv")),
    "a_graph_of_tensorflow": Mistake("plan w.pb --data images.npz", r"tf.saved_model.save\(", touched("w.pb")),
    "a_part_of_a_savedmodel": Mistake(
        "plan saved_model.pb --data images.npz", "give its folder as MODEL, /", touched("saved_model.pb")
    ),
    "a_pickle": Mistake("plan w.pkl --data images.npz", "write a factory .* as MODEL, nets:build", touched("w.pkl")),
    "a_file_of_python": Mistake("plan nets.py --data images.npz", "as MODEL, nets:build"),
    "a_file_of_python_and_its_function": Mistake("plan nets.py:build --data images.npz", "nets:build"),
    "a_module_that_is_not_there": Mistake("plan nest:build --data images.npz", "nest:build: no module 'nest' in"),
    "a_function_that_is_not_there": Mistake("plan nets:biuld --data images.npz", "nets:biuld: .* did you mean 'build'"),
    "data_of_no_function": Mistake("plan nets:build --data nets:dta", "nets:dta: nets has no function"),
    "a_module_that_is_no_python": Mistake(
        "plan wrong:build --data images.npz",
        "wrong:build: .*wrong.py:1: invalid syntax",
        lambda folder: (folder / "wrong.py").write_text("def build(:"),
    ),
    "images_in_no_folder": Mistake("plan net.onnx --data flat", "flat/CLASS .*--metric none", pictures("flat")),
    "splits_by_two_names": Mistake(
        "plan net.onnx --data root", "root: has val and valid; splits are called .*: rename or remove one",
        pictures("root/train/a", "root/val/a", "root/valid/a"),
    ),
    "no_target_that_is_reached": Mistake(
        "plan net.tflite --data images.npz --target web,ios", "web.toml: .*no path from tflite.*; .*ios.toml",
        touched("net.tflite"),
    ),
    "images_of_another_size": Mistake(
        ONNX, "takes batch x 3 x 8 x 8, the data gives batch x 3 x 9 x 9; .*resize, crop",
        lambda folder: images(folder / "data.npz", size=9),
    ),
    "channels_last": Mistake(ONNX, 'set layout = "NCHW"', changed("image", lambda x: np.moveaxis(x, 1, -1).copy())),
    "images_of_one_axis_less": Mistake(ONNX, "the data gives batch x 8 x 8;", changed("image", lambda x: x[:, 0])),
    "bytes": Mistake(ONNX, r"scale = 0.0039\S+ .*in \[preprocess\]", changed("image", lambda x: x.astype(np.uint8))),
    "an_image_folder_for_a_net_of_numbers": Mistake(
        "deploy net.onnx --data pictures", 'layout = "NCHW".*scale = 0.0039', pictures("pictures/cat", "pictures/dog")
    ),
    "nan_in_the_data": Mistake(ONNX, "split 'calibrate', item 0: 'image' holds NaN", changed("image", with_nan)),
    "labels_from_1": Mistake(ONNX, "label 10 is out of range: .* 0 to 9", changed("labels", lambda x: x + 1)),
    "labels_of_half_the_items": Mistake(ONNX, "labels .*as many items", changed("labels", lambda x: x[::2])),
    "too_few_items": Mistake(
        ONNX, "data: 2 items cannot be split into calibrate, select, test; give more",
        lambda folder: np.savez(folder / "data.npz", image=np.zeros((2, 3, 8, 8), np.float32), labels=np.zeros(2, int)),
    ),
    "two_inputs_and_data_for_one": Mistake(TORCH.format("masked"), "folder of image.npy, mask.npy", torch=True),
    "a_factory_that_raises": Mistake(TORCH.format("raises"), r"ValueError: no weights \(.*nets.py:\d+\)", torch=True),
    "a_factory_of_nothing": Mistake(TORCH.format("nothing"), "must return a torch.nn.Module", torch=True),
    "weights_of_another_net": Mistake(TORCH.format("weights"), r"Missing key\(s\) in state_dict", torch=True),
    "a_net_for_a_gpu": Mistake(TORCH.format("on_gpu"), r"on the CPU, without .cuda\(\)", torch=True),
    "channels_last_for_torch": Mistake(
        "deploy nets:build --data data.npz", 'set layout = "NCHW"',
        changed("image", lambda x: np.moveaxis(x, 1, -1).copy()), torch=True,
    ),
    "a_library_that_is_not_there": Mistake(
        "deploy lost:build --data images.npz", "No module named 'nowhere'.*install 'nowhere'",
        lambda folder: (folder / "lost.py").write_text("import nowhere\ndef build(): pass"),
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a net, its images and a module of the user's, which is the working folder."""
    conv_net(tmp_path / "net.onnx")
    images(tmp_path / "images.npz")
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


def cpu_s() -> float:
    """Seconds of CPU of this process and of those that ended below it."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def others_s() -> dict[psutil.Process, float]:
    """The same of each process below it: what earlier tests left ends when it likes."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found[child] = sum(child.cpu_times()[:4])
    return found


@pytest.fixture(scope="module")
def import_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds of CPU that importing the user's module takes."""
    place, began = tmp_path_factory.mktemp("imported"), cpu_s()
    (place / "nets.py").write_text(NETS)
    subprocess.run([sys.executable, "-c", "import nets"], cwd=place, check=True)
    return cpu_s() - began


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if mistake.slow else []) for n, mistake in MISTAKES.items()]
)
def test_a_mistake_ends_in_seconds_in_one_line_that_names_what_to_change(
    name: str, folder: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake = MISTAKES[name]
    allowed_s = LIMIT_S + (request.getfixturevalue("import_s") if mistake.torch else 0.0)
    mistake.prepare(folder)
    before, began = others_s(), cpu_s()
    code = main.main(mistake.words.split())
    ended_s = sum(seconds for child, seconds in before.items() if not child.is_running())
    took_s, told = cpu_s() - began - ended_s, capsys.readouterr()
    assert code == 2, told
    (line,) = told.err.splitlines()
    assert re.match(r"edgecompress( \w+)?: error: ", line) and re.search(mistake.says, line), line
    assert line.partition("error: ")[2] not in told.out
    assert took_s < allowed_s


@pytest.mark.slow
def test_the_factory_that_is_shown_for_weights_alone_works(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run([sys.executable, "-c", SAVED], check=True)
    assert main.main(["plan", "net.pt", "--data", "images.npz"]) == 2
    line, file, *snippet = capsys.readouterr().err.splitlines()
    assert "weights only: write a factory" in line and "nets:build" in line and file == "nets.py:"
    (folder / "nets.py").rename(folder / "my_package.py")
    (folder / "nets.py").write_text("\n".join(text.removeprefix("    ") for text in snippet))
    assert main.main(["deploy", "nets:build", "--data", "images.npz", "--until", "source"]) == 0


def test_all_that_is_not_installed_for_any_target_is_told_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, gone = environments.version, ("torch", "onnx", "coremltools")
    monkeypatch.setattr(environments, "version", lambda package: None if package in gone else real(package))
    assert main.main(["plan", "nets:build", "--data", "images.npz", "--target", "x86,ios"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"a torch source needs torch, .*pip install .*\[coreml,.*onnx,.*torch\]'", line), line


def test_an_older_python_is_told(folder: Path) -> None:
    older = "import runpy, sys; sys.version_info = (3, 10, 1); runpy.run_module('edgecompress', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == (
        "edgecompress: error: needs Python 3.11 or newer, not 3.10.1; run: python3.11 -m edgecompress\n"
    )


def test_the_program_alone_lists_its_commands_by_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    told = capsys.readouterr()
    assert not told.err and main.main(["--help"]) == 0 and capsys.readouterr().out == told.out
    for name, head in main.commands():
        part = told.out.partition(f"\n{head['PURPOSE']}:\n")[2].partition("\n\n")[0]
        assert name.replace("_", " ") in part


@pytest.mark.parametrize(
    ("command", "done", "says"),
    [
        ("plan", "→ target android", "web: refused: .*no path from tflite"),
        pytest.param(
            "deploy",
            "OK android: stopped after data",
            r"web: .*no path from tflite to onnx.*give another source \(a factory pkg.mod:fn, .pt2",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_target_that_is_not_reached_does_not_stop_the_others(
    command: str, done: str, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "net.tflite").write_bytes(b"")  # it is not read
    words = ["net.tflite", "--data", "images.npz", "--target", "web,android", "--only", "fp32", "--until", "data"]
    assert main.main([command, *words]) == 2
    told = capsys.readouterr()
    assert done in told.out and re.search(says, told.out) and not told.err
    if command == "deploy":
        *_, last = told.out.splitlines()
        assert last == "exit code 2, the gravest of all targets, is that of web; shipped: nothing"
        assert main.main([command, *words, "--json"]) == 2
        assert [*json.loads(capsys.readouterr().out)["not_shipped"]] == ["web"]


@pytest.mark.parametrize(
    ("gone", "toml", "says"),
    [
        ("ethos-u-vela", "", r"needs ethos-u-vela>=\S+, not installed; run: pip install .*ethos-u"),
        ("", 'description = "wrong"\nruntime = "litert"\nplatform = "x"\n', "unknown key 'platform'"),
    ],
    ids=["a library", "its file"],
)
def test_what_is_wrong_of_one_target_stops_that_target_alone(
    gone: str, toml: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, name = environments.version, "mine" if toml else "ethos-u55"
    monkeypatch.setattr(environments, "version", lambda package: None if package == gone else real(package))
    (folder / "mine.toml").write_text(toml)
    target = "mine.toml" if toml else name
    words = ["nets:build", "--data", "images.npz", "--only", "int8"]
    assert main.main(["plan", *words, "--target", f"{target},web"]) == 2
    told = capsys.readouterr()
    assert "→ target web" in told.out and not told.err
    assert re.search(f"{name}: refused: .*{says}", " ".join(told.out.split()))
    assert main.main(["plan", *words, "--target", f"web,{target}", "--json"]) == 2
    first, last = json.loads(capsys.readouterr().out)
    assert first["target"] == "web" and last["target"] == name and re.search(says, last["refused"])
    assert main.main(["plan", *words, "--target", target]) == 2
    assert re.search(says, capsys.readouterr().err)


def test_a_device_that_does_not_answer_stops_its_target_alone(folder: Path) -> None:
    def made(target: str) -> Job:
        if target == "arm64":
            raise Unreachable("arm64: no answer")
        return job("net.tflite", target, data="images.npz")

    (folder / "net.tflite").write_bytes(b"")
    plans, refused = plan.deploy_all(["arm64", "android"], made)
    assert [each.target.name for each, _ in plans] == ["android"] and str(refused["arm64"]) == "arm64: no answer"
    assert [result.exit_code for result in deploy.run_all([], Options(), refused).values()] == [3]
    with pytest.raises(Unreachable, match=r"^arm64: no answer; .*web\.toml: .*no path from tflite"):
        plan.deploy_all(["arm64", "web"], made)


def test_each_target_builds_those_of_the_variants_asked_for_that_it_has(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["plan", "--target", "x86,web,android", "--only", "int8,openvino-int8", "--json"]) == 0
    assert [[route["variant"]["name"] for route in plan["routes"]] for plan in json.loads(capsys.readouterr().out)] == [
        ["int8", "openvino-int8"], ["int8"], ["int8"]
    ]  # fmt: skip
