"""ONNX graphs as ONNX Runtime's quantizers want them."""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, StageFailed, first_line
from edgecompress.engines.onnx import branches, external
from edgecompress.engines.onnx.block_weights import plain_product

if TYPE_CHECKING:
    import onnx

CONSTANTS = 4  # the IR since which a constant need not be an input
RESIZED = 11  # the opset since which Resize has these attributes; what it did before that
OLD_RESIZE = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
ACTIVATIONS = {"Relu", "Clip", "LeakyRelu", "HardSwish", "HardSigmoid"}  # what a kernel computes with what is before it
MOVES = {"Flatten", "MaxPool", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
RECURRENT = {"LSTM", "GRU", "RNN", "Loop", "Scan", "If"}  # ONNX Runtime's symbolic shapes fail on these


def prepare(source: Path, prepared: Path, opset: int) -> Path:
    """The graph of at least that opset, simplified, in the file `prepared`, without shapes that are stale after that.

    Raises StageFailed where a tool cannot do it.
    """
    import onnx

    model = _raised(external.load(source), opset)
    try:
        _simplify(model, prepared.resolve())
    except Exception as error:  # ONNX Runtime's shape inference raises plain Exception
        raise StageFailed(f"the graph cannot be prepared for int8: {first_line(error)}") from error
    model = onnx.load_model(prepared)
    model.graph.ClearField("value_info")  # the old shape of a transposed weight makes shape inference fail
    # biases of a Gemm that are a row, [1, n], as [n]: ONNX Runtime's quantizer takes no others per channel
    products = [node for node in model.graph.node if node.op_type == "Gemm" and len(node.input) > 2]
    biases = Counter(node.input[2] for node in products)
    reads = Counter(name for node in model.graph.node for name in node.input)
    for tensor in model.graph.initializer:
        alone = biases[tensor.name] == reads[tensor.name] > 0
        if alone and len(tensor.dims) == 2 and tensor.dims[0] == 1:
            del tensor.dims[0]
    _hand_in(model.graph)
    for node in model.graph.node:  # what is kept in float is identified by name
        node.name = node.name or f"{node.op_type}_{node.output[0]}"
    onnx.save_model(model, prepared)
    return prepared


def _hand_in(graph: onnx.GraphProto) -> None:
    """Gives the bodies of loops and branches what they read of the graph by a node of its own.

    ONNX Runtime's quantizer looks at no body: it would leave them the tensor before a Relu that it takes away.
    """
    from onnx import helper

    made = {name for node in graph.node for name in node.output}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        inside = [name for name in dict.fromkeys(branches.read_inside(node)) if name in made]
        names = {name: f"{name}_inside" for name in inside}
        known = {name for other in nodes for name in other.output}
        nodes += [helper.make_node("Identity", [n], [new], new) for n, new in names.items() if new not in known]
        for attribute in node.attribute:
            for inner in attribute.g.node if attribute.HasField("g") else ():
                branches.rename(inner, names)
            for value in attribute.g.output if attribute.HasField("g") else ():
                value.name = names.get(value.name, value.name)
        nodes.append(node)
    kept = [copy.deepcopy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _raised(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model of at least that opset. Raises StageFailed where its operators cannot be rewritten."""
    import onnx
    import onnxruntime
    from onnx import version_converter

    had = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), opset)
    if had >= opset:
        return model
    try:
        raised = version_converter.convert_version(model, opset)
        raised.ir_version = max(raised.ir_version, CONSTANTS)  # what was an attribute becomes a constant
        onnxruntime.InferenceSession(raised.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception as error:  # neither has an own one
        why = first_line(error)
        raise StageFailed(
            f"the graph of opset {had} cannot be raised to opset {opset}, which int8 needs ({why}); "
            f"export it with opset {opset} or later"
        ) from error
    for node in raised.graph.node:
        if node.op_type == "Resize" and had < RESIZED:  # the converter leaves it the new default
            for attribute in [a for a in node.attribute if a.name in OLD_RESIZE]:
                node.attribute.remove(attribute)
            node.attribute.extend(onnx.helper.make_attribute(*item) for item in OLD_RESIZE.items())
    return raised


def _simplify(model: onnx.ModelProto, file: Path) -> None:
    """With symbolic shapes, where they can be inferred: not with every dynamic axis."""
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    recurrent = bool(RECURRENT & {node.op_type for node in model.graph.node})
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # where it leaves files if it fails
        for without in (True,) if recurrent else (False, True):
            onnx.save_model(model, file)
            try:
                quant_pre_process(file, file, skip_symbolic_shape=without)
                return
            except Exception:
                if without:
                    raise


def is_quantized(file: Path) -> bool:
    """Whether it has an operator that quantizes."""
    import onnx

    return any(node.op_type == "QuantizeLinear" for node in onnx.load_model(file).graph.node)


def matching(file: Path, patterns: Sequence[str]) -> list[str]:
    """The nodes whose names match one of `patterns`; raises InputError where a pattern matches none."""
    import onnx

    names = [node.name for node in onnx.load_model(file, load_external_data=False).graph.node]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError(f"skip: no node is called '{pattern}'; the nodes are {', '.join(names[:8])}, ...")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def to_their_ends(file: Path, names: Sequence[str]) -> list[str]:
    """Those nodes, and what only clips or moves their outputs: what is kept in float is kept to its end."""
    import onnx

    floats, made = list(names), set[str]()
    for node in onnx.load_model(file).graph.node:  # in the order of computing
        if node.name not in floats and node.op_type in ACTIVATIONS | MOVES and node.input[0] in made:
            floats.append(node.name)
        if node.name in floats:
            made.update(node.output)
    return floats


def reading(file: Path, names: Sequence[str], products: bool = True) -> list[str]:
    """The products, or all nodes, that read an output of those nodes: in int8 they would round it after all."""
    import onnx

    nodes = onnx.load_model(file).graph.node
    made = {output for node in nodes if node.name in names for output in node.output}
    readers = (node for node in nodes if node.name not in names and not made.isdisjoint(node.input))
    return [node.name for node in readers if node.op_type in PRODUCTS or not products]


def free_outputs(file: Path, nodes: Sequence[str]) -> None:
    """Takes away what quantizes the outputs of `nodes`: between two such pairs ONNX Runtime makes a float node int8."""
    import onnx

    model = onnx.load_model(file)
    graph = model.graph
    made = {output for node in graph.node if node.name in nodes for output in node.output}
    ends = {value.name for value in graph.output}
    pairs: dict[str, str] = {}
    for quantize in [n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] in made]:
        back = [n for n in graph.node if n.input and n.input[0] == quantize.output[0]]
        if ends.isdisjoint(name for n in back for name in n.output):
            pairs |= {n.output[0]: quantize.input[0] for n in back}
            for node in (*back, quantize):
                graph.node.remove(node)
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = pairs.get(name, name)
    onnx.save_model(model, file)


def order_as(file: Path, source: Path) -> None:
    """Brings the nodes of `file` into the order in which `source` computes the same tensors: tools sort them anew.

    A node that `source` has not comes right before the first one that needs it. Raises StageFailed where two nodes make
    one tensor, as ONNX Runtime's quantizer leaves what was quantized in part before.
    """
    import onnx

    model, first = onnx.load_model(file), onnx.load_model(source)
    rank = {tensor: index for index, node in enumerate(first.graph.node) for tensor in node.output}
    nodes = list(model.graph.node)
    if any(attribute.HasField("g") for node in nodes for attribute in node.attribute):
        return  # a loop's body reads tensors by their names
    makers = {tensor: index for index, node in enumerate(nodes) for tensor in node.output}
    names = [tensor for node in nodes for tensor in node.output if tensor]
    if twice := next((tensor for tensor, times in Counter(names).items() if times > 1), ""):
        raise StageFailed(f"two nodes make the tensor '{twice}': the source is quantized in part; give one that is not")
    ranks = [min((rank.get(tensor, len(rank)) for tensor in node.output), default=len(rank)) for node in nodes]
    waiting = sorted(range(len(nodes)), key=ranks.__getitem__, reverse=True)
    done: dict[int, onnx.NodeProto] = {}
    while waiting:
        ahead = [makers[t] for t in nodes[waiting[-1]].input if t in makers and makers[t] not in done]
        if ahead:
            waiting += reversed(ahead)
        else:
            index = waiting.pop()
            done.setdefault(index, copy.deepcopy(nodes[index]))
    del model.graph.node[:]
    model.graph.node.extend(done.values())
    onnx.save_model(model, file)


def drop_reshapes(model: onnx.ModelProto) -> list[str]:
    """Reshape, Gemm, Reshape as a MatMul (and an Add) on all axes, where both only fold and unfold the leading ones.

    ONNX Runtime's own optimizer makes such pairs of a linear layer on three axes. Around a dynamic int8 product they
    are copies, and keep its bias out of it. Returns the names of the products.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {v.name: _sizes(v) for v in (*graph.value_info, *graph.input, *graph.output)}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    made = {name: node for node in model.graph.node for name in node.output}
    reads = Counter(name for node in model.graph.node for name in (*node.input, *branches.read_inside(node)))
    reads.update(value.name for value in model.graph.output)
    found = list[str]()
    for after in [node for node in model.graph.node if node.op_type == "Reshape"]:
        product = made.get(after.input[0])
        before = made.get(product.input[0]) if product and plain_product(product) else None
        if not (product and before and before.op_type == "Reshape" and product.input[1] in constants):
            continue
        if reads[product.output[0]] != 1 or after.input[1] not in constants:
            continue
        whole, weights = shapes.get(before.input[0]), constants[product.input[1]]
        rows_first = not any(a.name == "transB" and a.i for a in product.attribute)
        inner, columns = weights.dims if rows_first else reversed(weights.dims)
        unfolded = numpy_helper.to_array(constants[after.input[1]]).tolist()
        if not whole or whole[-1] != inner or shapes.get(before.output[0], ())[1:] != (inner,):
            continue
        if unfolded != [*whole[:-1], columns]:
            continue
        _replace(model.graph, (before, product, after), weights, rows_first, reads)
        found.append(product.name)
    return found


def _sizes(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The sizes of a tensor; empty where one is open."""
    dims = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.dim_value > 0 for dim in dims) else ()


def _replace(
    graph: onnx.GraphProto,
    nodes: tuple[onnx.NodeProto, onnx.NodeProto, onnx.NodeProto],
    weights: onnx.TensorProto,
    rows_first: bool,
    reads: Counter[str],
) -> None:
    """Puts the product on all axes in the place of the three nodes."""
    from onnx import helper, numpy_helper

    before, product, after = nodes
    matrix = weights.name
    if not rows_first:
        matrix = f"{matrix}_rows"
        if matrix not in {tensor.name for tensor in graph.initializer}:
            graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(weights).T.copy(), matrix))
        reads[weights.name] -= 1
        if not reads[weights.name]:
            graph.initializer.remove(weights)
    bias, end = [name for name in product.input[2:] if name], after.output[0]
    inner = f"{product.output[0]}_product" if bias else end
    new = [helper.make_node("MatMul", [before.input[0], matrix], [inner], product.name)]
    new += [helper.make_node("Add", [inner, bias[0]], [end], f"{product.name}_bias")] if bias else []
    at = list(graph.node).index(after)
    for offset, node in enumerate(new):
        graph.node.insert(at + offset, node)
    reads[before.output[0]] -= 1
    for node in (product, after, *(() if reads[before.output[0]] else (before,))):
        graph.node.remove(node)
