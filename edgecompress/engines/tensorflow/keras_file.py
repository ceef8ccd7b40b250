"""A Keras file as a SavedModel: loaded without its author's code, exported, compared with the net."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.core.errors import InputError, first_line
from edgecompress.core.model import Dim, TensorSpec
from edgecompress.engines.tensorflow import savedmodel

OLD_SUFFIXES = (".h5", ".hdf5")
ITEMS, SIZE = 2, 7  # of a first run: items, and the size of an axis that is open
ANY = object()
SEPARABLE = {"groups": 1, "kernel_initializer": ANY, "kernel_regularizer": None, "kernel_constraint": None}
ELDER: Mapping[str, Mapping[str, object]] = {  # what Keras 2 wrote of a layer that Keras 3 knows no more: the default
    "DepthwiseConv2D": {"groups": 1},
    "SeparableConv1D": SEPARABLE,
    "SeparableConv2D": SEPARABLE,
    **{name: {"time_major": False} for name in ("LSTM", "GRU", "SimpleRNN")},
}
DAMAGED = ("File not found", "zip", "open file")  # words of Keras and HDF5 for what is no file of theirs


def exported(file: Path, folder: Path, data: Sequence[TensorSpec]) -> tuple[Path, list[str]]:
    """A Keras file as a SavedModel, and the order of its inputs. Keras' safe mode refuses what would run code."""
    import keras

    if not file.is_file():
        raise InputError(f"{file}: no such file; give the path of a .keras file or the folder of a SavedModel")
    try:
        known = _known(file, folder.with_suffix(file.suffix)) if file.suffix in OLD_SUFFIXES else file
        net = keras.saving.load_model(known, compile=False, safe_mode=True)
        archive = keras.export.ExportArchive()
        archive.track(net)  # its `export` leaves `training` to each layer: those of augmentation train by default
        archive.add_endpoint("serve", lambda *given: net(*given, training=False), _sized(net, data))
        archive.write_out(str(folder), verbose=False)
        _check_export(net, folder, file)
    except InputError:
        raise
    except Exception as error:  # what a damaged file raises is anything: Keras builds layers from it
        raise InputError(f"{file}: {_reason(error)}") from error
    return folder, [tensor.name for tensor in net.inputs or ()]


def _known(file: Path, copy: Path) -> Path:
    """A copy of a file of Keras 2 without what Keras 3 knows no more of its layers."""
    import h5py

    shutil.copyfile(file, copy)
    with h5py.File(copy, "r+") as written:
        if config := written.attrs.get("model_config"):
            written.attrs["model_config"] = json.dumps(_without_elder(json.loads(config)))
    return copy


def _without_elder(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_elder(each) for each in part]
    if not isinstance(part, dict):
        return part
    inner = {name: _without_elder(each) for name, each in part.items()}
    if part.get("class_name") in ELDER and isinstance(inner.get("config"), dict):
        gone = ELDER[part["class_name"]]
        inner["config"] = {k: v for k, v in inner["config"].items() if k not in gone or gone[k] not in (ANY, v)}
    return inner


def _sized(net: Any, data: Sequence[TensorSpec]) -> object:
    """What the net is exported for: where an axis beside its batch is open, the sizes of the data."""
    import keras
    from keras.src.export.export_utils import get_input_signature

    sizes = sizes_of({tensor.name: list(tensor.shape) for tensor in net.inputs or ()}, data)

    def fixed(spec: Any) -> object:
        return keras.InputSpec(dtype=spec.dtype, shape=sizes.get(spec.name, spec.shape), name=spec.name)

    return keras.tree.map_structure(fixed, get_input_signature(net))


def sizes_of(shapes: Mapping[str, list[int | None]], data: Sequence[TensorSpec]) -> dict[str, list[int | Dim | None]]:
    """The shapes of inputs with the sizes of the data on open axes beside the batch; none where none is open."""
    given = {spec.name: spec.shape for spec in data}
    if len(given) == len(shapes) == 1:  # whatever it is called
        given = dict(zip(shapes, given.values(), strict=True))
    sizes: dict[str, list[int | Dim | None]] = {
        name: [own if own is not None or not axis else size for axis, (own, size) in enumerate(pairs)]
        for name, shape in shapes.items()
        if len(given.get(name, ())) == len(shape) and (pairs := [*zip(shape, given[name], strict=True)])
    }
    return sizes if any(sizes[name] != shapes[name] for name in sizes) else {}


def _check_export(net: Any, folder: Path, file: Path) -> None:
    """Raises InputError where what Keras exported answers otherwise than the net: its TimeDistributed may."""
    import keras
    import numpy as np

    serve = savedmodel.tensorflow().saved_model.load(str(folder)).signatures[savedmodel.SIGNATURE]
    generator, items = np.random.default_rng(0), {}
    for name, spec in serve.structured_input_signature[1].items():
        shape = [size or (SIZE if axis else ITEMS) for axis, size in enumerate(spec.shape)]
        drawn = generator.normal(size=shape) if spec.dtype.is_floating else generator.integers(0, 2, shape)
        items[name] = drawn.astype(spec.dtype.as_numpy_dtype)
    arrays = [items[tensor.name] for tensor in net.inputs] if {t.name for t in net.inputs} == {*items} else []
    if not arrays:
        return
    given = dict(items) if isinstance(getattr(net, "_inputs_struct", None), dict) else arrays
    expected = net(given if isinstance(given, dict) or given[1:] else given[0], training=False)
    answers = [t.numpy() for t in serve(**{n: savedmodel.tensorflow().constant(a) for n, a in items.items()}).values()]
    ours = [np.asarray(each) for each in keras.tree.flatten(expected)]
    for answer in answers:
        alike = [each for each in ours if each.shape == answer.shape]
        if not any(np.allclose(answer, right, rtol=1e-2, atol=1e-3, equal_nan=True) for right in alike):
            raise InputError(
                f"{file}: the graph that Keras exports has other results than the model, here {list(answer.shape)} "
                f"instead of {[list(each.shape) for each in ours]}; give its inputs fixed sizes, for example "
                "Input(shape=(14,))"
            )


def _reason(error: Exception) -> str:
    message = first_line(error)
    if "safe_mode" in str(error) or "Lambda" in message:
        return (
            "it holds a Lambda layer, Python code that loading would run; make it a layer class, or export a SavedModel"
        )
    if "No model config" in message:
        return "it holds weights alone: make the net, call its load_weights, and give what its save('net.keras') writes"
    if any(words in message for words in DAMAGED):
        return "not a Keras file, or truncated or damaged; save or copy it again"
    return (
        f"Keras cannot load it: {message}; with the Keras that wrote it, export a SavedModel (Keras 2: "
        "net.save('saved', save_format='tf')), and give the folder saved"
    )
