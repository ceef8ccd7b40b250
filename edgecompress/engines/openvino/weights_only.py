"""Weight-only quantization for OpenVINO by NNCF: matrix products with weights of 4 or 8 bits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.openvino import ir
from edgecompress.techniques import _nncf, _weights_only
from edgecompress.techniques._calibration import inputs_of, spread

if TYPE_CHECKING:
    import openvino

PRODUCT, TABLE = "MatMul", "Gather"
WEIGHTS = {PRODUCT: 1, TABLE: 0}  # the input that is one, by what NNCF would round
GROUP = 32  # NNCF takes smaller groups down to it where a row is no multiple; a row that it does not divide has 8 bits
HANDS_ON = ("Convert", "Transpose", "Reshape")


def apply(request: Request, bits: int) -> Artifact:
    """The OpenVINO model with weights of few bits; inputs: "model", "samples" (calibrate, for gptq and awq).

    facts: {"bits", "group", "symmetric", "method", "quantized": [node], "int8": [node], "numbers": {node:
    weights}}; "lost" where no product has a weight. Raises StageFailed with NNCF's reason.
    """
    _nncf.library()
    import openvino

    options: _weights_only.Options = request.options
    method = getattr(options, "method", "nearest")
    net = openvino.Core().read_model(request.model.file(".xml"))
    known = {weight.operator: weight for weight in _weights(net)}
    skipped, wide = (_matching(known, patterns) for patterns in (options.skip, getattr(options, "int8", ())))
    wide |= {name for name, weight in known.items() if weight.rows % GROUP}
    taken = [n for n, w in known.items() if n not in skipped and (w.large if w.product else options.embeddings)]
    narrow = [name for name in taken if bits == 8 or name not in wide]
    request.progress(0.1, method)
    net = _compressed(request, net, narrow, bits)
    if len(narrow) < len(taken):
        net = _compressed(request, net, [name for name in taken if name in wide], 8)
    facts: dict[str, Json] = {"bits": bits, "group": options.group, "symmetric": options.symmetric, "method": method}
    facts |= {"quantized": taken, "int8": [name for name in taken if name not in narrow]}
    facts["numbers"] = {name: known[name].rows * known[name].columns for name in taken}
    if not taken:
        facts["lost"] = _weights_only.NOTHING
    ir.save(net, request.out)
    return Artifact(request.out, "openvino", request.model.inputs, request.model.outputs, facts).write()


@dataclass(frozen=True)
class Weight:
    """Of an operator that NNCF can round: `rows` numbers go into one output, or are one row of a table."""

    operator: str
    product: bool
    rows: int
    columns: int

    @property
    def large(self) -> bool:
        """Whether rounding it pays."""
        return self.rows >= GROUP and self.columns >= _weights_only.LEAST_COLUMNS


def _weights(net: openvino.Model) -> Iterator[Weight]:
    """The constants of two axes that operators multiply with or pick from."""
    for node in net.get_ordered_ops():
        kind = node.get_type_name()
        shape = node.input_value(WEIGHTS[kind]).get_partial_shape() if kind in WEIGHTS else None
        if shape is not None and shape.is_static and len(shape) == 2:
            source = node.input_value(WEIGHTS[kind]).get_node()
            while source.get_type_name() in HANDS_ON:
                source = source.input_value(0).get_node()
            if source.get_type_name() == "Constant" and source.get_element_type().is_real():
                turned = kind == TABLE or node.get_attributes()["transpose_b"]
                a, b = node.input_value(WEIGHTS[kind]).get_shape()
                yield Weight(node.get_friendly_name(), kind == PRODUCT, *((b, a) if turned else (a, b)))


def _matching(known: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The names that one of `patterns` matches, regular expressions. Raises InputError where one matches none."""
    names = list(known)
    for pattern in patterns:
        if not any(re.match(pattern, name) for name in names):
            raise InputError(
                f"skip: no operator with weights matches '{pattern}'; they are {', '.join(names[:8])}, ..."
            )
    return {name for name in names if any(re.match(pattern, name) for pattern in patterns)}


def _compressed(request: Request, net: openvino.Model, names: Sequence[str], bits: int) -> openvino.Model:
    """The net with the weights of those operators in so many bits."""
    nncf = _nncf.library()
    options: _weights_only.Options = request.options
    others = [node.get_friendly_name() for node in net.get_ops() if node.get_type_name() not in ("Constant", "Result")]
    how: dict[str, Any] = {
        "ignored_scope": nncf.IgnoredScope(names=[n for n in others if n not in names], validate=False)
    }
    word = f"INT{bits}_{'SYM' if options.symmetric else 'ASYM'}"
    if bits < 8:
        _turn(net)
        fallback = nncf.AdvancedCompressionParameters(group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST)
        how |= {"group_size": options.group, "all_layers": True, "advanced_parameters": fallback}
        if isinstance(options, _weights_only.FourBits) and options.method != "nearest":
            batches = spread(request, options.samples)
            how |= {options.method: True, "subset_size": len(batches)}
            how["dataset"] = nncf.Dataset(batches, lambda items: inputs_of(request, items))
    try:
        with _nncf.quiet():
            return nncf.compress_weights(net, mode=nncf.CompressWeightsMode[word], **how)
    except Exception as error:  # NNCF's errors have no base of their own
        raise StageFailed(f"NNCF, {word}: {first_line(error)}") from error


def _turn(net: openvino.Model) -> None:
    """The weights as rows of one output each: NNCF's GPTQ takes no others, and its groups lie along a row."""
    import numpy as np
    from openvino import opset13 as operators

    for node in net.get_ordered_ops():
        attributes = node.get_attributes() if node.get_type_name() == PRODUCT else {}
        weight = node.input_value(1).get_node() if attributes else None
        if (
            weight is None
            or attributes["transpose_b"]
            or weight.get_type_name() != "Constant"
            or len(weight.shape) != 2
        ):
            continue
        turned = operators.constant(np.ascontiguousarray(weight.data.T))
        turned.set_friendly_name(f"{weight.get_friendly_name()}_turned")
        product = operators.matmul(node.input_value(0), turned, attributes["transpose_a"], True)
        name, names = node.get_friendly_name(), node.output(0).get_tensor().get_names()
        node.output(0).replace(product.output(0))
        node.set_friendly_name(f"{name}_before")
        product.set_friendly_name(name)
        product.output(0).get_tensor().set_names(names)
    net.validate_nodes_and_infer_types()
