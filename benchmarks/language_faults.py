"""Does a verification refuse what goes wrong in language models, and let pass what does not?

    python benchmarks/language_faults.py [--folder DIR]

The net is that of tiny_llama.py, trained where DIR has none. Eight faults are planted in it, one after the other, and
32 windows of the test text go through what decides in a deploy (edgecompress.data.output_checks, default limits); so
do its weights in int8 and in bfloat16, which must pass. Exit 1 where a fault passes or a clean net is refused.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import damage
import figures
import int4
import numpy as np
import tiny_llama
import torch
from transformers import LlamaForCausalLM

from edgecompress.core.model import Dim, TensorSpec

WINDOWS = 32
SPEC = TensorSpec("logits", (Dim("batch", 1, WINDOWS), tiny_llama.LENGTH, tiny_llama.VOCABULARY))
Net = LlamaForCausalLM


def main() -> int:
    """Prints what each is refused for."""
    parser = figures.flags(__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "tiny_llama")
    folder = tiny_llama.trained(parser.parse_args().folder, 25)
    net = LlamaForCausalLM.from_pretrained(folder).eval()
    ids = torch.from_numpy(int4.cut(folder, "test")[:WINDOWS])
    golden = answers(net, ids)
    wrong = 0
    for name, changed in (*FAULTS.items(), *CLEAN.items()):
        found = answers(*changed(copy.deepcopy(net), ids))
        refused = damage.refusals({"logits": golden}, {"logits": found}, [SPEC])
        wrong += bool(refused) == (name in CLEAN)
        grown = perplexity(found, ids) / perplexity(golden, ids)
        says = f"refused: {refused[0]}" if refused else "passes"
        print(f"{name:26}perplexity x {grown:8.3f}  {says[:150]}", flush=True)
    print(f"{len(FAULTS)} faults, {len(CLEAN)} clean nets: {wrong} judged wrongly")
    return int(wrong > 0)


def answers(net: Net, ids: torch.Tensor, mask: torch.Tensor | None = None) -> np.ndarray:
    """The logits of each window."""
    with torch.inference_mode():
        parts = [net(input_ids=part, attention_mask=mask, use_cache=False).logits for part in ids.split(8)]
    return torch.cat(parts).numpy()


def perplexity(logits: np.ndarray, ids: torch.Tensor) -> float:
    """Of the windows' own next tokens."""
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    return float(loss.exp())


Changed = Callable[[Net, torch.Tensor], tuple[object, ...]]


def scaled(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    net.model.layers[2].mlp.up_proj.weight.data *= 2  # as where a bit is counted twice
    return net, ids


def unmasked(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    return net, ids, torch.zeros(1, 1, tiny_llama.LENGTH, tiny_llama.LENGTH)


def untied(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    torch.manual_seed(0)
    net.lm_head.weight = torch.nn.Parameter(torch.randn_like(net.lm_head.weight) * net.lm_head.weight.std())
    return net, ids


def swapped(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    for layer in net.model.layers:
        attention = layer.self_attn
        attention.k_proj, attention.v_proj = attention.v_proj, attention.k_proj
    return net, ids


def another_base(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    other = copy.deepcopy(net.config)
    other.rope_parameters = {**other.rope_parameters, "rope_theta": 500_000.0}
    changed = LlamaForCausalLM(other).eval()
    changed.load_state_dict(net.state_dict())
    return changed, ids


def truncated(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    net.model.embed_tokens.weight.data[tiny_llama.VOCABULARY * 3 // 4 :] = 0
    return net, ids


def half(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    net.model.layers = net.model.layers[::2]
    return net, ids


def another_tokenizer(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    order = torch.from_numpy(np.random.default_rng(0).permutation(tiny_llama.VOCABULARY))
    return net, order[ids]


def bfloat16(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    for parameter in net.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return net, ids


def int8(net: Net, ids: torch.Tensor) -> tuple[object, ...]:
    for module in net.model.layers.modules():
        if isinstance(module, torch.nn.Linear):
            scale = module.weight.data.abs().amax(1, keepdim=True) / 127
            module.weight.data = (module.weight.data / scale).round() * scale
    return net, ids


FAULTS: dict[str, Changed] = {
    "a layer's scale": scaled,
    "mask ignored": unmasked,
    "lost tied head": untied,
    "keys and values swapped": swapped,
    "another RoPE base": another_base,
    "truncated vocabulary": truncated,
    "half of the layers": half,
    "another tokenizer": another_tokenizer,
}
CLEAN: dict[str, Changed] = {"weights in bfloat16": bfloat16, "weights in int8": int8}

if __name__ == "__main__":
    sys.exit(main())
