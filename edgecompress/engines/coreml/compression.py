"""A Core ML package through one of coremltools' compressions of weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.coreml import convert
from edgecompress.techniques import _skipped_layers

if TYPE_CHECKING:
    from coremltools.models import MLModel
    from coremltools.proto import MIL_pb2

RENAMED = re.compile(r"^op_(?=\d)|_(?:cast|to)_(?:fp16|u?int16)")  # of names, by coremltools


def compressed(request: Request, who: str, compress: Callable[[MLModel, Collection[str]], MLModel]) -> Artifact:
    """The package with what `compress` makes of coremltools' model of it, and of the weights that stay as they are.

    facts: {"compressed": number of weights}; "lost" where it found nothing to compress. Raises InputError where a
    pattern of the option `skip` matches no operator and no weight, StageFailed with coremltools' reason.
    """
    before = convert.opened(request.model.path / convert.FILE)
    kept = weights(before, request.options.skip)
    request.progress(0.1, "compressing")
    try:
        after = compress(before, kept)
    except Exception as error:  # coremltools' errors have no base of their own
        raise StageFailed(f"{who}: coremltools: {first_line(error)}") from error
    convert.save(after, request.out)
    count = _compressed(after) - _compressed(before)
    facts: dict[str, Json] = {"compressed": count}
    if not count:
        facts["lost"] = "no weight to compress: each is smaller than the least size, kept, or compressed already"
    return Artifact(request.out, "mlpackage", request.model.inputs, request.model.outputs, facts).write()


def weights(model: MLModel, patterns: Sequence[str]) -> set[str]:
    """The weights that `patterns` mean: by their own names, or as those of the operators that read them.

    As coremltools' configurations have them, which say "op_1" where a program says "var_1".
    """
    operations = {op.outputs[0].name: op for op in _operations(model)}
    chosen = matching(operations, patterns, "operator and no weight")
    read = {b.name for name in chosen for argument in operations[name].inputs.values() for b in argument.arguments}
    weights = {name for name in chosen | read if name in operations and operations[name].type == "const"}
    return weights | {name.replace("var_", "op_", 1) for name in weights if name.startswith("var_")}


def _compressed(model: MLModel) -> int:
    """Weights that are stored in another form than they are used in."""
    return sum(op.type.startswith("constexpr_") for op in _operations(model))


def _operations(model: MLModel) -> Iterator[MIL_pb2.Operation]:
    for function in model.get_spec().mlProgram.functions.values():
        for block in function.block_specializations.values():
            yield from block.operations


def plain(name: str) -> str:
    """A name as the conversion gave it: the same in a package before and after each technique."""
    return RENAMED.sub(lambda match: "var_" if match[0] == "op_" else "", name)


def matching(names: Iterable[str], patterns: Sequence[str], what: str) -> set[str]:
    """The names that match one of `patterns`, whatever techniques they went through. Raises InputError for no match."""
    known = {name: plain(name) for name in names}
    chosen = _skipped_layers.matching(known.values(), [plain(pattern) for pattern in patterns], what)
    return {name for name, shown in known.items() if shown in chosen}


def kept(options: Mapping[str, Json], layers: Sequence[_skipped_layers.SensitiveLayer]) -> dict[str, Json]:
    """The options with these layers of a diagnosis left as they are."""
    return _skipped_layers.skipping(options, (plain(layer["operator"]) for layer in layers))
