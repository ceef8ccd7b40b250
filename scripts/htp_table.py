"""Asks Qualcomm's compiler which operators it takes, word by word and precision by precision; writes the table of that.

`python scripts/htp_table.py`, after a new version of onnxruntime-qnn: minutes; then ruff formats the table. `ask` is
what the tests hold it to.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # whose nets have one operator each

import kernel_nets  # type: ignore[import-not-found]  # noqa: E402
import numpy as np  # noqa: E402, TID253
import torch  # noqa: E402, TID253

from edgecompress.core.model import Artifact, Request, TensorSpec  # noqa: E402
from edgecompress.data import tensors  # noqa: E402
from edgecompress.engines.onnx import operations as onnx_operations  # noqa: E402
from edgecompress.engines.onnx import session  # noqa: E402
from edgecompress.engines.onnx.runtimes import onnx as onnx_runtime  # noqa: E402
from edgecompress.engines.qnn import htp  # noqa: E402
from edgecompress.engines.qnn.techniques import htp_fp16, htp_int8, htp_int8_a16  # noqa: E402
from edgecompress.formats import torch_operations  # noqa: E402

TABLE = ROOT / "edgecompress/engines/qnn/placed.py"
TECHNIQUES: dict[str, Any] = {"fp16": htp_fp16, "int8": htp_int8, "int8-a16": htp_int8_a16}
ITEMS = 4  # to calibrate with


def ask(name: str, soc: str = "SM8650") -> tuple[set[str], set[str], dict[str, list[str]]]:
    """The words of a net of kernel_nets and the types of its ONNX file; by precision the types that the HTP leaves."""
    net = kernel_nets.built(name)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = Path(folder)
        for each in ("program", "onnx", "samples", *TECHNIQUES):
            (place / each).mkdir()
        torch.export.save(torch.export.export(net.net, net.inputs), place / "program/program.pt2")
        specs = [TensorSpec(f"x{i}", tuple(x.shape), str(x.dtype)[6:]) for i, x in enumerate(net.inputs)]
        made = net.net(*net.inputs)
        outputs = [TensorSpec("y", tuple(made.shape), str(made.dtype)[6:])]
        program = Artifact(place / "program", "program", tuple(specs), tuple(outputs)).write()
        file = onnx_runtime.export(Request({"model": program}, place / "onnx"))
        arrays = {f"x{i}": np.concatenate([x.numpy()] * ITEMS) for i, x in enumerate(net.inputs)}
        tensors.write_split(place / "samples/calibrate", arrays)
        samples = Artifact(place / "samples", "samples", tuple(specs)).write()
        answers: dict[str, list[str]] = {}
        for precision, technique in TECHNIQUES.items():
            inputs = {"model": file, "samples": samples}
            small = technique.apply(Request(inputs, place / precision, technique.Options()))
            left = htp.compiled(small.file(".onnx"), place / f"{precision}.onnx", soc, session.options(1)).left
            answers[precision] = sorted({op["type"] for op in left})
        words = {op.word for op in torch_operations.operations(program)}
        return words, {op.type for op in onnx_operations.operations(file)}, answers


def main() -> None:
    """Writes the table."""
    words: dict[str, set[str]] = {precision: set() for precision in TECHNIQUES}
    taken: dict[str, set[str]] = {precision: set() for precision in TECHNIQUES}
    known, types = set[str](), set[str]()
    for name in kernel_nets.NETS:
        found, made, answers = ask(name)
        word = name.split(" ")[0]
        assert word in found, f"{name}: {found}"
        known.add(word)
        types |= made
        print(name, sorted(made), answers, flush=True)
        for precision, left in answers.items():
            words[precision] |= {word} if left else set()
            taken[precision] |= made - {*left}
    lines = [
        '"""What the HTP takes, as Qualcomm\'s compiler answered: written by scripts/htp_table.py."""',
        "\nfrom __future__ import annotations\n",
        "from collections.abc import Mapping\n",
        "from edgecompress.core.operations import words\n",
        f"COMPILER = {htp.compiler()!r}",
        "# Words of operators, and types of ONNX, that it was asked",
        f"WORDS = {_set(known)}",
        f"TYPES = {_set(types)}",
        "# Those that it left, in no precision but what is named",
        f"WORDS_LEFT: Mapping[str, frozenset[str]] = {_sets(words)}",
        f"TYPES_LEFT: Mapping[str, frozenset[str]] = {_sets({p: types - taken[p] for p in taken})}",
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sets(each: dict[str, set[str]]) -> str:
    return "{" + ", ".join(f"{name!r}: {_set(found)}" for name, found in each.items()) + "}"


def _set(found: set[str]) -> str:
    lines = textwrap.wrap(" ".join(sorted(found)), 108)
    return f"words({' '.join(repr(f'{line} ') for line in lines[:-1])} {lines[-1]!r})" if lines else "words('')"


if __name__ == "__main__":
    main()
