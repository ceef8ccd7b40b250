"""model_card.json: the facts of a model for app developers, the same in every package."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress.core import engine_settings, environments, registry
from edgecompress.core.errors import InputError, blamed
from edgecompress.core.json import read_json
from edgecompress.core.model import SETTINGS, Artifact, TensorSpec, sha256_of
from edgecompress.core.package_contents import CARD, Card
from edgecompress.core.package_names import names
from edgecompress.core.plugins import RuntimePlugin
from edgecompress.core.version import __version__
from edgecompress.data import tensors
from edgecompress.packaging import golden

SCHEMA = "edgecompress/model_card/1"
SCHEMA_FILE = Path(__file__).with_name("model_card.schema.json")
LABELS = "labels.json"
MODEL = "model"  # the folder of the artifact's files
NAME_CHARS, TEXT_CHARS = 200, 4000
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,2}(?:[-+][0-9A-Za-z.-]+)?")
CLASSIFIES = ("top1", "top5")  # metrics that say that an output holds scores of classes
TOP_K = 5
LARGEST = 16 << 20  # bytes of a card that is read: ours have some kilobytes
PROBABLE = 1e-3  # how far from 1 probabilities may add up to
METRIC = ("before", "after", "n", "low", "high", "items_lost", "items_gained")
NUMBER = ("metric", "value", "unit", "status", "n", "low", "high", "source")


@dataclass(frozen=True)
class Shipped:
    """What a deploy shipped: the artifact, its test items, its outputs for them, and the report."""

    artifact: Artifact
    excerpt: Artifact
    verdict: Artifact | None
    report: Mapping[str, Any]
    origin: Mapping[str, Any]  # deploy.json: the variant, the runtime, the source
    runtime: str


@dataclass(frozen=True)
class Common:
    """Options that every packager has."""

    name: str = ""  # empty: the source's
    version: str = "1.0.0"

    def __post_init__(self) -> None:
        if not VERSION.fullmatch(self.version):
            raise ValueError(f"version '{self.version}': write 1.0.0, or 1.0.0-beta.2")


def build(shipped: Shipped, packager: str, common: Common, payload: Path, options: Any = None) -> Card:
    """Fills the empty folder `payload` with model, golden items, labels and card; returns the card.

    `options`: the packager's, a dataclass; they are kept, for `package verify` writes the code of a package again.
    Raises InputError for what cannot be told: labels that are not those of the model, an excerpt that does not fit.
    """
    files = _model(shipped.artifact, payload)
    golds = golden.write(shipped.artifact, shipped.excerpt, shipped.verdict, payload)
    task = _postprocess(shipped, golds)
    report, source = shipped.report, _table(shipped.report, "source")
    card = {
        "schema": SCHEMA,
        **_called(shipped, common),
        "packager": packager,
        "packaged": _packaged(shipped, options),
        "runtime": _runtime(shipped),
        "model": _file(shipped, files),
        "inputs": [_spec(spec) for spec in shipped.artifact.inputs],
        "outputs": [_spec(spec) for spec in shipped.artifact.outputs],
        "preprocess": _preprocess(shipped),
        "postprocess": task,
        "labels": _labels(shipped, task, payload),
        "golden": golds,
        "compression": _compression(shipped),
        "versions": {str(k): str(v) for k, v in sorted(_table(report, "versions").items()) if v},
        "quality": _quality(shipped),
        "profile": _profile(shipped),
        "licence": shortened(str(source.get("licence") or ""), TEXT_CHARS),
        "source": {"name": shortened(str(source.get("name") or ""), NAME_CHARS), "model": _model_name(shipped)},
        "created": str(report.get("date") or ""),
    }
    check(card, str(shipped.artifact.path))
    (payload / CARD).write_text(text(card), encoding="utf-8")
    return card


def _called(shipped: Shipped, common: Common) -> Card:
    source = _table(shipped.report, "source")
    name = shortened(common.name or str(source.get("name") or "") or _model_name(shipped), NAME_CHARS)
    description = shortened(str(source.get("description") or ""), TEXT_CHARS)
    return {"name": name, "description": description, "version": common.version, "slug": names(name).slug}


def _runtime(shipped: Shipped) -> Card:
    settings = engine_settings.of(shipped.artifact, registry.runtime(shipped.runtime).settings)
    return {"name": shipped.runtime, "version": _runtime_version(shipped), "settings": settings}


def _file(shipped: Shipped, files: Sequence[Card]) -> Card:
    kind, precision = shipped.artifact.kind, _precision(shipped)
    return {"format": kind, "precision": precision, "main": _main(files), "files": files}


def text(card: Card) -> str:
    """The card as text: the same bytes for the same card."""
    return json.dumps(card, indent=1, ensure_ascii=True, allow_nan=False, sort_keys=True) + "\n"


def check(card: Any, where: str) -> None:
    """Raises InputError, with the key, for a card that does not match its schema."""
    from jsonschema import Draft202012Validator

    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    errors = sorted(Draft202012Validator(schema).iter_errors(card), key=lambda e: list(map(str, e.absolute_path)))
    if errors:
        place = ".".join(map(str, errors[0].absolute_path)) or "the card"
        message = " ".join(errors[0].message.split())
        raise InputError(f"{where}: {CARD}: {ascii(place)[1:-1]}: {ascii(message)[1:-1][:160]}")


def read(file: Path) -> Card:
    """The card in a file, checked. Raises InputError."""
    try:
        card = read_json(file, LARGEST)
    except FileNotFoundError as error:
        raise InputError(f"{file.name}: is missing") from error
    except (OSError, ValueError) as error:
        raise blamed(error)(f"{file.name}: damaged: {ascii(str(error))[1:-1][:160]}") from error
    check(card, file.parent.name)
    return dict(card)


def artifact(card: Card, payload: Path) -> Artifact:
    """The artifact that a payload holds, with the specs that the card says."""
    inputs, outputs = (tuple(TensorSpec.from_json(spec) for spec in card[side]) for side in ("inputs", "outputs"))
    facts = {SETTINGS: card["runtime"][SETTINGS]} if SETTINGS in card["runtime"] else {}
    return Artifact(payload / MODEL, card["model"]["format"], inputs, outputs, facts)


def digest(card: Card) -> str:
    """The sha256 of the model: over "path, NUL, sha256, newline" of each of its files, in order."""
    import hashlib

    lines = (f"{file['path']}\0{file['sha256']}\n" for file in card["model"]["files"])
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def listed(card: Card) -> dict[str, str]:
    """The sha256 of each file of the payload, without the card's own."""
    files = {file["path"]: file["sha256"] for file in card["model"]["files"]}
    return files | {item["file"]: item["sha256"] for item in (*golden_items(card), card["labels"])}


def golden_items(card: Card) -> list[Mapping[str, Any]]:
    """The raw item, where there is one, the inputs, the outputs."""
    golds = card["golden"]
    return [*([golds["raw"]] if golds["raw"] else []), *golds["inputs"], *golds["outputs"]]


def shortened(text: str, limit: int) -> str:
    """At most so many characters: names of ten megabytes have an end too."""
    whole = text.encode("utf-8", "replace").decode()
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


# --------------------------------------------------------------------------- the model


def _model(artifact: Artifact, payload: Path) -> list[dict[str, Any]]:
    """Copies the artifact's files, without those that no device needs."""
    here = {artifact.path / name for name in artifact.facts.get("here", ())}
    files = []
    for file in artifact.files():
        if file in here:
            continue
        path = f"{MODEL}/{file.relative_to(artifact.path).as_posix()}"
        (payload / path).parent.mkdir(parents=True, exist_ok=True)
        (payload / path).write_bytes(file.read_bytes())
        files.append({"path": path, "bytes": file.stat().st_size, "sha256": sha256_of(file)})
    return sorted(files, key=lambda f: str(f["path"]))


def _main(files: Sequence[Mapping[str, Any]]) -> str:
    """The file that a runtime opens; the folder, where the format is one (.mlpackage, SavedModel); else the largest."""
    if not files:
        raise InputError("the artifact has no file that a device needs; deploy it again")
    tops = {"/".join(str(f["path"]).split("/")[:2]) for f in files}
    if len(tops) == 1:
        return tops.pop()
    named = [f for f in files if Path(str(f["path"])).stem == MODEL]
    return str(max(named or files, key=lambda f: (f["bytes"], f["path"]))["path"])


def _spec(spec: TensorSpec) -> dict[str, Any]:
    how = spec.quantization
    quantization = {"scale": list(how.scale), "zero_point": list(how.zero_point), "axis": how.axis} if how else None
    shape = list(spec.concrete())
    ends = {"layout": spec.layout, "quantization": quantization, "feeds": spec.feeds}
    return {"name": spec.name, "shape": shape, "dtype": spec.dtype, **ends}


def _runtime_version(shipped: Shipped) -> str:
    """The version of the runtime's own library: the report's, else the one here."""
    engine = _engine(registry.runtime(shipped.runtime))
    return str(_table(shipped.report, "versions").get(engine) or environments.version(engine) or "") if engine else ""


def _engine(runtime: RuntimePlugin) -> str:
    """The package that runs a model: of those that a runtime requires the one that a session imports."""
    packages = [environments.package(r) for r in runtime.requires]
    imported = tuple({_plain(name.split(".")[0]) for name in runtime.imports} - {"torch"})
    return next((name for name in packages if imported and _plain(name).startswith(imported)), (packages or [""])[0])


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _model_name(shipped: Shipped) -> str:
    """What the author calls it: a reference, or a file without its folder."""
    reference = str(
        _table(shipped.report, "source").get("model") or _table(shipped.origin, "source").get("model") or "model"
    )
    name = reference if ":" in reference and "/" not in reference else re.split(r"[/\\]", reference)[-1]
    return shortened(name, NAME_CHARS)


def _packaged(shipped: Shipped, options: Any) -> dict[str, Any]:
    """What the code around the model is written from, beside the model: this version, and what it was asked for."""
    platforms = _table(shipped.report, "target").get("platforms") or ()
    chosen = dataclasses.asdict(options) if options else {}
    return {"by": __version__, "options": chosen, "platforms": [str(platform) for platform in platforms]}


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = document.get(key)
    return table if isinstance(table, Mapping) else {}


# --------------------------------------------------------------------------- what is done around it


def _preprocess(shipped: Shipped) -> dict[str, Any] | None:
    declared = _table(shipped.report, "data").get("preprocess")
    if not declared:
        return None
    taken = tensors.check_inputs(shipped.artifact, shipped.excerpt)
    stored = declared.get("input") or shipped.excerpt.inputs[0].name
    applied = next((ours for ours, theirs in taken.items() if theirs == stored), stored)
    return {"spectrogram": None, **declared, "input": applied}


def _postprocess(shipped: Shipped, golds: Mapping[str, Any]) -> dict[str, Any]:
    """Scores of classes, where the metric and one output's shape say so."""
    scores = [item for item in golds["outputs"] if item["shape"][-1:] > [1] and set(item["shape"][:-1]) <= {1}]
    metric = _table(shipped.report, "source").get("metric")
    if metric not in CLASSIFIES or not scores:
        return {"task": "raw", "output": "", "probabilities": False, "top_k": TOP_K}
    name = scores[0]["name"]
    top_k = min(TOP_K, scores[0]["shape"][-1])
    return {"task": "classify", "output": name, "probabilities": _probabilities(shipped, name), "top_k": top_k}


def _probabilities(shipped: Shipped, name: str) -> bool:
    """Whether every answer that was kept is a distribution already."""
    import numpy as np

    if shipped.verdict is None or not tensors.file_of(shipped.verdict.path / golden.ANSWERS, name).is_file():
        return False
    answers = np.asarray(tensors.load(shipped.verdict, golden.ANSWERS, name), np.float64)
    return bool((answers >= 0).all() and (np.abs(answers.sum(axis=-1) - 1) <= PROBABLE).all())


def _labels(shipped: Shipped, task: Mapping[str, Any], payload: Path) -> dict[str, Any]:
    """Writes labels.json: the classes' names in order, or none."""
    labels = _table(shipped.report, "data").get("label_names") or _table(shipped.report, "source").get("labels") or ()
    known = [str(label) for label in labels] if task["task"] == "classify" else []
    shapes = {spec.name: spec.concrete() for spec in shipped.artifact.outputs}
    if known and len(known) != (classes := shapes[task["output"]][-1]):
        raise InputError(
            f"{shipped.artifact.path}: {len(known)} labels for the {classes} classes of '{task['output']}'; "
            "correct the source's labels and deploy again"
        )
    file = payload / LABELS
    file.write_text(json.dumps(known, indent=0, ensure_ascii=True) + "\n", encoding="utf-8")
    return {"file": LABELS, "count": len(known), "sha256": sha256_of(file)}


# --------------------------------------------------------------------------- what is known of it


def _variant(shipped: Shipped) -> Mapping[str, Any]:
    rows = shipped.report.get("variants") or ()
    return next((v for v in rows if v.get("name") == shipped.origin.get("variant")), {})


def _precision(shipped: Shipped) -> dict[str, Any] | None:
    """What the report read in the artifact's file; None where the file or the report does not tell."""
    known = _table(_table(_variant(shipped), "artifact"), "precision")
    counted = {key: dict(_table(known, key)) for key in ("weights", "computes")}
    return counted if known.get("weights") is not None else None


def _compression(shipped: Shipped) -> list[dict[str, Any]]:
    """Each step of the recipe; the facts are what was made known of it, as far as they are single values."""
    rows = _table(shipped.report, "target").get("variant") or ()
    chosen = (v.get("compress") or () for v in rows if v.get("name") == shipped.origin.get("variant"))
    recipe: Sequence[Mapping[str, Any]] = next(chosen, ())
    options = ({k: v for k, v in step.items() if k != "use"} for step in recipe)
    used = (_technique(shipped, str(step["use"])) for step in recipe)
    steps = [{"technique": t, "options": o, "facts": {}} for t, o in zip(used, options, strict=True)]
    if steps:
        steps[-1]["facts"] = _scalars(shipped.artifact.facts)
    return steps


def _technique(shipped: Shipped, use: str) -> str:
    """What a recipe asks for; of a precision ("int8") the technique that reached it, by the variant's stages."""
    known = registry.names("techniques")
    own = f"{shipped.origin.get('variant')}/"
    ran = [str(row["stage"]) for row in shipped.report.get("stages") or () if str(row.get("stage")).startswith(own)]
    made = (name for stage in ran if (name := stage.rsplit("/", 1)[-1]) in known)
    return {registry.technique(name).provides: name for name in made}.get(use, use)


def _scalars(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {str(k): v for k, v in facts.items() if v is None or isinstance(v, (bool, int, float, str))}


def _quality(shipped: Shipped) -> dict[str, Any] | None:
    metric = _table(_table(_variant(shipped), "verify"), "metric")
    if not metric:
        return None
    counted = {key: metric.get(key) for key in METRIC}
    named = {"metric": metric["name"], "unit": metric.get("unit") or "", **counted}
    decided = [c for c in _table(_variant(shipped), "verify").get("checks") or () if c.get("decision")]
    check: Mapping[str, Any] = next((c for c in decided if c["decision"] == "undecided"), next(iter(decided), {}))
    says = shortened(str(check.get("says") or ""), TEXT_CHARS)
    decision = {"decision": check.get("decision") or "", "needed": check.get("needed"), "says": says}
    return {**named, **decision, "split": golden.SPLIT}


def _profile(shipped: Shipped) -> list[dict[str, Any]]:
    """Every number of the report with its status word and the device it is of."""
    device = str(_table(shipped.report, "device").get("name") or "")
    rows = _table(_variant(shipped), "numbers").values()
    return [{**{k: row.get(k) for k in NUMBER}, "device": device, "reason": row.get("reason") or ""} for row in rows]
