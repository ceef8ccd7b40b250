"""LiteRT and its elder: what a file computes, its names and dtypes, strangers' files, each compression, real nets."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_examples
import tflite_files
from vectors import sqnr_db

import edgecompress
from edgecompress.core import config, environments, registry
from edgecompress.core.errors import CheckFailed, InputError
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest
from edgecompress.engines.litert import model_file as tflite_file
from edgecompress.engines.litert import session as litert_session
from edgecompress.engines.litert.runtimes import litert, tflite
from edgecompress.formats import torch_module
from edgecompress.plugins.transports import host
from edgecompress.stages import trace
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
pytest.importorskip("ai_edge_quantizer")

EXAMPLES = Path(__file__).parents[1] / "examples"
elder = pytest.mark.skipif(bool(environments.missing(tflite)), reason=f"run `{environments.install_command(tflite)}`")


class Reader(torch.nn.Module):
    """Ids, features and a state in; scores, the next state and the highest id out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.lstm = torch.nn.LSTM(8, 16, batch_first=True)
        self.head = torch.nn.Linear(16, 5)

    def forward(self, ids: torch.Tensor, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Three tensors of different meaning; two of them could be taken for each other."""
        y, _ = self.lstm(self.embed(ids))
        return self.head(y[:, -1]), (y + x).sum(1) + h, ids.max(1).values


def artifact_of(net: torch.nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path, ends: Any) -> Artifact:
    """The net as a program with any batch from 1 to 8."""
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(net.eval(), inputs, dynamic_shapes=tuple({0: batch} for _ in inputs))
    folder.mkdir(parents=True)
    torch.export.save(program, folder / "program.pt2")
    return Artifact(folder, "program", *ends).write()


@pytest.mark.parametrize(
    "net",
    [
        torch.nn.ConvTranspose2d(8, 4, 4, 2, 1),
        torch.nn.ConvTranspose2d(8, 8, 3, 2, 1, output_padding=1, groups=8),
        torch.nn.ConvTranspose2d(8, 4, 2, 2, 1, output_padding=1),
        torch.nn.ConvTranspose1d(8, 4, 3, 2, 1, output_padding=1),
    ],
    ids=["of a generator", "depthwise", "cut on one side", "1-D"],
)
def test_a_padded_transposed_convolution_computes_what_torch_computes(net, tmp_path):
    x = torch.randn(1, 8, 5, 5) if isinstance(net, torch.nn.ConvTranspose2d) else torch.randn(1, 8, 5)
    expected = net.eval()(x).detach().numpy()
    (tmp_path / "program").mkdir()
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "program" / "program.pt2")
    specs = [TensorSpec("x", tuple(x.shape), "float32")], [TensorSpec("y", expected.shape, "float32")]
    program = Artifact(tmp_path / "program", "program", *specs).write()
    (tmp_path / "out").mkdir()
    session = litert.open(litert.export(Request(inputs={"model": program}, out=tmp_path / "out")), 1)
    np.testing.assert_allclose(session.run({"x": x.numpy()})["y"], expected, atol=1e-5)


class Views(torch.nn.Module):
    """Each constant is a view of other memory: transposed, stepped, expanded, overlapping, flipped in a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("transposed", torch.randn(6, 4).t())
        self.register_buffer("stepped", torch.randn(4, 12)[:, ::2])
        self.register_buffer("expanded", torch.randn(4, 1).expand(4, 6))
        self.register_buffer("overlapping", torch.randn(9).unfold(0, 6, 1))
        self.mix = torch.nn.Parameter(torch.randn(4, 4).t())
        self.plain = torch.randn(6, 4).t()  # neither parameter nor buffer
        self.one, self.two = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.two.weight = self.one.weight  # shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Uses each of them."""
        x = self.mix @ (x * self.transposed + self.stepped) * self.expanded + self.overlapping
        return self.two(self.one(x + self.plain))


@pytest.mark.parametrize("kind", ["factory", "program"])
def test_constants_that_are_views_are_what_torch_computes_with(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Views:
        torch.manual_seed(0)
        return Views()

    module = types.ModuleType("nets_of_views")
    module.build = build  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nets_of_views", module)
    x = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)
    expected = build()(torch.from_numpy(x[:1])).detach().numpy()
    torch.export.save(torch.export.export(build(), (torch.from_numpy(x[:1]),)), tmp_path / "own.pt2")
    for name in ("samples", "loaded", "program", "file"):
        (tmp_path / name).mkdir()
    tensors.write_split(tmp_path / "samples" / "test", {"x": x})
    spec = TensorSpec("x", (Dim("batch", 1, 8), 4, 6))
    samples = Artifact(tmp_path / "samples", "samples", (spec,), (), {"splits": {"test": 3}}).write()
    source = (
        {"model": "nets_of_views:build"}
        if kind == "factory"
        else {"model": str(tmp_path / "own.pt2"), "kind": "program"}
    )
    model = trace.load(Request({"samples": samples}, tmp_path / "loaded", {"source": source}))
    if kind == "factory":
        net = torch_module.rebuild(model)
        assert net.two.weight is net.one.weight
        model = trace.run(Request({"model": model, "samples": samples}, tmp_path / "program", {}))
    session = litert.open(litert.export(Request({"model": model}, tmp_path / "file")), 1)
    (answer,) = session.run({model.inputs[0].name: x[:1]}).values()
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)


class Repeated(torch.nn.Module):
    """A function as a net, which torch.export takes."""

    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(x) * 2


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.expand(-1, 4, 6, 3).transpose(2, 3),
        lambda x: x[:, :, None].expand(-1, 1, 4, 6, 3).reshape(-1, 4, 6, 3).transpose(2, 3),
        lambda x: x.repeat(1, 4, 1, 1).permute(0, 3, 1, 2),
        lambda x: x[..., :1].expand(-1, 1, 6, 5).transpose(2, 3),
        lambda x: (x.reshape(-1, 2, 3, 3)[:, :, None].expand(-1, 2, 4, 3, 3) * 0.5).transpose(3, 4),
    ],
    ids=["heads", "shared key", "repeat", "last axis", "scaled"],
)
def test_what_is_repeated_and_transposed_is_both(compute, tmp_path):
    x = torch.randn(2, 1, 6, 3)
    net, batch = Repeated(compute), Dim("batch", 1, 8)
    expected = net(x).numpy()
    ends = [TensorSpec("x", (batch, 1, 6, 3))], [TensorSpec("y", (batch, *expected.shape[1:]))]
    program = artifact_of(net, (x,), tmp_path / "program", ends)
    (tmp_path / "out").mkdir()
    made = litert.export(Request({"model": program}, tmp_path / "out", None, Context(batch=2)))
    np.testing.assert_allclose(litert.open(made, 1).run({"x": x.numpy()})["y"], expected, atol=1e-5)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reader, Artifact, Artifact]:
    """The net, its program, and its file; names that sort otherwise than they stand."""
    folder = tmp_path_factory.mktemp("reader")
    torch.manual_seed(0)
    net = Reader()
    example = (torch.randint(0, 50, (2, 7)), torch.randn(2, 7, 16), torch.randn(2, 16))
    batch = Dim("batch", 1, 8)
    inputs = (
        TensorSpec("z.ids", (batch, 7), "int64"),
        TensorSpec("a", (batch, 7, 16)),
        TensorSpec("h", (batch, 16)),
    )
    outputs = (
        TensorSpec("z", (batch, 5)),
        TensorSpec("y.0", (batch, 16), feeds="h"),
        TensorSpec("b", (batch,), "int64"),
    )
    program = artifact_of(net, example, folder / "program", (inputs, outputs))
    (folder / "file").mkdir()
    return net, program, litert.export(Request({"model": program}, folder / "file", None, Context(batch=2)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Artifact, Artifact]]:
    """A net of convolutions as a file, and data for it."""
    folder = tmp_path_factory.mktemp("small")
    out = folder / "file"
    out.mkdir()
    model = litert.export(Request({"model": conformance.net("program", folder)}, out))
    yield model, conformance.samples(model, folder)


def compressed(name: str, model: Artifact, samples: Artifact, out: Path, **options: Any) -> Artifact:
    module = registry.load("techniques", name)
    out.mkdir(parents=True, exist_ok=True)
    return module.apply(  # type: ignore[no-any-return]
        Request({"model": model, "samples": samples}, out, config.build(module.Options, options, name))
    )


def answers(model: Artifact, samples: Artifact) -> np.ndarray:
    """What the first output means, for each item of the test split."""
    session, spec = litert.open(model, 1), model.outputs[0]
    given = tensors.batches(samples, "test", 1, None, model)
    return np.concatenate([tensors.real(session.run(inputs)[spec.name], spec) for inputs in given])


# --------------------------------------------------------------------------- export


def test_each_output_has_the_value_that_its_name_says(reader: tuple[Reader, Artifact, Artifact]) -> None:
    net, _, model = reader
    ids, x, h = torch.randint(0, 50, (2, 7)), torch.randn(2, 7, 16), torch.randn(2, 16)
    given = {"z.ids": ids.numpy().astype(np.int32), "a": x.numpy(), "h": h.numpy()}
    found = litert.open(model, 1).run(given)
    with torch.no_grad():
        wanted = dict(zip(("z", "y.0", "b"), net(ids, x, h), strict=True))
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert np.allclose(found[name], value.numpy(), atol=1e-5), name


def test_the_file_s_own_tensors_and_signature_have_the_source_s_names_in_its_order(
    reader: tuple[Reader, Artifact, Artifact],
) -> None:
    from ai_edge_litert.interpreter import Interpreter

    opened = Interpreter(str(reader[2].file(".tflite")))
    assert [d["name"] for d in opened.get_input_details()] == ["z.ids", "a", "h"]
    assert [d["name"] for d in opened.get_output_details()] == ["z", "y.0", "b"]
    (signature,) = opened.get_signature_list().values()
    assert set(signature["inputs"]) == {"z.ids", "a", "h"}
    assert set(signature["outputs"]) == {"z", "y.0", "b"}


def test_the_specs_tell_the_file_s_batch_and_dtypes_and_keep_the_state(
    reader: tuple[Reader, Artifact, Artifact],
) -> None:
    model = reader[2]
    assert [(s.shape, s.dtype) for s in model.inputs] == [
        ((2, 7), "int32"),
        ((2, 7, 16), "float32"),
        ((2, 16), "float32"),
    ]
    assert [(s.dtype, s.feeds) for s in model.outputs] == [("float32", ""), ("float32", "h"), ("int32", "")]


def test_the_same_program_gives_the_same_bytes(reader: tuple[Reader, Artifact, Artifact], tmp_path: Path) -> None:
    _, program, model = reader
    assert litert.export(Request({"model": program}, tmp_path, None, Context(batch=2))).sha256 == model.sha256


def test_a_dynamic_axis_that_is_not_the_batch_is_refused(tmp_path: Path) -> None:
    program = Artifact(tmp_path, "program", (TensorSpec("ids", (1, Dim("steps", 1, 9)), "int64"),))
    with pytest.raises(InputError, match="axis 'steps' of input 'ids' is dynamic"):
        litert.export(Request({"model": program}, tmp_path))


def test_operators_that_stay_off_xnnpack_are_named(reader: tuple[Reader, Artifact, Artifact]) -> None:
    table = litert.open(reader[2], 1, profile=True).ops({}, 1)
    types = {name.split(":")[0] for name in table["fallback"]}
    assert "EMBEDDING_LOOKUP" in types and "REDUCE_MAX" in types
    assert not types & {"FULLY_CONNECTED", "LOGISTIC", "TANH"}
    assert (table["ops"], table["why"]) == ([], litert_session.NO_TIMES)


# --------------------------------------------------------------------------- strangers' files


def read(file: Path, out: Path) -> Artifact:
    out.mkdir(parents=True, exist_ok=True)
    return litert.read(Request({}, out, {"path": str(file)}))


def test_a_file_of_a_user_keeps_its_bytes_and_gets_its_specs(
    reader: tuple[Reader, Artifact, Artifact], tmp_path: Path
) -> None:
    model = reader[2]
    found = read(model.file(".tflite"), tmp_path)
    assert found.file(".tflite").read_bytes() == model.file(".tflite").read_bytes()
    assert [(s.name, s.shape, s.dtype) for s in found.outputs] == [(s.name, s.shape, s.dtype) for s in model.outputs]


def test_damaged_bytes_are_refused_in_one_line_or_harmless(small: tuple[Artifact, Artifact], tmp_path: Path) -> None:
    """Cuts, and noise at seeded places: Python reads every table before anything native does."""
    whole = small[0].file(".tflite").read_bytes()
    seeded = np.random.default_rng(0)
    refused = 0
    for trial in range(300):
        torn = bytearray(whole if trial % 2 else whole[: seeded.integers(len(whole))])
        for _ in range(3 if trial % 2 else 0):
            torn[seeded.integers(len(torn))] = seeded.integers(256)
        try:
            tflite_file.check(bytes(torn), "torn.tflite")
            tflite_file.inputs_and_outputs(bytes(torn), "torn.tflite")
        except InputError as error:
            refused += 1
            assert str(error).startswith("torn.tflite: ") and "\n" not in str(error)
    assert refused >= 150, "at least every cut"


def broken_version(model: Artifact, folder: Path) -> Artifact:
    """The file, its first operator said to be of a version that no runtime has."""
    from ai_edge_litert.tools import flatbuffer_utils

    whole = flatbuffer_utils.read_model(model.file(".tflite"))
    whole.operatorCodes[0].version = 99
    folder.mkdir()
    flatbuffer_utils.write_model(whole, folder / "model.tflite")
    return dataclasses.replace(model, path=folder).write()


def test_a_file_that_litert_cannot_run_is_refused(small: tuple[Artifact, Artifact], tmp_path: Path) -> None:
    file = broken_version(small[0], tmp_path / "new").file(".tflite")
    with pytest.raises(
        InputError, match="LiteRT cannot run it: ValueError: Didn't find op for builtin opcode"
    ) as error:
        read(file, tmp_path / "out")
    assert "\n" not in str(error.value)


# --------------------------------------------------------------------------- compression


def test_int8_inputs_and_outputs_say_their_scale_and_mean_the_same(
    small: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    model, samples = small
    floats = compressed("litert_int8", model, samples, tmp_path / "float")
    whole = compressed("litert_int8", model, samples, tmp_path / "int8", io="int8")
    assert {s.dtype for s in (*floats.inputs, *floats.outputs)} == {"float32"}
    assert {s.dtype for s in (*whole.inputs, *whole.outputs)} == {"int8"}
    assert all(s.quantization is not None for s in (*whole.inputs, *whole.outputs))
    assert np.allclose(answers(floats, samples), answers(whole, samples), atol=1e-6)
    assert sqnr_db(answers(model, samples), answers(whole, samples)) > 25


def test_an_operator_that_is_skipped_stays_in_float(small: tuple[Artifact, Artifact], tmp_path: Path) -> None:
    model, samples = small
    all_int8 = compressed("litert_int8", model, samples, tmp_path / "all")
    without = compressed("litert_int8", model, samples, tmp_path / "without", skip=("Conv2d_0",))
    assert any("Conv2d_0" in name for name in without.facts["skipped"])
    kinds = ["int8", "float32"]
    assert [first_convolution(a) for a in (all_int8, without)] == kinds
    with pytest.raises(InputError, match="skip: no operator's name matches 'absent'"):
        compressed("litert_int8", model, samples, tmp_path / "absent", skip=("absent",))


def first_convolution(model: Artifact) -> str:
    """The dtype of its weights."""
    from ai_edge_litert.interpreter import Interpreter

    opened = Interpreter(str(model.file(".tflite")))
    node = next(n for n in opened._get_ops_details() if n["op_name"] == "CONV_2D")
    return str(node["operand_types"][1].__name__)


class Dead(torch.nn.Module):
    """A convolution with a channel whose weights are all but zero and whose bias is not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        with torch.no_grad():
            self.conv.weight[1] *= 1e-9
            self.conv.bias[1] = 5.0

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """The channels' means."""
        return self.conv(image).mean((2, 3))


def test_the_bias_of_a_dead_channel_survives_int8(tmp_path: Path) -> None:
    torch.manual_seed(0)
    ends = ((TensorSpec("image", (Dim("batch", 1, 8), 3, 8, 8)),), (TensorSpec("means", (Dim("batch", 1, 8), 4)),))
    program = artifact_of(Dead(), (torch.randn(2, 3, 8, 8),), tmp_path / "program", ends)
    (tmp_path / "file").mkdir()
    model = litert.export(Request({"model": program}, tmp_path / "file"))
    samples = conformance.samples(model, tmp_path)
    found = answers(compressed("litert_int8", model, samples, tmp_path / "int8"), samples)
    assert found[:, 1] == pytest.approx(5.0, abs=0.05)


def test_fp16_halves_the_weights_and_keeps_the_small_operators(
    small: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    model, samples = small
    halved = compressed("litert_fp16", model, samples, tmp_path / "half", small=0.0)
    kept = compressed("litert_fp16", model, samples, tmp_path / "kept", small=0.2)
    assert halved.size_bytes < kept.size_bytes < model.size_bytes
    assert halved.facts["kept"] == [] and kept.facts["kept"]
    assert sqnr_db(answers(model, samples), answers(halved, samples)) > 50


def test_half_precision_is_computed_in_where_asked_for(small: tuple[Artifact, Artifact], tmp_path: Path) -> None:
    from ai_edge_litert.tools import flatbuffer_utils

    model, samples = small
    made = compressed("litert_fp16", model, samples, tmp_path / "made", computes="fp16")
    file = flatbuffer_utils.read_model(str(made.file(".tflite")))
    (entry,) = [m for m in file.metadata if m.name == b"reduced_precision_support"]
    assert bytes(file.buffers[entry.buffer].data) == b"fp16accfp16"
    assert sqnr_db(answers(model, samples), answers(made, samples)) > 40


def test_a_net_with_numbers_near_the_end_of_half_precision_computes_in_fp32(
    small: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    from ai_edge_litert.tools import flatbuffer_utils

    model, samples = small
    made = compressed("litert_fp16", model, samples, tmp_path / "made", computes="fp16", headroom=1e9)
    assert "is beyond half precision, 65504" in made.facts["computes_fp32"]
    file = flatbuffer_utils.read_model(str(made.file(".tflite")))
    assert b"reduced_precision_support" not in [m.name for m in file.metadata or ()]


@pytest.mark.prove
def test_an_arm_cpu_with_its_instructions_computes_in_half_precision(tmp_path: Path) -> None:
    options = edgecompress.Options(store=tmp_path / "store", out=tmp_path / "out")
    how: dict[str, Any] = {"device": "qemu-cortex-a76", "only": "fp16,fp32", "profile": "quick", "options": options}
    variants = edgecompress.deploy(None, "arm64", **how).read_report()["variants"]
    counts = {v["name"]: v["numbers"]["instructions"]["value"] for v in variants}
    assert counts["fp16"] < 0.75 * counts["fp32"]


def test_weights_beyond_half_precision_stay_in_fp32(tmp_path: Path) -> None:
    class Large(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(8, 64), torch.nn.Linear(64, 64)
            torch.nn.init.constant_(self.one.weight, 1e6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(torch.tanh(self.one(x)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    ends = ((TensorSpec("x", (Dim("batch", 1, 8), 8)),), (TensorSpec("y", (Dim("batch", 1, 8), 64)),))
    program = artifact_of(Large(), (torch.randn(2, 8),), tmp_path / "program", ends)
    (tmp_path / "file").mkdir()
    model = litert.export(Request({"model": program}, tmp_path / "file"))
    samples = conformance.samples(model, tmp_path)
    half = compressed("litert_fp16", model, samples, tmp_path / "half", small=0.0)
    assert len(half.facts["kept"]) == 1
    assert sqnr_db(answers(model, samples), answers(half, samples)) > 50


@pytest.mark.parametrize("technique", ["litert_int8", "litert_dynamic", "litert_fp16"])
def test_the_weights_of_a_large_file_lie_inside_its_tables_each_aligned(technique: str, tmp_path: Path) -> None:
    from ai_edge_litert.schema_py_generated import Model

    net = tflite_files.Net(["x"], ["y"], {"x": ("float32", (1, 512)), "y": ("float32", (1, 1024))})
    net.constants["w"] = tflite_files.seeded(1024, 512)
    net.add("FULLY_CONNECTED", "x w -", "y", "FullyConnectedOptions")
    model = tflite_files.source(tflite_files.packed(net), tmp_path / "source")
    tensors.write_split(tmp_path / "samples" / "calibrate", {"x": np.ones((4, 512), np.float32)})
    spec = TensorSpec("x", (Dim("batch", 1, 4), 512))
    samples = Artifact(tmp_path / "samples", "samples", (spec,), facts={"splits": {"calibrate": 4}}).write()
    made = Model.GetRootAs(compressed(technique, model, samples, tmp_path / "made").file(".tflite").read_bytes())
    buffers = [made.Buffers(i) for i in range(made.BuffersLength())]
    assert max(buffer.DataLength() for buffer in buffers) >= 512 * 1024
    assert not any(buffer.Offset() for buffer in buffers)
    assert all(b._tab.Vector(b._tab.Offset(4)) % 16 == 0 for b in buffers if b.DataLength())


def test_dynamic_int8_of_a_net_without_weights_is_lost(tmp_path: Path) -> None:
    class Plain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) + 1

    ends = ((TensorSpec("x", (Dim("batch", 1, 8), 8)),), (TensorSpec("y", (Dim("batch", 1, 8), 8)),))
    program = artifact_of(Plain(), (torch.randn(2, 8),), tmp_path / "program", ends)
    (tmp_path / "file").mkdir()
    model = litert.export(Request({"model": program}, tmp_path / "file"))
    found = compressed("litert_dynamic", model, model, tmp_path / "dynamic")
    assert "it has no operator with weights that dynamic int8 shrinks" in found.facts["lost"]


# --------------------------------------------------------------------------- the elder


def asked(runtime: str, model: Artifact, samples: Artifact, out: Path) -> Mapping[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    plugin = {"name": runtime, "module": registry.load("runtimes", runtime).__name__}
    request = {"mode": "outputs", "runtime": plugin, "artifact": str(model.path), "samples": str(samples.path)}
    return agent_client.ask(host.connect({}), AgentRequest.from_json(json.dumps(request)), out, 120)


class Joined(torch.nn.Module):
    """A state that is an output, and is joined with what takes larger values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 8), torch.nn.Linear(14, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.tanh(self.first(x))
        return self.last(torch.cat([state, 5 * x], 1)), state


def test_an_output_that_the_net_reads_by_another_scale_stays_what_it_was(tmp_path: Path) -> None:
    torch.manual_seed(0)
    ends = (TensorSpec("x", (1, 6)),), (TensorSpec("y", (1, 3)), TensorSpec("state", (1, 8)))
    torch.export.save(torch.export.export(Joined().eval(), (torch.randn(1, 6),)), tmp_path / "program.pt2")
    (tmp_path / "file").mkdir()
    program = Artifact(tmp_path, "program", *ends).write()
    model = litert.export(Request({"model": program}, tmp_path / "file"))
    x = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    tensors.write_split(tmp_path / "samples" / "calibrate", {"x": x})
    spec = TensorSpec("x", (Dim("batch", 1, 60), 6))
    samples = Artifact(tmp_path / "samples", "samples", (spec,), facts={"splits": {"calibrate": 60}}).write()
    int8 = compressed("litert_int8", model, samples, tmp_path / "int8")
    ours, theirs = (litert.open(each, 1) for each in (model, int8))
    for name in ("y", "state"):
        pairs = [(ours.run({"x": row[None]})[name], theirs.run({"x": row[None]})[name]) for row in x]
        assert sqnr_db(*map(np.stack, zip(*pairs, strict=True))) > 30


def joining(kind: str) -> tflite_files.Net:
    """A net that joins its input with numbers that are 300 times as large, and weighs both alike."""
    net = tflite_files.Net(["x"], ["y"], {"x": ("float32", (1, 16))})

    def product(reads: str, writes: str, weights: np.ndarray) -> None:
        net.constants[f"w-{writes}"] = weights.astype(np.float32)
        net.tensors[writes] = ("float32", (1, len(weights)))
        net.add("FULLY_CONNECTED", f"{reads} w-{writes} -", writes, "FullyConnectedOptions")

    product("x", "large", 300 * tflite_files.seeded(16, 16))
    net.constants["rows"] = np.array([1, 32], np.int32)
    net.tensors |= {"joined": ("float32", (1, 32)), "flat": ("float32", (1, 32))}
    if kind == "CONCATENATION":
        net.add(kind, "x large", "joined", "ConcatenationOptions", axis=1)
    elif kind == "PACK":
        net.tensors["joined"] = ("float32", (1, 2, 16))
        net.add(kind, "x large", "joined", "PackOptions", valuesCount=2, axis=1)
    else:
        net.tensors |= dict.fromkeys(("wide", "larger"), ("float32", (1, 32)))
        net.constants["half"] = (np.arange(32) < 16).reshape(1, 32)
        net.add("CONCATENATION", "x x", "wide", "ConcatenationOptions", axis=1)
        net.add("CONCATENATION", "large large", "larger", "ConcatenationOptions", axis=1)
        net.add(kind, "half wide larger", "joined", f"Select{'V2' * (kind[-1] == '2')}Options")
    net.add("RESHAPE", "joined rows", "flat", "ReshapeOptions", newShape=[1, 32])
    product("flat", "y", tflite_files.seeded(8, 32) * np.repeat([1, 1 / 300], 16))
    return net


@pytest.mark.parametrize("kind", ["CONCATENATION", "PACK", "SELECT", "SELECT_V2"])
def test_numbers_that_are_joined_with_far_larger_ones_survive_int8(kind: str, tmp_path: Path) -> None:
    model = tflite_files.source(tflite_files.packed(joining(kind)), tmp_path / "source")
    x = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    for split in ("calibrate", "test"):
        tensors.write_split(tmp_path / "samples" / split, {"x": x})
    spec = TensorSpec("x", (Dim("batch", 1, 40), 16))
    facts = {"splits": {"calibrate": 40, "test": 40}}
    samples = Artifact(tmp_path / "samples", "samples", (spec,), facts=facts).write()
    int8 = compressed("litert_int8", model, samples, tmp_path / "int8")
    assert "joined;" in int8.facts["skipped"] and "large;" not in int8.facts["skipped"]
    assert sqnr_db(answers(model, samples), answers(int8, samples)) > 30


@elder
def test_the_same_file_answers_the_same_in_tflite_runtime(small: tuple[Artifact, Artifact], tmp_path: Path) -> None:
    model, samples = small
    told = asked("tflite", model, samples, tmp_path)
    assert told["environment"]["versions"] == {"tflite-runtime": "2.14.0"}
    found = np.load(tmp_path / "test" / f"{model.outputs[0].name}.npy")
    assert np.allclose(found, answers(model, samples), atol=1e-5)


@elder
def test_an_operator_that_tflite_runtime_has_not_is_named_with_its_version(
    small: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    new = broken_version(small[0], tmp_path / "new")
    with pytest.raises(
        CheckFailed, match=r"tflite-runtime 2\.14 does not support [A-Z_0-9]+ version 99: the file needs"
    ):
        asked("tflite", new, small[1], tmp_path / "out")


@elder
def test_tflite_runtime_is_spared_the_scales_per_channel_that_it_takes_for_one(
    small: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    convolved = compressed("litert_dynamic", *small, tmp_path / "conv", skip=["output;"])
    asked("tflite", convolved, small[1], tmp_path / "runs")
    multiplied = compressed("litert_dynamic", *small, tmp_path / "all")
    with pytest.raises(
        CheckFailed, match=r"wrong results in tflite-runtime 2\.14: for a FULLY_CONNECTED .* needs a newer LiteRT"
    ):
        asked("tflite", multiplied, small[1], tmp_path / "out")


# --------------------------------------------------------------------------- a real net


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact, np.ndarray]:
    """ResNet-20 as a file, its data, and what torch answers to the 500 test images."""
    folder = tmp_path_factory.mktemp("resnet20")
    made = test_examples.traced(folder)
    (folder / "file").mkdir()
    file = litert.export(Request({"model": made["program"]}, folder / "file"))
    wanted = made["golden"]
    return file, made["samples"], np.array(tensors.load(wanted, "test", wanted.outputs[0].name))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("technique", "least_db", "most_lost"),
    [("", 100, 0), ("litert_fp16", 50, 0), ("litert_int8", 28, 2), ("litert_dynamic", 28, 2)],
)
def test_resnet20_keeps_its_answers_in_each_precision(
    resnet: tuple[Artifact, Artifact, np.ndarray], technique: str, least_db: float, most_lost: int, tmp_path: Path
) -> None:
    model, samples, wanted = resnet
    found = answers(compressed(technique, model, samples, tmp_path) if technique else model, samples)
    labels = tensors.labels(samples, "test")
    assert labels is not None
    assert sqnr_db(wanted, found) >= least_db
    assert (wanted.argmax(1) == labels).sum() - (found.argmax(1) == labels).sum() <= most_lost


def test_a_program_that_was_exported_with_keywords_becomes_a_file(tmp_path: Path) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * scale

    net, x, scale = Scaled().eval(), torch.randn(1, 4), torch.randn(1, 3)
    torch.export.save(torch.export.export(net, (), {"x": x, "scale": scale}), tmp_path / "program.pt2")
    inputs = (TensorSpec("x", (1, 4)), TensorSpec("scale", (1, 3)))
    program = Artifact(tmp_path, "program", inputs, (TensorSpec("output", (1, 3)),))
    (tmp_path / "out").mkdir()
    made = litert.export(Request({"model": program}, tmp_path / "out"))
    answer = litert.open(made, 1).run({"x": x.numpy(), "scale": scale.numpy()})["output"]
    assert np.allclose(answer, net(x, scale).detach().numpy(), atol=1e-6)
