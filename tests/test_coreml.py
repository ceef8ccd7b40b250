"""Core ML: what becomes of programs, of names and of numbers, and what each compression does to the weights."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgecompress.core import config, registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.coreml import convert, package
from edgecompress.formats import mlpackage, torch_module
from edgecompress.formats.precision import facts as precision
from edgecompress.stages import trace

pytestmark = pytest.mark.slow
ITEMS = 6
HUGE = torch.finfo(torch.float32).min

Arrays = Mapping[str, Any]
WIDE = (16 * 3 * 9, 320 * 16, 240 * 320)  # numbers of the weights of that net


# --------------------------------------------------------------------------- nets


class Wide(nn.Module):
    """A convolution and two matrices, one of more numbers than half precision can count."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.first, self.last = nn.Linear(16, 320), nn.Linear(320, 240)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 3, 8, 8] -> [n, 240]."""
        pooled = torch.relu(self.conv(x)).mean((2, 3))
        return self.last(torch.relu(self.first(pooled)))


class Tied(nn.Module):
    """Ids in; an LSTM; the table of the ids is that of the answers too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.rnn = nn.Embedding(40, 12), nn.LSTM(12, 12, 2, batch_first=True)
        self.last = nn.Linear(12, 40, bias=False)
        self.last.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """[n, 7] -> [n, 40]."""
        return self.last(self.rnn(self.table(ids))[0][:, -1])


class Stateful(nn.Module):
    """A cell that gives back its state under the names it came in by."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 5)

    def forward(self, x: torch.Tensor, h: Any = None, c: Any = None) -> dict[str, torch.Tensor]:
        """[n, 3] and the state -> the state."""
        h, c = self.cell(x, None if h is None else (h, c))
        return {"h": h, "c": c}


class Types(nn.Module):
    """Whole numbers, truth values and doubles in and out, nested."""

    def forward(self, pair: dict[str, torch.Tensor], mask: torch.Tensor) -> Any:
        """[n, 4] each."""
        kept = torch.where(mask, pair["real"], pair["whole"].double())
        return {"best": kept.argmax(1), "parts": (kept * 2, kept > 0.5)}


class Causal(nn.Module):
    """A mask of arange and new_ones, axes that move: coremltools does not know them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 6, 6] -> [n, 6, 6]."""
        steps = torch.arange(6)
        past = (steps[:, None] >= steps[None]) & (x.new_ones((), dtype=torch.bool) & (x[0, 0, 0] < 1e30))
        return torch.softmax(torch.ops.aten.alias(x).masked_fill(~past, -torch.inf), -1).movedim((1, 2), (2, 1))


class Flood(nn.Module):
    """Numbers up to some 10^7 on the way, and small ones again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 32), nn.Linear(32, 8)
        self.first.weight.data *= 1e6
        self.last.weight.data /= 1e6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 8] -> [n, 8]."""
        return torch.tanh(self.last(torch.relu(self.first(torch.tanh(self.small(x))))))


class Masked(nn.Module):
    """Attention whose mask is a product: nothing times minus infinity is no number."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[n, 6, 6], [n, 6] -> [n, 6, 6]."""
        return torch.softmax(x + (1 - mask.unsqueeze(1)) * HUGE, -1) @ x


class Norm(nn.Module):
    """Numbers of some hundreds fit; their squares do not."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 8] -> [n, 8]."""
        return self.norm(x * 300)


class Pools(nn.Module):
    """Pools of 1 to 3 axes whose windows hang over the edge, divide by their own number, or are of several sizes."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """[n, 2, 9, 8, 7] -> ..."""
        found = {}
        for axes, tensor in enumerate((x[:, :, :, 0, 0], x[:, :, :, 0], x), 1):
            pools = (f"{{}}_pool{axes}d").format
            average, maximum = (getattr(nn.functional, pools(kind)) for kind in ("avg", "max"))
            found[f"plain_{axes}"] = average(tensor, 3, 2, 1, True)
            found[f"beyond_{axes}"] = average(tensor, 2, 3, 0, True)
            found[f"excluded_{axes}"] = average(tensor, 3, 2, 1, True, False)
            found[f"unbatched_{axes}"] = average(tensor[0], 2, 3, 0, True)[None]
            found[f"maximum_{axes}"] = maximum(tensor - 9, 3, 2, 1, 1, True)
            found[f"outside_{axes}"] = maximum(tensor - 9, 1, 2, 0, 1, True)
            if axes > 1:
                found[f"divided_{axes}"] = average(tensor, 2, 2, 1, True, False, 3)
            for kind, sizes in itertools.product(("avg", "max"), ((4, 3, 5), (3, 4, 7), (1, 1, 1))):
                word = "_".join(map(str, (kind, axes, *sizes)))
                found[word] = getattr(nn.functional, "adaptive_" + pools(kind))(tensor, sizes[:axes])
        return found


class Edges(nn.Module):
    """Operators that Core ML has, and whose numbers are others at the edge: a converter must not take its own."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """[n, 6], some of it zero -> ..."""
        logs = {name: torch.exp(getattr(torch, name)(x)) for name in ("log", "log2", "log10")}
        roots = {"root": 1 / torch.rsqrt(x), "tiny": torch.rsqrt((x + 1) * 1e-12) * 1e-6}
        return {**logs, **roots, "part": x % 1, "whole": x // 1 + 1, "sure": torch.log_softmax(x * 60, 1)}


def edges() -> nn.Module:
    return Edges()


def wide() -> nn.Module:
    return seeded(Wide)


def tied() -> nn.Module:
    return seeded(Tied)


def stateful() -> nn.Module:
    return seeded(Stateful)


def types() -> nn.Module:
    return Types()


def causal() -> nn.Module:
    return Causal()


def flood() -> nn.Module:
    return seeded(Flood)


def masked() -> nn.Module:
    return Masked()


def norm() -> nn.Module:
    return seeded(Norm)


def pools() -> nn.Module:
    return Pools()


def seeded(build: Any) -> nn.Module:
    torch.manual_seed(0)
    return build()


DRAW = np.random.default_rng(0)
DATA: dict[str, Arrays] = {
    "wide": {"x": DRAW.normal(size=(ITEMS, 3, 8, 8)).astype("float32")},
    "tied": {"ids": DRAW.integers(0, 40, (ITEMS, 7))},
    "stateful": {"x": DRAW.normal(size=(ITEMS, 3)).astype("float32")},
    "types": {
        "pair.real": DRAW.normal(size=(ITEMS, 4)),
        "pair.whole": DRAW.integers(0, 9, (ITEMS, 4)),
        "mask": DRAW.normal(size=(ITEMS, 4)) > 0,
    },
    "causal": {"x": DRAW.normal(size=(ITEMS, 6, 6)).astype("float32")},
    "pools": {"x": np.random.default_rng(1).normal(size=(ITEMS, 2, 9, 8, 7)).astype("float32")},
    "edges": {"x": np.abs(np.random.default_rng(2).normal(size=(ITEMS, 6)) * [0, 1, 2, 3, 4, 5]).astype("float32")},
    "flood": {"x": DRAW.normal(size=(ITEMS, 8)).astype("float32")},
    "masked": {
        "x": DRAW.normal(size=(ITEMS, 6, 6)).astype("float32"),
        "mask": (np.arange(6) < np.arange(1, ITEMS + 1)[:, None]).astype("float32"),
    },
    "norm": {"x": DRAW.normal(size=(ITEMS, 8)).astype("float32")},
}


def example(name: str) -> Any:
    """The module of an example."""
    file = Path(__file__).parents[1] / "examples" / name / "net.py"
    spec = importlib.util.spec_from_file_location(f"coreml_{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resnet20() -> nn.Module:
    return example("resnet20").build()


def textgenrnn() -> nn.Module:
    return example("textgenrnn").build()


def images() -> Arrays:
    """As the example's preprocessing makes them."""
    raw = np.stack([image for image, _ in itertools.islice(example("resnet20").data("test"), ITEMS)])
    scaled = (raw / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    return {"image": np.ascontiguousarray(scaled.transpose(0, 3, 1, 2), "float32")}


def texts() -> Arrays:
    return {"text": np.stack([text for text, _ in itertools.islice(example("textgenrnn").data("test"), ITEMS)])}


REAL = {"resnet20": images, "textgenrnn": texts}


# --------------------------------------------------------------------------- ways through the plug-ins


def stage(function: Any, inputs: Mapping[str, Artifact], out: Path, options: Any = None) -> Artifact:
    out.mkdir(parents=True)
    found = function(Request(inputs, out, options, Context()))
    assert isinstance(found, Artifact)
    return found


class Road:
    """A net of this file as a package, its samples, and what torch answers to the first of them."""

    def __init__(self, name: str, folder: Path, **options: Any) -> None:
        self.folder = folder
        arrays = DATA[name] if name in DATA else REAL[name]()
        for split in ("calibrate", "test"):
            tensors.write_split(folder / "samples" / split, arrays)
        batch = Dim("batch", 1, ITEMS)
        specs = tuple(TensorSpec(n, (batch, *a.shape[1:]), str(a.dtype)) for n, a in arrays.items())
        facts = {"splits": {"calibrate": ITEMS, "test": ITEMS}}
        self.samples = Artifact(folder / "samples", "samples", specs, (), facts).write()
        state = {"h": "h", "c": "c"} if name == "stateful" else {}
        asked = {"source": {"model": f"{__name__}:{name}", "state": state}}
        self.module = stage(trace.load, {"samples": self.samples}, folder / "module", asked)
        both = {"model": self.module, "samples": self.samples}
        self.program = stage(trace.run, both, folder / "program", {"dynamic": {}})
        self.full = self.export(**options)
        given = torch_module.example(self.module, self.samples, 1)
        self.inputs = {name: tensor.numpy() for name, tensor in given.items()}
        answers = torch_module.outputs(torch_module.rebuild(self.module), self.module, given)
        self.golden = {name: tensor.numpy() for name, tensor in answers.items()}

    def export(self, **options: Any) -> Artifact:
        runtime = registry.load("runtimes", "coreml")
        out = self.folder / ("exported" + "".join(map(str, options.values())))
        return stage(runtime.export, {"model": self.program}, out, config.build(runtime.Options, options, "test"))

    def after(self, technique: str, model: Artifact | None = None, **options: Any) -> Artifact:
        module = registry.load("techniques", technique)
        inputs = {"model": model or self.full, "samples": self.samples}
        out = self.folder / f"made-{len(list(self.folder.iterdir()))}"
        return stage(module.apply, inputs, out, config.build(module.Options, options, "test"))

    def answers(self, artifact: Artifact) -> dict[str, Any]:
        session = registry.load("runtimes", "coreml").open(artifact, 1)
        return dict(session.run(self.inputs))

    def db(self, artifact: Artifact) -> float:
        """The lowest of the outputs, against torch."""
        answers = self.answers(artifact)
        return min(decibels(right, answers[name]) for name, right in self.golden.items())


def decibels(right: Any, other: Any) -> float:
    right, other = (np.asarray(a, "float64") for a in (right, other))
    noise = ((right - other) ** 2).sum()
    return float(10 * np.log10((right**2).sum() / noise)) if noise else float("inf")


def weights(artifact: Artifact) -> list[Any]:
    """Every compressed weight as it will be computed with."""
    operations = convert.program(artifact.path / convert.FILE).functions["main"].operations
    return [op.materialized_val_inference() for op in operations if op.op_type.startswith("constexpr_")]


# --------------------------------------------------------------------------- conversion


@pytest.mark.prove
def test_tensorflow_is_neither_loaded_nor_lost() -> None:
    code = (
        "import sys\nfrom edgecompress.engines.coreml import convert\nconvert.coremltools()\n"
        "print([m for m in convert.UNUSED if m in sys.modules])\nimport sklearn"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["wide", "tied", "stateful", "causal", "edges"])
def test_a_package_computes_what_torch_does(name: str, tmp_path: Path) -> None:
    road = Road(name, tmp_path)
    assert road.db(road.full) >= 100


def test_pools_divide_as_torch_does_without_the_attribute_of_which_core_ml_makes_more(tmp_path: Path) -> None:
    road = Road("pools", tmp_path)
    assert road.db(road.full) > 100
    made = convert.program(road.full.path / convert.FILE).functions["main"].operations
    pooled = [op for op in made if op.op_type in ("avg_pool", "max_pool")]
    assert len(pooled) > 20 and not any(op.ceil_mode.val for op in pooled)


@pytest.mark.shared
@pytest.mark.parametrize("name", REAL)
def test_trained_nets_keep_their_numbers(name: str, tmp_path: Path) -> None:
    road = Road(name, tmp_path)
    half = road.after("coreml_fp16")
    assert road.db(road.full) >= 100
    assert road.db(half) >= 50 and not half.facts["kept"]
    assert road.db(road.after("coreml_int8", half)) >= 28


def test_types_that_core_ml_has_not_become_those_it_has(tmp_path: Path) -> None:
    road = Road("types", tmp_path)
    found = {spec.name: (spec.dtype, spec.shape) for spec in (*road.full.inputs, *road.full.outputs)}
    assert found == {
        "pair.real": ("float32", (1, 4)),
        "pair.whole": ("int32", (1, 4)),
        "mask": ("int32", (1, 4)),
        "best": ("int32", (1,)),
        "parts.0": ("float32", (1, 4)),
        "parts.1": ("int32", (1, 4)),
    }
    answers = road.answers(road.full)
    assert {name: str(array.dtype) for name, array in answers.items()} == {
        "best": "int32",
        "parts.0": "float32",
        "parts.1": "int32",
    }
    assert decibels(road.golden["parts.0"], answers["parts.0"]) >= 100
    assert (road.golden["best"] == answers["best"]).all() and (road.golden["parts.1"] == answers["parts.1"]).all()


def test_a_word_of_mil_is_no_name_of_an_input() -> None:
    """coremltools makes "state_workaround" of it, which nobody asks for; its own list is the one here."""
    from coremltools.converters.mil.mil.passes.defs.preprocess import NameSanitizer

    assert mlpackage.names(["state", "x"], ["bool"]) == {"inputs": ["state_", "x"], "outputs": ["bool_"]}
    assert all(NameSanitizer().sanitize_name(word) == f"{word}_workaround" for word in mlpackage.RESERVED)
    assert NameSanitizer().sanitize_name("state_") == "state_"


def test_names_become_legal_and_stay_apart() -> None:
    assert mlpackage.names(["h", "a.b", "a_b", "0"], ["h", "out.0"]) == {
        "inputs": ["h", "a_b", "a_b_", "_0"],
        "outputs": ["h_out", "out_0"],
    }


def test_a_package_tells_nothing_of_the_day_or_the_machine(tmp_path: Path) -> None:
    road = Road("tied", tmp_path)
    again = stage(registry.load("runtimes", "coreml").export, {"model": road.program}, tmp_path / "more", options())
    assert again.sha256 == road.full.sha256
    model, _ = package.read(road.full.path / convert.FILE)
    text = (road.full.path / convert.FILE / mlpackage.MODEL).read_bytes()
    assert not model.description.metadata.userDefined and not model.mlProgram.attributes
    assert all(word.encode() not in text for word in (torch.__version__, str(tmp_path), str(Path.cwd())))


def options() -> Any:
    return registry.load("runtimes", "coreml").Options()


def test_a_dynamic_axis_other_than_the_batch_is_refused(tmp_path: Path) -> None:
    road = Road("wide", tmp_path)
    spec = dataclasses.replace(road.program.inputs[0], shape=(1, 3, Dim("height", 4, 9), 8))
    program = dataclasses.replace(road.program, inputs=(spec,))
    with pytest.raises(InputError, match="'x' has the dynamic axis 'height'"):
        stage(registry.load("runtimes", "coreml").export, {"model": program}, tmp_path / "more", options())


def test_the_operating_system_asked_for_is_that_of_the_file(tmp_path: Path) -> None:
    road = Road("causal", tmp_path, minimum_os="iOS18")
    assert package.read(road.full.path / convert.FILE)[0].specificationVersion == 9


# --------------------------------------------------------------------------- half precision


def straight(road: Road) -> Any:
    """What all of it in half precision answers."""
    fp16 = registry.load("techniques", "coreml_fp16")
    request = Request({"model": road.full, "samples": road.samples}, road.folder, fp16.Options())
    out = road.folder / "straight"
    out.mkdir()
    convert.save(fp16._CoremlTrial(request, [[0]]).halved([]), out)
    return road.answers(dataclasses.replace(road.full, path=out))


@pytest.mark.parametrize("name", ["flood", "masked"])
def test_operators_whose_numbers_do_not_fit_stay_in_fp32(name: str, tmp_path: Path) -> None:
    road = Road(name, tmp_path)
    assert not all(np.isfinite(array).all() for array in straight(road).values())
    half = road.after("coreml_fp16")
    assert half.facts["kept"] and "lost" not in half.facts
    assert road.db(half) >= 50


def test_squares_inside_an_operator_count(tmp_path: Path) -> None:
    road = Road("norm", tmp_path)
    kept = road.after("coreml_fp16").facts["kept"]
    assert len(kept) == 1, "the product fits, its square does not"


def test_nothing_stays_in_fp32_where_all_fits(tmp_path: Path) -> None:
    road = Road("wide", tmp_path)
    half = road.after("coreml_fp16")
    assert half.facts["kept"] == [] and half.facts["samples"] == ITEMS
    assert road.db(half) >= 50
    assert half.size_bytes < 0.6 * road.full.size_bytes
    assert all(spec.dtype == "float32" for spec in (*half.inputs, *half.outputs))


def test_half_precision_that_cannot_reach_the_floor_is_out(tmp_path: Path) -> None:
    road = Road("norm", tmp_path)
    assert road.after("coreml_fp16", floor_db=500.0, keep_ops=("layer_norm", "mul")).facts["lost"]


# --------------------------------------------------------------------------- compressed weights


def test_int8_weights_compose_with_half_precision(tmp_path: Path) -> None:
    road = Road("wide", tmp_path)
    small = road.after("coreml_int8", road.after("coreml_fp16"))
    assert small.facts == {"compressed": 2}, "the convolution has fewer numbers than the least size"
    known = precision.of(small)
    kept, packed = 2 * WIDE[0], sum(WIDE[1:])
    assert known["weights"] is not None and known["computes"] == {"fp16": 3}
    assert known["weights"]["fp16"] == kept and packed <= known["weights"]["int8"] < 1.05 * packed
    assert small.size_bytes < 0.35 * road.full.size_bytes
    assert road.db(small) >= 30


@pytest.mark.parametrize("symmetric", [True, False])
def test_int4_weights_have_a_scale_for_each_group(symmetric: bool, tmp_path: Path) -> None:
    road = Road("wide", tmp_path, minimum_os="iOS18")
    small = road.after("coreml_int4", symmetric=symmetric)
    mixed = road.after("coreml_int4", int8=["*"])
    packed = sum(WIDE[1:])
    assert 0.5 * packed <= (precision.of(small)["weights"] or {})["int4"] < 0.65 * packed
    assert "int4" not in (precision.of(mixed)["weights"] or {})
    assert 15 <= road.db(small) < road.db(mixed) - 15


def test_int4_weights_of_an_older_package_are_lost_with_what_to_do(tmp_path: Path) -> None:
    lost = Road("wide", tmp_path).after("coreml_int4").facts["lost"]
    assert lost == "int4 needs a package for iOS 18; add to the variant: export = { minimum_os = 'iOS18' }"


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_a_palette_has_as_many_numbers_as_its_bits_say(bits: int, tmp_path: Path) -> None:
    road = Road("wide", tmp_path)
    small = road.after("coreml_palette", bits=bits)
    tables = [np.unique(weight) for weight in weights(small)]
    assert len(tables) == small.facts["compressed"] == 2
    assert all(2 ** (bits - 1) < len(table) <= 2**bits for table in tables)
    known = precision.of(small)["weights"]
    assert known is not None and set(known) == {"fp32", f"palette{bits}"}
    indices = sum(WIDE[1:]) * bits // 8
    assert known["fp32"] == 4 * WIDE[0] and indices <= known[f"palette{bits}"] <= indices + 2 * 4 * 2**bits + 64
    assert road.db(small) >= 4 * bits - 4


def test_groups_of_channels_have_tables_of_their_own(tmp_path: Path) -> None:
    road = Road("wide", tmp_path, minimum_os="iOS18")
    one, many = (road.after("coreml_palette", bits=4, group=group) for group in (0, 8))
    assert road.db(many) > road.db(one) + 0.5
    with pytest.raises(StageFailed, match="iOS18"):
        road.after("coreml_palette", road.export(), group=8)


@pytest.mark.parametrize("half", [False, True])
def test_the_smallest_share_of_each_weight_becomes_zero(half: bool, tmp_path: Path) -> None:
    """Also of fp16 weights with more than 65,504 numbers, where coremltools' own threshold is infinite."""
    road = Road("wide", tmp_path)
    model = road.after("coreml_fp16") if half else road.full
    sparse = road.after("coreml_sparse", model, sparsity=0.75)
    found = weights(sparse)
    assert max(weight.size for weight in found) > 65504
    for weight in found:
        assert (weight == 0).mean() == pytest.approx(0.75, abs=0.01)
    assert sparse.size_bytes < 0.45 * model.size_bytes


def test_a_net_with_nothing_to_compress_is_out(tmp_path: Path) -> None:
    road = Road("norm", tmp_path)
    assert "no weight to compress" in road.after("coreml_int8").facts["lost"]


# --------------------------------------------------------------------------- sessions


def test_a_session_off_macos_says_what_it_is(tmp_path: Path) -> None:
    runtime = registry.load("runtimes", "coreml")
    road = Road("causal", tmp_path)
    table = runtime.open(road.full, 1, profile=True).ops(road.inputs, 3)
    assert table["ops"] == [] and table["fallback"] == []
    assert ("interpreted" in table["why"]) is not runtime.NATIVE
    assert bool(runtime.SIMULATED) is not runtime.NATIVE


def test_core_ml_and_the_interpreter_must_agree() -> None:
    check = registry.load("runtimes", "coreml").check_agreement
    right = {"a": np.ones(4, "float32"), "b": np.linspace(1, 2, 9, dtype="float32")}
    check({name: array.astype("float16") for name, array in right.items()}, right)
    for wrong in (right["b"][::-1], right["b"] * np.nan):
        with pytest.raises(StageFailed, match="output 'b'"):
            check({**right, "b": wrong}, right)
