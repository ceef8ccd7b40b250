"""The runtimes' own int8 converters, called as their documentation has it, with what they take by default.

Each function takes the float model as edgecompress exports it, the calibration items (the model's inputs by name, one
item each) and an empty folder, and returns the artifact that the converter's file is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.core.model import Artifact, TensorSpec
from edgecompress.engines.litert import model_edits, model_file
from edgecompress.formats import torch_program

Items = Sequence[Mapping[str, Any]]  # numpy arrays
Vendor = Callable[[Artifact, Items, Path], Artifact]


def onnx_runtime(model: Artifact, items: Items, out: Path) -> Artifact:
    """onnxruntime.quantization.quantize_static behind quant_pre_process."""
    from onnxruntime.quantization import CalibrationDataReader, quant_pre_process, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rest = iter(items)

        def get_next(self) -> Any:
            return next(self.rest, None)

    prepared = out / "prepared.onnx"
    quant_pre_process(model.file(".onnx"), prepared, skip_symbolic_shape=True)
    quantize_static(prepared, out / "model.onnx", Reader())
    prepared.unlink()
    return Artifact(out, "onnx", model.inputs, model.outputs).write()


def nncf(model: Artifact, items: Items, out: Path) -> Artifact:
    """nncf.quantize."""
    import nncf
    import openvino

    net = openvino.Core().read_model(model.file(".xml"))
    openvino.save_model(nncf.quantize(net, nncf.Dataset(items)), out / "model.xml", compress_to_fp16=False)
    return Artifact(out, "openvino", model.inputs, model.outputs).write()


def ai_edge_quantizer(model: Artifact, items: Items, out: Path) -> Artifact:
    """ai_edge_quantizer's recipe static_wi8_ai8."""
    from ai_edge_quantizer import quantizer, recipe

    data = model_edits.completed(model.file(".tflite").read_bytes())
    work = quantizer.Quantizer(memoryview(data), recipe.static_wi8_ai8())
    signature = tflite_signature(data)
    ranges = work.calibrate({signature: [dict(item) for item in items]})
    return tflite_artifact(model, bytes(work.quantize(ranges).quantized_model), out)


def tflite_signature(data: bytes) -> str:
    from ai_edge_litert.interpreter import Interpreter

    return str(next(iter(Interpreter(model_content=data).get_signature_list())))


def tflite_converter(model: Artifact, items: Items, out: Path) -> Artifact:
    """tf.lite.TFLiteConverter; of a net of torch, which it does not read, its second half: calibrate and quantize."""
    return tflite_artifact(model, (from_savedmodel if model.kind == "savedmodel" else from_tflite)(model, items), out)


def from_savedmodel(model: Artifact, items: Items) -> bytes:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(model.path / "saved_model"))
    serve = loaded.signatures["serving_default"]
    fixed = {s.name: tf.TensorSpec(s.concrete(1), s.dtype, s.name) for s in model.inputs}
    call = tf.function(lambda **named: serve(**named)).get_concrete_function(**fixed)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([call], loaded)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([item[name] for name in sorted(fixed)] for item in items)
    return bytes(converter.convert())


def from_tflite(model: Artifact, items: Items) -> bytes:
    """What TFLiteConverter does to its own float file where experimental_new_quantizer is False (lite.py, `_quantize`).

    The new quantizer leaves the convolutions of litert-torch's files in float: what it makes is no int8.
    """
    from tensorflow.lite.python.optimize import calibrator
    from tensorflow.python.framework import dtypes

    data = calibrator.add_intermediate_tensors(model.file(".tflite").read_bytes())
    order = [spec.name for spec in model.inputs]
    return bytes(
        calibrator.Calibrator(data).calibrate_and_quantize(
            lambda: ([item[name] for name in order] for item in items), dtypes.float32, dtypes.float32, True
        )
    )


def tflite_artifact(model: Artifact, data: bytes, out: Path) -> Artifact:
    """The file with the names that edgecompress gave the float one."""
    specs = model.inputs, model.outputs
    data = model_edits.renamed(data, *({s.name: s.name for s in side} for side in specs))
    (out / "model.tflite").write_bytes(data)
    inputs, outputs = (
        like(*pair) for pair in zip(specs, model_file.inputs_and_outputs(data, "model.tflite"), strict=True)
    )
    return Artifact(out, "tflite", inputs, outputs).write()


def like(specs: Sequence[TensorSpec], written: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The specs with the dtypes and quantizations of the file."""
    pairs = zip(specs, written, strict=True)
    return tuple(dataclasses.replace(s, dtype=f.dtype, quantization=f.quantization) for s, f in pairs)


def xnnpack_quantizer(model: Artifact, items: Items, out: Path) -> Artifact:
    """ExecuTorch's XNNPACKQuantizer, per channel, through prepare_pt2e and convert_pt2e, then its XNNPACK delegate."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as library
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    net = torch_program.load(model.file(".pt2")).module(check_guards=False)
    quantizer = library.XNNPACKQuantizer().set_global(library.get_symmetric_quantization_config(is_per_channel=True))
    calls = [tuple(torch.from_numpy(item[spec.name]) for spec in model.inputs) for item in items]
    with torch.no_grad():
        prepared = prepare_pt2e(net, quantizer)
        for call in calls:
            prepared(*call)
        again = torch.export.export(convert_pt2e(prepared), calls[0])
    lowered = to_edge_transform_and_lower(again, partitioner=[XnnpackPartitioner()])
    (out / "model.pte").write_bytes(lowered.to_executorch().buffer)
    return Artifact(out, "pte", model.inputs, model.outputs, {"backend": "xnnpack"}).write()
