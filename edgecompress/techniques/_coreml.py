"""A Core ML package through one of coremltools' compressions of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgecompress.errors import StageFailed
from edgecompress.mil import convert
from edgecompress.model import Artifact, Request


def compressed(request: Request, who: str, compress: Callable[[Any], Any]) -> Artifact:
    """The package with what `compress` makes of coremltools' model of it; facts: {"compressed": number of weights}.

    "lost" where it found nothing to compress. Raises StageFailed with coremltools' reason.
    """
    before = convert.opened(request.model.path / convert.FILE)
    request.progress(0.1, "compressing")
    try:
        after = compress(before)
    except Exception as error:  # coremltools' errors have no base of their own
        raise StageFailed(f"{who}: coremltools: {first_line(error)}") from error
    convert.save(after, request.out)
    count = _compressed(after) - _compressed(before)
    facts: dict[str, Any] = {"compressed": count}
    if not count:
        facts["lost"] = "no weight to compress: each is smaller than the least size, or compressed already"
    return Artifact(request.out, "mlpackage", request.model.inputs, request.model.outputs, facts).write()


def _compressed(model: Any) -> int:
    """Weights that are stored in another form than they are used in."""
    blocks = [b for f in model.get_spec().mlProgram.functions.values() for b in f.block_specializations.values()]
    return sum(op.type.startswith("constexpr_") for block in blocks for op in block.operations)


def first_line(error: Exception) -> str:
    """The error's class and the first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
