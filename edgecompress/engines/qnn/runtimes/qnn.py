"""Snapdragon's NPU: Qualcomm's compiler writes the context of a chip's HTP, its emulator runs that here."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import CARD, Artifact, Request
from edgecompress.engines.onnx import layer_outputs
from edgecompress.engines.onnx import session as onnx_session
from edgecompress.engines.onnx.graph_edits import is_quantized
from edgecompress.engines.qnn import htp

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime

    from edgecompress.core.json import Json
    from edgecompress.core.operations import Kernels, Operation
    from edgecompress.core.protocols import OperatorTimes

REQUIRES = ("onnxruntime-qnn>=2.7", "onnxruntime>=1.31", "onnx")
IMPORTS = ("onnxruntime", "onnxruntime_qnn")  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "qnn"
LICENCE = "onnxruntime-qnn brings Qualcomm's libraries, whose AI Stack License binds who installs it"
ACCELERATOR = "the HTP"
FORMAT = "qnn"
FIXED = True
NOT_OPENED = "is a compiled program for Qualcomm's emulator; if you trust its author, run `edgecompress verify`"
NO_ARENA = "Qualcomm's compiler does not report its memory plan"
NO_EMPTY = "its speed on an emulator says nothing"
READS: tuple[str, ...] = (htp.KIND,)

SIMULATED = htp.EMULATOR  # what runs it here: its speed says nothing
ESTIMATES = "the operators that Qualcomm's compiler places"  # of each artifact
NO_TIMES = "emulated: nothing was measured"

CONTEXT, FILE = "model_ctx.onnx", htp.FILE  # for the NPU; what it was compiled from, which a CPU can run
SHOWN = 5  # operators that an error names


@dataclass(frozen=True)
class Options:
    """For which chip, and whether the CPU may take what its HTP does not."""

    soc: htp.Soc = "SM8650"
    fallback: bool = False  # operators that the HTP does not take run on the CPU; false: they refuse the variant


# --------------------------------------------------------------------------- a file is compiled


def export(request: Request) -> Artifact:
    """The ONNX file, and its context for the chip beside it.

    facts: {"estimate": for which chip, by which compiler, and how many operators its HTP runs (it estimates no time),
    "fallback": the names of those that it leaves to the CPU}. Raises StageFailed where the compiler breaks, and for an
    operator that is left where none may be.
    """
    model, options = request.model, request.options
    shutil.copytree(model.path, request.out, ignore=shutil.ignore_patterns(CARD), dirs_exist_ok=True)
    facts = _compile(request.out, options.soc, options.fallback)
    if model.facts.get("given"):  # a source that came quantized is what it is
        facts["given"] = True
    return Artifact(request.out, FORMAT, model.inputs, model.outputs, facts).write()


def _compile(folder: Path, soc: htp.Soc, fallback: bool) -> dict[str, Any]:
    """Compiles a folder's file; returns the facts."""
    if not htp.CHIPS[soc].half and not is_quantized(folder / FILE):
        raise StageFailed(f"runtime qnn: {soc} has no half precision, which all of this is to be computed in")
    placed = htp.compiled(folder / FILE, folder / CONTEXT, soc, onnx_session.options(1))
    # scales go with the operators beside them
    left = [op for op in placed.left if op["type"] not in htp.SCALING] or [*placed.left]
    if (left and not fallback) or not (folder / CONTEXT).exists():
        named = ", ".join(f"{op['name']} ({op['type']}: {op['why']})" for op in left[:SHOWN])
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        remedy = "with --set variant.NAME.export.fallback=true the CPU runs them"
        remedy = remedy if placed.operators else "it takes none of the net"
        remedy = remedy if htp.CHIPS[soc].half else f"{soc} has no half precision; {remedy}"
        raise StageFailed(f"runtime qnn: the HTP of {soc} does not take {named}{more}; {remedy}")
    chip = htp.CHIPS[soc]
    compiled = {"source": htp.compiler(), "accelerator": f"HTP v{chip.htp}", "system": soc}
    counts = {"npu_operators": placed.operators, "cpu_operators": len(left), "fallback": left}
    return {
        "estimate": {"status": "estimated", **compiled, **counts, "reason": NO_TIMES},
        "fallback": [op["name"] for op in left],
        "soc": soc,
    }


# --------------------------------------------------------------------------- what the file tells


def alone(options: Mapping[str, Json]) -> bool:
    """Whether no operator may be left to the CPU."""
    return not options.get("fallback", Options.fallback)


def kernels(operation: Operation, precision: str) -> Kernels:
    """What it makes of an operator in a variant of that precision."""
    from edgecompress.engines.qnn import kernels as qnn_kernels

    return qnn_kernels.kernels(operation, precision)


def compiled(artifact: Artifact) -> list[tuple[Operation, Kernels]]:
    """What the compiler made of each operator of its file."""
    from edgecompress.engines.qnn import kernels as qnn_kernels

    return qnn_kernels.compiled(artifact)


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """That of the file that was compiled; its floats are of half precision on the HTP."""
    from edgecompress.engines.onnx import precision as onnx_precision
    from edgecompress.formats.precision import walk

    counted = walk.weights_and_computes(onnx_precision.net(artifact.file(FILE)))
    weights, computes = ({} for _ in counted)  # type: ignore[var-annotated]
    for told, own in zip(counted, (weights, computes), strict=True):
        for word, count in told.items():
            word = "fp16" if word == "fp32" else word
            own[word] = own.get(word, 0) + count
    return weights, computes


# --------------------------------------------------------------------------- a session


def open(artifact: Artifact, threads: int, profile: bool = False) -> QnnSession:
    """A session of the context on the emulator, with no node on the CPU but those that it left there."""
    return QnnSession(artifact, threads, profile, (htp.PROVIDER,))


class QnnSession(onnx_session.OnnxSession):
    """A context opened on the emulated HTP of its chip."""

    suffix = CONTEXT

    def __init__(self, artifact: Artifact, threads: int, profile: bool, providers: Sequence[str]) -> None:
        self.soc, self.left = str(artifact.facts["soc"]), list(artifact.facts["fallback"])
        if self.soc not in htp.CHIPS:
            raise StageFailed(f"runtime qnn: {artifact.path}: its chip '{self.soc:.40}' is unknown; deploy again")
        super().__init__(artifact, threads, profile, providers)

    def _session(self, how: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        return htp.session(self.file, self.soc, how, fallback=bool(self.left))

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """No times, and why; the operators that the compiler left on the CPU."""
        return {"ops": [], "why": NO_TIMES, "fallback": self.left}


def tapped(request: Request) -> Artifact:
    """The input "model" with what its layers answer as further outputs, compiled once more; facts: {"taps": [row]}."""
    model = request.model
    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as folder:
        before, scratch = Path(folder) / "before", Path(folder) / "tapped"
        before.mkdir()
        scratch.mkdir()
        (before / FILE).write_bytes(model.file(FILE).read_bytes())
        net = dataclasses.replace(model, path=before, kind=htp.KIND)
        found = layer_outputs.tapped(dataclasses.replace(request, inputs={**request.inputs, "model": net}, out=scratch))
        (request.out / FILE).write_bytes((scratch / FILE).read_bytes())
    facts = _compile(request.out, model.facts["soc"], fallback=bool(model.facts["fallback"]))
    halves = {"float32": "float16"}  # what the HTP computes floats in
    taps = [{**row, "dtype": halves.get(row["dtype"], row["dtype"])} for row in found.facts["taps"]]
    return Artifact(request.out, FORMAT, found.inputs, found.outputs, {**facts, "taps": taps}).write()
