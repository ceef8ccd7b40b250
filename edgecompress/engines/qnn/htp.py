"""The HTP of a chip: Qualcomm's compiler for it, and the emulator that onnxruntime-qnn brings for x86-64."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from edgecompress.core.errors import StageFailed, brief, first_line

if TYPE_CHECKING:
    import onnx
    import onnxruntime

PROVIDER = "QNNExecutionProvider"
KIND, FILE = "htp", "model.onnx"  # an ONNX file whose numbers are those that the HTP computes in
# What the HTP takes, or computes right, in half precision and not in whole numbers, by the bits of activations
HALF = {8: ("CumSum", "ReduceLogSumExp"), 16: ("PRelu", "ReduceLogSumExp")}
ONE_INPUT = ("CumSum", "ReduceLogSumExp")  # of those: between two scales they would be of whole numbers after all
MOST_AXES = 5  # of a tensor
EMULATOR = "Qualcomm's HTP emulator"
SCALING = ("QuantizeLinear", "DequantizeLinear")
SENTENCE = re.compile(r"(?<=[.])(?=[A-Z])|[.] ")  # ends: the compiler puts none between some
CONTEXT = "EPContext"  # the node that holds what was compiled
TRACE = "qnn_op_trace.json"  # what the compiler writes of where each node went

# fmt: off
Soc = Literal[
    "SM8350", "SM8450", "SM8475", "SM8550", "SM8650", "SM8750", "SM8845", "SM8850",
    "SC8380XP", "QCM6490", "QCS9100", "SA8255", "SA8295",
]
# fmt: on


@dataclass(frozen=True)
class Chip:
    """The number that QNN has for a chip, and the generation of its HTP (QNN_SOC_MODEL_* of the QNN SDK)."""

    number: int
    htp: int
    half: bool = True  # whether it computes in half precision


CHIPS: Mapping[str, Chip] = {
    "SM8350": Chip(30, 68),  # Snapdragon 888
    "SM8450": Chip(36, 69),  # Snapdragon 8 Gen 1
    "SM8475": Chip(42, 69),  # Snapdragon 8+ Gen 1
    "SM8550": Chip(43, 73),  # Snapdragon 8 Gen 2
    "SM8650": Chip(57, 75),  # Snapdragon 8 Gen 3
    "SM8750": Chip(69, 79),  # Snapdragon 8 Elite
    "SM8845": Chip(97, 81),  # Snapdragon 8 Gen 5
    "SM8850": Chip(87, 81),  # Snapdragon 8 Elite Gen 5
    "SC8380XP": Chip(60, 73),  # Snapdragon X Elite
    "QCM6490": Chip(93, 68, half=False),  # boards: RB3 Gen 2
    "QCS9100": Chip(77, 73),  # boards: IQ-9
    "SA8255": Chip(52, 73),  # cars
    "SA8295": Chip(39, 68),  # cars
}


class Left(TypedDict):
    """A node that the compiler does not take: its name and type in the file, and the compiler's reason."""

    name: str
    type: str
    why: str


@dataclass(frozen=True)
class Placement:
    """Where the nodes of a file went: how many operators the HTP runs, and those that it does not."""

    operators: int
    left: tuple[Left, ...]


def compiler() -> str:
    """`QNN 2.51.0 (onnxruntime-qnn 2.7.0)`."""
    from onnxruntime_qnn import build_and_package_info as built

    return f"QNN {built.qnn_version} (onnxruntime-qnn {metadata.version('onnxruntime-qnn')})"


@cache
def _devices() -> list[Any]:
    """The provider as ONNX Runtime knows it, registered once in a process. Raises StageFailed: it does not start."""
    import onnxruntime
    import onnxruntime_qnn

    def found() -> list[Any]:
        return [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]

    try:
        if not found():
            onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
        devices = found()
    except Exception as error:  # ONNX Runtime's own classes, which share no other
        raise StageFailed(
            f"runtime qnn: {EMULATOR} does not start on this machine ({first_line(error)}); it needs Linux on x86-64 "
            "with glibc 2.35 or later"
        ) from error
    if not devices:
        raise StageFailed(f"runtime qnn: onnxruntime-qnn found no device for {EMULATOR}; install it again")
    return devices[:1]


def session(
    file: Path, soc: str, how: onnxruntime.SessionOptions, fallback: bool = False, **more: str
) -> onnxruntime.InferenceSession:
    """A session on the HTP of a chip; without `fallback` no node may run on the CPU. Raises StageFailed.

    Floats are computed in half precision: the HTP has no other.
    """
    import onnxruntime
    import onnxruntime_qnn

    chip = CHIPS[soc]
    given = {
        "backend_path": onnxruntime_qnn.get_qnn_htp_path(),
        "soc_model": str(chip.number),
        "htp_arch": str(chip.htp),
        "enable_htp_fp16_precision": "1",
        "offload_graph_io_quantization": "0",
        **more,
    }
    how.add_provider_for_devices(_devices(), given)
    if not fallback:
        how.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        return onnxruntime.InferenceSession(file, how)
    except Exception as error:  # ONNX Runtime's own classes, which share no other
        told = brief(str(error).partition(" : ")[2].rpartition(" : ")[2] or str(error))
        hint = "" if chip.half else f"; {soc} has no half precision, so no operator may stay in floats"
        if "MEM_ALLOC" in told:
            hint = "; it names no operator: try a chip of another generation (--device), or another precision"
        raise StageFailed(f"runtime qnn: the compiler for {soc} (HTP v{chip.htp}): {told}{hint}") from error


def compiled(file: Path, context: Path, soc: str, how: onnxruntime.SessionOptions) -> Placement:
    """Writes the file compiled for a chip: `context` and its binary. Raises StageFailed where the compiler breaks."""
    import onnx

    how.add_session_config_entry("ep.context_enable", "1")
    how.add_session_config_entry("ep.context_file_path", str(context))
    how.add_session_config_entry("ep.context_embed_mode", "0")
    with tempfile.TemporaryDirectory() as folder:
        session(file, soc, how, True, enable_framework_op_trace="1", framework_op_trace_dir=folder)
        trace = Path(folder) / TRACE
        told = json.loads(trace.read_text(encoding="utf-8")) if trace.exists() else {}
    reasons = {node["node_name"]: node["reason"].rstrip(".") for node in told.get("unsupported_nodes", ())}
    # what is in the compiled file beside its context, or all where there is none: the trace does not list every node
    after = onnx.load_model(context if context.exists() else file, load_external_data=False).graph.node
    left = [node for node in after if node.op_type not in (CONTEXT, *(() if context.exists() else SCALING))]
    operators = told.get("summary", {}).get("total_qnn_ops", 0)
    graph = onnx.shape_inference.infer_shapes(onnx.load_model(file, load_external_data=False)).graph if left else None
    axes = {value.name: len(value.type.tensor_type.shape.dim) for value in (graph.value_info if graph else ())}
    return Placement(operators, tuple(_left(node, reasons.get(node.name, ""), axes) for node in left))


def _left(node: onnx.NodeProto, why: str, axes: Mapping[str, int]) -> Left:
    # the compiler's own sentences: the first one, and what it does not say
    why = SENTENCE.split(why or "the compiler gives no reason")[0].rstrip(".")
    if most := max((n for name in (*node.input, *node.output) if (n := axes.get(name, 0)) > MOST_AXES), default=0):
        why += f"; {most} axes, of {MOST_AXES} at most"
    return Left(name=node.name, type=node.op_type, why=why)
