"""`python android_pipe.py RUNTIME MODEL`: the real runtime behind a pipe, for wrappers that run on a JVM."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Item = tuple[str, str, tuple[int, ...], bytes]  # name, dtype, shape, bytes
Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[Sequence[Item]], Sequence[tuple[str, Array]]]


def litert(model: str) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=model, num_threads=1)
    interpreter.allocate_tensors()

    def run(items: Sequence[Item]) -> list[tuple[str, Array]]:
        for detail, item in zip(interpreter.get_input_details(), items, strict=True):
            interpreter.set_tensor(detail["index"], np.frombuffer(item[3], detail["dtype"]).reshape(detail["shape"]))
        interpreter.invoke()
        return [
            (detail["name"], interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()
        ]

    return run


def onnx(model: str) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def run(items: Sequence[Item]) -> list[tuple[str, Array]]:
        given = {name: np.frombuffer(data, dtype).reshape(shape) for name, dtype, shape, data in items}
        return list(zip([output.name for output in session.get_outputs()], session.run(None, given), strict=True))

    return run


def qnn(model: str) -> Run:
    """The NPU: Qualcomm's emulator."""
    from pathlib import Path

    from edgecompress.engines.onnx.session import options
    from edgecompress.engines.qnn import htp

    session = htp.session(Path(model), "SM8650", options(1))

    def run(items: Sequence[Item]) -> list[tuple[str, Array]]:
        given = {name: np.frombuffer(data, dtype).reshape(shape) for name, dtype, shape, data in items}
        return list(zip([output.name for output in session.get_outputs()], session.run(None, given), strict=True))

    return run


def executorch(model: str) -> Run:
    import torch
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(model).load_method("forward")

    def run(items: Sequence[Item]) -> list[tuple[str, Array]]:
        given = [torch.from_numpy(np.frombuffer(data, dtype).reshape(shape).copy()) for _, dtype, shape, data in items]
        return [("", answer.numpy()) for answer in method.execute(given)]

    return run


def main() -> None:
    """Answers until the pipe is closed."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a runtime prints is no answer
    run = {"litert": litert, "onnx": onnx, "qnn": qnn, "executorch": executorch}[sys.argv[1]](sys.argv[2])
    while head := source.read(4):
        found = run([_item(source) for _ in range(struct.unpack(">i", head)[0])])
        sink.write(struct.pack(">i", len(found)))
        for name, array in found:
            for text in (name, str(array.dtype)):
                sink.write(struct.pack(">H", len(text.encode())) + text.encode())
            data = np.ascontiguousarray(array).tobytes()
            sink.write(struct.pack(">i", len(data)) + data)
        sink.flush()


def _item(source: Any) -> Item:
    name, dtype = (source.read(struct.unpack(">H", source.read(2))[0]).decode() for _ in range(2))
    axes = struct.unpack(">i", source.read(4))[0]
    shape = struct.unpack(f">{axes}q", source.read(8 * axes))
    return name, dtype, shape, source.read(struct.unpack(">i", source.read(4))[0])


if __name__ == "__main__":
    main()
