"""Hugging Face folders as sources: what they answer, the texts that they are fed, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgecompress.core import registry
from edgecompress.core import source as sources
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Context, Request, Stage
from edgecompress.core.settings import Limits, Source
from edgecompress.data import tensors
from edgecompress.extras.apps import model_card
from edgecompress.extras.hugging_face import nets, pretrained, texts
from edgecompress.formats import torch_module, torch_program
from edgecompress.pipeline import job, plan
from edgecompress.pipeline.conversion import TRACE
from edgecompress.stages import data, golden, shipped_items, trace, verify

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[UNK]",
    "the",
    "a",
    "film",
    "is",
    "good",
    "bad",
    "very",
    "not",
    "it",
    "dull",
]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXT = {**SMALL, "initializer_range": 0.3, "vocab_size": len(WORDS), "max_position_embeddings": 32}


def bert(cls: str = "BertForSequenceClassification") -> Any:
    return getattr(transformers, cls)(transformers.BertConfig(**TEXT, id2label={0: "bad", 1: "good"}))


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT, num_key_value_heads=1, pad_token_id=0))


def vit() -> Any:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**SMALL, image_size=16, patch_size=8, num_labels=3)
    )


def whisper() -> Any:
    sizes = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 1), ("ffn_dim", 32))}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_mel_bins": 8, "max_source_positions": 10}
    tokens = {"vocab_size": 9, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(d_model=16, **sizes, **heads, **tokens)
    )


def saved(folder: Path, net: Any, **how: Any) -> Path:
    net.eval().save_pretrained(folder, **how)
    return folder


def with_tokenizer(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", padding_side="left"
    ).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def samples(out: Path, source: Source) -> Artifact:
    """The data stage, its options through JSON as a worker gets them."""
    out.mkdir(parents=True)
    options = json.loads(json.dumps(sources.resolved(source).for_data()))
    return data.run(Request({}, out, options, Context()))


def loaded(out: Path, source: Source, fed: Artifact) -> Artifact:
    out.mkdir(parents=True)
    return pretrained.load(Request({"samples": fed}, out, sources.resolved(source).for_model(), Context()))


def module(tmp_path: Path, source: Source) -> tuple[Artifact, dict[str, np.ndarray], np.ndarray]:
    """The folder as a module, the first items of its data, and what its net, rebuilt, answers to them."""
    fed = samples(tmp_path / "samples", source)
    made = loaded(tmp_path / "module", source, fed)
    given = torch_module.example(made, fed, 4)
    (answer,) = torch_module.outputs(torch_module.rebuild(made), made, given).values()
    return made, {name: tensor.numpy() for name, tensor in given.items()}, answer.numpy()


def lines(file: Path, count: int = 24) -> Path:
    drawn = np.random.default_rng(0)
    rows = [" ".join(drawn.choice(WORDS[5:], drawn.integers(2, 9))) + f"\t{i % 2}" for i in range(count)]
    file.write_text("\n".join(["sentence\tlabel", *rows]))
    return file


# --------------------------------------------------------------------------- nets


@pytest.mark.parametrize(
    ("make", "task"), [(bert, ""), (lambda: bert("BertForMaskedLM"), ""), (llama, ""), (bert, "embedding")]
)
def test_a_padded_text_is_answered_as_the_library_answers_it_alone(
    tmp_path: Path, make: Callable[[], Any], task: str
) -> None:
    net = make()
    folder = with_tokenizer(saved(tmp_path / "net", net))
    made, given, answers = module(tmp_path, Source(str(folder), str(lines(tmp_path / "a.tsv")), length=12, task=task))
    assert (made.path / "tokenizer.json").exists()
    for i, mask in enumerate(given["attention_mask"]):
        own = int(mask.sum())
        assert mask.tolist() == [1] * own + [0] * (12 - own)
        ids = torch.from_numpy(given["input_ids"][i : i + 1, :own])
        with torch.inference_mode():
            right = net.bert(ids).last_hidden_state.mean(1) if task else net(input_ids=ids).logits
        ours = answers[i : i + 1, :own] if right.ndim == 3 else answers[i : i + 1]
        np.testing.assert_allclose(ours, right.numpy(), atol=1e-4)


DECODER = {
    **TEXT,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
KINDS = ["sliding_attention", "full_attention"]
WINDOWS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": 4, "layer_types": KINDS}),
    "gemma3-both-ways": (
        "Gemma3TextConfig",
        {"head_dim": 16, "sliding_window": 4, "layer_types": KINDS, "use_bidirectional_attention": True},
    ),
    "modernbert": ("ModernBertConfig", {"local_attention": 4, "cls_token_id": 1, "sep_token_id": 2}),
    "mistral": ("MistralConfig", {"sliding_window": 4}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "phi3": ("Phi3Config", {"sliding_window": 4}),
    "llama": ("LlamaConfig", {}),
    "chunks": (
        "Llama4TextConfig",
        {
            "head_dim": 16,
            "intermediate_size_mlp": 64,
            "attention_chunk_size": 4,
            "moe_layers": [],
            "num_local_experts": 2,
            "layer_types": ["chunked_attention", "full_attention"],
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    ["embedding", *(pytest.param(task, marks=pytest.mark.prove) for task in ("text-classification", "causal-lm"))],
)
@pytest.mark.parametrize("family", WINDOWS)
def test_each_layer_sees_what_the_library_lets_it_see(tmp_path: Path, family: str, task: str) -> None:
    name, sizes = WINDOWS[family]
    config = getattr(transformers, name)(**{**DECODER, **sizes})
    maker = getattr(transformers, nets.CLASSES[task])
    if type(config) not in maker._model_mapping:
        pytest.skip("the library has no such net")
    net = maker.from_config(config)
    folder = with_tokenizer(saved(tmp_path / "net", net))
    words = " ".join(np.random.default_rng(1).choice(WORDS[5:], 14))
    rows = [f"{words}\t0", "the film is\t1"] * 12
    (tmp_path / "a.tsv").write_text("\n".join(["sentence\tlabel", *rows]))
    source = Source(str(folder), str(tmp_path / "a.tsv"), length=18, task=task)
    fed = samples(tmp_path / "samples", source)
    made = loaded(tmp_path / "module", source, fed)
    (tmp_path / "program").mkdir()
    program = trace.run(Request({"model": made, "samples": fed}, tmp_path / "program", {}, Context()))
    graph = torch_program.load(program.file(".pt2")).module()
    for i in range(2):
        given = {name: tensor[i : i + 1] for name, tensor in torch_module.example(made, fed, 2).items()}
        seen = given["attention_mask"].bool()
        with torch.inference_mode():
            right = net(**given)[0]
            ours = torch_program.call(graph, list(given.values()))[0]
        if task == "embedding":
            right = right[seen].mean(0, keepdim=True)
        elif task == "causal-lm":
            ours, right = ours[seen], right[seen]
        np.testing.assert_allclose(ours.numpy(), right.numpy(), atol=1e-4)


def test_a_mask_that_is_no_addition_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "MASKED", 0.0)
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    with pytest.raises(InputError, match="a mask of its own kind"):
        module(tmp_path, Source(str(folder), str(lines(tmp_path / "a.tsv")), length=12, task="embedding"))


def test_a_decoder_that_finds_no_end_of_a_padded_text_is_refused(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=1, n_head=2, n_positions=32)
    folder = with_tokenizer(saved(tmp_path / "net", transformers.GPT2ForSequenceClassification(config)))
    with pytest.raises(InputError, match=r"several lengths at once: .*padding token.*; correct config\.json"):
        module(tmp_path, Source(str(folder), str(lines(tmp_path / "a.tsv")), length=12))


def test_pictures_are_prepared_as_the_folder_declares(tmp_path: Path) -> None:
    net = vit()
    folder = saved(tmp_path / "net", net)
    declared = {
        "size": {"height": 16, "width": 16},
        "do_normalize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(declared))
    for i in range(12):
        place = tmp_path / "pictures" / "abc"[i % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((20, 20, 3), 20 * i, np.uint8)).save(place / f"{i}.png")
    _, given, answers = module(tmp_path, Source(str(folder), str(tmp_path / "pictures")))
    assert given["input"].shape == (4, 3, 16, 16)
    assert -2 <= given["input"].min() < given["input"].max() <= 2
    with torch.inference_mode():
        right = net(torch.from_numpy(given["input"])).logits
    np.testing.assert_allclose(answers, right.numpy(), atol=1e-4)


def test_of_a_speech_net_the_encoder_is_taken(tmp_path: Path) -> None:
    net = whisper()
    np.savez(tmp_path / "mel.npz", input=np.random.default_rng(0).normal(size=(9, 8, 20)).astype(np.float32))
    _, given, answers = module(tmp_path, Source(str(saved(tmp_path / "net", net)), str(tmp_path / "mel.npz")))
    with torch.inference_mode():
        right = net.get_encoder()(torch.from_numpy(given["input"])).last_hidden_state
    np.testing.assert_allclose(answers, right.numpy(), atol=1e-4)


def test_weights_in_shards_are_read(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert(), max_shard_size="20KB"))
    assert (folder / "model.safetensors.index.json").exists()
    module(tmp_path, Source(str(folder), str(lines(tmp_path / "a.tsv")), length=8))


def test_a_folder_is_known_and_the_library_not_imported_for_it(tmp_path: Path) -> None:
    folder = saved(tmp_path / "net", bert())
    code = (
        "import sys; from edgecompress.core import source, settings; "
        f"print(source.resolved(settings.Source({str(folder)!r})).call, 'transformers' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["extras.hugging_face.pretrained:load", "False"]


# --------------------------------------------------------------------------- texts


def test_rows_have_pairs_and_labels_by_name(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    row = {"text": "the film", "text_pair": "is good", "label": "good"}
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps(row)] * 4))
    fed = samples(tmp_path / "out", Source(str(folder), str(tmp_path / "a.jsonl"), length=9))
    assert tensors.load(fed, "test", "token_type_ids")[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert set(tensors.load(fed, "test", tensors.LABELS).tolist()) == {1}
    assert fed.facts["label_names"] == ["bad", "good"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"text": "a film", "label": 0}, {"text": "a film"}], "line 2: it has no label, unlike those before it"),
        ([{"text": "a film", "label": 7}], "line 1: label '7' is none of the net's: bad, good"),
        (
            [{"Text": "a film", "stars": 1}],
            "line 1: it has no text in a column called text or .*; its columns are Text, stars",
        ),
        ([{"text": 3}], "line 1: it has no text in a column called text"),
    ],
)
def test_a_row_that_is_not_as_the_others_or_as_the_net_is_told_with_its_line(
    rows: list[dict[str, Any]], says: str, tmp_path: Path
) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=says):
        list(texts.of(Source(str(folder), str(tmp_path / "a.jsonl"), length=9)).items(tmp_path / "a.jsonl"))


def test_plain_text_is_windows_whose_labels_are_the_next_tokens(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", llama()))
    for split in ("calibrate", "select", "test"):
        (tmp_path / f"{split}.txt").write_text("the film is good " * 6)
    fed = samples(tmp_path / "out", Source(str(folder), str(tmp_path), length=7))
    ids, labels = tensors.load(fed, "test", "input_ids"), tensors.load(fed, "test", tensors.LABELS)
    assert fed.facts["splits"] == {"calibrate": 3, "select": 3, "test": 3}
    assert ids[1, 0] == labels[0, -1]
    assert (ids[:, 1:] == labels[:, :-1]).all()


def test_of_a_short_text_of_a_language_model_no_padding_is_judged(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", llama()))
    (tmp_path / "a.csv").write_text("text\n" + "the film\n" * 4)
    fed = samples(tmp_path / "out", Source(str(folder), str(tmp_path / "a.csv"), length=6))
    assert tensors.load(fed, "test", tensors.LABELS)[0].tolist() == [5, 7, 2, -100, -100, -100]


def test_what_ships_has_the_tokenizer(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    fed = samples(tmp_path / "samples", Source(str(folder), str(lines(tmp_path / "a.tsv")), length=8))
    out = tmp_path / "excerpt"
    out.mkdir()
    answers = dataclasses.replace(fed, outputs=())
    shipped_items.run(Request({"samples": fed, "golden": answers}, out, {"items": 2}, Context()))
    assert (out / "tokenizer" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    (payload := tmp_path / "payload").mkdir()
    told = model_card._tokenizer(dataclasses.replace(fed, path=out), payload)["tokenizer"]
    assert [file["path"] for file in told] == ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]


# --------------------------------------------------------------------------- texts of several lengths


@pytest.mark.slow
@pytest.mark.parametrize("make", [bert, pytest.param(llama, marks=pytest.mark.prove)])
def test_at_each_length_the_file_answers_as_the_library_does_to_the_text_alone(
    tmp_path: Path, make: Callable[[], Any]
) -> None:
    net = make()
    folder = with_tokenizer(saved(tmp_path / "net", net))
    source = Source(str(folder), str(lines(tmp_path / "a.tsv", 48)), length=(6, 12), metric="none")
    fed = samples(tmp_path / "samples", source)
    model = exported(tmp_path, source, loaded(tmp_path / "module", source, fed), fed)
    session = registry.load("runtimes", "onnx").open(model, 1)
    for length in (6, 9, 12):
        ids, mask = (tensors.load(fed, "test", name)[:, :length] for name in ("input_ids", "attention_mask"))
        i = int(np.flatnonzero(mask.sum(1) < 6)[0])
        given = {"input_ids": ids[i : i + 1], "attention_mask": mask[i : i + 1], "token_type_ids": 0 * mask[i : i + 1]}
        own = int(mask[i].sum())
        answer = session.run({spec.name: given[spec.name] for spec in model.inputs})[model.outputs[0].name]
        with torch.inference_mode():
            right = net(input_ids=torch.from_numpy(given["input_ids"][:, :own])).logits
        ours = answer[:, :own] if right.ndim == 3 else answer
        np.testing.assert_allclose(ours, right.numpy(), atol=1e-4)


@pytest.mark.slow
@pytest.mark.prove
def test_a_file_that_is_wrong_for_short_texts_alone_is_refused(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    source = Source(str(folder), str(lines(tmp_path / "a.tsv", 48)), length=(3, 6, 12), metric="none")
    fed = samples(tmp_path / "samples", source)
    net = loaded(tmp_path / "module", source, fed)
    (tmp_path / "golden").mkdir()
    right = golden.run(Request({"model": net, "samples": fed}, tmp_path / "golden", {"splits": ["test"]}, Context()))
    model = exported(tmp_path, source, net, fed)
    options = {"runtime": "onnx", "metric": "none", "limits": dataclasses.asdict(Limits(sqnr_db=60.0))}
    for name, ok in (("good", True), ("bad", False)):
        (tmp_path / name).mkdir()
        parts = {"model": model, "golden": right, "samples": fed}
        checks = {c["name"]: c for c in verify.run(Request(parts, tmp_path / name, options, Context())).facts["checks"]}
        assert checks["sqnr_db"]["ok"] is ok
        assert checks["length_6"]["value"] + checks["length_12"]["value"] == tensors.count(fed, "test")
        assert checks["length_3"]["says"].startswith("Not verified at a length of 3: no text")
        model = half_as_loud_below(model, 12)


def test_the_axis_stays_open_where_the_runtimes_files_can(tmp_path: Path) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    toml = tmp_path / "source.toml"
    toml.write_text(f'model = "{folder}"\ndata = "{lines(tmp_path / "a.tsv")}"\nlength = [8, 24]\n')
    planned = plan.deploy(job.job(str(toml), "x86", only=("fp32", "litert-fp32")))
    traces = {s.name: s.options["dynamic"] for s in planned.stages if isinstance(s, Stage) and s.call == TRACE}
    names = ("input_ids", "attention_mask", "token_type_ids")
    assert traces == {"trace": {name: {"1": "length:8..24"} for name in names}, "litert-fp32/trace": {}}


def exported(tmp_path: Path, source: Source, net: Artifact, fed: Artifact) -> Artifact:
    """The net as an .onnx."""
    for out in ("program", "onnx"):
        (tmp_path / out).mkdir()
    options = {"dynamic": sources.resolved(source).dynamic}
    program = trace.run(Request({"model": net, "samples": fed}, tmp_path / "program", options, Context()))
    made: Artifact = registry.load("runtimes", "onnx").export(
        Request({"model": program}, tmp_path / "onnx", None, Context())
    )
    return made


def half_as_loud_below(model: Artifact, length: int) -> Artifact:
    """An .onnx whose answers are halved for texts that are shorter."""
    import onnx

    file = model.file(".onnx")
    proto = onnx.load(file)
    last = next(n for n in proto.graph.node if model.outputs[0].name in n.output)
    last.output[0] = "whole"
    text = f"""<ir_version: 8, opset_import: ["" : {proto.opset_import[0].version}]>
    agraph (int64[1, L] input_ids, float[1, 2] whole) => (float[1, 2] {model.outputs[0].name}) {{
        size = Shape (input_ids)
        axis = Constant <value_ints = [1]> ()
        tokens = Gather (size, axis)
        most = Constant <value_ints = [{length}]> ()
        short = Less (tokens, most)
        half = Constant <value_floats = [0.5]> ()
        one = Constant <value_floats = [1.0]> ()
        factor = Where (short, half, one)
        {model.outputs[0].name} = Mul (whole, factor)
    }}"""
    proto.graph.node.extend(onnx.parser.parse_model(text).graph.node)
    onnx.save(proto, file)
    return model.write()


# --------------------------------------------------------------------------- what is refused


def config(folder: Path, **changed: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def weights(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    held = load_file(file)
    change(held)
    save_file(held, file, {"format": "pt"})


def index(folder: Path, shard: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "architecture": (lambda f: config(f, architectures=["BertForNothing"]), "'BertForNothing' is for no task"),
    "unknown": (lambda f: config(f, model_type="nothing"), "transformers cannot load it"),
    "quantized": (lambda f: config(f, quantization_config={}), "its weights are quantized"),
    "missing": (lambda f: weights(f, lambda held: held.pop("classifier.weight")), "lack 'classifier.weight'"),
    "unexpected": (lambda f: weights(f, lambda held: held.update(other=torch.ones(2))), "hold 'other'"),
    "sizes": (lambda f: config(f, num_labels=5, id2label={str(i): str(i) for i in range(5)}), "by config.json"),
    "nan": (lambda f: weights(f, lambda held: held["classifier.weight"].fill_(torch.nan)), "holds 64 NaN"),
    "pickle": (pickled, "pytorch_model.bin is a pickle"),
    "escape": (lambda f: index(f, "../../x.safetensors"), "is no .safetensors file of the folder"),
    "shard": (lambda f: index(f, "x.safetensors"), "has no x.safetensors"),
    "tokenizer": (lambda f: [file.unlink() for file in f.glob("tokenizer*")], "has no tokenizer"),
    "length": (lambda f: config(f, max_position_embeddings=4), "has 4 positions"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_folder_is_one_line(tmp_path: Path, fault: str) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    spoil, says = BROKEN[fault]
    spoil(folder)
    with pytest.raises(InputError, match=says) as caught:
        module(tmp_path, Source(str(folder), str(lines(tmp_path / "a.tsv")), length=8))
    assert "\n" not in str(caught.value)


def unreadable(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize(
    ("spoil", "says"), [(unreadable, "has no tokenizer for texts"), (pickled, "pytorch_model.bin is a pickle")]
)
def test_a_folder_that_lacks_a_file_is_told_before_anything_runs(
    tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    spoil(folder)
    with pytest.raises(InputError, match=says):
        plan.deploy(job.job(str(folder), data=str(lines(tmp_path / "a.tsv")), only=("fp32",)))


@pytest.mark.parametrize("text", ["", "sentence\tlabel\n"])
def test_a_file_without_texts_is_told(tmp_path: Path, text: str) -> None:
    folder = with_tokenizer(saved(tmp_path / "net", bert()))
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(InputError, match=r"a\.tsv: has no text; give it at least one row"):
        samples(tmp_path / "out", Source(str(folder), str(tmp_path / "a.tsv")))


def test_tied_tables_that_differ_are_told(tmp_path: Path) -> None:
    net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT, num_key_value_heads=1, pad_token_id=0))
    folder = with_tokenizer(saved(tmp_path / "net", net))
    config(folder, tie_word_embeddings=True)
    with pytest.raises(InputError, match="two tables that differ"):
        module(tmp_path, Source(str(folder), str(lines(tmp_path / "a.tsv")), length=8))


def test_text_without_a_folder_is_refused(tmp_path: Path) -> None:
    source = dataclasses.asdict(Source("nets:build", str(lines(tmp_path / "a.tsv"))))
    with pytest.raises(InputError, match="text needs a tokenizer"):
        data.run(Request({}, tmp_path, {"source": source}, Context()))


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_texts_that_are_not_utf_8_are_refused(tmp_path: Path, name: str) -> None:
    rows = "text\tlabel\nun café\t0\n" if name.endswith("tsv") else '{"text": "un café", "label": 0}\n'
    (tmp_path / name).write_bytes(rows.encode("cp1252"))
    with pytest.raises(InputError, match=rf"{name}: its text is not UTF-8; save it as UTF-8"):
        texts.count(tmp_path / name)
