"""Weights in a file beside an .onnx, as those must be that are more than protobuf takes: read in parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError, StageFailed

if TYPE_CHECKING:
    import numpy as np
    import onnx

MOST = 1 << 30  # bytes of weights that a file has inside; protobuf ends at 2 GiB, and copies what it writes
SMALL = 1 << 16  # bytes of a constant that stays inside: shapes, scales, biases, which tools want to see
PAGE = 4096  # bytes, of which each weight begins at a multiple
PART = 1 << 24  # numbers that are copied or looked at at once
DATA = "model.onnx.data"
INSIDE = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
BITS = {20: 4, 21: 4, 22: 4, 23: 4, 25: 2, 26: 2}  # of the types that numpy has not, packed


class Weights:
    """The constants of a file by name, read when they are asked for where they lie beside it.

    `beside`: the types that they have there, where the model has other ones.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path, beside: Mapping[str, int] | None = None) -> None:
        self.tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self.beside = beside or {}
        self.folder = folder

    def array(self, name: str) -> np.ndarray:
        """The numbers of one. Raises InputError where the file beside lacks them, or lies elsewhere."""
        import numpy as np

        parts = list(self.parts(name, whole=True))
        return parts[0] if parts else np.zeros(tuple(self.tensors[name].dims))

    def parts(self, name: str, *, whole: bool = False) -> Iterator[np.ndarray]:
        """The numbers of one, one after the other, in parts; `whole`: all at once, in its shape."""
        import numpy as np
        from onnx import helper, numpy_helper
        from onnx.external_data_helper import ExternalDataInfo, uses_external_data

        tensor = self.tensors[name]
        if not uses_external_data(tensor):
            yield numpy_helper.to_array(tensor)
            return
        beside, wanted_dtype = ExternalDataInfo(tensor), helper.tensor_dtype_to_np_dtype(tensor.data_type)
        dtype = helper.tensor_dtype_to_np_dtype(self.beside.get(name, tensor.data_type))
        count = math.prod(tensor.dims)
        for at in range(0, count, count if whole else PART):
            wanted = count if whole else min(PART, count - at)
            file, begin = self._file(beside.location, name), (beside.offset or 0) + at * dtype.itemsize
            with plain_file.opened(file) as stream:
                stream.seek(begin)
                part = np.fromfile(stream, dtype, wanted)
            if part.size < wanted:
                raise InputError(f"{file}: too short for the weights of '{name}'; copy the file again")
            part = part.astype(wanted_dtype, copy=False)
            yield part.reshape(tuple(tensor.dims)) if whole else part

    def _file(self, location: str, name: str) -> Path:
        file = self.folder / location
        if not file.resolve().is_relative_to(self.folder.resolve()):
            raise InputError(f"{file}: the weights of '{name}' must lie in the model's own folder; move them there")
        return file


class Beside:
    """A file of weights that is being written."""

    def __init__(self, file: Path) -> None:
        self.file, self.stream = file, file.open("wb")
        self.names: set[str] = set()  # of what is there

    def put(self, tensor: onnx.TensorProto, parts: Iterable[np.ndarray]) -> None:
        """Writes the numbers of a tensor, which then has none inside."""
        from onnx.external_data_helper import set_external_data

        self.stream.write(bytes(-self.stream.tell() % PAGE))
        begin = self.stream.tell()
        for part in parts:
            self.stream.write(part.tobytes())
        for field in INSIDE:
            tensor.ClearField(field)
        tensor.raw_data = b""  # what onnx asks for
        set_external_data(tensor, self.file.name, begin, self.stream.tell() - begin)
        tensor.ClearField("raw_data")
        self.names.add(tensor.name)


def size(model: onnx.ModelProto) -> int:
    """Bytes of the weights."""
    return sum(map(_bytes, model.graph.initializer))


def _bytes(tensor: onnx.TensorProto) -> int:
    from onnx import helper

    bits = BITS.get(tensor.data_type) or 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims) * bits // 8)


def read_small(model: onnx.ModelProto, folder: Path) -> None:
    """Takes the small constants of a large file in."""
    from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

    for tensor in model.graph.initializer:
        if uses_external_data(tensor) and _bytes(tensor) <= SMALL:
            load_external_data_for_tensor(tensor, str(folder))
            tensor.ClearField("external_data")
            tensor.data_location = tensor.DEFAULT


def has(model: onnx.ModelProto) -> bool:
    """Whether a weight lies beside the file."""
    from onnx.external_data_helper import uses_external_data

    return any(map(uses_external_data, model.graph.initializer))


def load(file: Path) -> onnx.ModelProto:
    """The model with its weights inside. Raises StageFailed where they are too many for that."""
    import onnx

    model = onnx.load_model(file, load_external_data=False)
    if has(model) and size(model) > MOST:
        gib = size(model) / (1 << 30)
        raise StageFailed(
            f"its weights are {gib:.1f} GiB: this step holds a model as one message of protobuf, which ends at 2 GiB; "
            "use int4 or int8-weights for ONNX Runtime, which take it in parts"
        )
    return onnx.load_model(file)


def save(model: onnx.ModelProto, weights: Weights, file: Path, done: Beside | None = None) -> None:
    """Writes the model; its weights beside it where some lie beside already, or are many. `done`: those that do."""
    import onnx

    if done or has(model) or size(model) > MOST:
        beside = done or Beside(file.with_name(DATA))
        with beside.stream:
            for tensor in model.graph.initializer:
                if _bytes(tensor) > SMALL and tensor.name not in beside.names:
                    beside.put(tensor, weights.parts(tensor.name))
    onnx.save_model(model, file)
