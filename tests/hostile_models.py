"""Hostile model files: ONNX, TFLite, Keras, SavedModel and .pt2."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hostile_inputs import MODEL, Hostile, irregular, pipes, sparse, written

Change = Callable[[Any], None]
ONNX = (*MODEL, "net.onnx", "--target", "onnx.toml")
TFLITE = (*MODEL, "net.tflite", "--target", "litert.toml")
HUGE, LOOPS = 2**40, 2**62
EITHER = (0, 2)  # what was changed at random may still be a sound model


def cases() -> Iterator[Hostile]:
    """Every model of a stranger."""
    yield from _onnx()
    yield from _tflite()
    yield from _tensorflow()
    yield from _torch()


# --------------------------------------------------------------------------- ONNX


def _onnx() -> Iterator[Hostile]:
    for name, change in {**_GRAPHS, **_SHAPES, **_NAMES, **_OPERATORS, **_WEIGHTS}.items():
        make = lambda folder, change=change: _onnx_file(folder, change)  # noqa: E731 - one per case
        yield Hostile(
            f"onnx/{name}", ONNX, make, _codes(name), slow=name.startswith(("loop", "constant-of-shape-2-31"))
        )
    for name, external in _external():
        yield Hostile(f"onnx/external-{name}", ONNX, external, _codes(f"external-{name}"))
    for name, data in _onnx_bytes():
        yield Hostile(f"onnx/{name}", ONNX, written("net.onnx", data), _codes(name))
    for name, make in irregular("net.onnx"):
        yield Hostile(f"onnx/{name}", ONNX, make)
    yield Hostile("onnx/sparse-3-gib", ONNX, lambda folder: sparse(folder / "net.onnx", 3 << 30, b"\x08\x0a"))
    yield Hostile("onnx/unreadable", ONNX, _unreadable, codes=EITHER)  # root reads it


def _unreadable(folder: Path) -> None:
    (folder / "net.onnx").write_bytes(_plain())
    (folder / "net.onnx").chmod(0)


def _onnx_file(folder: Path, change: Change) -> None:
    (folder / "net.onnx").write_bytes(_changed(change))


def _changed(change: Change) -> bytes:
    """The plain net, changed: what `change` returns counts where it is bytes."""
    model = _model()
    made = change(model)
    return made if isinstance(made, bytes) else bytes(model.SerializeToString())


@cache
def _plain() -> bytes:
    return bytes(_model().SerializeToString())


def _model() -> Any:
    """image [batch, 4] -> scores [batch, 3]: MatMul, Add, Relu."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    seeded = np.random.default_rng(0)
    weights = {"w": seeded.normal(size=(4, 3)).astype("float32"), "b": seeded.normal(size=3).astype("float32")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="matmul"),
        helper.make_node("Add", ["m", "b"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", s]) for n, s in (("x", 4), ("y", 3))]
    constants = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _tensor(name: str, values: Any) -> Any:
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(np.asarray(values), name)


def _value(name: str, shape: Any, dtype: int = 1) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, dtype, shape)


def _node(kind: str, reads: list[str], writes: list[str], **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, reads, writes, **attributes)


def _before(model: Any, *nodes: Any, constants: dict[str, Any] | None = None) -> None:
    """Nodes before all others, with their constants."""
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])
    model.graph.initializer.extend(_tensor(name, values) for name, values in (constants or {}).items())


def _shape_of(end: Any, *sizes: Any) -> None:
    """Another shape of an input or output."""
    dims = end.type.tensor_type.shape.dim
    del dims[:]
    for size in sizes:
        dim = dims.add()
        if isinstance(size, str):
            dim.dim_param = size
        else:
            dim.dim_value = size


def _input(*sizes: Any) -> Change:
    return lambda model: _shape_of(model.graph.input[0], *sizes)


def _output(*sizes: Any) -> Change:
    return lambda model: _shape_of(model.graph.output[0], *sizes)


def _typed(number: int) -> Change:
    """An input of another type of numbers."""

    def change(model: Any) -> None:
        model.graph.input[0].type.tensor_type.elem_type = number

    return change


def _added(kind: str, /, *constants: Any, **attributes: Any) -> Change:
    """One more node, whose constants are given, whose sum with the net's answer is the answer."""

    def change(model: Any) -> None:
        import numpy as np

        names = [f"c{i}" for i in range(len(constants))]
        _before(
            model,
            _node(kind, names, ["big"], **attributes),
            _node("ReduceMax", ["big"], ["most"], keepdims=0),
            _node("Cast", ["most"], ["float"], to=1),
            constants=dict(zip(names, map(np.asarray, constants), strict=True)),
        )
        model.graph.node[-1].input[0] = "sum"
        model.graph.node.insert(len(model.graph.node) - 1, _node("Add", ["a", "float"], ["sum"]))

    return change


def _loop(model: Any, trips: int = LOOPS, body: list[Any] | None = None) -> None:
    """A Loop of so many trips."""
    from onnx import TensorProto, helper

    ends = [_value("i", [], TensorProto.INT64), _value("more", [], TensorProto.BOOL), _value("v", None)]
    out = [_value("going", [], TensorProto.BOOL), _value("next", None)]
    nodes = body or [_node("Add", ["v", "v"], ["next"])]
    graph = helper.make_graph([_node("Identity", ["more"], ["going"]), *nodes], "body", ends, out)
    constants = {"trips": _int64(trips), "yes": _bool(True)}
    _before(model, _node("Loop", ["trips", "yes", "x"], ["looped"], body=graph), constants=constants)
    model.graph.node[1].input[0] = "looped"


def _int64(*values: int) -> Any:
    import numpy as np

    return np.array(values[0] if len(values) == 1 else values, "int64")


def _bool(value: bool) -> Any:
    import numpy as np

    return np.array(value)


def _nested_ifs(depth: int) -> Change:
    """If in If: as bytes, because protobuf writes no deeper than it reads."""

    def change(model: Any) -> bytes:
        inner = _field(1, _node("Identity", ["x"], ["t"]).SerializeToString()) + _field(2, b"g")
        inner += _field(12, _value("t", None).SerializeToString())
        for _ in range(depth):
            branches = b"".join(
                _field(5, _field(1, name) + _field(6, inner if name == b"then_branch" else b"") + b"\xa0\x01\x05")
                for name in (b"then_branch", b"else_branch")
            )
            node = _field(1, b"yes") + _field(2, b"t") + _field(4, b"If") + branches
            inner = _field(1, node) + _field(2, b"g") + _field(12, _value("t", None).SerializeToString())
        model.graph.initializer.append(_tensor("yes", _bool(True)))
        return bytes(model.SerializeToString()) + _field(7, inner)

    return change


def _field(number: int, data: bytes) -> bytes:
    """A field of protobuf that holds bytes."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _cyclic(model: Any) -> None:
    model.graph.node[0].input[0] = "a"


def _many_nodes(model: Any) -> None:
    tail = model.graph.node.pop()
    names = ["a", *(f"n{i}" for i in range(50_000))]
    for before, after in itertools.pairwise(names):
        model.graph.node.append(_node("Relu", [before], [after]))
    tail.input[0] = names[-1]
    model.graph.node.append(tail)


def _many_empty_nodes(model: Any) -> bytes:
    """20 MB that become gigabytes of objects."""
    return bytes(model.SerializeToString()) + _field(7, _field(1, b"") * 10_000_000)


def _training(model: Any) -> None:
    model.training_info.add().algorithm.CopyFrom(model.graph)


def _functions(depth: int, recursive: bool = False) -> Change:
    """A function that calls another twice, and so on: 2^depth nodes once they are all written out."""

    def change(model: Any) -> None:
        from onnx import helper

        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
        for i in range(depth):
            inner = f"f{i + 1}" if i + 1 < depth else "f0" if recursive else ""
            kind = {"domain": "mine"} if inner else {}
            nodes = [
                _node(inner or "Relu", ["u"], ["v"], **kind),
                _node(inner or "Relu", ["v"], ["w"], **kind),
            ]
            model.functions.append(helper.make_function("mine", f"f{i}", ["u"], ["w"], nodes, opsets))
        model.opset_import.add(domain="mine", version=1)
        model.graph.node[2].op_type, model.graph.node[2].domain = "f0", "mine"

    return change


def _set(**fields: Any) -> Change:
    """Fields of the model."""

    def change(model: Any) -> None:
        for name, value in fields.items():
            setattr(model, name, value)

    return change


def _opset(version: int) -> Change:
    def change(model: Any) -> None:
        model.opset_import[0].version = version

    return change


def _without(field: str) -> Change:
    """A part of the graph that is not there."""
    return lambda model: model.graph.ClearField(field)


def _twice(field: str) -> Change:
    """A part of the graph that is there twice."""

    def change(model: Any) -> None:
        part = getattr(model.graph, field)
        part.append(part[0])

    return change


def _untyped(model: Any) -> None:
    model.graph.input[0].ClearField("type")


def _shapeless(model: Any) -> None:
    model.graph.input[0].type.tensor_type.ClearField("shape")


def _sequence(model: Any) -> None:
    from onnx import helper

    made = helper.make_tensor_sequence_value_info("x", 1, None)
    model.graph.input[0].CopyFrom(made)


_GRAPHS: dict[str, Change] = {
    "loop-of-2-62": _loop,
    "loop-that-grows": lambda m: _loop(m, 2**40, [_node("Concat", ["v", "v"], ["next"], axis=0)]),
    "ifs-10000-deep": _nested_ifs(10_000),
    "cycle": _cyclic,
    "nodes-50000": _many_nodes,
    "empty-nodes-10-million": _many_empty_nodes,
    "training-graph": _training,
    "functions-2-to-the-60": _functions(60),
    "function-that-calls-itself": _functions(3, recursive=True),
    "no-nodes": _without("node"),
    "no-inputs": _without("input"),
    "no-outputs": _without("output"),
    "no-graph": lambda m: m.ClearField("graph"),
    "no-opset": lambda m: m.ClearField("opset_import"),
    "outputs-twice": _twice("output"),
    "inputs-twice": _twice("input"),
    "opset-10-to-the-9": _opset(10**9),
    "opset-0": _opset(0),
    "opset-twice": lambda m: m.opset_import.add(domain="", version=3),
    "ir-version-10-to-the-9": _set(ir_version=10**9),
    "ir-version-0": _set(ir_version=0),
    "untyped-input": _untyped,
    "shapeless-input": _shapeless,
    "sequence-input": _sequence,
}


def _scalars(model: Any) -> None:
    """One number in, one out."""
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.append(_node("Relu", ["x"], ["y"]))
    _shape_of(model.graph.input[0])
    _shape_of(model.graph.output[0])


_SHAPES: dict[str, Change] = {
    "input-2-40-by-4": _input(HUGE, 4),
    "input-batch-by-2-40": _input("batch", HUGE),
    "input-negative": _input("batch", -4),
    "input-zero": _input("batch", 0),
    "input-scalar": _input(),
    "scalars": _scalars,
    "input-of-65-axes": _input(*["batch", *[1] * 64]),
    "output-2-40": _output("batch", HUGE),
    "input-string": _typed(8),
    "input-type-9999": _typed(9999),
}


def _renamed(name: str | bytes, escape: bytes = b"@NAME@") -> Change:
    """The input under another name, which may be no text."""

    def change(model: Any) -> bytes:
        raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass")
        filler = "N" * len(raw)
        model.graph.input[0].name = model.graph.node[0].input[0] = filler
        return bytes(model.SerializeToString()).replace(filler.encode(), raw)

    return change


def _weight_called(name: str) -> Change:
    """A weight with NaN, under a name that an error tells."""

    def change(model: Any) -> None:
        model.graph.initializer[1].CopyFrom(_tensor(name, __import__("numpy").array([float("nan")] * 3, "float32")))
        model.graph.node[1].input[1] = name

    return change


ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\x08\u202e"
_NAMES: dict[str, Change] = {
    "name-of-5-mb": _renamed("n" * 5_000_000),
    "name-with-nul": _renamed("a\0b"),
    "name-with-escapes": _renamed(ESCAPES),
    "name-that-climbs": _renamed("../../../climbed"),
    "name-labels": _renamed("labels"),
    "name-with-newlines": _renamed("a\nedgecompress: error: b"),
    "name-with-markup": _renamed("[red]x[/red][/]"),
    "name-empty": _renamed(""),
    "weight-with-escapes": _weight_called(ESCAPES),
    "weight-of-5-mb": _weight_called("w" * 5_000_000),
}


def _kind(kind: str, domain: str = "") -> Change:
    """Another operator in the last one's place."""

    def change(model: Any) -> None:
        model.graph.node[2].op_type, model.graph.node[2].domain = kind, domain
        if domain and domain not in {each.domain for each in model.opset_import}:
            model.opset_import.add(domain=domain, version=1)

    return change


def _conv(**attributes: Any) -> Change:
    """A convolution of the input as a line of pixels."""

    def change(model: Any) -> None:
        import numpy as np

        _before(
            model,
            _node("Unsqueeze", ["x", "axis"], ["line"]),
            _node("Conv", ["line", "kernel"], ["filtered"], **attributes),
            _node("ReduceMax", ["filtered"], ["most"], keepdims=0),
            _node("Add", ["x", "most"], ["sum"]),
            constants={"axis": _int64(1).reshape(1), "kernel": np.ones((1, 1, 3), "float32")},
        )
        model.graph.node[4].input[0] = "sum"

    return change


def _regex(model: Any) -> None:
    """An expression that a matcher which goes back never ends."""
    import numpy as np

    text = np.array(["a" * 60 + "!"], object)
    _before(
        model,
        _node("RegexFullMatch", ["text"], ["full"], pattern="(a+)+$"),
        _node("Cast", ["full"], ["float"], to=1),
        _node("Add", ["x", "float"], ["sum"]),
        constants={"text": text},
    )
    model.graph.node[3].input[0] = "sum"


def _numpy(name: str) -> Any:
    import numpy as np

    return getattr(np, name)


_OPERATORS: dict[str, Change] = {
    "operator-of-its-own": _kind("Swirl", "mine"),
    "operator-unknown": _kind("Swirl"),
    "operator-with-escapes": _kind(ESCAPES),
    "operator-of-python": _kind("PyOp", "ai.onnx.contrib"),
    "constant-of-shape-2-40": _added("ConstantOfShape", _int64(HUGE).reshape(1)),
    "constant-of-shape-2-31": _added("ConstantOfShape", _int64(2**31).reshape(1)),
    "constant-of-shape-negative": _added("ConstantOfShape", _int64(-4).reshape(1)),
    "range-2-40": _added("Range", _int64(0), _int64(HUGE), _int64(1)),
    "expand-2-40": _added("Expand", _numpy("float32")([1]), _int64(HUGE).reshape(1)),
    "random-2-40": _added("RandomNormal", shape=[HUGE]),
    "reshape-to-what-does-not-fit": _added("Reshape", _numpy("float32")([1]), _int64(7).reshape(1)),
    "div-by-0": _added("Div", _int64(1).reshape(1), _int64(0).reshape(1)),
    "conv-group-0": _conv(group=0),
    "conv-stride-0": _conv(strides=[0]),
    "conv-pads-2-40": _conv(pads=[HUGE, HUGE]),
    "regex-that-never-ends": _regex,
}


def _weight(**fields: Any) -> Change:
    """Fields of the first weight; a list takes the place of what was there."""

    def change(model: Any) -> None:
        tensor = model.graph.initializer[0]
        for name, value in fields.items():
            if isinstance(value, list):
                del getattr(tensor, name)[:]
                getattr(tensor, name).extend(value)
            else:
                setattr(tensor, name, value)

    return change


def _not_a_number(model: Any) -> None:
    import numpy as np

    model.graph.initializer[0].CopyFrom(_tensor("w", np.full((4, 3), np.nan, "float32")))


def _sparse_weight(model: Any) -> None:
    """Few values in a shape that no memory holds."""
    made = model.graph.sparse_initializer.add()
    made.values.CopyFrom(_tensor("w", _numpy("float32")([1])))
    made.indices.CopyFrom(_tensor("", _int64(0).reshape(1)))
    made.dims.extend([HUGE, HUGE])
    del model.graph.initializer[0]


_WEIGHTS: dict[str, Change] = {
    "weight-dims-2-40": _weight(dims=[HUGE, 4]),
    "weight-dims-negative": _weight(dims=[-4, -3]),
    "weight-too-short": _weight(raw_data=b"\0" * 5),
    "weight-type-9999": _weight(data_type=9999),
    "weight-string": _weight(data_type=8),
    "weight-in-two-fields": _weight(float_data=[1.0] * 12),
    "weight-nan": _not_a_number,
    "weight-sparse-2-80": _sparse_weight,
    "weight-external-in-name-only": _weight(data_location=1),
}


def _external() -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Weights that lie elsewhere: {key: value} of the reference, and what is beside the model."""
    for name, location in {
        "climbs": "../secret.bin",
        "absolute": "/etc/passwd",
        "of-a-device": "/dev/zero",
        "empty": "",
        "of-a-folder": "inner",
        "not-there": "nothing.bin",
        "with-nul": "a\0b",
        "with-escapes": ESCAPES,
        "of-4096-characters": "a/" * 2048,
        "of-the-model": "net.onnx",
    }.items():
        yield name, lambda folder, location=location: _reference(folder, {"location": location})
    for name, more in {
        "offset-negative": {"offset": "-1"},
        "offset-2-62": {"offset": str(LOOPS)},
        "length-2-40": {"length": str(HUGE)},
        "key-unknown": {"execute": "rm -rf /"},
    }.items():
        yield name, lambda folder, more=more: _reference(folder, {"location": "weights.bin", **more})
    yield "no-location", lambda folder: _reference(folder, {"offset": "0"})
    for name, make in irregular("weights.bin"):
        yield f"is-{name}", lambda folder, make=make: (make(folder), _reference(folder, {"location": "weights.bin"}))[0]
    yield "link-out", _link_out
    yield "link-of-a-folder-out", _folder_link_out
    yield "hard-link", _hard_link
    yield "in-an-attribute", _in_an_attribute


def _reference(folder: Path, entries: dict[str, str]) -> None:
    """A model whose weight is said to lie elsewhere, and a sound file of that weight beside it."""
    model = _model()
    weight = model.graph.initializer[0]
    beside = folder / "weights.bin"
    if not beside.is_symlink() and not beside.exists():
        beside.write_bytes(weight.raw_data)
    (folder.parent / "secret.bin").write_bytes(b"secret" * 8)
    (folder / "inner").mkdir(exist_ok=True)
    _point(weight, entries)
    (folder / "net.onnx").write_bytes(model.SerializeToString())


def _point(weight: Any, entries: dict[str, str]) -> None:
    weight.ClearField("raw_data")
    weight.data_location = 1
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)


def _link_out(folder: Path) -> None:
    (folder / "weights.bin").symlink_to("../secret.bin")
    _reference(folder, {"location": "weights.bin"})


def _folder_link_out(folder: Path) -> None:
    (folder / "out").symlink_to("..")
    _reference(folder, {"location": "out/secret.bin"})


def _hard_link(folder: Path) -> None:
    (folder.parent / "secret.bin").write_bytes(b"secret" * 8)
    os.link(folder.parent / "secret.bin", folder / "weights.bin")
    _reference(folder, {"location": "weights.bin"})


def _in_an_attribute(folder: Path) -> None:
    (folder.parent / "secret.bin").write_bytes(b"secret" * 8)
    model = _model()
    weight = model.graph.initializer[0]
    _point(weight, {"location": "../secret.bin"})
    _before(model, _node("Constant", [], ["w"], value=weight))
    del model.graph.initializer[0]
    (folder / "net.onnx").write_bytes(model.SerializeToString())


def _onnx_bytes() -> Iterator[tuple[str, bytes]]:
    yield from _junk()
    yield from _damaged(_plain(), "onnx", cuts=5, flips=8)


def _junk() -> Iterator[tuple[str, bytes]]:
    """What is no model of any kind."""
    seeded = random.Random(17)
    yield "empty", b""
    yield "one-byte", b"\n"
    yield "noise", seeded.randbytes(4096)
    yield "noise-1-mb", seeded.randbytes(1 << 20)
    yield "zeros-16-mb", b"\0" * (16 << 20)
    yield "a-page", b"<html><script>alert(1)</script></html>"
    yield "a-script", b"#!/bin/sh\ntouch executed\n"
    yield "a-pickle", b"cos\nsystem\n(S'touch executed'\ntR."
    yield "a-zip", zipped({"../../climbed": b"x"})


def _damaged(data: bytes, name: str, cuts: int, flips: int) -> Iterator[tuple[str, bytes]]:
    """The data cut off, and with a bit turned, at places that a seed chooses."""
    seeded = random.Random(name)
    for at in sorted(seeded.sample(range(1, len(data)), cuts)):
        yield f"cut-at-{at}", data[:at]
    for _ in range(flips):
        at, bit = seeded.randrange(len(data)), seeded.randrange(8)
        turned = bytearray(data)
        turned[at] ^= 1 << bit
        yield f"flip-{at}-{bit}", bytes(turned)


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A .zip, its entries as named."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, method)
    return out.getvalue()


_SOUND = (  # odd, and a net
    *("nodes-50000", "training-graph", "outputs-twice", "regex-that-never-ends"),
    *("name-that-climbs", "name-labels", "name-with-markup"),
    *("external-key-unknown", "scalars"),
)


def _codes(name: str) -> tuple[int, ...]:
    return EITHER if name in _SOUND or name.startswith("flip") else (2,)


# --------------------------------------------------------------------------- TFLite


def _tflite() -> Iterator[Hostile]:
    for name, change in _LITE.items():
        make = lambda folder, change=change: _lite_file(folder, change)  # noqa: E731 - one per case
        yield Hostile(f"tflite/{name}", TFLITE, make, _lite_codes(name), slow=name == "while-true")
    for name, data in (*_junk(), *_lite_bytes()):
        yield Hostile(f"tflite/{name}", TFLITE, written("net.tflite", data), _lite_codes(name))
    for name, make in pipes("net.tflite"):
        yield Hostile(f"tflite/{name}", TFLITE, make)


def _lite_file(folder: Path, change: Change) -> None:
    model = _lite()
    change(model)
    (folder / "net.tflite").write_bytes(_lite_packed(model))


def _lite() -> Any:
    """x [1, 4] -> y [1, 3]: one FULLY_CONNECTED."""
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    model, graph, code, node = schema.ModelT(), schema.SubGraphT(), schema.OperatorCodeT(), schema.OperatorT()
    weights = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    model.version, model.buffers = 3, [schema.BufferT(), schema.BufferT()]
    model.buffers[1].data = np.frombuffer(weights.tobytes(), np.uint8)
    graph.tensors = [_lite_tensor(*each) for each in (("x", [1, 4], 0), ("w", [3, 4], 1), ("y", [1, 3], 0))]
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.FULLY_CONNECTED
    node.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    node.builtinOptions = schema.FullyConnectedOptionsT()
    node.opcodeIndex, node.inputs, node.outputs = 0, [0, 1, -1], [2]
    graph.operators, graph.inputs, graph.outputs = [node], [0], [2]
    model.operatorCodes, model.subgraphs = [code], [graph]
    return model


def _lite_tensor(name: str, shape: list[int], buffer: int) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name, shape, 0, buffer
    return tensor


def _lite_packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _graph(**fields: Any) -> Change:
    return lambda model: vars(model.subgraphs[0]).update(fields)


def _lite_input(**fields: Any) -> Change:
    return lambda model: vars(model.subgraphs[0].tensors[0]).update(fields)


def _lite_weight(**fields: Any) -> Change:
    return lambda model: vars(model.subgraphs[0].tensors[1]).update(fields)


def _op(**fields: Any) -> Change:
    return lambda model: vars(model.subgraphs[0].operators[0]).update(fields)


def _code(**fields: Any) -> Change:
    return lambda model: vars(model.operatorCodes[0]).update(fields)


def _quantized(scale: list[float], zero: list[int], axis: int = 0) -> Change:
    def change(model: Any) -> None:
        from ai_edge_litert import schema_py_generated as schema

        how = schema.QuantizationParametersT()
        how.scale, how.zeroPoint, how.quantizedDimension = scale, zero, axis
        tensor = model.subgraphs[0].tensors[0]
        tensor.quantization, tensor.type = how, schema.TensorType.INT8

    return change


def _calls(kind: str, options: str, **fields: Any) -> Change:
    """An operator that runs another graph of the file, which may be its own."""

    def change(model: Any) -> None:
        from ai_edge_litert import schema_py_generated as schema

        model.operatorCodes[0].builtinCode = getattr(schema.BuiltinOperator, kind)
        model.operatorCodes[0].deprecatedBuiltinCode = min(127, model.operatorCodes[0].builtinCode)
        node = model.subgraphs[0].operators[0]
        node.builtinOptionsType = getattr(schema.BuiltinOptions, options)
        node.builtinOptions = getattr(schema, f"{options}T")()
        vars(node.builtinOptions).update(fields)
        node.inputs, node.outputs = [0], [2]

    return change


def _forever(model: Any) -> None:
    """WHILE true."""
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    _calls("WHILE", "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)(model)
    model.subgraphs[0].tensors = [
        _lite_tensor("x", [1, 4], 0),
        _lite_tensor("w", [3, 4], 1),
        _lite_tensor("y", [1, 4], 0),
    ]
    model.buffers.append(schema.BufferT())
    model.buffers[-1].data = np.ones(1, np.uint8)
    yes = _lite_tensor("yes", [1], len(model.buffers) - 1)
    yes.type = schema.TensorType.BOOL
    condition, body = schema.SubGraphT(), schema.SubGraphT()
    condition.tensors, condition.inputs, condition.outputs = [_lite_tensor("v", [1, 4], 0), yes], [0], [1]
    body.tensors, body.inputs, body.outputs = [_lite_tensor("v", [1, 4], 0)], [0], [0]
    condition.operators, body.operators = [], []
    model.subgraphs += [condition, body]


def _lite_signature(tensor: int, graph: int) -> Change:
    def change(model: Any) -> None:
        from ai_edge_litert import schema_py_generated as schema

        signature, entry = schema.SignatureDefT(), schema.TensorMapT()
        entry.name, entry.tensorIndex = "x", tensor
        signature.inputs, signature.outputs, signature.subgraphIndex = [entry], [], graph
        signature.signatureKey = "serving_default"
        model.signatureDefs = [signature]

    return change


def _sparsity(model: Any) -> None:
    """A weight that is said to be sparse, in a shape that no memory holds."""
    from ai_edge_litert import schema_py_generated as schema

    how, dimension = schema.SparsityParametersT(), schema.DimensionMetadataT()
    dimension.format, dimension.denseSize = 0, 2**31 - 1
    how.traversalOrder, how.dimMetadata = [0, 1], [dimension, dimension]
    model.subgraphs[0].tensors[1].sparsity = how
    model.subgraphs[0].tensors[1].shape = [2**31 - 1, 2**31 - 1]


def _placed(offset: int, size: int) -> Change:
    """A buffer that lies behind the file's tables."""

    def change(model: Any) -> None:
        model.buffers[1].data, model.buffers[1].offset, model.buffers[1].size = None, offset, size

    return change


_LITE: dict[str, Change] = {
    "input-2-31-by-4": _lite_input(shape=[2**31 - 1, 4]),
    "input-negative": _lite_input(shape=[-1, -4]),
    "input-scalar": _lite_input(shape=[]),
    "input-zero": _lite_input(shape=[0, 4]),
    "input-string": _lite_input(type=5),
    "input-type-127": _lite_input(type=127),
    "name-with-escapes": _lite_input(name=ESCAPES),
    "name-with-nul": _lite_input(name="a\0b"),
    "name-of-5-mb": _lite_input(name="n" * 5_000_000),
    "name-that-climbs": _lite_input(name="../../climbed"),
    "weight-2-31": _lite_weight(shape=[2**31 - 1, 4]),
    "weight-of-another-size": _lite_weight(shape=[300, 400]),
    "weight-sparse": _sparsity,
    "buffer-not-there": _lite_weight(buffer=9999),
    "buffer-outside": _placed(2**40, 64),
    "buffer-before-the-file": _placed(2**64 - 16, 64),
    "no-outputs": _graph(outputs=[]),
    "no-inputs": _graph(inputs=[]),
    "no-operators": _graph(operators=[]),
    "no-graphs": lambda model: vars(model).update(subgraphs=[]),
    "output-not-there": _graph(outputs=[9999]),
    "inputs-100000": _graph(inputs=[0] * 100_000),
    "operand-not-there": _op(inputs=[0, 9999, -1]),
    "result-not-there": _op(outputs=[9999]),
    "operator-that-reads-its-result": _op(inputs=[2, 1, -1]),
    "operator-code-not-there": _op(opcodeIndex=9999),
    "operator-without-options": _op(builtinOptions=None, builtinOptionsType=0),
    "operator-of-its-own": _code(builtinCode=32, deprecatedBuiltinCode=32, customCode="Swirl"),
    "operator-with-escapes": _code(builtinCode=32, deprecatedBuiltinCode=32, customCode=ESCAPES),
    "operator-unknown": _code(builtinCode=10**6, deprecatedBuiltinCode=127),
    "operator-version-2-31": _code(version=2**31 - 1),
    "graph-that-runs-itself": _calls("IF", "IfOptions", thenSubgraphIndex=0, elseSubgraphIndex=0),
    "graph-not-there": _calls("IF", "IfOptions", thenSubgraphIndex=99, elseSubgraphIndex=-7),
    "while-true": _forever,
    "signature-of-no-tensor": _lite_signature(9999, 0),
    "scale-0": _quantized([0.0], [0]),
    "scale-nan": _quantized([float("nan")], [0]),
    "scale-along-no-axis": _quantized([1.0, 1.0], [0, 0], axis=999),
}
_LITE_SOUND = (  # to be read: a name that is none gets one of ours
    *("input-zero", "name-that-climbs", "name-with-escapes", "name-with-nul", "name-of-5-mb"),
    *("operator-without-options", "inputs-100000"),
)


def _lite_codes(name: str) -> tuple[int, ...]:
    return EITHER if name in _LITE_SOUND or name.startswith("flip") else (2,)


@cache
def _lite_plain() -> bytes:
    return _lite_packed(_lite())


def _lite_bytes() -> Iterator[tuple[str, bytes]]:
    data = _lite_plain()
    for name, at in {"root-far-away": 2**32 - 1, "root-at-itself": 0, "root-behind": len(data)}.items():
        yield name, struct.pack("<I", at) + data[4:]
    yield "magic-only", b"\0\0\0\0TFL3"
    yield "table-that-is-its-own", struct.pack("<I4sIi", 8, b"TFL3", 0, 0) + b"\0" * 64
    yield "vector-of-2-31", data.replace(struct.pack("<I", 48), struct.pack("<I", 2**31), 1)
    yield from _damaged(data, "tflite", cuts=5, flips=8)


# --------------------------------------------------------------------------- Keras, SavedModel


def _tensorflow() -> Iterator[Hostile]:
    """Refused unread with --untrusted; without it, what is damaged is one line, and a Lambda never runs."""
    words = ("deploy", "--data", "random", "--until", "source", "--target", "litert.toml")
    for name, data in _keras().items():
        yield Hostile(f"keras/{name}", (*words, "net.keras", "--untrusted"), written("net.keras", data))
    for name in ("lambda", "climbs", "a-pickle", "class-of-python"):
        yield Hostile(f"keras/{name}-trusted", (*words, "net.keras"), written("net.keras", _keras()[name]), slow=True)
    for name, make in pipes("net.keras"):
        yield Hostile(f"keras/{name}", (*words, "net.keras", "--untrusted"), make)
    for name, data in {**dict(_junk()), "nested-2000-deep": _nested(2000)}.items():
        place = written("saved/saved_model.pb", data)
        yield Hostile(f"savedmodel/{name}", (*words, "saved", "--untrusted"), place)
    for name in ("empty", "noise", "nested-2000-deep"):
        data = {**dict(_junk()), "nested-2000-deep": _nested(2000)}[name]
        make_ = written("saved/saved_model.pb", data)
        yield Hostile(f"savedmodel/{name}-trusted", (*words, "saved"), make_, slow=True)
    for name, make in pipes("saved/saved_model.pb"):
        yield Hostile(f"savedmodel/{name}", (*words, "saved", "--untrusted"), make)


def _nested(depth: int) -> bytes:
    inner = b""
    for _ in range(depth):
        inner = _field(2, inner)
    return inner


def _keras() -> dict[str, bytes]:
    lambda_ = {"class_name": "Lambda", "config": {"function": {"class_name": "__lambda__", "config": {"code": "4wA="}}}}
    python = {"module": "builtins", "class_name": "exec", "config": {"source": "open('executed','w')"}}
    system = {"module": "os", "class_name": "system", "config": {"command": "touch executed"}}
    return {
        **dict(_junk()),
        "lambda": _keras_file({"class_name": "Sequential", "config": {"layers": [lambda_]}}),
        "class-of-python": _keras_file(python),
        "class-of-os": _keras_file(system),
        "climbs": zipped({"../../climbed": b"x", "/tmp/climbed": b"x", "config.json": b"{}"}),
        "bomb": zipped({"config.json": b"0" * (64 << 20), "model.weights.h5": b""}),
        "config-nested": zipped({"config.json": b"[" * 100_000, "metadata.json": b"{}", "model.weights.h5": b""}),
        "config-nan": zipped({"config.json": b"NaN", "metadata.json": b"{}", "model.weights.h5": b""}),
    }


def _keras_file(config: Any) -> bytes:
    whole = {"module": "keras", "registered_name": None, **config}
    texts = {"config.json": whole, "metadata.json": {"keras_version": "3.0.0", "date_saved": ""}}
    return zipped({**{k: json.dumps(v).encode() for k, v in texts.items()}, "model.weights.h5": b""})


# --------------------------------------------------------------------------- torch


def _torch() -> Iterator[Hostile]:
    words = ("deploy", "net.pt2", "--data", "data", "--target", "onnx.toml", "--until", "source")
    files = {**dict(_junk()), "pickle-in-a-zip": zipped({"net/data.pkl": b"cos\nsystem\n(S'touch executed'\ntR."})}
    for name, data in files.items():
        yield Hostile(f"pt2/{name}", (*words, "--untrusted"), written("net.pt2", data))
    for name in ("empty", "noise", "a-zip"):
        yield Hostile(f"pt2/{name}-trusted", words, written("net.pt2", files[name]), slow=True)
    for name, make in pipes("net.pt2"):
        yield Hostile(f"pt2/{name}", (*words, "--untrusted"), make)
    for name, model in {"factory": "evil:build", "factory-of-os": "os:getcwd", "factory-shadow": "json:loads"}.items():
        made = ("deploy", model, "--data", "data", "--target", "onnx.toml", "--until", "source", "--untrusted")
        yield Hostile(f"pt2/{name}", made, written("evil.py", b"open('executed', 'w')"))
