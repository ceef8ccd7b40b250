"""Static whole numbers for LiteRT by ai-edge-quantizer: what its techniques share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.litert import model_file, quantizer, weight_edits
from edgecompress.techniques import _activation_ranges, _int8
from edgecompress.techniques._calibration import inputs_of, spread, used

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_quantizer.recipe_manager import RecipeManager

HUGE = 3e38  # of a value: NaN, infinity, and masks of the smallest float
MASK = -1000.0  # what goes so far below, and not above, is a mask: on its scale nothing else is left
# What reads all its inputs by the scale of its output; with fewer than _int8.LEVELS on it an input is lost
SAME_SCALE = {"CONCATENATION", "PACK", "PADV2", "SELECT", "SELECT_V2", "MAXIMUM", "DYNAMIC_UPDATE_SLICE"}
MASKING = {"ADD", "MUL", "SUB", "SELECT_V2", "SOFTMAX"}  # what makes one, lays it on, and takes what is masked

Ranges: TypeAlias = "dict[str, dict[str, np.ndarray]]"  # tensor -> {"min", "max"}, as the quantizer has them
Items: TypeAlias = (
    "Callable[[], Iterator[Mapping[str, np.ndarray]]]"  # the model's inputs, batch by batch, from the start
)


class Quantizing(Protocol):
    """Options of a technique that makes such a file."""

    @property
    def io(self) -> str: ...

    @property
    def calibrator(self) -> _activation_ranges.Calibrator: ...

    @property
    def percentile(self) -> float: ...

    @property
    def samples(self) -> int | None: ...

    @property
    def skip(self) -> tuple[str, ...]: ...


def quantized(request: Request, options: Quantizing, bits: int, weight_bits: Literal[8, 4] = 8) -> Artifact:
    """The TFLite model with activations of `bits`; inputs: "model", "samples" (the calibrate split).

    facts: {"calibrator", "weight_bits", "samples": items used, "skipped": [operator]}.
    Operators with a tensor that is not finite stay in float. Raises StageFailed where nothing can be quantized.
    """
    if options.io != "float" and any(spec.feeds for spec in request.model.outputs):
        raise InputError(f"int{bits}: a net with state must keep float inputs and outputs; use io = 'float'")
    if same := _int8.given(request):
        return same
    data = quantizer.source(request)
    skipped = quantizer.to_their_ends(data, quantizer.matching(quantizer.operators(data), options.skip))
    recipe = _recipe(bits)
    quantizer.keep(recipe, skipped, (*quantizer.FLOATS, *(quantizer.ENDS if options.io == "float" else ())))
    batches = spread(request, options.samples)

    def items() -> Iterator[Mapping[str, np.ndarray]]:
        return (inputs_of(request, batch) for batch in batches)

    extremes = calibrate(data, items(), recipe)
    coarse = quantizer.to_their_ends(data, list(_coarse(data, extremes, 2**bits - 1)))
    behind = quantizer.behind(data) if options.io == "float" else []
    skipped += [s for s in dict.fromkeys([*coarse, *_masking(data, extremes), *behind]) if s not in skipped]
    quantizer.keep(recipe, [*skipped, *quantizer.unseen(data, extremes)])
    request.progress(0.4, "calibrating")
    ranges = extremes if options.calibrator == "minmax" else cut(data, items, extremes, options)
    request.progress(0.8, "quantizing")
    how = {"calibrator": options.calibrator, "weight_bits": weight_bits}
    facts: dict[str, Json] = {**how, "samples": used(batches), "skipped": skipped}
    few = weight_edits.rounded(data, weight_bits, skipped)
    made = quantizer.quantized(weight_edits.lifted(few, ranges), recipe, ranges)
    made = weight_edits.narrowed(made, weight_bits)
    if "WHILE" in model_file.types(data):
        from ai_edge_litert.interpreter import Interpreter

        try:
            Interpreter(model_content=made).allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise StageFailed(
                "litert_int8: the steps of its LSTM or GRU are a loop, of which ai-edge-quantizer makes a file that "
                "LiteRT refuses; use int8-dynamic, or build the layer with unroll=True"
            ) from error
    return quantizer.artifact(request, made, facts)


def _recipe(bits: int) -> RecipeManager:
    """Int8 for all that the quantizer knows, activations of `bits`; weights per channel where LiteRT can."""
    from ai_edge_quantizer import qtyping

    recipe, names = quantizer.recipe(), qtyping.TFLOperationName
    recipe.add_static_config(".*", names.ALL_SUPPORTED, activation_num_bits=bits, weight_num_bits=8)
    whole = qtyping.QuantGranularity.TENSORWISE
    recipe.add_static_config(
        ".*", names.BATCH_MATMUL, activation_num_bits=bits, weight_num_bits=8, weight_granularity=whole
    )
    return recipe


def calibrate(data: bytes, items: Iterator[Mapping[str, np.ndarray]], recipe: RecipeManager) -> Ranges:
    """The extremes of each finite tensor over the items, as scalars: the quantizer fits those to constants.

    Raises StageFailed: there is none.
    """
    import numpy as np
    from ai_edge_quantizer import calibrator
    from ai_edge_quantizer.utils import qsv_utils

    work = calibrator.Calibrator(
        memoryview(data),
        num_threads=1,
        mode=calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED,
        qsv_update_func=qsv_utils.min_max_update,
    )
    (signature,) = work.get_signature_list()
    for item in items:
        work.calibrate({signature: [item]}, recipe)
    ranges: Ranges = {}
    for name, extremes in work.get_model_qsvs().items():
        low, high = (float(extremes[end].flat[0]) for end in ("min", "max"))
        if abs(low) < HUGE and abs(high) < HUGE:  # what overflows in a branch that is not taken stays in float
            ranges[name] = {"min": np.array(low), "max": np.array(high)}
    if not ranges:
        raise StageFailed("int8: no operator of the file computes real numbers: there is nothing to quantize")
    return ranges


def cut(data: bytes, items: Items, extremes: Ranges, options: Quantizing) -> Ranges:
    """The ranges that the calibrator takes out of histograms between the extremes, filled item by item.

    What no interpreter hands out (the tensors of a loop's body) keeps its extremes.
    """
    import numpy as np

    known = {name: (float(ends["min"].flat[0]), float(ends["max"].flat[0])) for name, ends in extremes.items()}
    histograms = _histograms(data, items, known)
    tighter = {
        name: _activation_ranges.calibrated(options.calibrator, counts, known[name], options.percentile)
        for name, counts in histograms.items()
    }
    return extremes | {n: {"min": np.array(low), "max": np.array(high)} for n, (low, high) in tighter.items()}


def _histograms(data: bytes, items: Items, extremes: Mapping[str, _activation_ranges.Range]) -> dict[str, np.ndarray]:
    """Counts of the values of each float tensor that an operator of the main graph makes, and of the inputs."""
    import numpy as np
    from ai_edge_quantizer.utils import tfl_interpreter_utils as interpreters

    work = interpreters.create_tfl_interpreter(data, use_xnnpack=False, num_threads=1)  # XNNPACK keeps some to itself
    (signature,) = work.get_signature_list()
    floats = [d for d in work.get_tensor_details() if d["name"] in extremes and d["dtype"] == np.float32]
    places = {d["name"]: d["index"] for d in floats}
    counts = {name: np.zeros(_activation_ranges.BINS, np.int64) for name in places}
    for item in items():
        interpreters.invoke_interpreter_signature(work, dict(item), signature)
        for name, index in places.items():
            counts[name] += _activation_ranges.histogram(work.get_tensor(index), extremes[name])
        work.reset_all_variables()
    return counts


def _coarse(data: bytes, ranges: Ranges, levels: int) -> Iterator[str]:
    """The operators that join numbers of very different sizes: these stay in float, and so does what reads them."""
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    model = files.read_model(data)
    for graph in model.subgraphs:
        spans = [_span(ranges.get(tensor.name.decode())) for tensor in graph.tensors]
        for op in graph.operators:
            least = min((spans[i] for i in op.inputs if i >= 0 and spans[i]), default=0.0)
            if quantizer.kind_of(model, op) in SAME_SCALE and _int8.LEVELS * spans[op.outputs[0]] > levels * least > 0:
                yield files.get_op_scope(op, graph.tensors)


def _span(extremes: Mapping[str, np.ndarray] | None) -> float:
    """How far what int8 has to hold reaches: 0 is a part of it. 0 of a constant, and of what never changes."""
    low, high = (float(extremes[end].flat[0]) for end in ("min", "max")) if extremes else (0.0, 0.0)
    return max(high, 0.0) - min(low, 0.0) if low < high else 0.0


def _masking(data: bytes, ranges: Ranges) -> Iterator[str]:
    """The operators around attention masks: these stay in float."""
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    model = files.read_model(data)
    for graph in model.subgraphs:
        masks = {i for i, tensor in enumerate(graph.tensors) if _is_mask(ranges.get(tensor.name.decode()))}
        for op in graph.operators:
            if quantizer.kind_of(model, op) in MASKING and not masks.isdisjoint({*op.inputs, *op.outputs}):
                yield files.get_op_scope(op, graph.tensors)


def _is_mask(extremes: Mapping[str, np.ndarray] | None) -> bool:
    low, high = (float(extremes[end].flat[0]) for end in ("min", "max")) if extremes else (0.0, 0.0)
    return low < MASK and -low > 100 * high
