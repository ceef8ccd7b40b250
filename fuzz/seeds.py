"""Writes fuzz/corpora anew, from this project's own generators and files alone: `python -m fuzz.seeds`."""

from __future__ import annotations

import io
import json
import shutil
import struct
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORPORA = ROOT / "fuzz" / "corpora"
LARGEST = 8 << 10  # bytes of a seed: smaller ones are read more often
Seeds = Iterator[tuple[str, bytes]]


def onnx_files(folder: Path) -> Seeds:
    """A net, one with a branch and constants, one whose weights lie beside it, quantized ones."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    def model(nodes: Sequence[Any], constants: Sequence[Any], shape: Sequence[Any] = ("batch", 3, 4, 4)) -> bytes:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
        graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return bytes(made.SerializeToString())

    weight = numpy_helper.from_array(np.linspace(-1, 1, 27, dtype=np.float32).reshape(3, 3, 3, 1), "w")
    conv = helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 1], pads=[1, 0, 1, 0])
    yield "conv", model([conv, helper.make_node("Relu", ["c"], ["y"])], [weight])
    yield "scalar", model([helper.make_node("Identity", ["x"], ["y"])], [], ())
    flag = helper.make_node("Constant", [], ["flag"], value=numpy_helper.from_array(np.array(True)))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ab"]
    branches = [
        helper.make_graph([helper.make_node(kind, ["x"], [end.name])], f"branch_{end.name}", [], [end])
        for kind, end in zip(("Relu", "Neg"), ends, strict=True)
    ]
    choice = helper.make_node("If", ["flag"], ["y"], then_branch=branches[0], else_branch=branches[1])
    yield "branch", model([flag, choice], [])
    outside = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, 3, 3, 1])
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="net.onnx")
    outside.external_data.add(key="offset", value="0")
    yield "external", model([conv, helper.make_node("Relu", ["c"], ["y"])], [outside])
    steps = [numpy_helper.from_array(np.array(v, t), n) for n, v, t in (("s", 0.1, "float32"), ("z", 3, "uint8"))]
    pair = [helper.make_node(f"{kind}Linear", [a, "s", "z"], [b]) for kind, a, b in QUANTIZED]
    yield "quantized", model(pair, steps)
    yield from _products(model)


def _products(model: Callable[..., bytes]) -> Seeds:
    """A net for each operator that multiplies by weights in its own way."""
    import numpy as np
    from onnx import helper, numpy_helper

    for kind, shapes in PRODUCTS.items():
        names = [f"w{i}" for i in range(len(shapes))]
        weights = [numpy_helper.from_array(np.ones(s, np.float32), n) for s, n in zip(shapes, names, strict=True)]
        more = {"equation": "abc,cd->abd"} if kind == "Einsum" else {"hidden_size": 2} if kind == "LSTM" else {}
        made = helper.make_node(kind, ["x", *names], ["z"], **more)
        yield kind.lower(), model([made, helper.make_node("Relu", ["z"], ["y"])], weights, (2, 3, 4))


PRODUCTS: dict[str, list[tuple[int, ...]]] = {
    "MatMul": [(4, 2)],
    "Einsum": [(4, 2)],
    "LSTM": [(1, 8, 4), (1, 8, 2)],
    "Attention": [(2, 3, 4)] * 2,
}
QUANTIZED = (("Quantize", "x", "q"), ("Dequantize", "q", "y"))


def tflite_files(folder: Path) -> Seeds:
    """A net of two operators, once with a signature and quantized, and one with nothing but its ends."""
    yield "plain", _tflite({"x": (1, 4, 4, 2), "w": (3, 3, 3, 2), "y": (1, 4, 4, 3)}, "CONV_2D x,w y", False)
    yield "signed", _tflite({"x": (1, 6), "w": (2, 6), "y": (1, 2)}, "FULLY_CONNECTED x,w y", True)
    lstm = {"x": (2, 3, 4), **{f"w{i}": (2, 4 if i < 4 else 2) for i in range(8)}, "y": (2, 3, 2)}
    yield "lstm", _tflite(lstm, f"UNIDIRECTIONAL_SEQUENCE_LSTM x,{','.join(f'w{i}' for i in range(8))} y", False)
    yield "composite", _tflite({"x": (1, 6), "y": (1, 6)}, "STABLEHLO_COMPOSITE x y", False)
    yield "identity", _tflite({"x": (2,)}, "", False)
    yield "reshape", _tflite({"x": (1, 6), "y": (2, 3)}, "RESHAPE x y", True)


def _tflite(shapes: dict[str, tuple[int, ...]], call: str, signed: bool) -> bytes:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    names, graph, model = list(shapes), schema.SubGraphT(), schema.ModelT()
    model.version, model.buffers, model.operatorCodes, model.subgraphs = 3, [schema.BufferT()], [], [graph]
    graph.tensors = [_tensor(schema, model, name, shape, signed) for name, shape in shapes.items()]
    graph.operators, graph.inputs, graph.outputs = [], [0], [len(names) - 1]
    if call:
        kind, reads, writes = call.split()
        code, op = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        op.inputs, op.outputs = [names.index(n) for n in reads.split(",")], [names.index(writes)]
        if kind == "STABLEHLO_COMPOSITE":
            op.builtinOptions2Type = schema.BuiltinOptions2.StableHLOCompositeOptions
            op.builtinOptions2 = schema.StableHLOCompositeOptionsT()
            op.builtinOptions2.decompositionSubgraphIndex = 1
            inner = schema.SubGraphT()  # what it stands for: nothing is done
            inner.tensors, inner.inputs, inner.outputs, inner.operators = graph.tensors, [0], graph.outputs, []
            model.subgraphs.append(inner)
        model.operatorCodes, graph.operators = [code], [op]
    if signed:
        signature = schema.SignatureDefT()
        signature.signatureKey = "serving_default"
        signature.inputs, signature.outputs = ([_entry(schema, *e)] for e in (("input", 0), ("scores", len(names) - 1)))
        model.signatureDefs = [signature]
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _tensor(schema: Any, model: Any, name: str, shape: tuple[int, ...], quantized: bool) -> Any:
    import numpy as np

    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), 9 if quantized else 0, 0
    if quantized:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [0.5], [3]
    if name.startswith("w"):
        data = schema.BufferT()
        data.data = np.arange(np.prod(shape) * (1 if quantized else 4), dtype=np.uint8)
        tensor.buffer = len(model.buffers)
        model.buffers.append(data)
    return tensor


def _entry(schema: Any, name: str, number: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, number
    return entry


def mil_programs(folder: Path) -> Seeds:
    """Programs written op by op: weights in their file, compressed weights, a branch."""
    for name, make in (("weights", _mil_weights), ("compressed", _mil_compressed), ("branch", _mil_branch)):
        (folder / name).mkdir()
        stored = make(folder / name)
        model = (folder / name / "Data" / "com.apple.CoreML" / "model.mlmodel").read_bytes()
        yield name, struct.pack("<H", len(stored)) + stored + model


def _mil_weights(folder: Path) -> bytes:
    import mil_program  # type: ignore[import-not-found]
    import numpy as np

    arrays = [np.ones((3, 4), np.float32), np.zeros(3, np.float32)]
    data, offsets = mil_program.weights([("fp32", array) for array in arrays])
    writer, y = mil_program.Writer(), np.zeros((2, 3), np.float32)
    writer.input("x", np.zeros((2, 4), np.float32), (None, 4))
    for name, array, offset in zip(("weight", "bias"), arrays, offsets, strict=True):
        writer.const(name, mil_program.stored(array, offset))
    writer.op("linear", {"x": "x", "weight": "weight", "bias": "bias"}, {"product": y})
    writer.op("relu", {"x": "product"}, {"y": y})
    writer.save(folder, ["y"])
    return bytes(data)


def _mil_compressed(folder: Path) -> bytes:
    """Each form of compressed weights once, added up."""
    import mil_program
    import numpy as np

    writer, x = mil_program.Writer(), np.zeros((2, 4), np.float32)
    writer.input("x", x)
    forms: dict[str, dict[str, Any]] = {
        "constexpr_cast": {"source_val": np.ones((2, 4), np.float16), "output_dtype": "fp32"},
        "constexpr_affine_dequantize": {
            "quantized_data": np.ones((2, 4), np.int8),
            "zero_point": np.int8(1),
            "scale": np.float32(0.5),
            "axis": np.int32(0),
        },
        "constexpr_lut_to_dense": {
            "indices": np.array([0xA5], np.uint8),
            "lut": np.array([0.5, -0.5], np.float32),
            "shape": np.array([2, 4], np.uint32),
        },
        "constexpr_sparse_to_dense": {
            "nonzero_data": np.ones(2, np.float32),
            "mask": np.array([0x11], np.uint8),
            "shape": np.array([2, 4], np.uint32),
        },
        "constexpr_blockwise_shift_scale": {"data": np.ones((2, 4), np.int8), "scale": np.ones((2, 2), np.float32)},
    }
    last = "x"
    for number, (kind, arguments) in enumerate(forms.items()):
        op = writer.op(kind, {}, {f"w{number}": x})
        for name, given in arguments.items():
            op.attributes[name].CopyFrom(mil_program.value(given))
        writer.op("add", {"x": last, "y": f"w{number}"}, {f"y{number}": x})
        last = f"y{number}"
    writer.save(folder, [last])
    return b""


def _mil_branch(folder: Path) -> bytes:
    import mil_program
    import numpy as np

    writer, x = mil_program.Writer(), np.zeros((2, 4), np.float32)
    writer.input("x", x)
    writer.const("flag", np.array(True))
    choice = writer.op("cond", {"pred": "flag"}, {"y": x})
    for kind in ("relu", "tanh"):
        block = choice.blocks.add()
        op = block.operations.add(type=kind)
        op.inputs["x"].arguments.add().name = "x"
        out = op.outputs.add(name=f"{kind}_x")
        mil_program.describe(out.type, mil_program.NUMBERS["float32"], x.shape)
        block.outputs.append(out.name)
    writer.save(folder, ["y"])
    return b""


def archives(folder: Path) -> Seeds:
    """A package in each form, and tars with what others write in front of a file."""
    from edgecompress.extras.apps import archive

    tree = folder / "tree" / "net-tar"
    (tree / "payload" / "empty").mkdir(parents=True)
    (tree / "card.json").write_text('{"name": "net"}\n', encoding="utf-8")
    (tree / "payload" / "run.py").write_text("print(1)\n", encoding="utf-8")
    (tree / "payload" / "run.py").chmod(0o755)
    for suffix in (".zip", ".tar.gz"):
        archive.write(tree.parent, folder / f"net{suffix}", suffix)
        yield f"net{suffix}", (folder / f"net{suffix}").read_bytes()
    with zipfile.ZipFile(folder / "stored.zip", "w") as plain:
        plain.writestr("net/a.txt", "a")
        plain.writestr("net/b/", "")
    yield "stored.zip", (folder / "stored.zip").read_bytes()
    for name, form in (("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("ustar", tarfile.USTAR_FORMAT)):
        yield f"{name}.tar", _tar(form)


def _tar(form: int) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=form) as tar:
        long = "net/" + "d" * (90 if form == tarfile.USTAR_FORMAT else 120)
        for name, data in (("net/é.txt", b"e"), (long, b"long")):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("net/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../x"
        tar.addfile(link)
    return content.getvalue().rstrip(b"\0") + bytes(1024)


def arrays(folder: Path) -> Seeds:
    """Arrays of each kind of number, alone, and in an .npz with splits and labels."""
    import numpy as np

    def written(write: Callable[..., None], *given: Any, **named: Any) -> bytes:
        content = io.BytesIO()
        write(content, *given, **named)
        return content.getvalue()

    for name, dtype in (("float32", "<f4"), ("int64", "<i8"), ("uint8", "|u1"), ("big", ">f8"), ("bool", "|b1")):
        yield f"{name}.npy", written(np.save, np.ones((3, 2), dtype))
    yield "fortran.npy", written(np.save, np.asfortranarray(np.ones((3, 2), "<f4")))
    yield "scalar.npy", written(np.save, np.float32(1))
    splits = {f"{split}.x": np.ones((3, 2), np.float32) for split in ("calibrate", "select", "test")}
    labels = {name.replace("x", "labels"): np.arange(3) for name in splits}
    yield "splits.npz", written(np.savez, **splits, **{k.replace(".x", ".labels"): v for k, v in labels.items()})
    yield "packed.npz", written(np.savez_compressed, input=np.zeros((4, 2), np.float32))


def documents(folder: Path) -> Seeds:
    """A report cut to one variant, a measurement, the cards of what ships."""
    import measured_inputs  # type: ignore[import-not-found]
    import package_inputs  # type: ignore[import-not-found]

    from edgecompress.core.package_contents import CARD
    from edgecompress.extras.apps import archive
    from edgecompress.extras.apps.package import package

    yield "measured.json", _text(measured_inputs.told(n=24))
    raced = measured_inputs.shipped(folder / "raced") / "report.json"
    yield "raced.json", _text(_cut(json.loads(raced.read_text(encoding="utf-8"))))
    shipped = package_inputs.null(folder / "null")
    yield "artifact.json", (shipped / "artifact" / "artifact.json").read_bytes()
    packed = package(shipped, "tar", folder / "net.tar.gz", {"wheels": "false"})
    (folder / "opened").mkdir()
    archive.unpack(packed, folder / "opened")
    yield "card.json", next((folder / "opened").rglob(CARD)).read_bytes()


def _cut(report: dict[str, Any]) -> dict[str, Any]:
    """A report with one variant, of two sessions and two latencies each."""
    variants = report["variants"][:1]
    for variant in variants:
        sessions = variant["sessions"][:2]
        cut = [{**session, "latencies_ms": session["latencies_ms"][:2]} for session in sessions]
        variant |= {"sessions": cut, "distribution": None, "ops": None}
    return {**report, "variants": variants, "deltas": report["deltas"][:3], "pareto": []}


def _text(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def tomls(folder: Path) -> Seeds:
    """The shortest of the installed files of each kind, and a source."""
    from edgecompress.core import catalog

    for kind in catalog.KINDS:
        for file in sorted(catalog.shipped(kind).glob("*.toml"), key=lambda f: f.stat().st_size)[:6]:
            yield f"{kind}-{file.name}", file.read_bytes()
    yield "source.toml", (ROOT / "edgecompress" / "demo" / "source.toml").read_bytes()


PRUNERS = b"""\
version: 1
pruners:
  blocks:
    class: 'L1RankedStructureParameterPruner_AGP'
    initial_sparsity : 0.05
    final_sparsity: 7e-1
    group_type: Blocks
    kwargs: {block_shape: [1, 8, 1, 1]}
    weights: module.conv.weight
  one: {class: SensitivityPruner, sensitivities: {'*': 0.5}} # of each
lr_schedulers:
  rate: {class: MultiStepMultiGammaLR, milestones: [3, 5], gammas: [0.1, 2]}
policies:
  - pruner:
      instance_name: blocks
      args:
        keep_mask: True
        mini_batch_pruning_frequency: 16
    starting_epoch: 0
    ending_epoch: 30
    frequency: 2
  - pruner: {instance_name: one}
    epochs: [31, 32]
  - lr_scheduler: {instance_name: rate}
    starting_epoch: 0
    ending_epoch: 30
    frequency: 2
"""
REGULARIZERS = b"""\
regularizers:
  lasso:
    class: GroupLassoRegularizer
    threshold_criteria: Mean_Abs
    reg_regims:
      &name features.module.0.weight: [0.0008, Channels]
      fc.weight: &rows [0.01, Rows+Cols]
      fc2.weight: *rows
extensions:
  thin: {class: ChannelRemover, thinning_func_str: remove_channels, arch: resnet20_cifar, dataset: cifar10}
policies:
  - regularizer: {instance_name: lasso, args: {keep_mask: no}}
    starting_epoch: 0
    ending_epoch: 30
    frequency: 2
  - extension: {instance_name: thin}
    epochs: [29]
"""
QUANTIZERS = b"""\
quantizers:
  post:
    class: PostTrainLinearQuantizer
    bits_parameters: null
    mode: {activations: ASYMMETRIC_UNSIGNED, weights: SYMMETRIC}
    model_activation_stats: ../stats.yaml
    overrides:
      .*downsample\\.0.*: {bits_weights: 4, clip_acts: None}
      fc:
        input_overrides:
          0: {from_output: True}
"""


def schedules(folder: Path) -> Seeds:
    """Pruning and a rate, regularization and thinning, quantization."""
    yield from {"pruners": PRUNERS, "regularizers": REGULARIZERS, "quantizers": QUANTIZERS}.items()


MAKERS: dict[str, Callable[[Path], Seeds]] = {
    "onnx": onnx_files,
    "tflite": tflite_files,
    "mil": mil_programs,
    "archive": archives,
    "arrays": arrays,
    "report": documents,
    "toml": tomls,
    "schedule": schedules,
}


def main() -> None:
    """All seeds of all targets."""
    sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "extras" / "apps")]  # their generators
    shutil.rmtree(CORPORA, ignore_errors=True)
    for target, make in MAKERS.items():
        (CORPORA / target).mkdir(parents=True)
        with tempfile.TemporaryDirectory() as folder:
            for name, data in make(Path(folder)):
                assert len(data) <= 3 * LARGEST, f"{target}/{name}: {len(data)} bytes"
                (CORPORA / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
