"""What the kind of a fault is told by: the two values of a departure, and the words for its operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.stages.diagnose.noise import Power
from edgecompress.stages.diff.departure import Departure
from edgecompress.stages.diff.match import laid_out
from edgecompress.stages.diff.words import family

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.watched_graph import WatchedOperator
    from edgecompress.stages.diff.sides import Side

GAIN_DB = {"float32": 20.0, "float16": 12.0, "int8": 8.0}  # of SQNR, from which on a change explains a difference
LETTERS = 40  # of a name in a sentence
DO = {
    "fp16 overflow": "keep this operator in float32, or scale its inputs down",
    "not finite": "look at the weights of that operator in B's file, and at what it divides by",
    "layout": "check the order of axes there: NCHW or NHWC, the reshape before a product, transposes",
    "resize mode": "give both the same mode, coordinates (align_corners, half_pixel) and rounding",
    "saturated range": "calibrate with data that has the full range, or remove the clip",
    "padding": "give both the same padding: TensorFlow's SAME pads the end, PyTorch's padding both ends alike",
    "dilation": "give both the same dilation",
    "epsilon": "give both the same epsilon: Keras' default is 1e-3, PyTorch's 1e-5",
    "batch norm": "load the running mean and variance, export in eval mode, and give both the same epsilon",
    "bias": "load the bias, or check the option that drops it",
    "channel scale": "check the weights of that channel, and its scale where it is quantized",
    "quantization scale": "check scale and zero point there; quantize it again",
    "scale": "check the factor there",
    "activation": "give both the same activation and form (GELU exact or tanh, the slope, the limit of ReLU6)",
    "weight": "load the same weights into both, and check the names in the state dict",
    "normalization": "normalize once: in the data or in the model",
    "swapped outputs": "give the outputs names, or read them in the other order",
    "operator": "compare the two operators in the converter's log",
}


@dataclass(frozen=True)
class Kind:
    """A word of DO, the evidence, and the operators that it is about where they are others than the departure's."""

    kind: str
    says: str
    a: WatchedOperator | None = None
    b: WatchedOperator | None = None


class Evidence:
    """The two values of a departure, [runs, *shape] in A's layout, and what their operators hold."""

    def __init__(self, a: Side, b: Side, departure: Departure, precision: str) -> None:
        import numpy as np

        self.a, self.b, self.departure, self.precision = a, b, departure, precision
        self.x = np.asarray(a.values[departure.pair.a].array(), np.float64)
        theirs = b.values[departure.pair.b]
        self.z = np.asarray(laid_out(theirs.array(), departure.pair.axes, self.x.shape[1:]), np.float64)
        self.dtype = theirs.dtype
        self.noise = self.db(self.x, self.z)

    def db(self, x: np.ndarray, z: np.ndarray) -> float:
        """SQNR of z; 200 where it is equal."""
        power = Power()
        power.add(x, z)
        return 200.0 if power.sqnr_db is None else power.sqnr_db

    def explains(self, x: np.ndarray, z: np.ndarray) -> bool:
        """Whether z is as near to x as no other hypothesis makes it."""
        return self.db(x, z) >= self.noise + GAIN_DB[self.precision]

    @property
    def families(self) -> set[str]:
        """Those of both segments."""
        return {family(op.type) for op in (*self.departure.segment_a, *self.departure.segment_b)}

    def only(self, *families: str) -> tuple[WatchedOperator | None, WatchedOperator | None]:
        """The operator of some families in each segment, if there is one."""
        sides = (self.departure.segment_a, self.departure.segment_b)
        first, second = (next((op for op in side if family(op.type) in families), None) for side in sides)
        return first, second


# --------------------------------------------------------------------------- operators in words


def words(op: WatchedOperator | None, keys: Sequence[str]) -> str:
    """Its type, and the attributes whose names have one of `keys` in them."""
    if op is None:
        return "no such operator"
    told = [f"{k}={v}" for k, v in op.attributes.items() if any(key in k.lower() for key in keys)]
    return f"{op.type}{' ' if told else ''}{', '.join(told)}"


def plain(op: WatchedOperator | None) -> str:
    """Its type with all attributes."""
    told = ", ".join(f"{k}={v}" for k, v in op.attributes.items() if k not in ("domain", "inplace")) if op else ""
    return f"{op.type}{f' ({told})' if told else ''}" if op else "none"


def types(segment: Sequence[WatchedOperator]) -> str:
    """Each type once."""
    return ", ".join(dict.fromkeys(op.type for op in segment))


def number(op: WatchedOperator | None, word: str) -> float | None:
    """The attribute whose name has a word in it, where it is a number."""
    found = (v for k, v in op.attributes.items() if word in k.lower()) if op else iter(())
    return next((float(v) for v in found if isinstance(v, (int, float))), None)


def numbers(op: WatchedOperator | None, word: str) -> set[int]:
    """The whole numbers in the attributes whose names have a word in them; none where one of these is a text."""
    every = [v for k, v in op.attributes.items() if word in k.lower()] if op else []
    if any(isinstance(v, str) for v in every):
        return set()
    return {n for v in every for n in (v if isinstance(v, list) else [v]) if isinstance(n, int)}


def same_pads(first: WatchedOperator | None, second: WatchedOperator | None) -> bool:
    """Whether both tell their paddings as numbers, and these are the same."""
    told = [numbers(op, "pad") for op in (first, second)]
    return bool(told[0]) and told[0] == told[1]
