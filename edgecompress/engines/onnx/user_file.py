"""A stranger's .onnx file becomes an artifact: read, checked, and copied with its external data inside."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError, blamed, first_line
from edgecompress.core.model import DETECT, OPEN, WARNINGS, Artifact, Dim, Request, Shape, TensorSpec
from edgecompress.data import declared_ends, dynamic_axes, tensors
from edgecompress.engines.onnx import explicit_pads, external, full_precision, settling, suppression
from edgecompress.engines.onnx.session import CPU, options

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnxruntime


LARGEST_FILE = 2**31 - 1  # bytes: protobuf's own limit
MOST_NODES = 1_000_000
DTYPES = {"float": "float32", "double": "float64"}  # ONNX Runtime's words that differ from numpy's


def read(request: Request) -> Artifact:
    """The user's `.onnx` file, checked and copied with its external data inside; raises InputError for an invalid one.

    options: "path", "constants", "state", "dynamic". Its first axis, where open, is called "batch"; another open axis
    has the declared range, else 1 to 2^31 - 1. An If that asks for a size is taken for that of the input "samples" or
    of the context's batch, and told as a warning. Half precision becomes float32, and is told.
    """
    import onnx

    file = Path(request.options["path"])
    try:
        plain_file.check(file, LARGEST_FILE)
    except OSError as error:
        raise blamed(error)(f"{file}: {error.strerror or error}; give the path of an .onnx file") from error
    copy = request.out / "model.onnx"
    proto = checked(file)
    raised, beside = full_precision.raise_halves(proto)
    left_out = settling.plain_outputs(proto.graph)
    detect, cut = suppression.cut(proto)
    settling.put_constants(proto.graph, request.options.get("constants", {}), str(file))
    dims = settling.close_axes(proto.graph, request.options.get("dynamic", {}))
    proto, warnings = settling.decide_branches(proto, request)
    explicit_pads.transposed(proto)
    explicit_pads.average_pools(proto)
    warnings = [*raised, *settling.of_tables(proto), *warnings, *left_out, *cut]
    external.save(proto, external.Weights(proto, file.parent, beside), copy)
    session = _opened(copy, file)
    if how := request.options.get("decode"):
        from edgecompress.engines.onnx import decoding  # which no device needs

        given = [TensorSpec(v.name, _shape(v, ""), _dtype(v.type, v.name)) for v in session.get_inputs()]
        _rehearse(session, given, file)
        detect, told = decoding.put(proto, how, session, given)
        warnings += told
        onnx.save_model(proto, copy)
        session = _opened(copy, file)
    try:
        sides = session.get_inputs(), session.get_outputs()
        # what the file calls axis 0 of its first input that has a name for it
        batch = next((str(v.shape[0]) for v in sides[0] if v.shape and isinstance(v.shape[0], str)), "")
        inputs, outputs = (
            tuple(TensorSpec(v.name, _shape(v, batch), _dtype(v.type, f"{file}: '{v.name}'")) for v in side)
            for side in sides
        )
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: the name of an input or output is not UTF-8; export it again") from error
    inputs = tuple(dynamic_axes.ranged(spec, dims.get(spec.name, {})) for spec in inputs)
    tensors.check_specs((*inputs, *outputs), str(file))
    seen = _rehearse(session, inputs, file)
    outputs = tuple(_ranked(spec, inputs, shape) for spec, shape in zip(outputs, seen, strict=True))
    data = request.inputs["samples"].inputs if "samples" in request.inputs else ()
    inputs, outputs = declared_ends.of(inputs, outputs, request.options.get("state", {}), str(file), data)
    facts = {name: told for name, told in ((WARNINGS, warnings), (DETECT, detect)) if told}
    return Artifact(request.out, "onnx", inputs, outputs, facts).write()


def checked(file: Path) -> onnx.ModelProto:
    """The model in a file, with its external data: valid, its weights finite and no inputs. Raises InputError."""
    proto = _parsed(file)
    try:
        settling.one_opset(proto)
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not an ONNX model, or truncated or damaged; export or copy it again") from error
    _check_functions(proto, file)
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        settling.type_attributes(nodes)
    _check(proto, file)
    settling.free_weights(proto)
    return proto


def _parsed(file: Path) -> onnx.ModelProto:
    """The model with its external data, which must lie in the file's own folder; without it where it is large."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        if file.is_file() and not file.stat().st_size:
            raise InputError(f"{file}: is empty; export or copy it again")
        proto = onnx.load_model(file, load_external_data=False)
        if external.size(proto) <= external.MOST:
            return onnx.load_model(file)
        external.read_small(proto, file.parent)
        return proto
    except InputError:
        raise
    except FileNotFoundError as error:
        missing = error.filename or file
        raise InputError(f"{missing}: no such file; give the path of an .onnx file") from error
    except DecodeError as error:
        raise InputError(f"{file}: not an ONNX model, or truncated or damaged; export or copy it again") from error
    except Exception as error:  # onnx raises its own, OSError, ValueError, TypeError, ...
        raise blamed(error)(
            f"{file}: its external data cannot be read: {first_line(error)}; keep it beside the model, in its folder"
        ) from error


def _check_functions(proto: onnx.ModelProto, file: Path) -> None:
    """Raises InputError for functions that call themselves, or are more nodes than any net has once written out."""
    functions = {(f.domain, f.name): f for f in proto.functions}
    counts: dict[tuple[str, str], float] = {}

    def count(nodes: Iterable[onnx.NodeProto]) -> float:
        return sum(1 + called((node.domain, node.op_type)) + sum(map(count, settling.bodies(node))) for node in nodes)

    def called(name: tuple[str, str]) -> float:
        if name in functions and name not in counts:
            counts[name] = math.inf  # until it is known: whoever meets it before calls itself
            counts[name] = count(functions[name].node)
        return counts.get(name, 0)

    if functions and count(proto.graph.node) > MOST_NODES:
        raise InputError(
            f"{file}: its functions call themselves, or make more than {MOST_NODES:,} nodes; export it again"
        )


def _check(proto: onnx.ModelProto, file: Path) -> None:
    import onnx

    try:
        with settling.some_shape(proto):
            if external.has(proto):
                onnx.checker.check_model(str(file))
                onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
            else:
                onnx.checker.check_model(proto, full_check=True)
    except Exception as error:  # its checker and its inference of shapes have no common class but this
        raise InputError(f"{file}: not a valid ONNX model: {first_line(error)}; export it again") from error
    weights = external.Weights(proto, file.parent)
    for tensor in proto.graph.initializer:
        _check_finite(tensor.name, functools.partial(weights.parts, tensor.name), file)
    for tensor in (a.t for node in proto.graph.node for a in node.attribute if a.HasField("t")):
        _check_finite(tensor.name, functools.partial(_whole, tensor), file)


def _whole(tensor: onnx.TensorProto) -> list[np.ndarray]:
    import onnx

    return [onnx.numpy_helper.to_array(tensor)]


def _check_finite(name: str, parts: Callable[[], Iterable[np.ndarray]], file: Path) -> None:
    """NaN is never right; infinity is, as a bound or in a mask, but +Inf among other numbers is a broken weight."""
    import numpy as np

    nan, infinite, size = 0, 0, 0
    try:
        for part in parts():
            if part.dtype.kind == "f":
                nan, infinite = nan + int(np.isnan(part).sum()), infinite + int(np.isposinf(part).sum())
            size += part.size
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{file}: weight '{name}': {first_line(error)}; export it again") from error
    infinite = infinite if size > 1 else 0
    if nan or infinite:
        raise InputError(f"{file}: weight '{name}' holds {nan} NaN and {infinite} +Inf; train or export it again")


def _opened(copy: Path, file: Path) -> onnxruntime.InferenceSession:
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(copy, options(1), providers=[CPU])
    except Exception as error:  # ONNX Runtime has a class per status, and no common one but Exception
        raise InputError(f"{file}: ONNX Runtime cannot load it: {first_line(error)}; export it again") from error


def _shape(value: onnx.ValueInfoProto, batch: str) -> Shape:
    elsewhere = batch in value.shape[1:] and value.shape[0] != batch

    def dim(axis: int, size: onnx.TensorShapeProto.Dimension) -> int | Dim:
        if isinstance(size, int):
            return size
        own = (axis == 0 and not elsewhere) or (batch and size == batch)
        return Dim("batch" if own else size or f"{value.name}_{axis}", 1, OPEN)

    return tuple(dim(axis, size) for axis, size in enumerate(value.shape))


def _dtype(words: str, where: str) -> str:
    match = re.fullmatch(r"tensor\((\w+)\)", words)
    if not match or match[1] == "string":
        raise InputError(f"{where} is a {words}; only tensors of numbers can be deployed")
    return DTYPES.get(match[1], match[1])


def _rehearse(
    session: onnxruntime.InferenceSession, inputs: Sequence[TensorSpec], file: Path
) -> Sequence[tuple[int, ...]]:
    """The outputs' shapes in a run on zeros, () where sizes are not known: what fails then is the file's fault too."""
    import numpy as np

    if any(isinstance(d, Dim) and d.name != "batch" for spec in inputs for d in spec.shape):
        return [()] * len(session.get_outputs())
    try:
        arrays = session.run(None, {s.name: np.zeros(s.concrete(), s.dtype) for s in inputs})
    except Exception as error:
        raise InputError(f"{file}: ONNX Runtime cannot run it: {first_line(error)}; export it again") from error
    return [array.shape for array in arrays]


def _ranked(spec: TensorSpec, inputs: Sequence[TensorSpec], seen: tuple[int, ...]) -> TensorSpec:
    """The output with the axes that a run shows, where the file does not say how many it has, as behind a branch."""
    if spec.shape or not seen:
        return spec
    batch = next((d for s in inputs for d in s.shape if isinstance(d, Dim) and d.name == "batch"), None)
    return replace(spec, shape=(batch if batch and seen[0] == 1 else seen[0], *seen[1:]))
