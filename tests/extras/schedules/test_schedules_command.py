"""`edgecompress schedule`: what is told of a file, whether it fits a net, what is drawn, trained and made of it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED
from safetensors.torch import load_file

from edgecompress.cli.main import main
from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import api as command
from edgecompress.extras.schedules import outline, reader
from edgecompress.formats import torch_module

pytestmark = pytest.mark.slow
AGP = "agp-pruning/resnet20_filters.schedule_agp_4.yaml"
NET = "edgecompress.extras.schedules.nets:resnet20_cifar"
TEXT = """
# time python3 compress_classifier.py --arch=digits ../data --lr=0.01 --epochs=2 -b 64 --compress=s.yaml
pruners:
  gradual: {class: AutomatedGradualPruner, initial_sparsity: 0.1, final_sparsity: 0.6, weights: [module.NAME]}
lr_schedulers:
  falls: {class: ExponentialLR, gamma: 0.5}
policies:
  - {pruner: {instance_name: gradual}, starting_epoch: 0, ending_epoch: 4, frequency: 1}
  - {lr_scheduler: {instance_name: falls}, starting_epoch: 0, ending_epoch: 9, frequency: 1}
"""

THINNING = """
pruners:
  half: {class: L1RankedStructureParameterPruner, group_type: Filters, desired_sparsity: 0.5, weights: [0.weight]}
extensions:
  thin: {class: FilterRemover, thinning_func_str: remove_filters, arch: own, dataset: own}
policies:
  - {pruner: {instance_name: half}, epochs: [0]}
  - {extension: {instance_name: thin}, epochs: [1]}
"""

NETS = """
import torch

def pictures():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1))

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

def data(split):
    generator = torch.Generator().manual_seed(len(split))
    return [(x, int(x.argmax()) % 3) for x in torch.randn(64, 6, generator=generator)]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TEXT.replace("NAME", "0.weight"), encoding="utf-8")
    (tmp_path / "own_nets.py").write_text(NETS, encoding="utf-8")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["schedule", *words])
    return code, capsys.readouterr().out


def test_a_file_alone_is_told_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "check", "s.yaml")
    assert code == 0
    assert "10% to 60% zero" in text and "0.weight" in text and "0–3" in text
    assert max(map(len, text.splitlines())) <= 80


def test_every_name_that_the_net_lacks_is_told_with_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "s.yaml").write_text(TEXT.replace("NAME", "one.weight, two.weight"), encoding="utf-8")
    code, text = said(capsys, "check", "s.yaml", "own_nets:build", "--json")
    assert code == 2
    wrong = json.loads(text)["problems"]
    assert ["one.weight" in line or "two.weight" in line for line in wrong] == [True, True]


@pytest.mark.prove
def test_warnings_fail_if_they_are_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "s.yaml").open("a", encoding="utf-8") as file:
        file.write("regularizers: {idle: {class: L1Regularizer, reg_regims: {x: 0.1}}}\n")
    assert said(capsys, "check", "s.yaml")[0] == 0
    code, text = said(capsys, "check", "s.yaml", "--strict")
    assert code == 1 and "used by no policy" in text


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data")
def test_filters_that_are_added_to_others_are_a_warning_of_a_published_schedule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(SHARED / "distiller_schedules" / AGP)
    code, text = said(capsys, "check", file, NET, "--strict")
    assert code == 1 and "lose different filters" in text


def test_thinning_is_tried_where_the_sizes_of_an_item_are_known(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "thin.yaml").write_text(THINNING)
    code, out = said(capsys, "check", "thin.yaml", "own_nets:pictures")
    assert code == 0, out
    assert "thinning was not tried" in " ".join(out.split()) and "--shape" in out
    code, out = said(capsys, "check", "thin.yaml", "own_nets:pictures", "--shape", "3,8,8")
    assert code == 0 and "not tried" not in " ".join(out.split())


def test_an_item_of_another_size_than_the_data_sets_is_asked_for_and_taken_from_data(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "thin.yaml").write_text(THINNING.replace("dataset: own", "dataset: mnist"))
    (folder / "own_nets.py").write_text(f"{NETS}\ndef images(split):\n    return torch.zeros(8, 3, 9, 9)\n")
    code, out = said(capsys, "check", "thin.yaml", "own_nets:pictures")
    assert code == 2 and "does not take an item of 1 x 28 x 28" in " ".join(out.split()) and "--shape" in out
    assert out.count(str(folder)) == 0, "the head has named the file"
    assert said(capsys, "check", "thin.yaml", "own_nets:pictures", "--data", "own_nets:images", "--strict")[0] == 0


def test_modules_that_the_net_calls_otherwise_are_renamed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.yaml").write_text(TEXT.replace("NAME", "layer.one.weight, layer.weight, layers.weight"))
    code, out = said(capsys, "check", "s.yaml", "own_nets:build")
    assert code == 2 and "--rename OLD=NEW" in out
    assert len(re.findall(r"error: line \d+: the model has no parameter", " ".join(out.split()))) == 3
    rename = [word for text in ("layer=2", "layer.one=0", "layers=2") for word in ("--rename", text)]
    assert said(capsys, "check", "s.yaml", "own_nets:build", *rename)[0] == 0
    assert main(["schedule", "check", "s.yaml", "--rename", "laye=2"]) == 2
    assert re.search(r"--rename laye=2: \S+s.yaml names no 'laye', did you mean 'layer'", capsys.readouterr().err)
    code, text = said(capsys, "convert", "s.yaml", *rename)
    assert code == 0 and tomllib.loads(text)["variant"][0]["compress"][0]["rename"] == [*rename[1::2]]


def test_the_course_is_shown_and_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("show", "s.yaml", "own_nets:build", "--epochs", "9", "--html", "a/p.html", "--png", "a/p.png")
    code, text = said(capsys, *words)
    assert code == 0
    assert "9 epochs" in text and "0.01" in text and "gradual" in text
    page = (folder / "a" / "p.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2 and "<script" not in page and "gradual at epoch 3: 60%" in page
    assert (folder / "a" / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_course_follows_the_formula_and_the_rates_of_torch() -> None:
    rows = outline.course(reader.read("s.yaml"), 6, 0.4)
    assert [row["lr"] for row in rows] == pytest.approx([0.4 * 0.5**epoch for epoch in range(6)])
    shares = [row["shares"]["gradual"] for row in rows]
    assert shares == pytest.approx([0.1, 0.6 - 0.5 * (2 / 3) ** 3, 0.6 - 0.5 * (1 / 3) ** 3, 0.6, 0.6, 0.6])


def test_a_long_course_is_cut_to_a_short_table_that_keeps_new_rates(tmp_path: Path) -> None:
    epochs = [{"epoch": n, "lr": 0.1 ** (n // 50), "acts": ["p"], "shares": {"p": n}} for n in range(180)]
    kept = [row["epoch"] for row in command._few(epochs)]
    assert len(kept) <= command.ROWS + 2 and {0, 50, 100, 150, 179} <= set(kept)


def test_the_header_tells_what_distillers_command_line_told() -> None:
    assert outline.flags("s.yaml") == {"epochs": 2, "lr": 0.01, "batch_size": 64}


@pytest.mark.prove
def test_a_target_for_it_can_be_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "convert", "s.yaml", "--momentum", "0.5")
    assert code == 0
    first, second, reference = tomllib.loads(text)["variant"]
    step = {"use": "schedule", "file": "s.yaml", "epochs": 2, "lr": 0.01, "batch_size": 64, "momentum": 0.5}
    assert first["compress"] == [step] and second["compress"] == [step, {"use": "int8"}] and reference["reference"]
    assert "items_lost" in tomllib.loads(text)["limits"]
    (folder / "t.toml").write_text(text, encoding="utf-8")
    assert main(["plan", "--target", "t.toml", "--quiet"]) == 0


def test_it_trains_and_what_was_trained_is_found_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "s.yaml", "own_nets:build", "--data", "own_nets:data", "--out", "out")
    code, text = said(capsys, *words, "--json")
    assert code == 0
    facts: dict[str, Any] = json.loads(text)
    assert [epoch["epoch"] for epoch in facts["epochs"]] == [1, 2]
    kept = load_file(folder / "out" / "net" / torch_module.STATE)["0.weight"]
    assert float((kept == 0).float().mean()) == pytest.approx(0.6 - 0.5 * (2 / 3) ** 3, abs=0.02)
    code, text = said(capsys, *words, "-v")
    assert (
        code == 0
        and re.search(r"hit +scheduled/schedule", text)
        and "next: edgecompress deploy" in text
        and "out/build.toml" in text
    )
    (folder / "own_nets.py").write_text(f"{NETS}\nother = build\n", encoding="utf-8")
    assert said(capsys, "run", "s.yaml", "own_nets:other", *words[3:], "--epochs", "1")[0] == 0
    assert {file.name for file in (folder / "out").glob("*.toml")} == {"build.toml", "other.toml"}
    assert main(["schedule", *words, "--epochs", "1"]) == 2
    assert "out/build.toml: already exists" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["folder", "net.onnx", "none"])
def test_a_model_that_is_no_factory_is_refused_with_what_it_must_be(
    model: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "folder").mkdir()
    (folder / "folder" / "config.json").write_text("{}")
    assert main(["schedule", "check", "s.yaml", model]) == 2
    says = f"{model}: MODEL must be the factory of a torch net, pkg.mod:fn, or a source.toml that names one"
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("option, value", [("epochs", 0), ("lr", -1.0), ("weight_decay", -1.0), ("teacher", "a:b")])
def test_an_option_that_the_technique_refuses_is_named(option: str, value: float | str) -> None:
    facts = {"policies": [{"last": 3}], "flags": {}, "post_training": False}
    with pytest.raises(InputError, match=f"^--{option.replace('_', '-')} {value}: "):
        command.converted(command.Outline("s.yaml", facts), "x86", Path.cwd(), {option: value})


@pytest.mark.prove
def test_a_refused_option_leaves_nothing_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "run", "s.yaml", "own_nets:build", "--out", "out", "--distill", "2"]) == 2
    assert "--distill 2" in capsys.readouterr().err and not (folder / "out").exists()


@pytest.mark.prove
def test_a_run_that_fails_leaves_the_target_and_the_net_of_the_one_before(folder: Path) -> None:
    (folder / "out" / "net").mkdir(parents=True)
    (folder / "out" / "other.toml").write_text("mine", encoding="utf-8")
    assert main(["schedule", "run", "s.yaml", "own_nets:build", "--data", "own_nets:none", "--out", "out"]) != 0
    assert (folder / "out" / "other.toml").read_text(encoding="utf-8") == "mine"
    assert not (folder / "out" / "build.toml").exists()


QUANTIZED = """
quantizers:
  coarse: {class: DorefaQuantizer, bits_activations: 8, bits_weights: 4}
pruners:
  level: {class: SparsityLevelParameterPruner, levels: {0.weight: 0.5}}
policies:
  - {quantizer: {instance_name: coarse}, starting_epoch: 0, ending_epoch: 6, frequency: 1}
  - {pruner: {instance_name: level}, epochs: [2, 4]}
"""


def test_epochs_of_a_list_are_told_one_by_one_and_quantizers_act(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "s.yaml").write_text(QUANTIZED, encoding="utf-8")
    assert re.search(r"(?m)^ +2, 4 +level", said(capsys, "check", "s.yaml")[1])
    acts = {row["epoch"]: row["acts"] for row in json.loads(said(capsys, "show", "s.yaml", "--json")[1])["epochs"]}
    assert acts[1] == ["coarse"] and acts[2] == ["coarse", "level"]


def test_a_file_that_is_not_there_is_to_be_a_yaml_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "check", "none.yaml"]) == 2
    assert "no such schedule; give a YAML file" in capsys.readouterr().err


def test_the_known_classes_of_an_error_are_whole_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "s.yaml").write_text("pruners: {p: {class: Xyz}}", encoding="utf-8")
    assert main(["schedule", "check", "s.yaml"]) == 2
    names = capsys.readouterr().err.strip().partition("known: ")[2].partition(", …")[0].split(", ")
    assert names and all(name.endswith(("Pruner", "_AGP")) for name in names), names
