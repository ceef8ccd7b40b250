"""model_card.json: the facts of a model for app developers, the same in every package."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from edgecompress.commands import init
from edgecompress.core import engine_settings, environments, registry
from edgecompress.core.errors import InputError, blamed, brief
from edgecompress.core.json import read_json
from edgecompress.core.model import Artifact, TensorSpec, sha256_of
from edgecompress.core.package_contents import CARD, MODEL, TOKENS
from edgecompress.core.package_names import names
from edgecompress.core.plugins import RuntimePlugin
from edgecompress.core.version import __version__
from edgecompress.data import tensors
from edgecompress.data.found_boxes import MOST_FOUND
from edgecompress.data.shipped_items import ANSWERS
from edgecompress.extras.apps import golden

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from edgecompress.core import model_card as cards
    from edgecompress.reporting.model import Report
    from edgecompress.reporting.model_variant import Variant

SCHEMA = "edgecompress/model_card/1"
SCHEMA_FILE = Path(__file__).with_name("model_card.schema.json")
LABELS: Literal["labels.json"] = "labels.json"
NAME_CHARS, TEXT_CHARS = 200, 4000
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,2}(?:[-+][0-9A-Za-z.-]+)?")
CLASSIFIES = ("top1", "top5")  # metrics that say that an output holds scores of classes
TOP_K = 5
LARGEST = 16 << 20  # bytes of a card that is read: ours have some kilobytes
PROBABLE, FARTHEST = 0.05, 0.5  # how far from 1 probabilities in int8 add up to: by the median item, and by any
METRIC = ("unit", "before", "after", "n", "low", "high", "items_lost", "items_gained")
NUMBER = ("metric", "value", "unit", "status", "n", "low", "high", "source", "reason")


@dataclass(frozen=True)
class Shipped:
    """What a deploy shipped: the artifact, its test items, its outputs for them, and the report with its variant."""

    artifact: Artifact
    excerpt: Artifact
    verdict: Artifact | None
    report: Report
    variant: str
    runtime: str


@dataclass(frozen=True)
class Common:
    """Options that every packager has."""

    name: str = ""  # empty: the source's
    version: str = "1.0.0"

    def __post_init__(self) -> None:
        if not VERSION.fullmatch(self.version):
            raise ValueError(f"version '{self.version}': write 1.0.0, or 1.0.0-beta.2")


def build(
    shipped: Shipped, packager: str, common: Common, payload: Path, options: DataclassInstance | None = None
) -> cards.Card:
    """Fills the empty folder `payload` with model, golden items, labels and card; returns the card.

    `options`: the packager's; they are kept, for `package verify` writes the code of a package again.
    Raises InputError for what cannot be told: labels that are not those of the model, an excerpt that does not fit.
    """
    artifact, report = shipped.artifact, shipped.report
    variant, source = report.variant(shipped.variant), report.source
    tried = variant.also.items() if variant else ()  # the other runtimes
    also = {name: shortened(says, TEXT_CHARS) for name, says in tried if not says.startswith("not tried")}
    files = _model(artifact, payload)
    golds = golden.write(artifact, shipped.excerpt, shipped.verdict, payload)
    task = _postprocess(shipped, golds)
    name = shortened(common.name or str(source.get("name") or "") or _model_name(report), NAME_CHARS)
    card = {
        "schema": SCHEMA,
        "name": name,
        "description": shortened(_description(report), TEXT_CHARS),
        "version": common.version,
        "slug": names(name).slug,
        "packager": packager,
        "packaged": {
            "by": __version__,
            "options": dataclasses.asdict(options) if options else {},
            "platforms": [str(platform) for platform in report.target.get("platforms") or ()],
        },
        "runtime": {
            "name": shipped.runtime,
            "version": _runtime_version(shipped),
            "settings": engine_settings.of(artifact, registry.runtime(shipped.runtime).settings),
            **({"threads": threads} if (threads := report.threads(shipped.variant)) > 1 else {}),
            **({"compiled": compiled} if (compiled := _compiled(artifact)) else {}),
            **({"also": also} if also else {}),
        },
        "model": {"format": artifact.kind, "precision": _precision(variant), "main": _main(files), "files": files},
        "inputs": [spec(each) for each in artifact.inputs],
        "outputs": [spec(each) for each in artifact.outputs],
        "preprocess": _preprocess(shipped),
        "postprocess": task,
        "labels": _labels(shipped, task, payload),
        "golden": golds,
        **_tokenizer(shipped.excerpt, payload),
        "compression": _compression(shipped),
        "versions": {name: version for name, version in sorted(report.versions.items()) if version},
        "quality": _quality(variant),
        "profile": _profile(report, variant),
        "licence": shortened(str(source.get("licence") or ""), TEXT_CHARS),
        "source": {"name": shortened(str(source.get("name") or ""), NAME_CHARS), "model": _model_name(report)},
        "created": report.date,
    }
    checked = check(card, str(artifact.path))
    (payload / CARD).write_text(text(checked), encoding="utf-8")
    return checked


def text(card: cards.Card) -> str:
    """The card as text: the same bytes for the same card."""
    return json.dumps(card, indent=1, ensure_ascii=True, allow_nan=False, sort_keys=True) + "\n"


def check(card: object, where: str) -> cards.Card:
    """The card. Raises InputError, with the key, for what is none."""
    import msgspec

    from edgecompress.core.model_card import Card

    told = cast(Card, card)
    try:
        known = msgspec.convert(card, Card)
        if more := [key for key, value in told.items() if value != known.get(key)]:
            raise ValueError(f"has a key that no card has - at `$.{more[0]}`")
        for row in told["profile"]:
            unknown = row["value"] is None
            if unknown != (row["status"] == "unavailable") or (unknown and not row["reason"]):
                raise ValueError(f"{row['metric']} has no value, or is unavailable without a reason - at `$.profile`")
    except ValueError as error:
        message, _, place = ascii(str(error))[1:-1].partition(" - at ")
        place = place.replace("`", "").removeprefix("$.").strip("$") or "the card"
        raise InputError(f"{where}: {CARD}: {place}: {brief(message)}") from error
    return told


def json_schema() -> dict[str, object]:
    """The JSON Schema of the card."""
    import msgspec

    from edgecompress.core.model_card import Card
    from edgecompress.reporting.model import NULL_WITH_REASON

    parts = msgspec.json.schema(Card)["$defs"]
    for part in parts.values():
        part |= {"description": " ".join(part["description"].split()), "additionalProperties": False}
    parts["Profile"] |= NULL_WITH_REASON
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA,
        **parts.pop("Card"),
        "$defs": parts,
    }


def read(file: Path) -> cards.Card:
    """The card in a file, checked. Raises InputError."""
    try:
        card = read_json(file, LARGEST)
    except FileNotFoundError as error:
        raise InputError(f"{file.name}: is missing") from error
    except (OSError, ValueError) as error:
        raise blamed(error)(f"{file.name}: damaged: {brief(ascii(str(error))[1:-1])}") from error
    return check(card, file.parent.name)


def shortened(text: str, limit: int) -> str:
    """At most so many characters: names of ten megabytes have an end too."""
    whole = text.encode("utf-8", "replace").decode()
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


# --------------------------------------------------------------------------- the model


def _model(artifact: Artifact, payload: Path) -> list[cards.File]:
    """Copies the artifact's files, without those that no device needs."""
    here = {artifact.path / name for name in artifact.facts.get("here", ())}
    files: list[cards.File] = []
    for file in artifact.files():
        if file in here:
            continue
        path = f"{MODEL}/{file.relative_to(artifact.path).as_posix()}"
        (payload / path).parent.mkdir(parents=True, exist_ok=True)
        (payload / path).write_bytes(file.read_bytes())
        files.append({"path": path, "bytes": file.stat().st_size, "sha256": sha256_of(file)})
    return sorted(files, key=lambda f: f["path"])


def _main(files: Sequence[cards.File]) -> str:
    """The file that a runtime opens; the folder, where the format is one (.mlpackage, SavedModel); else the largest."""
    if not files:
        raise InputError("the artifact has no file that a device needs; deploy it again")
    tops = {"/".join(f["path"].split("/")[:2]) for f in files}
    if len(tops) == 1:
        return tops.pop()
    named = [f for f in files if Path(f["path"]).stem == MODEL]
    return max(named or files, key=lambda f: (f["bytes"], f["path"]))["path"]


def spec(told: TensorSpec) -> cards.Spec:
    """An input or an output as a card has it."""
    how = told.quantization
    return {
        "name": told.name,
        "shape": list(told.concrete()),
        "dtype": told.dtype,
        "layout": told.layout,
        "quantization": {"scale": list(how.scale), "zero_point": list(how.zero_point), "axis": how.axis}
        if how
        else None,
        "feeds": told.feeds,
    }


def _compiled(artifact: Artifact) -> cards.Compiled | None:
    """What a compiler says of it; None where none made it."""
    if not (told := artifact.facts.get("estimate")):
        return None
    where = {"accelerator": told["accelerator"], "chip": told["system"], "cpu_operators": told["cpu_operators"]}
    return cast("cards.Compiled", {"by": told["source"], **where})


def _runtime_version(shipped: Shipped) -> str:
    """The version of the runtime's own library: the report's, else the one here."""
    engine = _engine(registry.runtime(shipped.runtime))
    return shipped.report.versions.get(engine) or environments.version(engine) or "" if engine else ""


def _engine(runtime: RuntimePlugin) -> str:
    """The package that runs a model: of those that a runtime requires the one that a session imports."""
    packages = [environments.package(r) for r in runtime.requires]
    imported = tuple({_plain(name.split(".")[0]) for name in runtime.imports} - {"torch"})
    return next((name for name in packages if imported and _plain(name).startswith(imported)), (packages or [""])[0])


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _description(report: Report) -> str:
    """The author's; none where it is still what `init` wrote."""
    told = str(report.source.get("description") or "")
    return "" if told.endswith(init.UNTOLD) else told


def _model_name(report: Report) -> str:
    """What the author calls it: a reference, or a file without its folder."""
    reference = str(report.source.get("model") or "model")
    name = reference if ":" in reference and "/" not in reference else re.split(r"[/\\]", reference)[-1]
    return shortened(name, NAME_CHARS)


# --------------------------------------------------------------------------- what is done around it


def _preprocess(shipped: Shipped) -> Mapping[str, object] | None:
    declared = (shipped.report.data or {}).get("preprocess")
    if not declared:
        return None
    taken = tensors.check_inputs(shipped.artifact, shipped.excerpt)
    stored = declared.get("input") or shipped.excerpt.inputs[0].name
    applied = next((ours for ours, theirs in taken.items() if theirs == stored), stored)
    return {"spectrogram": None, **declared, "input": applied}


def _postprocess(shipped: Shipped, golds: cards.Golden) -> cards.Postprocess:
    """Boxes where the verdict says how they are read; classes, also of pixels, where the metric and a shape do."""
    if shipped.verdict and (told := shipped.verdict.facts.get("detector")):
        detector = cast("cards.Detector", {key: value for key, value in told.items() if key not in ("certain", "by")})
        detector["size"] = _picture_size(shipped)
        name = detector["scores"]["name"]
        return {"task": "detect", "output": name, "probabilities": True, "top_k": MOST_FOUND, "detect": detector}
    if shipped.verdict and (told := shipped.verdict.facts.get("segments")) and (size := _picture_size(shipped)):
        segments: cards.Segments = {"axis": told["axis"], "single": told["single"], "size": size}
        return {
            "task": "segment",
            "output": told["output"],
            "probabilities": False,
            "top_k": TOP_K,
            "segment": segments,
        }
    scores = [item for item in golds["outputs"] if item["shape"][-1:] > [1] and set(item["shape"][:-1]) <= {1}]
    if shipped.report.source.get("metric") not in CLASSIFIES or not scores:
        return {"task": "raw", "output": "", "probabilities": False, "top_k": TOP_K}
    name = scores[0]["name"]
    top_k = min(TOP_K, scores[0]["shape"][-1])
    return {"task": "classify", "output": name, "probabilities": _probabilities(shipped, name), "top_k": top_k}


def _picture_size(shipped: Shipped) -> list[int] | None:
    """Height and width of the picture that the model takes, by the declared layout, else by where the colours are."""
    declared = _preprocess(shipped)
    for spec in shipped.artifact.inputs:
        shape = spec.concrete()
        if len(shape) == 4 and (declared is None or spec.name == declared["input"]):
            layout = (declared or {}).get("layout") or spec.layout or ("NCHW" if shape[1] in (1, 3) else "NHWC")
            return list(shape[2:] if layout == "NCHW" else shape[1:3])
    return None


def _probabilities(shipped: Shipped, name: str) -> bool:
    """Whether every answer that was kept is a distribution already."""
    import numpy as np

    if shipped.verdict is None or not tensors.file_of(shipped.verdict.path / ANSWERS, name).is_file():
        return False
    answers = np.asarray(tensors.load(shipped.verdict, ANSWERS, name), np.float64)
    off = np.abs(answers.sum(axis=-1) - 1)
    between = bool((answers >= 0).all() and (answers <= 1 + PROBABLE).all())
    return between and bool(np.median(off) <= PROBABLE and off.max() <= FARTHEST)


def _labels(shipped: Shipped, task: cards.Postprocess, payload: Path) -> cards.Labels:
    """Writes labels.json: the classes' names in order, or none."""
    labels = (shipped.report.data or {}).get("label_names") or shipped.report.source.get("labels") or ()
    known = [str(label) for label in labels] if task["task"] != "raw" else []
    shapes = {spec.name: spec.concrete() for spec in shipped.artifact.outputs}
    detector = task.get("detect")
    classes = _box_classes(detector) if detector else shapes[task["output"]][-1] if known else 0
    if segments := task.get("segment"):
        axis = segments["axis"]
        classes = len(known) if axis is None else max(2, shapes[task["output"]][axis])
    if detector and detector["background"] is not None and len(known) == classes + 1:
        del known[detector["background"]]
    if known and len(known) != classes and not (detector and detector["classes"]):
        raise InputError(
            f"{shipped.artifact.path}: {len(known)} labels for the {classes} classes of '{task['output']}'; "
            "correct the source's labels and deploy again"
        )
    file = payload / LABELS
    file.write_text(json.dumps(known, indent=0, ensure_ascii=True) + "\n", encoding="utf-8")
    return {"file": LABELS, "count": len(known), "sha256": sha256_of(file)}


def _box_classes(detector: cards.Detector) -> int:
    """How many classes the scores are of, the background not among them."""
    scores = detector["scores"]
    return scores["end"] - scores["first"] - detector["anything"] - (detector["background"] is not None)


def _tokenizer(excerpt: Artifact, payload: Path) -> dict[str, list[cards.TokenizerFile]]:
    """Copies the tokenizer of a source that has one."""
    if not (excerpt.path / TOKENS).is_dir():
        return {}
    shutil.copytree(excerpt.path / TOKENS, payload / TOKENS)
    files = sorted((payload / TOKENS).iterdir())
    return {
        "tokenizer": [
            {"path": f"{TOKENS}/{file.name}", "bytes": file.stat().st_size, "sha256": sha256_of(file)} for file in files
        ]
    }


# --------------------------------------------------------------------------- what is known of it


def _precision(variant: Variant | None) -> cards.Precision | None:
    """What the report read in the artifact's file; None where the file or the report does not tell."""
    known = variant.artifact.precision if variant and variant.artifact else None
    if not known or known["weights"] is None:
        return None
    return {"weights": known["weights"], "computes": known["computes"] or {}}


def _compression(shipped: Shipped) -> list[cards.Compression]:
    """Each step of the recipe; the facts are what was made known of it, as far as they are single values."""
    variants = shipped.report.target.get("variant") or ()
    recipe = next((v.get("compress") for v in variants if v.get("name") == shipped.variant), None)
    steps: list[cards.Compression] = [
        {
            "technique": _technique(shipped, str(step["use"])),
            "options": {key: value for key, value in step.items() if key != "use"},
            "facts": {},
        }
        for step in recipe or ()
    ]
    if steps:
        facts = shipped.artifact.facts.items()
        steps[-1]["facts"] = {k: v for k, v in facts if v is None or isinstance(v, (bool, int, float, str))}
    return steps


def _technique(shipped: Shipped, use: str) -> str:
    """What a recipe asks for; of a precision ("int8") the technique that reached it, by the variant's stages."""
    known = registry.names("techniques")
    ran = [row.stage for row in shipped.report.stages if row.stage.startswith(f"{shipped.variant}/")]
    made = (name for stage in ran if (name := stage.rsplit("/", 1)[-1]) in known)
    return {registry.technique(name).provides: name for name in made}.get(use, use)


def _quality(variant: Variant | None) -> dict[str, object] | None:
    verified = variant.verify if variant else None
    if not verified or not (metric := verified.metric):
        return None
    decided = [check for check in verified.checks if check.decision]
    check = next((c for c in decided if c.decision == "undecided"), next(iter(decided), None))
    return {
        "metric": metric.name,
        **{key: getattr(metric, key) for key in METRIC},
        "decision": check.decision if check else "",
        "needed": check.needed if check else None,
        "says": shortened(check.says, TEXT_CHARS) if check else "",
        "split": golden.SPLIT,
    }


def _profile(report: Report, variant: Variant | None) -> list[dict[str, object]]:
    """Every number of the report with its status word and the device it is of."""
    device = str(report.device.get("name") or "")
    numbers = variant.numbers.values() if variant else ()
    return [{**{key: getattr(number, key) for key in NUMBER}, "device": device} for number in numbers]
