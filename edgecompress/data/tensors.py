"""Named arrays on disk: the splits of a samples artifact, in chunks. Runs on Python 3.10: devices get it."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Quantization, Shape, TensorSpec
from edgecompress.data import npy, states

if TYPE_CHECKING:
    import numpy as np

UNSPLIT = ".whole"  # the folder of data that has no splits, until it is divided
LABELS = "labels"  # labels.npy beside the inputs of a split, where there are labels
UNJUDGED = -100  # the label of a position that counts for nothing
# Whole numbers that a file may have as int32: TFLite knows no ids of 64 bits, Core ML no pixels of 8
AS_INT32 = ("int64", "uint8", "int8", "uint16", "int16", "bool")
LONGEST_NAME = 200  # bytes
MOST_NUMBERS = 1 << 27  # of an input or output, for one item
CHANNELS = (1, 3)  # of a picture that a net takes
ALPHA = 4  # channels of a picture whose last one says how opaque it is
CHANNELS_FIRST = 'set layout = "NCHW" in [preprocess], or give --set preprocess.layout=NCHW'
SWAPPED = "an item's input is a single number: items are (inputs, label), in this order"
INPUT = "input"  # the name of an array that came without one; several are input_0, input_1, ...


def load(artifact: Artifact, split: str, name: str) -> np.ndarray:
    """One array of a split, memory-mapped read-only; never unpickles. Raises InputError when it is not there."""
    return npy.mapped(file_of(artifact.path / split, name))


def file_of(folder: Path, name: str) -> Path:
    """Where an array lies: a `/` in its name is written %2F. Raises InputError for a name that is none of a file."""
    if not is_plain(name):
        raise InputError(f"{name[:LONGEST_NAME]!r} cannot be used as a file name; rename it in the model")
    return folder / f"{_stem(name)}.npy"


def name_of(file: Path) -> str:
    """The name of the array in a file, as `file_of` wrote it."""
    return file.stem.replace("%2F", "/").replace("%25", "%")


def _stem(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def is_plain(name: str) -> bool:
    """Whether a name can be shown, and fits into that of a file."""
    return name.isprintable() and 0 < len(_stem(name).encode("utf-8", "replace")) <= LONGEST_NAME


def check_specs(specs: Sequence[TensorSpec], where: str) -> None:
    """Raises InputError for a stranger's inputs and outputs that nothing could handle: their names, or their sizes."""
    for spec in specs:
        if not is_plain(spec.name):
            raise InputError(
                f"{where}: {spec.name[:40]!r} cannot be the name of an input or output: it must be printable, with at "
                f"most {LONGEST_NAME} bytes; rename it"
            )
        if any(size < 0 for size in spec.concrete()) or math.prod(spec.concrete()) > MOST_NUMBERS:
            raise InputError(
                f"{where}: '{spec.name}' is {words(spec)}: more numbers than fit into memory; make it smaller"
            )


def labels(artifact: Artifact, split: str) -> np.ndarray | None:
    """The labels of a split, memory-mapped, or None where there are none."""
    return load(artifact, split, LABELS) if file_of(artifact.path / split, LABELS).exists() else None


def count(artifact: Artifact, split: str) -> int:
    """Items in a split."""
    return len(load(artifact, split, artifact.inputs[0].name)) if artifact.inputs else 0


def batches(
    artifact: Artifact,
    split: str,
    batch: int = 1,
    limit: int | None = None,
    model: Artifact | None = None,
    step: int | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Model inputs by name, `batch` items at a time, the last one padded by repeating its last item; copies, not maps.

    With `model`: under its names (see `check_inputs`) and as it takes them (see `taken`); without, as they are.
    The caller must drop padded items: item i of batch k is item k * step + i of the split, `step` being the batch.
    """
    import numpy as np

    names = {spec.name: spec.name for spec in artifact.inputs} if model is None else check_inputs(model, artifact)
    arrays = {name: load(artifact, split, stored) for name, stored in names.items()}
    total = min(count(artifact, split), 2**62 if limit is None else limit)
    for begin in range(0, total, step or batch):
        index = np.minimum(np.arange(begin, begin + batch), total - 1)
        items = {name: array[index] for name, array in arrays.items()}
        yield {name: np.ascontiguousarray(a) for name, a in items.items()} if model is None else taken(model, items)


def taken(model: Artifact, items: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Items by the model's input names as it takes them: of its types, and state that is not given zero."""
    import numpy as np

    specs = {spec.name: spec for spec in model.inputs}
    given = {n: fitted(np.ascontiguousarray(states.joined(a, specs[n])), specs[n]) for n, a in items.items()}
    return {**given, **states.zeros(model, len(next(iter(items.values()))), given)}


def check_inputs(model: Artifact, samples: Artifact) -> dict[str, str]:
    """Maps each input of the model to an array of the samples: {input: array}, by name, else by position.

    By position when both sides have one, or when the data has no names of its own ("input", "input_0", ...).
    Inputs that an output feeds (state) need no data, and are left out where there is none. Raises InputError when
    names, dtypes or any axis but the batch's do not fit.
    """
    state = states.names(model)
    required = [spec for spec in model.inputs if spec.name not in state]
    given = [spec for spec in samples.inputs if spec.name not in state]
    try:
        names = paired(required, given)
    except InputError as error:
        lacking = [spec for spec in required if spec.name not in {each.name for each in given}]
        hint = next(filter(None, (_state_hint(spec, model.outputs) for spec in lacking)), "")
        raise InputError(f"{error}{hint}") from error
    available = {spec.name: spec for spec in samples.inputs}
    for spec in required:
        _check_one(spec, available[names[spec.name]], model.outputs)
    return {s.name: names.get(s.name, s.name) for s in model.inputs if s.name in names or s.name in available}


def paired(required: Sequence[TensorSpec], available: Sequence[TensorSpec]) -> dict[str, str]:
    """{input: array} by name, else by position; raises InputError where neither is possible."""
    stored = [spec.name for spec in available]
    missing = [spec.name for spec in required if spec.name not in stored]
    if not missing:
        return {spec.name: spec.name for spec in required}
    nameless = stored == ([INPUT] if len(stored) == 1 else unnamed(len(stored)))
    if len(required) == len(available) and (len(available) == 1 or nameless):
        return {spec.name: name for spec, name in zip(required, stored, strict=False)}
    raise InputError(misnamed([spec.name for spec in required], stored, "the model"))


def misnamed(takes: Sequence[str], has: Sequence[str], who: str) -> str:
    """What is wrong with the names of the data's arrays, and what to do."""
    said = f"{who} takes {', '.join(takes)}, the data has: {', '.join(has)}"
    if len(has) > 2 and list(has) == unnamed(len(has)):
        said += " (a tuple of more than two is as many inputs: (inputs, label) has a label)"
    if len(takes) == len(has):
        return f"{said}; rename the data's arrays to match"
    files, fields = (", ".join(each.format(name) for name in takes) for each in ("{}.npy", "'{}': array"))
    folder = f"a folder of {files} (and labels.npy; so in an .npz)"
    return f"{said}; give --data {folder}, or a function whose items are ({{{fields}}}, label)"


def unnamed(count: int) -> list[str]:
    """The names of `count` arrays that came without names."""
    return [INPUT] if count == 1 else [f"{INPUT}_{i}" for i in range(count)]


def _check_one(spec: TensorSpec, data: TensorSpec, outputs: Sequence[TensorSpec]) -> None:
    whole = spec.batch_axis is not None and spec.shape[spec.batch_axis] == 1 and fits(spec.shape, data.shape[1:])
    converted = spec.dtype == data.dtype or _fits(spec, data.dtype)
    takes, gives, advice = list[str](), list[str](), list[str]()
    if not converted:
        takes, gives = [spec.dtype], [data.dtype]
        advice.append(converting(data.dtype) if spec.dtype == "float32" else f'save it as .astype("{spec.dtype}")')
    if not whole and not fits(states.item_shape(spec), data.shape[1:]):
        takes, gives = [*takes, words(spec)], [*gives, words(data)]
        hint = _state_hint(spec, outputs).removeprefix("; ")
        advice.insert(0, hint or remedy(data.shape[1:], states.item_shape(spec), data.layout))
    if advice:
        said = f"input '{spec.name}': the model takes {' '.join(takes)}, the data gives {' '.join(gives)}"
        raise InputError(f"{said}; {'; '.join(advice)}")


def fits(shape: Shape, item: Shape) -> bool:
    """Whether sizes are those that a shape has, or within its ranges."""
    return len(shape) == len(item) and all(
        a == b if isinstance(a, int) else a.min <= (b if isinstance(b, int) else b.min) <= a.max
        for a, b in zip(shape, item, strict=True)
    )


def _state_hint(spec: TensorSpec, outputs: Sequence[TensorSpec]) -> str:
    """How an input is declared that may be what an output was at the call before."""
    like = [o.name for o in outputs if o.dtype == spec.dtype and o.shape == spec.shape and not o.feeds]
    if len(like) != 1:
        return ""
    return f"; if it is what '{like[0]}' was at the call before, declare it: state = {{ {spec.name} = \"{like[0]}\" }}"


def remedy(data: Shape, model: Shape, layout: str = "") -> str:
    """What to do about items of another shape than the model takes. `layout`: of data that [preprocess] laid out."""
    if len(data) == len(model) == 3 and data != model:
        if (data[2], *data[:2]) == tuple(model) and data[2] != 1:
            return f"the channels come last: {CHANNELS_FIRST}"
        if (*data[1:], data[0]) == tuple(model):
            return "the model wants the channels last (NHWC): save the data as numpy.moveaxis(data, 1, -1)"
        if advice := _of_pictures((*data[1:], data[0]) if layout == "NCHW" else data, model, layout):
            return advice
    if not data and model:
        return SWAPPED
    if len(data) == len(model) + 1 and data[0] == 1:
        way = "an item has no batch axis: leave it out, as array[:, 0] or array.squeeze(1) does"
        return way if fits(model, data[1:]) else f"{way}; then {remedy(data[1:], model)}"
    if len(data) == len(model) + 1 and fits(model, data[1:]):
        return f"an item is one sample, not a batch of {data[0]}: give each by itself"
    if len(data) == len(model) == 2 and fits(model, data[::-1]):
        return "the two axes are the other way round: save the data as numpy.swapaxes(data, 1, 2)"
    others = [i for i, (a, b) in enumerate(zip(data, model, strict=False)) if a != b]
    if len(data) == len(model) == 3 and len(others) == 1:
        axis, (has, takes) = others[0] + 1, (data[others[0]], model[others[0]])
        if isinstance(takes, int) and (has == 1 or (axis == 1 and takes in CHANNELS and has in (*CHANNELS, ALPHA))):
            return _of_channels(has, takes, axis)
    sizes = [[size for size in shape if isinstance(size, int)] for shape in (data, model)]
    whole = sizes == [[*data], [*model]] and math.prod(sizes[0]) == math.prod(sizes[1])
    if whole and (1 in (len(data), len(model)) or [n for n in data if n != 1] == [n for n in model if n != 1]):
        return f"the numbers are as many: reshape each item to {sizes[1]}"
    if len(data) < 3 and len(model) < 3:
        return "give each item as many values as the model takes (sequences: [pad] of the source)"
    return "check the preprocessing (resize, crop, layout)"


def _of_pictures(data: Shape, model: Shape, layout: str) -> str:
    """What to do about pictures [height, width, channels], by [preprocess] above all; "" of what are none."""
    first = model[0] in CHANNELS and model[2] not in CHANNELS
    height, width, channels = (*model[1:], model[0]) if first else model
    has, resized = data[2], not fits((height, width), data[:2])
    square = isinstance(height, int) and height == width
    audio = has == 1 and layout  # it may be a spectrogram
    if has not in (*CHANNELS, ALPHA) or channels not in CHANNELS or (resized and (audio or not square)):
        return ""
    told: dict[str, object] = {}
    if first != (layout == "NCHW"):
        told["layout"] = "NCHW" if first else "NHWC"
    if resized:
        told |= {"resize": height, "crop": height}
    if channels == 1 and (has != 1 or not layout):  # of data with one channel [preprocess] has to be told that, too
        told["colour"] = "GRAY"
    said = [_of_channels(has, channels, 3)] if has != channels and has != 3 else []
    if has == 1 != channels and layout:
        said[0] += ', or set colour = "RGB" in [preprocess] if that made it gray'
    if told:
        keys = ", ".join(
            f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in told.items()
        )
        flags = " ".join(f"--set preprocess.{key}={value}" for key, value in told.items())
        said.append(f"set {keys} in [preprocess] ({flags})")
    return "; then ".join(said)


def _of_channels(has: int, takes: int, axis: int) -> str:
    """What to do about arrays with more or fewer channels on an axis than the model takes."""
    wrong = f"the data has {'one channel' if has == 1 else f'{has} channels'}, the model takes {takes}: "
    if has == 1:
        return f"{wrong}numpy.repeat(data, {takes}, {axis})"
    if has == ALPHA:
        return f"{wrong}leave the last one, alpha, out: data[{':, :3' if axis == 1 else '..., :3'}]"
    return (
        f'{wrong}give pictures as [height, width, 3], and set layout = "NCHW", colour = "GRAY" in [preprocess] '
        "(--set preprocess.layout=NCHW --set preprocess.colour=GRAY), or make them gray yourself"
    )


def converting(dtype: str) -> str:
    """How real numbers of 32 bits are made of data of another type."""
    if dtype == "uint8":
        return "set scale = 0.00392156862745098 (1 / 255) in [preprocess], or what the net was trained with"
    return 'save it as .astype("float32")'


def _fits(spec: TensorSpec, dtype: str) -> bool:
    """Whether `fitted` makes an input out of an array of another dtype."""
    real = spec.dtype == "float32" and dtype in ("float16", "float64")
    widened = real or (spec.dtype == "int32" and dtype in AS_INT32)
    return widened or (spec.quantization is not None and dtype == "float32")


def fitted(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """An array converted to the input's type: numbers to 32 bits, or quantized, as the file has it.

    Raises InputError where a number does not fit into 32 bits.
    """
    import numpy as np

    if str(array.dtype) == spec.dtype:
        return array
    if spec.quantization is not None:
        return quantized(array, spec.quantization, spec.dtype)
    with np.errstate(over="ignore"):
        narrowed = array.astype(spec.dtype)
    if (np.isinf(narrowed) if narrowed.dtype.kind == "f" else narrowed != array).any():
        raise InputError(
            f"input '{spec.name}': a value of the data is out of range for {spec.dtype}, the type in the model file"
        )
    return narrowed


def quantized(array: np.ndarray, how: Quantization, dtype: str) -> np.ndarray:
    """Real numbers quantized to the integers that a file stores."""
    import numpy as np

    limits = np.iinfo(dtype)
    steps = np.round(array / np.float32(how.scale[0])) + how.zero_point[0]
    return np.clip(steps, limits.min, limits.max).astype(dtype)


def real(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """An output as real numbers: dequantized if it is quantized."""
    import numpy as np

    if spec.quantization is None or array.dtype.kind == "f":
        return array
    values: np.ndarray = (array.astype(np.float32) - spec.quantization.zero_point[0]) * np.float32(
        spec.quantization.scale[0]
    )
    return values


def words(spec: TensorSpec) -> str:
    """A shape as text: `batch x 3 x 32 x 32`."""
    return " x ".join(str(d) if isinstance(d, int) else d.name for d in spec.shape)


def write_split(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Each array as NAME.npy in `folder`, which is made."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(file_of(folder, name), array, allow_pickle=False)


class Column:
    """One .npy file that grows by items: numpy pads a header so that its first axis can grow in place."""

    def __init__(self, file: Path, like: np.ndarray) -> None:
        self.shape, self.dtype, self.count = like.shape[1:], like.dtype, 0
        self._file = file.open("wb")
        self._begin = self._header()

    def append(self, chunk: np.ndarray) -> None:
        """Items on axis 0."""
        import numpy as np

        self._file.write(np.ascontiguousarray(chunk).reshape(-1).view(np.uint8).data)  # no copy of it
        self.count += len(chunk)

    def close(self) -> None:
        """Completes the header: the file is then an ordinary .npy file."""
        if self._header() != self._begin:
            raise StageFailed(
                f"{self._file.name}: its header no longer fits its reserved space after {self.count} items"
            )
        self._file.close()

    def _header(self) -> int:
        self._file.seek(0)
        return self._file.write(_header((self.count, *self.shape), self.dtype))


@lru_cache(maxsize=16)  # thousands of arrays of one shape are common
def _header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """The beginning of an .npy file."""
    import numpy as np

    stream = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)  # type: ignore[no-untyped-call]
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)  # type: ignore[no-untyped-call]
    return stream.getvalue()


def item(split: str, index: int) -> str:
    """An item as errors name it: `split 'test', item 3`, or `item 3` if the data has no splits."""
    return f"item {index}" if split == UNSPLIT else f"split '{split}', item {index}"


class Appender:
    """The .npy files of one split that grow together: memory stays that of the chunk, however many items come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.columns: dict[str, Column] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, arrays: Mapping[str, np.ndarray]) -> None:
        """One chunk, items on axis 0. Raises InputError when names, shapes or dtypes differ from the first's."""
        if not self.columns:
            self.columns = {name: Column(file_of(self.folder, name), array) for name, array in arrays.items()}
        if arrays.keys() != self.columns.keys():
            raise InputError(f"{self._where()} has {sorted(arrays)}, the items before it have {sorted(self.columns)}")
        for name, array in arrays.items():
            column = self.columns[name]
            if (array.shape[1:], array.dtype) != (column.shape, column.dtype):
                raise InputError(
                    f"{self._where()}: '{name}' is {array.dtype} {list(array.shape[1:])}, "
                    f"in the items before it {column.dtype} {list(column.shape)}; give every item the same"
                )
        for name, array in arrays.items():
            self.columns[name].append(array)

    @property
    def count(self) -> int:
        """Items so far."""
        return next(iter(self.columns.values())).count if self.columns else 0

    def close(self) -> None:
        """Completes the files."""
        for column in self.columns.values():
            column.close()

    def _where(self) -> str:
        return item(self.folder.name, self.count)
