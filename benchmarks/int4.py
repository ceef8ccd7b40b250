"""Weights of 8 and 4 bits of a trained language model: perplexity by engine and way of rounding, with intervals.

    python benchmarks/int4.py [--folder DIR] [--only ENGINE,...] [--json FILE]

The net is that of tiny_llama.py, trained where DIR has none. Each engine gets its file from the same net, its
techniques by their options, 64 windows of the training text to fit with; what is counted is the test text, which
chose nothing. Intervals: of the difference in mean loss to the engine's own fp32, 95 %, bootstrap over windows.
NNCF's own best (scale estimation, and both together) is beside ours for OpenVINO.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import numpy as np
import tiny_llama
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from edgecompress.core import config, registry
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.formats.precision import facts
from edgecompress.techniques import _nncf

FITTED = 64  # windows
DRAWS = 2000
BATCH = 8
WAYS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "onnx": [
        ("onnx_int8_weights", {}),
        ("onnx_int4", {}),
        ("onnx_int4", {"symmetric": True}),
        ("onnx_int4", {"group": 64}),
        ("onnx_int4", {"method": "gptq"}),
        ("onnx_int4", {"method": "awq"}),
    ],
    "openvino": [
        ("nncf_int8_weights", {}),
        ("nncf_int4", {}),
        ("nncf_int4", {"symmetric": True}),
        ("nncf_int4", {"group": 64}),
        ("nncf_int4", {"method": "scale_estimation"}),
        ("nncf_int4", {"method": "gptq"}),
        ("nncf_int4", {"method": "awq"}),
    ],
    "litert": [
        ("litert_dynamic", {}),
        ("litert_int4", {}),
        ("litert_int4", {"group": 64}),
        ("litert_int4", {"method": "gptq"}),
    ],
    "executorch": [("torchao_int4", {"int8": ("*",)}), ("torchao_int4", {}), ("torchao_int4", {"group": 64})],
}


@dataclass(frozen=True)
class Row:
    """One file. `loss`: the change of the mean loss per token against fp32, and its interval."""

    engine: str
    way: str
    perplexity: float
    loss: float
    low: float
    high: float
    bytes: int
    weights: dict[str, int] | None
    seconds: float


class Prefill(torch.nn.Module):
    """ids [batch, length] -> logits [batch, length, vocabulary]."""

    def __init__(self, net: LlamaForCausalLM) -> None:
        super().__init__()
        self.net = net

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(input_ids=input_ids, use_cache=False).logits
        return logits


def main() -> int:
    """Prints the table."""
    parser = figures.flags(__doc__, "json")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "tiny_llama")
    parser.add_argument("--only", default=",".join(WAYS), help="engines, separated by commas")
    asked = parser.parse_args()
    folder = tiny_llama.trained(asked.folder, 25)
    found: list[Row] = []
    for engine in asked.only.split(","):
        with tempfile.TemporaryDirectory() as work:
            for row in rows(engine, folder, Path(work)):
                found.append(row)
                change = f"{math.expm1(row.loss):+.2%} ({math.expm1(row.low):+.2%} to {math.expm1(row.high):+.2%})"
                what = f"{row.engine:11}{row.way:34}{row.perplexity:8.3f}  {change:34}"
                print(f"{what}{row.bytes:>12,} B {row.seconds:5.0f} s", flush=True)
    told = {"date": time.strftime("%Y-%m-%d"), "torch": torch.__version__}
    figures.write(asked.json, {**told, "rows": [*map(dataclasses.asdict, found)]})
    return 0


def rows(engine: str, folder: Path, work: Path) -> Iterator[Row]:
    """fp32 and each way of an engine."""
    windows = {part: cut(folder, part) for part in ("train", "test")}
    chosen = np.random.default_rng(0).choice(len(windows["train"]), FITTED, replace=False)
    module, samples = program(folder, work), fitting(windows["train"][chosen], work)
    runtime = registry.load("runtimes", engine)
    own = exported(engine, module, work)
    before = losses(runtime, finished(engine, own, work), windows["test"])
    yield row(engine, "fp32", finished(engine, own, work), before, before, 0.0)
    ways: list[tuple[str, Callable[[Path], Artifact]]] = []
    for name, options in WAYS[engine]:
        technique = registry.load("techniques", name)
        given = config.build(technique.Options, options, "")
        says = " ".join([name, *(str(v) if v is not True else k for k, v in options.items())])
        ways.append(
            (says, lambda out, t=technique, g=given: t.apply(Request({"model": own, "samples": samples}, out, g)))
        )
    if engine == "openvino":
        ways += [(f"NNCF's own: {' + '.join(h)}", lambda out, h=h: peer(own, samples, out, h)) for h in PEERS]
    for says, make in ways:
        began = time.monotonic()
        out = fresh(work)
        made = finished(engine, make(out), work)
        spent = time.monotonic() - began
        yield row(engine, says, made, before, losses(runtime, made, windows["test"]), spent)


PEERS = (("scale_estimation",), ("awq", "scale_estimation"), ("gptq",))


def peer(model: Artifact, samples: Artifact, out: Path, how: tuple[str, ...]) -> Artifact:
    """NNCF as its documentation has it for language models."""
    import openvino

    from edgecompress.engines.openvino import ir

    nncf = _nncf.library()
    items = tensors.load(samples, "calibrate", "input_ids")
    net = nncf.compress_weights(
        openvino.Core().read_model(model.file(".xml")),
        mode=nncf.CompressWeightsMode.INT4_ASYM,
        group_size=32,
        all_layers=True,
        dataset=nncf.Dataset([{"input_ids": items[i : i + 1]} for i in range(len(items))]),
        subset_size=len(items),
        advanced_parameters=nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
        ),
        **dict.fromkeys(how, True),
    )
    ir.save(net, out)
    return Artifact(out, "openvino", model.inputs, model.outputs).write()


def row(engine: str, way: str, made: Artifact, before: np.ndarray, after: np.ndarray, seconds: float) -> Row:
    off = after - before
    draws = np.random.default_rng(0).integers(0, len(off), (DRAWS, len(off)))
    low, high = np.percentile(off[draws].mean(1), (2.5, 97.5))
    weights = facts.of(made)["weights"]
    return Row(engine, way, math.exp(after.mean()), off.mean(), low, high, made.size_bytes, weights, seconds)


def cut(folder: Path, part: str) -> np.ndarray:
    """The text in windows of ids [n, length]."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = np.array(tokenizer((folder / f"{part}.txt").read_text(encoding="utf-8"))["input_ids"])
    whole = len(ids) // tiny_llama.LENGTH
    return ids[: whole * tiny_llama.LENGTH].reshape(whole, -1)


def fitting(ids: np.ndarray, work: Path) -> Artifact:
    tensors.write_split(work / "samples" / "calibrate", {"input_ids": ids})
    spec = TensorSpec("input_ids", (Dim("batch", 1, BATCH), ids.shape[1]), "int64")
    return Artifact(work / "samples", "samples", (spec,), (), {"splits": {"calibrate": len(ids)}}).write()


def program(folder: Path, work: Path) -> Artifact:
    net = Prefill(LlamaForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval())
    ids = torch.zeros((2, tiny_llama.LENGTH), dtype=torch.long)
    dynamic = {"input_ids": {0: torch.export.Dim("batch", min=1, max=BATCH)}}
    out = fresh(work)
    torch.export.save(torch.export.export(net, (ids,), dynamic_shapes=dynamic), out / "program.pt2")
    batch = Dim("batch", 1, BATCH)
    logits = TensorSpec("logits", (batch, tiny_llama.LENGTH, tiny_llama.VOCABULARY))
    return Artifact(out, "program", (TensorSpec("input_ids", (batch, tiny_llama.LENGTH), "int64"),), (logits,)).write()


def exported(engine: str, source: Artifact, work: Path) -> Artifact:
    """What the engine's techniques take."""
    if engine == "openvino":  # reads ONNX
        source = export("onnx", source, work)
    return source if engine == "executorch" else export(engine, source, work)


def finished(engine: str, made: Artifact, work: Path) -> Artifact:
    """What the engine runs."""
    return export(engine, made, work) if engine == "executorch" else made


def export(engine: str, source: Artifact, work: Path) -> Artifact:
    runtime = registry.load("runtimes", engine)
    options = config.build(runtime.Options, {}, "") if hasattr(runtime, "Options") else None
    made: Artifact = runtime.export(Request({"model": source}, fresh(work), options))
    return made


def fresh(work: Path) -> Path:
    out = work / f"made-{len(list(work.iterdir()))}"
    out.mkdir()
    return out


def losses(runtime: Any, model: Artifact, windows: np.ndarray) -> np.ndarray:
    """The mean loss of each window's tokens but the first, [n]."""
    session = runtime.open(model, 2)
    size = model.batch if isinstance(model.batch, int) else 1
    found = []
    for ids in windows.reshape(-1, size, windows.shape[1]) if len(windows) % size == 0 else windows[:, None]:
        logits = torch.from_numpy(np.array(session.run({"input_ids": ids.astype(model.inputs[0].dtype)})["logits"]))
        each = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), torch.from_numpy(ids[:, 1:]).flatten(), reduction="none"
        )
        found.append(each.reshape(len(ids), -1).mean(1))
    session.close()
    return torch.cat(found).double().numpy()


if __name__ == "__main__":
    sys.exit(main())
