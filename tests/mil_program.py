"""Writes small Core ML packages by hand, op by op: what the interpreter is checked on, with no converter between."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress.engines.coreml import mil, package
from edgecompress.engines.coreml.mil.dtypes import ALL, BY_NAME

NUMBERS = {np.dtype(d.numpy).name: d.number for d in ALL if d.bits >= 8}
FIELDS = {"float32": "floats", "int32": "ints", "int16": "ints", "uint16": "ints", "bool": "bools"}
MODEL = Path("Data", "com.apple.CoreML")


def messages() -> Any:
    return package.messages("MIL_pb2")


def describe(message: Any, number: int, shape: Sequence[int | None]) -> None:
    """Fills a ValueType."""
    message.tensorType.dataType, message.tensorType.rank = number, len(shape)
    for size in shape:
        dimension = message.tensorType.dimensions.add()
        if size is None:
            dimension.unknown.variadic = False
        else:
            dimension.constant.size = size


def value(given: Any) -> Any:
    """A Value written in the program: a string, or an array."""
    message = messages().Value()
    tensor = message.immediateValue.tensor
    if isinstance(given, str):
        describe(message.type, BY_NAME["string"].number, ())
        tensor.strings.values.append(given)
        return message
    array = np.asarray(given)
    describe(message.type, NUMBERS[array.dtype.name], array.shape)
    if field := FIELDS.get(array.dtype.name):
        getattr(tensor, field).values.extend(array.ravel().tolist())
        getattr(tensor, field).SetInParent()
    else:
        tensor.bytes.values = array.tobytes()
    return message


def weights(entries: Sequence[tuple[str, np.ndarray]]) -> tuple[bytes, list[int]]:
    """A weight.bin of arrays, 8 bits or wider, and the offsets by which a program finds them."""
    data, offsets = bytearray(struct.pack("<II", len(entries), 2).ljust(64, b"\0")), []
    for dtype, array in entries:
        offsets.append(len(data))
        begin = len(data) + 64
        data += struct.pack("<IIQQ", 0xDEADBEEF, BY_NAME[dtype].blob, array.nbytes, begin).ljust(64, b"\0")
        data += array.tobytes().ljust(-(-array.nbytes // 64) * 64, b"\0")
    return bytes(data), offsets


def stored(array: np.ndarray, offset: int, file: str = "@model_path/weights/weight.bin") -> Any:
    """A Value in weight.bin."""
    message = messages().Value()
    describe(message.type, NUMBERS[array.dtype.name], array.shape)
    message.blobFileValue.fileName, message.blobFileValue.offset = file, offset
    return message


class Writer:
    """One function: its inputs, then ops in order; `save` writes the package."""

    def __init__(self, opset: str = "CoreML8") -> None:
        self.model = package.messages("Model_pb2").Model()
        self.model.specificationVersion = 9
        self.function = self.model.mlProgram.functions["main"]
        self.function.opset = opset
        self.block = self.function.block_specializations[opset]

    def input(self, name: str, array: np.ndarray, shape: Sequence[int | None] | None = None) -> None:
        message = self.function.inputs.add()
        message.name = name
        describe(message.type, NUMBERS[array.dtype.name], array.shape if shape is None else shape)

    def const(self, name: str, given: Any) -> None:
        message = given if hasattr(given, "blobFileValue") else value(given)
        op = self.op("const", {}, {})
        out = op.outputs.add()
        out.name = name
        out.type.CopyFrom(message.type)
        op.attributes["val"].CopyFrom(message)

    def op(self, kind: str, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray]) -> Any:
        """`inputs`: names of values, or lists of them."""
        op = self.block.operations.add()
        op.type = kind
        for name, names in inputs.items():
            for bound in [names] if isinstance(names, str) else names:
                op.inputs[name].arguments.add().name = bound
        for name, array in outputs.items():
            out = op.outputs.add()
            out.name = name
            describe(out.type, NUMBERS[array.dtype.name], array.shape)
        return op

    def save(self, folder: Path, outputs: Sequence[str]) -> Path:
        self.block.outputs[:] = outputs
        (folder / MODEL).mkdir(parents=True, exist_ok=True)
        (folder / MODEL / "model.mlmodel").write_bytes(self.model.SerializeToString())
        return folder


def single(
    folder: Path, kind: str, arguments: Mapping[str, Any], results: Sequence[np.ndarray], fixed: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Runs one op: arrays, and each of a list of arrays, are inputs unless named in `fixed`; all else is constant."""
    writer, feeds, bound = Writer(), {}, {}
    for name, given in arguments.items():
        several = given if isinstance(given, list) and isinstance(given[0], np.ndarray | np.generic) else [given]
        bound[name] = [f"{name}_{i}" for i in range(len(several))]
        for key, one in zip(bound[name], several, strict=True):
            if isinstance(one, np.ndarray) and name not in fixed:
                writer.input(key, one)
                feeds[key] = one
            else:
                writer.const(key, one if isinstance(one, str | np.ndarray) else constant(one))
    outputs = {f"out_{i}": result for i, result in enumerate(results)}
    writer.op(kind, bound, outputs)
    return mil.load(writer.save(folder, list(outputs))).run(feeds)


def constant(given: Any) -> np.ndarray:
    """A Python value in the type that MIL has for it."""
    array = np.asarray(given)
    return array.astype({"i": "int32", "f": "float32", "b": "bool"}[array.dtype.kind])
