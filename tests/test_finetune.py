"""Training after compression: what is regained, what stays zero, what a kill costs, and what is refused."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from edgecompress.core.errors import EdgeError, InputError, StageFailed
from edgecompress.core.model import METRIC, Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.demo import net as demo
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.formats import torch_module
from edgecompress.stages import golden, trace
from edgecompress.techniques import distill, finetune, prune_channels, qat
from edgecompress.techniques._training import batch_norms, checkpoint, data, log, losses, minutes, rates, setup
from edgecompress.techniques._training import loop as training
from edgecompress.techniques._training.fitting import bearable
from edgecompress.techniques._training.pace import Pace, in_words
from edgecompress.testing import zoo

pytestmark = pytest.mark.slow

Arrays = Mapping[str, Any]
ITEMS, BATCH = 96, 32
QUICK = {"epochs": 2, "batch_size": BATCH, "lr": 0.01}

# --------------------------------------------------------------------------- nets and data


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def samples(out: Path, splits: Mapping[str, Arrays], layout: str = "") -> Artifact:
    """Splits on disk; their names without "labels" are the inputs."""
    for split, arrays in splits.items():
        tensors.write_split(out / split, arrays)
    first = next(iter(splits.values()))
    batch = Dim("batch", 1, 1 << 20)
    named = {n: a for n, a in first.items() if n != tensors.LABELS}
    specs = tuple(TensorSpec(n, (batch, *a.shape[1:]), str(a.dtype), layout) for n, a in named.items())
    facts = {"splits": {split: len(next(iter(arrays.values()))) for split, arrays in splits.items()}}
    return Artifact(out, "samples", specs, (), facts).write()


def changed(dense: Artifact, out: Path, by: float, edits: Sequence[Any] = ()) -> Artifact:
    """The net with each weight changed by a part of itself, or set to zero where the edits say "zeros"."""
    import torch

    net = torch_module.rebuild(dense)
    zeroed = {name for edit in edits for name in edit["parameters"]}
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            weight.mul_(1 + by * torch.randn_like(weight))
            if name in zeroed:
                weight.mul_(torch.rand_like(weight) > 0.5)
    return torch_module.save(net, Request({"model": dense}, folder(out)), edits)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run beside each other: threads that wait for one another would wait for other tests too."""
    monkeypatch.setattr(setup, "cores", lambda: 1)


@dataclasses.dataclass
class Case:
    """A net, what became of it, and its data."""

    root: Path
    dense: Artifact
    model: Artifact
    samples: Artifact
    training: Artifact
    counter: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def request(self, keep: Path | None = None, **options: Any) -> Request:
        inputs = {"model": self.model, "dense": self.dense, "samples": self.samples, "training": self.training}
        out = folder(self.root / f"out{next(self.counter)}")
        return Request(inputs, out, finetune.Options(**{**QUICK, **options}), keep=keep)

    def train(self, keep: Path | None = None, **options: Any) -> Artifact:
        return finetune.apply(self.request(keep, **options))


def zoo_case(root: Path, name: str, labels: str = "classes", by: float = 0.3, edits: Sequence[Any] = ()) -> Case:
    """A net of the zoo with drawn data; the labels are what the dense net says ("" for none, "real": its outputs)."""
    import torch

    layout = "NCHW" if name == "residual_cnn" else ""
    drawn = {split: zoo.draw(zoo.NETS[name], ITEMS, seed) for seed, split in enumerate(("train", "select", "test"))}
    bare = samples(root / "bare", drawn, layout)
    dense = trace.load(
        Request({"samples": bare}, folder(root / "dense"), {"source": {"model": f"edgecompress.testing.zoo:{name}"}})
    )
    net = torch_module.rebuild(dense)
    for arrays in drawn.values():
        said = torch_module.outputs(net, dense, {n: torch.from_numpy(a) for n, a in arrays.items()})
        first = next(iter(said.values()))
        if labels:
            arrays[tensors.LABELS] = (first.argmax(-1) if labels == "classes" else first).numpy()
    chosen = samples(root / "samples", {"select": drawn["select"], "test": drawn["test"]}, layout)
    train = samples(root / "training", {"train": drawn["train"]}, layout)
    return Case(root, dense, changed(dense, root / "model", by, edits), chosen, train)


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return zoo_case(tmp_path_factory.mktemp("residual"), "residual_cnn")


def imported(case: Case, many: bool = True) -> Case:
    """The same net from an .onnx as an exporter writes it: batch norms are inside the convolutions."""
    root = case.root / ("imported" if many else "imported-one")
    dynamic = {case.dense.inputs[0].name: {"0": "batch:1..512"}} if many else {}
    given = {"samples": case.samples}
    program = trace.run(Request({**given, "model": case.dense}, folder(root / "program"), {"dynamic": dynamic}))
    file = ort.export(Request({"model": program}, folder(root / "onnx")))
    answers = golden.run(
        Request({**given, "model": file}, folder(root / "golden"), {"splits": ["test"], "metric": "none"})
    )
    onnx_import = pytest.importorskip("edgecompress.extras.onnx_nets.onnx_import")
    net = onnx_import.run(Request({**given, "model": file, "golden": answers}, folder(root / "net")))
    return dataclasses.replace(case, root=root, dense=net, model=net)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The embedded demo, its weights changed so far that it knows little."""
    root = tmp_path_factory.mktemp("digits")
    splits = {split: split_of_digits(split) for split in ("train", "calibrate", "select", "test")}
    train = samples(root / "training", {"train": splits.pop("train")}, "NCHW")
    chosen = samples(root / "samples", splits, "NCHW")
    dense = trace.load(
        Request({"samples": chosen}, folder(root / "dense"), {"source": {"model": "edgecompress.demo.net:build"}})
    )
    return Case(root, dense, changed(dense, root / "model", 0.6), chosen, train)


@pytest.fixture(scope="module")
def unlabelled(digits: Case, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The same without labels to learn from, or to choose by."""
    root = tmp_path_factory.mktemp("unlabelled")
    train, select = ({"input": split_of_digits(split)["input"]} for split in ("train", "select"))
    chosen, learned = samples(root / "s", {"select": select}, "NCHW"), samples(root / "t", {"train": train}, "NCHW")
    return dataclasses.replace(digits, root=root, samples=chosen, training=learned)


def split_of_digits(split: str) -> dict[str, Any]:
    images, labels = zip(*(demo.data(split) or ()), strict=True)
    return {
        "input": ((np.stack(images)[:, None] / 16 - 0.3) / 0.37).astype(np.float32),
        tensors.LABELS: np.array(labels),
    }


def logits(case: Case, model: Artifact) -> Any:
    """What a net answers to the test split."""
    import torch

    inputs = next(tensors.batches(case.samples, "test", tensors.count(case.samples, "test"), model=model))
    named = {name: torch.from_numpy(array) for name, array in inputs.items()}
    return next(iter(torch_module.outputs(torch_module.rebuild(model), model, named).values())).numpy()


def agreement(case: Case, model: Artifact) -> float:
    """Share of test items that get the class that the dense net gives them."""
    return float((logits(case, model).argmax(-1) == logits(case, case.dense).argmax(-1)).mean())


def accuracy(case: Case, model: Artifact) -> float:
    return float((logits(case, model).argmax(-1) == tensors.labels(case.samples, "test")).mean())


def weights(model: Artifact) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in torch_module.rebuild(model).state_dict().items()}


def assert_equal(a: Artifact, b: Artifact) -> None:
    """Bit for bit, and in what is told of them."""
    assert a.sha256 == b.sha256
    assert a.facts == b.facts


# --------------------------------------------------------------------------- what training gives


def test_a_damaged_net_regains_its_accuracy_on_the_digits(digits: Case) -> None:
    trained = digits.train(epochs=3, batch_size=128, lr=0.05)
    assert accuracy(digits, digits.model) < 0.5
    assert accuracy(digits, trained) > 0.9
    assert [e["epoch"] for e in trained.facts["epochs"]] == [1, 2, 3]
    facts = {k: trained.facts[k] for k in ("samples", "split", "batch_size", "distill", "metric")}
    assert facts == {"samples": 997, "split": "train", "batch_size": 128, "distill": 0.9, "metric": "top1"}
    assert trained.facts["epochs"][-1]["select"] > 0.9


@pytest.mark.parametrize(
    ("loss", "metric"), [pytest.param("auto", "distance", marks=pytest.mark.prove), ("cross_entropy", "agreement")]
)
def test_without_labels_distillation_alone_lifts_the_agreement_with_the_dense_net(
    digits: Case, unlabelled: Case, loss: str, metric: str
) -> None:
    trained = unlabelled.train(epochs=3, batch_size=128, lr=0.05, loss=loss, distill=0.3)
    assert agreement(digits, digits.model) < 0.5
    assert agreement(digits, trained) > 0.85
    assert (trained.facts["metric"], trained.facts["distill"]) == (metric, 1.0)


@pytest.mark.parametrize(
    ("name", "labels", "amp"),
    [
        pytest.param("lstm", "classes", "on", marks=vectors.BF16),
        ("int64", "classes", "off"),
        ("transformer", "real", "off"),
    ],
)
def test_sequences_ids_and_real_labels_train(tmp_path: Path, name: str, labels: str, amp: str) -> None:
    case = zoo_case(tmp_path, name, labels, by=1.0)
    trained = case.train(epochs=8, optimizer="adamw", lr=0.02, amp=amp)
    first, *_, last = (epoch["loss"] for epoch in trained.facts["epochs"])
    assert last < first
    assert agreement(case, trained) > agreement(case, case.model)


@pytest.mark.parametrize("amp", ["off", pytest.param("on", marks=vectors.BF16)])
def test_gradients_that_are_clipped_move_the_net_no_further(residual: Case, amp: str) -> None:
    how = {"optimizer": "sgd", "lr": 0.1, "schedule": "constant", "weight_decay": 0.0, "epochs": 1, "amp": amp}
    moved = {}
    for clip in (None, 1e-3):
        after, before = weights(residual.train(clip=clip, **how)), weights(residual.model)
        learned = [name for name in before if name.endswith(("weight", "bias"))]
        moved[clip] = math.sqrt(sum(float(np.square(after[n] - before[n]).sum()) for n in learned))
    steps, nesterov = ITEMS // BATCH, 10  # momentum of 0.9 makes ten times of a step at most
    assert moved[1e-3] <= 0.1 * 1e-3 * steps * nesterov < moved[None]


def test_the_rate_falls_after_an_epoch_that_is_no_better(residual: Case) -> None:
    trained = residual.train(epochs=4, lr=1e-9, schedule="constant", plateau=4.0, distill=0.0)
    rates = [epoch["lr"] for epoch in trained.facts["epochs"]]
    assert rates == pytest.approx([1e-9, 1e-9 / 4, 1e-9 / 16, 1e-9 / 64])


def test_a_language_model_is_told_by_its_perplexity(tmp_path: Path) -> None:
    import torch

    case = zoo_case(tmp_path, "int64", by=1.0)
    judged = dataclasses.replace(case.training, facts={**case.training.facts, METRIC: "perplexity"})
    request = dataclasses.replace(case, training=judged).request(distill=0.0)
    made = setup.training(request, torch_device("cpu"), training.Training)
    net = torch_module.rebuild(case.model)
    select = {
        s.name: torch.from_numpy(np.array(tensors.load(case.samples, "select", s.name))) for s in case.model.inputs
    }
    said = next(iter(torch_module.outputs(net, case.model, select).values())).double()
    right = torch.from_numpy(np.array(tensors.labels(case.samples, "select"))).long()
    nats = -said.log_softmax(-1).gather(-1, right[..., None]).mean()
    assert made.score(net) == pytest.approx(math.exp(float(nats)), rel=1e-5)
    assert made.metric == "perplexity"


RUNNING = """
import torch

class Running(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, h=None):
        h = torch.zeros(1, len(x), 3) if h is None else h
        return {"y": self.scale * x + h[0], "hn": h + x}

def build():
    return Running()
"""


def test_a_net_with_state_goes_on_from_where_the_batch_before_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    (tmp_path / "running_sums.py").write_text(RUNNING, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    x = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
    drawn = {"x": x, tensors.LABELS: np.zeros((24, 3), "float32")}
    chosen = samples(tmp_path / "samples", {"select": drawn, "test": drawn})
    train = samples(tmp_path / "training", {"train": drawn})
    train = dataclasses.replace(train, facts={**train.facts, "sequence": 4})
    source = {"model": "running_sums:build", "state": {"h": "hn"}}
    dense = trace.load(Request({"samples": chosen}, folder(tmp_path / "dense"), {"source": source}))
    case = Case(tmp_path, dense, dense, chosen, train)
    made = setup.training(case.request(batch_size=3, distill=0.0), torch_device("cpu"), training.Training)
    net = torch_module.rebuild(dense).eval()
    sums = np.stack([x[i // 4 * 4 : i + 1].sum(0) for i in range(24)])  # a sequence is of four items
    with torch.no_grad():
        said = [made.call(net, inputs)["y"].numpy() for _ in range(2) for inputs, _ in made.batches(0)]
    assert np.allclose(np.stack(said[:8], axis=1).reshape(24, 3), sums, atol=1e-5)
    assert np.array_equal(np.stack(said[8:]), np.stack(said[:8]))  # an epoch begins with none
    whole = x[:20].reshape(10, 2, 3)  # "select" is one sequence, read in ten parts
    assert made.score(net) == pytest.approx(float(np.square(whole.cumsum(1)).mean()), rel=1e-5)
    trained = case.train(batch_size=3, distill=0.0, epochs=1)
    assert torch_module.rebuild(trained).scale.item() != 1.0


def test_every_output_is_held_against_the_dense_nets(tmp_path: Path) -> None:
    case = zoo_case(tmp_path, "two_ends")
    made = setup.training(case.request(), torch_device("cpu"), training.Training).objective
    assert made.outputs == ("logits", "code")
    assert math.isfinite(case.train(epochs=1).facts["epochs"][0]["loss"])


def test_without_a_train_split_it_trains_on_calibrate_and_says_so(residual: Case, tmp_path: Path) -> None:
    arrays = {n: np.asarray(tensors.load(residual.training, "train", n)) for n in ("image", tensors.LABELS)}
    lent = samples(tmp_path / "lent", {"calibrate": arrays, "select": arrays}, "NCHW")
    none = dataclasses.replace(residual.training, facts={"splits": {"train": 0}})
    trained = dataclasses.replace(residual, root=tmp_path, samples=lent, training=none).train(epochs=1)
    assert trained.facts["split"] == "calibrate"


def test_a_net_of_a_fixed_batch_is_trained_with_that_batch(residual: Case, tmp_path: Path) -> None:
    specs = tuple(dataclasses.replace(s, shape=(10, *s.shape[1:])) for s in residual.model.inputs)
    fixed = dataclasses.replace(residual.model, inputs=specs)
    trained = dataclasses.replace(residual, root=tmp_path, model=fixed).train(epochs=1)
    assert trained.facts["batch_size"] == 10
    assert 0 <= trained.facts["epochs"][0]["select"] <= 1


def torch_device(name: str) -> Any:
    import torch

    return torch.device(name)


# --------------------------------------------------------------------------- what stays

ZEROS = [{"edit": "zeros", "parameters": ["body.0.0.weight", "body.1.second.0.weight"]}]


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return zoo_case(tmp_path_factory.mktemp("sparse"), "residual_cnn", edits=ZEROS)


def test_the_optimizer_is_the_one_that_is_usual_for_the_net() -> None:
    from torch import nn

    words = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    pictures = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    nets = {"adamw": [words, nn.GRU(4, 4), nn.TransformerEncoderLayer(4, 1)], "sgd": [pictures]}
    request = Request({"training": Artifact(Path(), "samples", facts={})}, Path(), finetune.Options())
    for wanted, each in nets.items():
        assert {setup.settled(request, net).options.optimizer for net in each} == {wanted}
    chosen = dataclasses.replace(request, options=finetune.Options(optimizer="sgd"))
    assert setup.settled(chosen, words).options.optimizer == "sgd"


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_what_is_zero_stays_zero(sparse: Case, optimizer: str) -> None:
    before, after = weights(sparse.model), weights(sparse.train(optimizer=optimizer, lr=0.05))
    for name in ZEROS[0]["parameters"]:
        np.testing.assert_array_equal(before[name] == 0, after[name] == 0)
        assert 0.3 < (before[name] == 0).mean() < 0.7
        assert not np.array_equal(before[name], after[name])


def test_weights_are_rewound_where_they_were_only_set_to_zero(sparse: Case, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    early = {name: np.array(w + np.ones_like(w), w.dtype) for name, w in weights(sparse.dense).items()}
    save_file(early, tmp_path / "early.safetensors")
    rewound = {"rewind": "weights", "original_epochs": 4, "early": str(tmp_path / "early.safetensors")}
    after = weights(sparse.train(epochs=1, lr=1e-30, **rewound))
    before = weights(sparse.model)
    for name in ZEROS[0]["parameters"]:
        np.testing.assert_array_equal(after[name], early[name] * (before[name] != 0))
    np.testing.assert_array_equal(after["head.weight"], early["head.weight"])


def test_weights_are_not_rewound_where_layers_were_narrowed(residual: Case, tmp_path: Path) -> None:
    copy = folder(tmp_path / "narrowed")
    for file in residual.model.files():
        (copy / file.name).write_bytes(file.read_bytes())
    card = json.loads((copy / torch_module.MODULE).read_text())
    narrow = {"edit": "resize", "module": "body.0.0", "attributes": {}, "shapes": {}}
    (copy / torch_module.MODULE).write_text(json.dumps({**card, "edits": [narrow]}))
    narrowed = dataclasses.replace(residual.model, path=copy)
    case = dataclasses.replace(residual, root=tmp_path, model=narrowed)
    with pytest.raises(InputError, match=r"'body\.0\.0' has changed its shape.*rewind = 'lr'"):
        case.train(rewind="weights", original_epochs=4, early="early.safetensors")


def test_training_takes_no_more_threads_than_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for said, taken in (("1", {1}), ("0", {1}), ("4096", {len(os.sched_getaffinity(0))})):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert {setup.cores()} == taken


def test_threads_and_chances_are_as_before(residual: Case) -> None:
    import torch

    was = torch.get_num_threads(), torch.random.get_rng_state()
    residual.train(epochs=1)
    assert torch.get_num_threads() == was[0]
    assert torch.equal(torch.random.get_rng_state(), was[1])


# --------------------------------------------------------------------------- kill -9

CHILD = """
import importlib, json, sys, time
from pathlib import Path
from edgecompress.core.model import Artifact, Request
from edgecompress.techniques._training import pace, setup

asked = json.loads(sys.argv[1])
technique = importlib.import_module(f"edgecompress.techniques.{asked['technique']}")

def progress(fraction, what):
    print(what, flush=True)
    if what.startswith(asked["until"]):
        time.sleep(600)

def whole(value):
    return tuple(map(whole, value)) if isinstance(value, list) else value

inputs = {role: Artifact.read(Path(path)) for role, path in asked["inputs"].items()}
options = technique.Options(**{key: whole(value) for key, value in asked["options"].items()})
pace.REPORT_S = 0.0
setup.cores = lambda: 1
technique.apply(Request(inputs, Path(asked["out"]), options, keep=Path(asked["keep"]), progress=progress))
"""
LONG = {**QUICK, "epochs": 4, "augment": ("flip", "crop")}


def killed(request: Request, options: Mapping[str, Any], until: str, technique: str = "finetune") -> None:
    """Runs the request of a technique in a process of its own, which is killed where its progress begins so."""
    inputs = {role: str(artifact.path) for role, artifact in request.inputs.items()}
    asked = {"inputs": inputs, "out": str(request.out), "keep": str(request.keep), "options": dict(options)}
    argv = [sys.executable, "-c", CHILD, json.dumps({**asked, "until": until, "technique": technique})]
    paths = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=paths) as child:
        assert child.stdout
        said = list(itertools.takewhile(lambda line: not line.startswith(until), child.stdout))
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, said


def checkpointed(keep: Path | None) -> int:
    """Epochs in the checkpoint."""
    from safetensors import safe_open

    assert keep
    with contextlib.suppress(FileNotFoundError), safe_open(keep / checkpoint.FILE, "np") as file:
        return len(json.loads(file.metadata()[checkpoint.CARD])["history"])
    return 0


@pytest.mark.parametrize("optimizer", [pytest.param("sgd", marks=pytest.mark.prove), "adamw"])
def test_killed_and_started_again_it_ends_with_the_same_weights(residual: Case, tmp_path: Path, optimizer: str) -> None:
    options = {**LONG, "optimizer": optimizer}
    straight = residual.train(**options)
    keep = folder(tmp_path / "keep")
    killed(residual.request(keep, **options), options, "epoch 3 of")
    said: list[str] = []
    again = dataclasses.replace(residual.request(keep, **options), progress=lambda _, what: said.append(what))
    resumed = finetune.apply(again)
    assert said[0] == "resuming after epoch 2 of 4, from its checkpoint"
    assert_equal(resumed, straight)


def test_minutes_give_as_many_epochs_as_fit(residual: Case, tmp_path: Path) -> None:
    keep = folder(tmp_path / "keep")
    timed = residual.train(keep, minutes=0.02)
    epochs, steps = json.loads((keep / minutes.FILE).read_bytes())
    assert len(timed.facts["epochs"]) == epochs >= 1
    assert 1 <= steps <= ITEMS


def test_a_training_that_goes_on_has_the_epochs_that_it_began_with(residual: Case, tmp_path: Path) -> None:
    keep = folder(tmp_path / "keep")
    (keep / minutes.FILE).write_text("[3, 1]")
    assert len(residual.train(keep, minutes=0.02).facts["epochs"]) == 3


def interrupted(request: Request) -> None:
    """Runs the request up to the end of its first epoch."""

    def stop(fraction: float, what: str) -> None:
        if "select" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune.apply(dataclasses.replace(request, progress=stop))


def test_the_scale_of_16_bit_gradients_is_part_of_a_checkpoint(
    residual: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "amp", lambda options, device: "float16")  # as on a GPU
    keep = folder(tmp_path / "keep")
    straight = residual.train(lr=0.05)
    interrupted(residual.request(keep, lr=0.05))
    assert checkpointed(keep) == 1
    assert_equal(residual.train(keep, lr=0.05), straight)
    assert straight.facts["amp"] == "float16"


def test_a_checkpoint_of_other_shapes_is_told_and_not_used(residual: Case, tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    keep = folder(tmp_path / "keep")
    straight = residual.train(keep)
    with safe_open(keep / checkpoint.FILE, "np") as file:
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    kept["net/head.weight"] = kept["net/head.weight"][:, :5].copy()
    save_file(kept, keep / checkpoint.FILE, metadata)
    said: list[str] = []
    again = dataclasses.replace(residual.request(keep), progress=lambda _, what: said.append(what))
    assert_equal(finetune.apply(again), straight)
    assert "starting again" in said[0] and "'net/head.weight' is [10, 5], not [10, 16]" in said[0]


def test_a_checkpoint_of_other_options_or_of_noise_is_not_used(residual: Case, tmp_path: Path) -> None:
    keep = folder(tmp_path / "keep")
    residual.train(keep)
    kept = (keep / checkpoint.FILE).read_bytes()
    for content in (kept, kept[: len(kept) // 2]):
        (keep / checkpoint.FILE).write_bytes(content)
        assert_equal(residual.train(keep, lr=0.02), residual.train(lr=0.02))


# --------------------------------------------------------------------------- the log, the words


def test_the_log_is_one_that_tensorboard_reads(
    residual: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.compat.proto import event_pb2
    from tensorboard.compat.tensorflow_stub import pywrap_tensorflow

    keep = folder(tmp_path / "keep")
    trained = residual.train(keep)
    reader = pywrap_tensorflow.PyRecordReader_New(str(keep / "log" / log.FILE))
    records = []
    with contextlib.suppress(pywrap_tensorflow.errors.OutOfRangeError):
        while True:
            reader.GetNext()
            records.append(event_pb2.Event.FromString(reader.record()))
    assert records[0].file_version == "brain.Event:2"
    told = [
        {v.tag: v.simple_value for v in r.summary.value if v.tag.startswith(("train/", "select/"))} | {"epoch": r.step}
        for r in records[1:]
    ]
    facts = [
        {"train/loss": e["loss"], "train/lr": e["lr"], "select/top1": e["select"], "epoch": e["epoch"]}
        for e in trained.facts["epochs"]
    ]
    assert [pytest.approx(f, rel=1e-6) for f in facts] == told
    assert trained.facts["log"] == "TensorBoard"
    last = {value.tag: value for value in records[-1].summary.value}
    for name, weight in torch_module.rebuild(trained).named_parameters():
        assert last[f"sparsity/{name}"].simple_value == pytest.approx(float((weight == 0).float().mean()))
        assert last[f"norm/{name}"].simple_value == pytest.approx(float(weight.detach().norm()), rel=1e-4)
        drawn, steep = last[f"weights/{name}"].histo, last[f"gradients/{name}"].histo
        assert (sum(drawn.bucket), drawn.num, len(drawn.bucket_limit)) == (weight.numel(), weight.numel(), log.BINS)
        assert drawn.sum == pytest.approx(float(weight.detach().double().sum()), abs=1e-4)
        assert steep.sum_squares == pytest.approx(last[f"gradient norm/{name}"].simple_value ** 2, rel=1e-3)
    table = capsys.readouterr().err
    assert "norm of the gradient" in table and f"training: after epoch {len(trained.facts['epochs'])}" in table


def test_without_tensorboard_the_facts_say_that_there_is_no_log(
    residual: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "available", lambda: False)
    trained = residual.train(folder(tmp_path / "keep"), epochs=1)
    assert trained.facts["log"].startswith("none: tensorboard is not installed")
    assert [p.name for p in (tmp_path / "keep").iterdir()] == [checkpoint.FILE]


def test_each_epoch_is_told_in_words_and_never_goes_back(residual: Case) -> None:
    said: list[tuple[float, str]] = []
    request = dataclasses.replace(residual.request(), progress=lambda f, what: said.append((f, what)))
    finetune.apply(request)
    ends = [what for _, what in said if "select" in what]
    assert any(
        what.startswith("after epoch 1 of 2, loss ") and " %, " in what and what.endswith(" left") for what in ends
    )
    assert said[-1][0] == 1.0 and said[-1][1].startswith("after epoch 2 of 2, loss ")
    assert [f for f, _ in said] == sorted(f for f, _ in said)


def test_the_time_left_is_that_of_the_pace_since_this_process_began() -> None:
    pace = Pace(total=100, resumed=40, began_s=time.monotonic() - 60)
    assert pace.left(50) == ", 5 min left"  # 60 s for 10 steps, 50 are left
    assert pace.left(40) == "" == pace.left(100)
    assert in_words(3900) == ", 1 h 5 min left"
    assert in_words(100) == ", 100 s left"
    assert (pace.due(), pace.due()) == (True, False)


# --------------------------------------------------------------------------- the user's loop

LOOPS = """
import torch

HALT = False

def plain(net, training):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for epoch in range(training.resume(net, optimizer, schedule), training.options.epochs):
        for inputs, labels in training.batches(epoch):
            loss = training.loss(net, inputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        training.ended(net, optimizer, schedule)
        if HALT:
            raise KeyboardInterrupt

def bare(net, training):
    for inputs, labels in training.batches(0):
        assert net.training and labels.shape == (32,) and inputs["image"].shape == (32, 3, 16, 16)
        training.pace.reported_s = 0.0
    net.head.bias.data.zero_()

def raises(net, training):
    raise ValueError("no such\\nthing")

def narrows(net, training):
    net.head = torch.nn.Linear(16, 3)
"""


@pytest.fixture
def loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module `tiny_loops` in the working folder."""
    (tmp_path / "tiny_loops.py").write_text(LOOPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "tiny_loops", raising=False)


@pytest.mark.usefixtures("loops")
def test_a_loop_of_the_users_own_trains_and_keeps_zeros(sparse: Case) -> None:
    trained = sparse.train(loop="tiny_loops:plain")
    assert [e["lr"] for e in trained.facts["epochs"]] == pytest.approx([0.001, 0.0001])
    before, after = weights(sparse.model), weights(trained)
    for name in ZEROS[0]["parameters"]:
        np.testing.assert_array_equal(before[name] == 0, after[name] == 0)
    assert not np.array_equal(before["head.weight"], after["head.weight"])


@pytest.mark.usefixtures("loops")
def test_a_loop_of_the_users_own_goes_on_from_its_checkpoint(
    residual: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = folder(tmp_path / "keep")
    straight = residual.train(loop="tiny_loops:plain")
    with monkeypatch.context() as halted, pytest.raises(KeyboardInterrupt):
        halted.setattr(sys.modules["tiny_loops"], "HALT", True)
        residual.train(keep, loop="tiny_loops:plain")
    assert checkpointed(keep) == 1
    assert_equal(residual.train(keep, loop="tiny_loops:plain"), straight)


@pytest.mark.usefixtures("loops")
def test_a_loop_may_do_without_optimizers_and_checkpoints(residual: Case) -> None:
    trained = residual.train(loop="tiny_loops:bare")
    assert trained.facts["epochs"] == []
    assert not weights(trained)["head.bias"].any()


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("tiny_loops:raises", r"tiny_loops:raises raised ValueError: no such .*tiny_loops\.py:\d+"),
        ("tiny_loops:narrows", "changed the shape of 'head.weight'"),
        ("tiny_loops:plian", "did you mean 'plain'"),
    ],
)
def test_what_is_wrong_with_a_users_loop_is_said_in_one_line(residual: Case, loop: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        residual.train(loop=loop)


# --------------------------------------------------------------------------- what is refused


def test_a_loss_that_diverges_ends_in_one_line(residual: Case) -> None:
    with pytest.raises(StageFailed, match=r"the loss is (nan|inf) in epoch 1 of 2: it diverged; lower lr \(it was 1e"):
        residual.train(lr=1e25, schedule="constant")


def without(split: str) -> Any:
    def less(case: Case) -> Case:
        empty = dataclasses.replace(case.training, facts={"splits": {split: 0}})
        return dataclasses.replace(case, training=empty)

    return less


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (without("train"), {}, "the splits 'train' and 'calibrate' are empty"),
        (None, {"loss": "mse"}, r"labels \[96\] do not fit an output \[96, 10\] for the loss mse"),
        (None, {"rewind": "weights", "original_epochs": 9, "early": "no.safetensors"}, "no.safetensors: no weights"),
    ],
)
def test_data_that_cannot_train_is_refused(residual: Case, change: Any, options: Any, said: str) -> None:
    case = change(residual) if change else residual
    with pytest.raises(EdgeError, match=said):
        case.train(**options)


def test_a_net_whose_first_axis_is_time_is_refused_before_it_trains(tmp_path: Path) -> None:
    case = zoo_case(tmp_path, "lstm")
    request = case.request()
    made = setup.training(request, torch_device("cpu"), training.Training)
    net = torch_module.rebuild(case.model)
    next(module for module in net.modules() if hasattr(module, "batch_first")).batch_first = False
    with pytest.raises(InputError, match=r"depends on the other items of its batch.*batch_first=True"):
        setup.train(net, made)
    assert not made.history


def test_no_labels_and_no_distillation_is_refused(unlabelled: Case) -> None:
    with pytest.raises(InputError, match="the split 'train' has no labels: give it labels, or set distill above 0"):
        unlabelled.train(distill=0.0)


def test_items_whose_label_counts_for_nothing_train_as_the_others(residual: Case, tmp_path: Path) -> None:
    arrays = {n: np.array(tensors.load(residual.training, "train", n)) for n in ("image", tensors.LABELS)}
    arrays[tensors.LABELS][::3] = tensors.UNJUDGED
    case = dataclasses.replace(residual, root=tmp_path, training=samples(tmp_path / "t", {"train": arrays}, "NCHW"))
    assert case.train(epochs=1).kind == "module"


def test_labels_that_are_no_classes_of_the_net_are_refused(residual: Case, tmp_path: Path) -> None:
    arrays = {n: np.array(tensors.load(residual.training, "train", n)) for n in ("image", tensors.LABELS)}
    arrays[tensors.LABELS][3] = 10
    case = dataclasses.replace(residual, root=tmp_path, training=samples(tmp_path / "t", {"train": arrays}, "NCHW"))
    with pytest.raises(InputError, match="to 10, the output 'output' has the classes 0 to 9"):
        case.train()


def test_augmenting_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no input is declared as an image; declare its layout \(NCHW or NHWC\)"):
        zoo_case(tmp_path, "lstm").train(augment=("flip",))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 0}, "at least 1"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": math.nan}, "lr must be above 0"),
        ({"weight_decay": -1.0}, "weight_decay at least 0"),
        ({"distill": 1.5}, "between 0 and 1"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"plateau": 1.0}, "plateau must be above 1"),
        ({"temperature": 0.0}, "temperature above 0"),
        ({"milestones": (0.7, 0.5)}, "milestones must increase"),
        ({"rewind": "lr"}, "rewind needs original_epochs"),
        ({"rewind": "lr", "original_epochs": 19}, "rewind needs original_epochs"),
        ({"rewind": "weights", "original_epochs": 30}, "early"),
    ],
)
def test_options_out_of_range_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        finetune.Options(**options)


# --------------------------------------------------------------------------- the losses


def test_the_distillation_of_a_hand_worked_example() -> None:
    import torch

    student, teacher = torch.tensor([[1.0, 2, 3]]), torch.tensor([[3.0, 2, 1]])
    # p = softmax(1.5, 1, 0.5); log p - log q = (1, 0, -1); KL = p1 - p3; times T^2 = 4
    expected = 4 * (math.exp(0.5) - math.exp(-0.5)) / (math.exp(0.5) + 1 + math.exp(-0.5))
    assert expected == pytest.approx(1.2806267)
    assert float(losses.distillation(student, teacher, 2.0)) == pytest.approx(expected, rel=1e-6)
    rows = losses.distillation(student.expand(2, 5, 3), teacher.expand(2, 5, 3), 2.0)
    assert float(rows) == pytest.approx(expected, rel=1e-6)


def test_at_high_temperature_the_gradient_is_that_of_matching_logits() -> None:
    """Hinton, Vinyals & Dean 2015, section 2.1: (z - v) / N per logit of zero-meaned logits, times our T^2."""
    import torch

    teacher = torch.tensor([[2.0, -1, -1, 0]], dtype=torch.float64)
    student = torch.tensor([[-1.0, 1, 3, -3]], dtype=torch.float64, requires_grad=True)
    losses.distillation(student, teacher, 1e4).backward()
    torch.testing.assert_close(student.grad, (student - teacher).detach() / 4, rtol=1e-3, atol=1e-3)


def test_the_weight_lies_between_the_labels_and_the_dense_net() -> None:
    import torch

    objective = losses.Objective("cross_entropy", 0.25, 1.0, ("y", "z"))
    answers = {"y": torch.tensor([[0.0, 0]]), "z": torch.tensor([[1.0, 3]])}
    taught = {"y": torch.tensor([[math.log(3), 0]]), "z": torch.tensor([[1.0, 1]])}
    kl = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    found = float(objective.loss(answers, taught, torch.tensor([1])))
    assert found == pytest.approx(0.75 * math.log(2) + 0.25 * (kl + 2), rel=1e-6)
    assert float(objective.loss(answers, None, torch.tensor([1]))) == pytest.approx(math.log(2))


def test_labels_of_sequences_are_one_per_row() -> None:
    import torch

    objective = losses.Objective("cross_entropy", 0.0, 1.0, ("y",))
    answers = {"y": torch.tensor([[[5.0, 0], [0, 5]], [[5, 0], [5, 0]]])}
    right = torch.tensor([[0, 1], [1, 0]])
    assert objective.scores(answers, None, right).tolist() == [1.0, 0.5]
    each = [math.log(1 + math.exp(-5))] * 3 + [math.log(1 + math.exp(5))]
    assert float(objective.loss(answers, None, right)) == pytest.approx(sum(each) / 4, rel=1e-5)
    with pytest.raises(InputError, match=r"labels \[2\] do not fit an output \[2, 2, 2\]"):
        objective.loss(answers, None, torch.tensor([0, 1]))


def test_classes_on_another_axis_are_learned_as_classes_on_the_last() -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    last, taught = (torch.randn(2, 4, 6, 3, generator=generator) for _ in range(2))
    labels = torch.randint(0, 3, (2, 4, 6), generator=generator, dtype=torch.uint8)
    labels[0, :2] = 255  # as in PASCAL VOC: of no class
    of = [losses.Objective("cross_entropy", 0.5, 2.0, ("y",), axis) for axis in (-1, 1)]
    sides = [[{"y": t}, {"y": t2}] for t, t2 in ((last, taught), (last.movedim(-1, 1), taught.movedim(-1, 1)))]
    found = [o.loss(*side, labels) for o, side in zip(of, sides, strict=True)]
    torch.testing.assert_close(found[0], found[1])
    scores = [o.scores(side[0], None, labels) for o, side in zip(of, sides, strict=True)]
    torch.testing.assert_close(scores[0], scores[1])
    judged = labels[0] != 255
    assert scores[0][0] == (last[0].argmax(-1) == labels[0])[judged].float().mean()
    together = [o.together(side)["y"] for o, side in zip(of, sides, strict=True)]
    torch.testing.assert_close(together[0], together[1].movedim(1, -1))


SEGMENTERS = """
import torch
from torch import nn

class Segmenter(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.body, self.head, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 1), last

    def forward(self, image):
        y = self.head(self.body(image).relu())
        return y.permute(0, 2, 3, 1) if self.last else y

def first():
    torch.manual_seed(0)
    return Segmenter(False)

def last():
    torch.manual_seed(0)
    return Segmenter(True)
"""


def segmenting(root: Path, axis: str, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A segmenter, its classes on axis 1 or the last one, and the class of each pixel: the colour that is brightest."""
    (root / "segmenters.py").write_text(SEGMENTERS)
    monkeypatch.syspath_prepend(root)
    monkeypatch.delitem(sys.modules, "segmenters", raising=False)
    splits: dict[str, Any] = {}
    for seed, split in enumerate(("train", "calibrate", "select")):
        image = np.random.default_rng(seed).normal(size=(ITEMS, 3, 6, 10)).astype(np.float32)
        labels = image.argmax(1).astype(np.uint8)
        labels[:, 0, 0] = 255
        splits[split] = {"image": image, tensors.LABELS: labels}
    train = samples(root / "training", {"train": splits.pop("train")}, "NCHW")
    chosen = samples(root / "samples", splits, "NCHW")
    asked = {"source": {"model": f"segmenters:{axis}"}}
    dense = trace.load(Request({"samples": chosen}, folder(root / "dense"), asked))
    return Case(root, dense, dense, chosen, train)


@pytest.fixture(params=["first", "last"])
def segmenter(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return segmenting(tmp_path, request.param, monkeypatch)


def assert_segments(technique: Any, segmenter: Case, **told: Any) -> None:
    """Trained by a technique with these options, it tells the classes of pixels from each other."""
    options = technique.Options(epochs=3, batch_size=8, lr=0.05, **told)
    said: list[str] = []
    request = dataclasses.replace(segmenter.request(), options=options, progress=lambda done, what: said.append(what))
    found = technique.apply(request).facts
    assert found["metric"] == "top1"
    assert found["epochs"][-1]["select"] > 0.6  # chance is a third
    assert "% of labels right" in said[-1] and not any("top-1" in what for what in said)


@pytest.mark.parametrize("technique", [finetune, distill, qat])
def test_a_segmenter_is_trained_by_its_axis_of_classes(technique: Any, segmenter: Case) -> None:
    assert_segments(technique, segmenter, **({"hard": 0.9, "soft": 0.1} if technique is distill else {"distill": 0.1}))


@pytest.mark.parametrize("criterion", ["l2", "taylor"])
def test_a_segmenter_is_pruned_by_its_axis_of_classes(criterion: Any, segmenter: Case) -> None:
    options = prune_channels.Options(ratio=0.5, criterion=criterion)
    found = prune_channels.apply(dataclasses.replace(segmenter.request(), options=options))
    assert [group["kept"] for group in found.facts["groups"]] == [4]


# --------------------------------------------------------------------------- the schedules


def test_rewinding_trains_the_last_epochs_of_the_schedule() -> None:
    """ResNet-56 on CIFAR-10 in Renda, Frankle & Carbin 2020, Table 2: 182 epochs, drops at 91 and 136."""
    options = finetune.Options(
        epochs=92, lr=0.1, schedule="step", rewind="lr", original_epochs=182, milestones=(91 / 182, 136 / 182)
    )
    found = [
        options.rate * rates.share("step", options.milestones, rates.rewound(e, 92, options.whole_epochs), 182)
        for e in range(options.epochs)
    ]
    assert found == pytest.approx([0.1] + [0.01] * 45 + [0.001] * 46)


def test_the_rewound_rates_are_those_that_are_trained_with(residual: Case) -> None:
    rewound = residual.train(epochs=3, lr=0.01, schedule="step", rewind="lr", original_epochs=4, distill=0.0)
    assert [e["lr"] for e in rewound.facts["epochs"]] == pytest.approx([0.01, 0.001, 0.0001])


def test_a_cosine_of_twenty_steps() -> None:
    found = [rates.share("cosine", (), step, 20) for step in range(20)]
    assert found[0] == 1.0  # a warm-up of one step
    assert found[1:] == pytest.approx([(1 + math.cos(math.pi * i / 19)) / 2 for i in range(19)])
    forty = [rates.share("cosine", (), step, 40) for step in range(3)]
    assert forty == [0.5, 1.0, 1.0]


@given(kind=st.sampled_from(["cosine", "step", "constant"]), total=st.integers(1, 500), data=st.data())
def test_a_rate_is_above_zero_and_falls_after_the_warm_up(kind: Any, total: int, data: Any) -> None:
    found = [rates.share(kind, (0.5, 0.75), step, total) for step in range(total)]
    assert all(0 < share <= 1 for share in found)
    falling = found[round(rates.WARM_UP * total) :]
    assert falling == sorted(falling, reverse=True)


# --------------------------------------------------------------------------- the batches


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), side=st.sampled_from([8, 16, 32]))
def test_an_augmented_picture_is_a_moved_and_mirrored_one(layout: str, seed: int, side: int) -> None:
    import torch

    images = torch.from_numpy(np.random.default_rng(0).normal(size=(6, side, side + 3, 2)).astype(np.float32))
    given = images.permute(0, 3, 1, 2) if layout == "NCHW" else images
    made = data.augmented({"x": given}, {"x": layout}, ("flip", "crop"), np.random.default_rng(seed))["x"]
    made = (made.permute(0, 2, 3, 1) if layout == "NCHW" else made).numpy()
    pad = min(4, side // 8)
    for image, found in zip(images.numpy(), made, strict=True):
        wide = np.pad(image, ((pad, pad), (pad, pad), (0, 0)))
        shifts = itertools.product(range(2 * pad + 1), repeat=2)
        ways = [wide[y : y + side, x : x + side + 3] for y, x in shifts]
        assert any(np.array_equal(found, way) or np.array_equal(found, way[:, ::-1]) for way in ways)


@given(count=st.integers(1, 60), size=st.integers(1, 8), length=st.integers(1, 20))
def test_what_follows_an_item_is_in_its_place_of_the_next_batch(count: int, size: int, length: int) -> None:
    batches = list(data.contiguous(count, size, length))
    assert len(batches) == count // size
    for (index, _), (behind, begins) in itertools.pairwise(batches):
        assert (behind == index + 1).all()
        assert (begins == (behind % length == 0)).all()
    taken = [int(i) for index, _ in batches for i in index]
    assert sorted(taken) == list(range(count // size * size))
    assert all(begins.all() for _, begins in batches[:1])


def test_an_epoch_takes_each_item_once_and_its_order_follows_from_the_seed() -> None:
    first, second = (
        np.concatenate(list(data.shuffled(100, 32, np.random.default_rng([0, epoch])))) for epoch in (0, 1)
    )
    assert len(set(first.tolist())) == 96 and set(first.tolist()) < set(range(100))
    assert first.tolist() != second.tolist()
    again = np.concatenate(list(data.shuffled(100, 32, np.random.default_rng([0, 0]))))
    assert first.tolist() == again.tolist()


def test_few_items_are_looked_at_from_all_over_a_sorted_split() -> None:
    assert data.spread(5, 1000).tolist() == [0, 1, 2, 3, 4]
    assert data.spread(10_001, 1000)[[0, 1, -1]].tolist() == [0, 10, 10_000]


# --------------------------------------------------------------------------- an imported net


def test_an_imported_net_trains_with_batch_norms_that_are_inside_again_in_the_end(residual: Case) -> None:
    import torch

    case = imported(residual)
    net = torch_module.rebuild(case.model)
    lessons = setup.training(case.request(), torch.device("cpu"), training.Training)
    inputs, _ = lessons.items.take(np.arange(8))

    def answered() -> Any:
        with torch.no_grad():
            return next(iter(torch_module.call(net.eval(), inputs).values())).numpy()

    before, names = answered(), [*net.state_dict()]
    with batch_norms.apart(net, lessons):
        norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
        np.testing.assert_allclose(answered(), before, rtol=1e-3, atol=1e-4)
        for norm in norms:
            norm.weight.data.mul_(1.1)
            norm.running_mean.add_(0.01)
        during = answered()
    assert len(norms) == 6 and [*net.state_dict()] == names
    assert not np.allclose(during, before, rtol=1e-2)
    np.testing.assert_allclose(answered(), during, rtol=1e-3, atol=1e-4)


def test_a_trained_net_is_not_spoiled_by_the_usual_rate(residual: Case, tmp_path: Path) -> None:
    """Its batch norms folded, of a batch of one and of many."""
    alike = dataclasses.replace(residual, root=tmp_path, model=residual.dense)
    for case in (imported(alike), imported(alike, many=False), alike):
        lessons = setup.training(case.request(lr=None), training_device(), training.Training)
        before = lessons.score(torch_module.rebuild(case.model))
        assert before is not None
        trained = case.train(lr=None, epochs=1)
        after = lessons.score(torch_module.rebuild(trained))
        assert after is not None and after > before - 0.06  # a standard error
        assert trained.facts["epochs"][-1]["loss"] < 3


def test_the_rate_is_a_share_of_the_usual_one_where_a_net_bears_less(residual: Case) -> None:
    def rate(case: Case, scale: float) -> float:
        lessons = setup.training(case.request(lr=None, batch_size=8), training_device(), training.Training)
        net = torch_module.rebuild(case.model)
        lessons.request = dataclasses.replace(lessons.request, options=Scaled(lr=None, optimizer="sgd", scale=scale))
        return bearable(net.train(), lessons)

    assert rate(residual, 1.0) == 1.0
    assert rate(residual, 1e4) < 0.1


@dataclasses.dataclass(frozen=True)
class Scaled(finetune.Options):
    """Whose usual rate is so many times as high."""

    scale: float = 1.0

    @property
    def rate(self) -> float:
        return 0.01 * self.scale


def training_device() -> Any:
    import torch

    return torch.device("cpu")


def test_a_net_that_ends_worse_than_it_began_goes_back(residual: Case, tmp_path: Path) -> None:
    alike = dataclasses.replace(residual, root=tmp_path, model=residual.dense)
    said: list[str] = []
    request = dataclasses.replace(alike.request(lr=2.0, epochs=2), progress=lambda _, what: said.append(what))
    spoiled = finetune.apply(request)
    assert spoiled.facts["went_back"] == 0 and "the net stays as it was" in said[-1]
    before, after = weights(residual.dense), weights(spoiled)
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
    assert residual.train().facts["went_back"] is None


@pytest.mark.prove
def test_an_imported_net_learns_at_the_rate_of_a_net_with_batch_norms(digits: Case) -> None:
    case = imported(digits)
    case = dataclasses.replace(case, model=changed(case.dense, case.root / "model", 0.3))
    trained = case.train(epochs=1, lr=None)
    assert trained.facts["epochs"][-1]["select"] > 0.8


# --------------------------------------------------------------------------- nets of other kinds


def own_case(root: Path, net: Any, sets: Mapping[str, Arrays], monkeypatch: pytest.MonkeyPatch) -> Case:
    """A net of a test, as it is, with its data."""
    module = types.ModuleType("own_net")
    module.build = lambda: copy.deepcopy(net)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_net", module)
    chosen = samples(root / "samples", {split: sets[split] for split in ("select", "test")})
    train = samples(root / "training", {"train": sets["train"]})
    dense = trace.load(Request({"samples": chosen}, folder(root / "dense"), {"source": {"model": "own_net:build"}}))
    return Case(root, dense, dense, chosen, train)


def folded(seed: int, depth: int = 6) -> Any:
    """Convolutions as they are once batch norms are inside them: biases, gains of their own, no norm."""
    import torch

    torch.manual_seed(seed)
    layers: list[Any] = []
    for i in range(depth):
        conv = torch.nn.Conv2d(16 if i else 3, 16, 3, padding=1)
        with torch.no_grad():
            conv.weight.mul_(torch.rand(16, 1, 1, 1) * 12)
        layers += [conv, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 4))


def test_a_net_with_folded_batch_norms_ends_no_worse_than_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    net, sets = folded(0).eval(), dict[str, Arrays]()
    for seed, split in enumerate(("train", "select", "test")):
        x = np.random.default_rng(seed).normal(size=(ITEMS, 3, 8, 8)).astype(np.float32)
        with torch.no_grad():
            sets[split] = {"x": x, tensors.LABELS: net(torch.from_numpy(x)).argmax(1).numpy()}
    case = own_case(tmp_path, net, sets, monkeypatch)
    dense = torch_module.rebuild(case.dense).state_dict()
    wild = case.train(epochs=1, lr=10.0, optimizer="adamw", amp="off")
    assert wild.facts["went_back"] == 0 and wild.facts["epochs"][-1]["select"] < 1
    after = torch_module.rebuild(wild).state_dict()
    assert all(torch.equal(dense[name], after[name]) for name in dense)
    tamed = torch_module.rebuild(case.train(epochs=2, lr=None, optimizer=None))
    with torch.no_grad():
        said = tamed(torch.from_numpy(sets["select"]["x"])).argmax(1).numpy()
    assert (said == sets["select"][tensors.LABELS]).mean() > 0.9
