"""What LiteRT and its elder share: a session over an interpreter."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import engine_settings
from edgecompress.core.model import Artifact, TensorSpec
from edgecompress.formats import empty_model

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    from edgecompress.core.json import Json
    from edgecompress.core.protocols import OperatorTimes

NO_TIMES = "its Python runtime reports no times of single operators"

SETTINGS: Mapping[str, Json] = {"xnnpack": True}  # the delegate that the engine takes by default
STATE = ("LSTM", "RNN", "SVDF")  # how the types of operators end whose state is in no input
EMPTY = (
    "GAAAAFRGTDMAAA4AFAAQAAwACAAAAAQADgAAABAAAAAcAAAAhAAAAAMAAAABAAAACAAAAAQABAAEAAAAAQAAABAAAAAMABQAEAAMAAgA"
    "BAAMAAAAEAAAABAAAAAUAAAAGAAAAAAAAAABAAAAAAAAAAEAAAAAAAAAAQAAABAAAAAMAAwACAAAAAAABAAMAAAACAAAAAwAAAABAAAA"
    "eAAAAAEAAAABAAAAAAAAAA=="
)  # a graph without operators; base64


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return empty_model.written(folder, "tflite", {"model.tflite": base64.b64decode(EMPTY)})


# --------------------------------------------------------------------------- a session


def interpreter(engine: Any, artifact: Artifact, threads: int) -> object:
    """An interpreter of the module `engine`, by the artifact's settings."""
    delegated = engine_settings.of(artifact, SETTINGS).get("xnnpack", True)
    resolvers = engine.OpResolverType
    resolver = resolvers.AUTO if delegated else resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    file = str(artifact.file(".tflite"))
    return engine.Interpreter(file, num_threads=threads, experimental_op_resolver_type=resolver)


class TfliteSession:
    """A file opened by an interpreter, of LiteRT or of its elder: both have the same calls.

    Its inputs are the interpreter's own tensors, which each call copies into, and its outputs are copies. State that
    operators keep is zero at each call: in the net that was converted it was, too.
    """

    def __init__(self, interpreter: Interpreter, artifact: Artifact) -> None:
        interpreter.allocate_tensors()
        self.interpreter = interpreter
        self.inputs = _places(artifact.inputs, interpreter.get_input_details())
        self.outputs = _places(artifact.outputs, interpreter.get_output_details())
        self.keeps = any(node["op_name"].endswith(STATE) for node in interpreter._get_ops_details())

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        if self.keeps:
            self.interpreter.reset_all_variables()
        for name, index in self.inputs:
            self.interpreter.set_tensor(index, inputs[name])
        self.interpreter.invoke()
        return {name: self.interpreter.get_tensor(index) for name, index in self.outputs}

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """No times, and why; the operators that XNNPACK did not take."""
        return {"ops": [], "why": NO_TIMES, "fallback": left(self.interpreter._get_ops_details())}

    def close(self) -> None:
        """Frees it."""
        self.interpreter = None


def _places(specs: Sequence[TensorSpec], details: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    return [(spec.name, int(detail["index"])) for spec, detail in zip(specs, details, strict=True)]


def left(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The operators that no delegate took, as "TYPE:number in the file".

    A delegate's node stands behind the nodes that it took: those on the way from its outputs back to its inputs.
    """
    makers = {int(t): node for node in nodes if node["op_name"] != "DELEGATE" for t in node["outputs"]}
    taken: set[int] = set()
    for delegate in (node for node in nodes if node["op_name"] == "DELEGATE"):
        inputs = {int(t) for t in delegate["inputs"]}
        todo = [int(t) for t in delegate["outputs"]]
        while todo:
            tensor = todo.pop()
            if tensor not in inputs and tensor in makers and makers[tensor]["index"] not in taken:
                taken.add(makers[tensor]["index"])
                todo += [int(t) for t in makers[tensor]["inputs"]]
    own = (node for node in nodes if node["op_name"] != "DELEGATE")
    return [f"{node['op_name']}:{node['index']}" for node in own if node["index"] not in taken]
