"""Trimmed vocabularies: kept texts keep their tokens and answers, of every kind of tokenizer, and the rest is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgecompress
from edgecompress import InputError, Options
from edgecompress.core import source as sources
from edgecompress.core.model import Artifact, Context, Request
from edgecompress.core.settings import Source
from edgecompress.extras.hugging_face import texts, trimming

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

STORIES = [
    f"the {a} {b} {c} in the garden, and {d} days later it was {e}."
    for a in ("small", "brown", "hungry", "friendly")
    for b in ("rabbit", "squirrel", "hedgehog")
    for c in ("slept", "wandered", "disappeared")
    for d in ("seven", "eleven")
    for e in ("unhappy", "forgotten")
]
ABOUT = "the hungry rabbit slept in the garden"  # what the user's texts are about
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
HOW = {"vocab_size": 300, "special_tokens": SPECIAL}


def word_piece() -> Any:
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(STORIES, tokenizers.trainers.WordPieceTrainer(**HOW))
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return made


def byte_pairs() -> Any:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet)
    made.train_from_iterator(STORIES, trainer)
    return made


def unigram() -> Any:
    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.train_from_iterator(STORIES, tokenizers.trainers.UnigramTrainer(**HOW, unk_token="[UNK]"))
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return made


def bert(size: int) -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, vocab_size=size, max_position_embeddings=64))


def llama(size: int, tied: bool = False) -> Any:
    heads = {"num_key_value_heads": 2, "tie_word_embeddings": tied, "max_position_embeddings": 64}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **heads, **tokens, vocab_size=size))


def classifier(size: int) -> Any:
    config = transformers.BertConfig(**SIZES, vocab_size=size, max_position_embeddings=64)
    return transformers.BertForSequenceClassification(config)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "WordPiece, tied with a bias": (word_piece, bert),
    "WordPiece, without a head": (word_piece, classifier),
    "BPE": (byte_pairs, llama),
    "BPE, tied": (byte_pairs, lambda size: llama(size, tied=True)),
    "Unigram": (unigram, bert),
}


def folder(tmp_path: Path, kind: str) -> tuple[Path, Any]:
    torch.manual_seed(0)
    make, net = KINDS[kind]
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=make(), pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    )
    made = net(len(tokenizer))
    made.eval().save_pretrained(tmp_path / "net")
    tokenizer.save_pretrained(tmp_path / "net")
    return tmp_path / "net", made


def written(tmp_path: Path, lines: list[str]) -> Path:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
    return tmp_path / "a.jsonl"


def trimmed(tmp_path: Path, net: Path, data: Path, least: int = 1) -> Artifact:
    out = tmp_path / f"trimmed-{least}"
    out.mkdir()
    options = {**sources.resolved(Source(str(net), str(data), length=32)).for_data(), "least": least}
    return trimming.run(Request({}, out, json.loads(json.dumps(options)), Context()))


@pytest.mark.parametrize("kind", KINDS)
def test_kept_texts_have_their_tokens_and_answers_and_others_are_still_read(tmp_path: Path, kind: str) -> None:
    net, whole = folder(tmp_path, kind)
    data = written(tmp_path, [ABOUT, *(f"{ABOUT} {n}" for n in ("and", "later", "days"))] * 5)
    made = trimmed(tmp_path, net, data)
    told = made.facts
    assert told["tokens"][1] < 0.85 * told["tokens"][0]
    assert told["bytes"][1] < told["bytes"][0]
    assert told["held_out"] == {"texts": 2, "whole": 1.0, "tokens": 1.0}
    assert told["db"] is None or told["db"] > 100
    before, after = (transformers.AutoTokenizer.from_pretrained(path) for path in (net, made.path))
    assert after.decode(after(ABOUT)["input_ids"]) == before.decode(before(ABOUT)["input_ids"])
    for text in (ABOUT, "the friendly squirrel disappeared"):
        ids = after(text)["input_ids"]
        assert max(ids) < len(after) == told["tokens"][1]
        assert after.unk_token_id not in ids
    small = type(whole).from_pretrained(made.path).eval()
    with torch.inference_mode():
        ours = small(input_ids=torch.tensor([after(ABOUT)["input_ids"]])).logits
        right = whole(input_ids=torch.tensor([before(ABOUT)["input_ids"]])).logits
    rows = [before.convert_tokens_to_ids(token) for token in after.convert_ids_to_tokens(range(len(after)))]
    torch.testing.assert_close(ours, right if ours.shape == right.shape else right[..., rows], atol=1e-4, rtol=1e-4)


def test_what_the_texts_did_not_show_is_told_by_those_that_chose_nothing(tmp_path: Path) -> None:
    net, _ = folder(tmp_path, "BPE")
    data = tmp_path / "texts"
    data.mkdir()
    written(tmp_path, [ABOUT] * 3).rename(data / "train.jsonl")
    written(tmp_path, [ABOUT, "the friendly squirrel disappeared"]).rename(data / "test.jsonl")
    told = trimmed(tmp_path, net, data).facts["held_out"]
    assert (told["texts"], told["whole"]) == (2, 0.5)
    assert 0.3 < told["tokens"] < 1


def test_tokens_that_are_rare_go_where_that_is_asked_for(tmp_path: Path) -> None:
    net, _ = folder(tmp_path, "WordPiece, without a head")
    data = written(tmp_path, [ABOUT] * 9 + ["the friendly squirrel disappeared"])
    assert trimmed(tmp_path, net, data, 2).facts["tokens"][1] < trimmed(tmp_path, net, data).facts["tokens"][1]


def test_the_command_writes_a_folder_that_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    net, _ = folder(tmp_path, "BPE")
    data = written(tmp_path, [ABOUT] * 12)
    made = edgecompress.trim(net, "small", data=data, settings={"source.length": 32}, options=Options(store="store"))
    assert "smaller pieces" in str(made)
    assert len(list(texts.of(Source("small", str(data), length=32)).items(data))) == 12
    with pytest.raises(InputError, match="small: is there already"):
        edgecompress.trim(net, "small", data=data, options=Options(store="store"))


@pytest.mark.parametrize(
    ("model", "data", "says"),
    [
        ("net", "nothing:fn", "no module|cannot be imported|nothing"),
        ("demo", "a.jsonl", "needs? a tokenizer|MODEL must be a Hugging Face folder"),
    ],
)
def test_what_has_no_tokens_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, data: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder(tmp_path, "BPE")
    written(tmp_path, [ABOUT] * 12)
    (tmp_path / "demo.onnx").write_bytes(b"")
    with pytest.raises(InputError, match=says):
        edgecompress.trim("demo.onnx" if model == "demo" else model, "small", data=data, options=Options(store="store"))
