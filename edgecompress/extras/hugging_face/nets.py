"""A Hugging Face folder as a torch net: a class of `transformers` by its config.json, with weights of safetensors.

No file of the folder is executed and nothing is fetched. In a "module" artifact its factory is torch_module.PRETRAINED
and the task, and config.json and the tokenizer's files lie beside the weights.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import user_code
from edgecompress.core.errors import InputError
from edgecompress.core.source import CONFIG, MASK
from edgecompress.extras.hugging_face import pretrained_folder

if TYPE_CHECKING:
    import torch

CLASSES = {
    "text-classification": "AutoModelForSequenceClassification",
    "masked-lm": "AutoModelForMaskedLM",
    "causal-lm": "AutoModelForCausalLM",
    "image-classification": "AutoModelForImageClassification",
    "encoder": "AutoModel",
    "embedding": "AutoModel",
}
HEADLESS = ("encoder", "embedding")
MASKED = -1e4  # added to the scores of what is not seen: finite in fp16 too
LEAST_DB = 60.0  # of the net with our mask against the library's own
OPTIONS = {"local_files_only": True, "trust_remote_code": False}


def load(folder: Path, task: str) -> torch.nn.Module:
    """The folder's net for a task, in fp32 and eval mode. Raises InputError: what is wrong with the folder."""
    import torch
    import transformers

    pretrained_folder.check_weights(folder)
    with _quiet():
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **OPTIONS)
            own, told = getattr(transformers, CLASSES[task]).from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                attn_implementation="eager",
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **OPTIONS,
            )
        except Exception as error:  # whatever a stranger's folder makes the library raise
            code = "auto_map" in pretrained_folder.read(folder)
            hint = (
                "the folder's own code is not run (no trust_remote_code): give a factory pkg.mod:fn"
                if code
                else "save it again"
            )
            raise InputError(f"{folder}: transformers cannot load it: {user_code.error_line(error)}; {hint}") from error
    _check_complete(folder, task, told)
    _check_tied(folder, own)
    return _net(own, task)


def rebuilt(folder: Path, task: str) -> torch.nn.Module:
    """The net by the CONFIG of a folder; its weights hold anything."""
    import torch
    import transformers

    with _quiet():
        config = transformers.AutoConfig.from_pretrained(folder, **OPTIONS)
        own = getattr(transformers, CLASSES[task]).from_config(config, dtype=torch.float32, attn_implementation="eager")
    return _net(own, task)


def keep(folder: Path, out: Path) -> None:
    """Copies what a net is rebuilt from, and its tokenizer's files."""
    shutil.copyfile(folder / CONFIG, out / CONFIG)
    pretrained_folder.keep_tokenizer(folder, out)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's own lines: ours say what counts."""
    from transformers.utils import logging as progress

    progress.disable_progress_bar()
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _check_complete(folder: Path, task: str, told: Mapping[str, Any]) -> None:
    """Raises InputError for weights that the folder lacks or has too many of.

    Without its head a net has no use for the head's weights, and none of a pooler that is not read.
    """
    missing = sorted(name for name in told["missing_keys"] if task not in HEADLESS or "pooler." not in name)
    if missing:
        what = f"'{missing[0]}' and {len(missing) - 1} more" if missing[1:] else f"'{missing[0]}'"
        raise InputError(f"{folder}: its weights lack {what}, for '{task}'; train that part, or set another task")
    if mismatched := sorted(told["mismatched_keys"]):
        name, stored, built = mismatched[0]
        raise InputError(
            f"{folder}: '{name}' is {[*stored]} in its weights and {[*built]} by {CONFIG}; save the two together"
        )
    if (unexpected := sorted(told["unexpected_keys"])) and task not in HEADLESS:
        raise InputError(
            f"{folder}: its weights hold '{unexpected[0]}', which the net of {CONFIG} lacks; save the two together"
        )


def _check_tied(folder: Path, own: Any) -> None:
    """Raises InputError where two tables are one by CONFIG, and two in the weights."""
    head = own.get_output_embeddings() if getattr(own.config, "tie_word_embeddings", False) else None
    if head is not None and head.weight is not own.get_input_embeddings().weight:
        raise InputError(
            f"{folder}: {CONFIG} ties the output to the embeddings (tie_word_embeddings), but the weights hold two "
            "tables that differ; set it to false there, or save one table"
        )


def _net(own: Any, task: str) -> torch.nn.Module:
    """`own` with tensors alone in and out, by their names."""
    if getattr(own.config, "is_encoder_decoder", False) and task in HEADLESS:
        own = own.get_encoder()
    net = _of_text(own, task) if own.main_input_name == "input_ids" else _of_signals(own, task)
    return net.eval()


def _of_text(own: Any, task: str) -> torch.nn.Module:
    """A text net; the library says which tokens each of its layers sees, and `_added` puts that as an addition."""
    import torch

    pooled = task == "embedding"
    own.config.use_cache = False

    class TextNet(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = own

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            token_type_ids: torch.Tensor | None = None,
        ) -> torch.Tensor:
            """int64 [n, length] each; the mask is 1 where there is a token and 0 behind the last one."""
            with _masks_added():
                return self.own_answer(input_ids, attention_mask, token_type_ids)

        def own_answer(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            token_type_ids: torch.Tensor | None = None,
        ) -> torch.Tensor:
            """The same with the masks that the library makes."""
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            kinds = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            answer: torch.Tensor = self.net(input_ids=input_ids, attention_mask=mask, **kinds, return_dict=True)[0]
            if not pooled:
                return answer
            weights = mask.to(torch.float32)[:, :, None]
            return (answer * weights).sum(1) / weights.sum(1)

    return TextNet()


@contextmanager
def _masks_added() -> Iterator[None]:
    """The masks of all kinds (causal, of a window, in chunks) made by `_added`."""
    from transformers import masking_utils

    makers = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    makers["eager"] = _added
    try:
        yield
    finally:
        del makers["eager"]


def _added(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., torch.Tensor],
    attention_mask: torch.Tensor,
    **_: object,
) -> torch.Tensor:
    """What is added to the scores [n, heads, queries, keys] of a layer.

    `mask_function` says by places which keys a query sees, `attention_mask` [n, keys] which are tokens. The library's
    own way, index arithmetic and the least number that a float can be, stops some converters and fp16.
    """
    import torch
    from transformers import masking_utils

    added = ((1 - attention_mask.to(torch.float32)) * MASKED)[:, None, None, :]
    if mask_function is masking_utils.bidirectional_mask_function:
        return added
    items, heads = torch.arange(batch_size)[:, None, None, None], torch.zeros(1, 1, 1, 1, dtype=torch.int64)
    queries, keys = torch.arange(q_length)[None, None, :, None], torch.arange(kv_length)[None, None, None, :]
    return added + (1 - mask_function(items, heads, queries, keys).to(torch.float32)) * MASKED


def _of_signals(own: Any, task: str) -> torch.nn.Module:
    """A net of pictures or sound."""
    import torch

    main, pooled = own.main_input_name, task == "embedding"

    class SignalNet(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = own

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            """Pixels, features or samples, as the net takes them."""
            answer = self.net(**{main: input}, return_dict=True)[0]
            return answer.mean(1) if pooled else answer

    return SignalNet()


def check_mask(net: torch.nn.Module, named: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Raises InputError where a text net answers otherwise with our masks than with the library's own."""
    import torch

    if not hasattr(net, "own_answer"):
        return
    own_answer: Any = net.own_answer
    try:
        with torch.inference_mode():
            ours, theirs = net(**named), own_answer(**named)
    except Exception as error:
        raise InputError(
            f"{folder}: transformers takes no texts of several lengths at once: {user_code.error_line(error)}; "
            f"correct {CONFIG}"
        ) from error
    if ours.ndim == 3:  # each token's
        seen = named.get(MASK, torch.ones_like(named["input_ids"])).bool()
        ours, theirs = ours[seen], theirs[seen]
    noise, signal = (ours - theirs).pow(2).sum(), theirs.pow(2).sum()
    if not noise <= signal * 10 ** (-LEAST_DB / 10):
        raise InputError(
            f"{folder}: its attention needs a mask of its own kind (one that is no addition); give a factory pkg.mod:fn"
        )
