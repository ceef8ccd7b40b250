"""`package verify`: checks all claims of a package against its content. Nothing in it is executed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import config, environments, registry, sandbox
from edgecompress.core.errors import InputError, brief
from edgecompress.core.model import CARD as ARTIFACT
from edgecompress.core.model import Artifact, TensorSpec, sha256_of
from edgecompress.core.package_contents import CARD, PAYLOAD, PackageCheck, artifact, is_packed, listed
from edgecompress.core.settings import Preprocess
from edgecompress.core.version import __version__
from edgecompress.data import preprocess, tensors
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest, PluginModule
from edgecompress.extras.apps import archive, checks, golden, packed_payload, rebuild_check, signing
from edgecompress.extras.apps import model_card as cards
from edgecompress.extras.apps.archive import shown
from edgecompress.extras.apps.board_runner import predictor
from edgecompress.extras.apps.checks import NotChecked
from edgecompress.extras.apps.pack import SUMS, sums

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.model_card import Card, Columns, Postprocess

RUN_S = 600.0  # that the packaged model may take for its golden item


@dataclass
class _Opened:
    """What the checks before have found."""

    file: Path
    work: Path  # an empty folder for each of its names
    key: str | None
    strict: bool
    root: Path | None = None
    card: Card | None = None
    module: ModuleType | None = None
    carried: Path | None = None  # the payload as it lies in the package
    payload: Path | None = None
    checks: list[PackageCheck] = field(default_factory=list)

    def folder(self, name: str) -> Path:
        """A new folder to unpack into."""
        made = self.work / name
        made.mkdir()
        return made


def verify(file: Path, key: str | None = None, strict: bool = False) -> list[PackageCheck]:
    """Every check of a package, in order. `key`: the public key that signed it, a file or the key itself.

    `strict`: an accuracy that its items leave undecided fails.

    What is wrong with the package is a failed check; InputError is raised for what is wrong with the question alone:
    no such file, a key that is none.
    """
    if not file.is_file():
        what = "not a file" if file.exists() else "no such file"
        raise InputError(f"{file}: {what}; give the package that `edgecompress package` wrote")
    if key is not None:
        signing.public(key)
    with tempfile.TemporaryDirectory(prefix="edgecompress-verify-") as work:
        opened = _Opened(file, Path(work), key, strict)
        for check in checks.made({name: functools.partial(step, opened) for name, step in STEPS.items()}):
            opened.checks.append(check)  # the next ones look at it
        opened.checks.extend(_own(opened))
        return [dataclasses.replace(check, reason=_placed(check.reason, opened)) for check in opened.checks]


def model(file: Path, work: Path) -> Artifact:
    """The model in a package, with its card, unpacked into the empty folder `work`; nothing of it is executed.

    Raises InputError for a package whose files are not those that its card and its sums list.
    """
    opened = _Opened(file, work, None, False)
    into = opened.folder("opened")
    archive.unpack(file, into)
    opened.root = archive.top(into, file)
    for step in (_card, _sums, _payload):
        step(opened)
    assert opened.card and opened.payload  # or a step had raised
    return artifact(opened.card, opened.payload).write()


def _placed(reason: str, opened: _Opened) -> str:
    """Paths as the package has them, not where it was opened."""
    for folder in (opened.root.parent if opened.root else opened.work, opened.work):
        reason = reason.replace(f"{folder}/", "")
    return reason


# --------------------------------------------------------------------------- every package


def _signature(opened: _Opened) -> None:
    signed = signing.signature_of(opened.file).is_file()
    if opened.key is None:
        raise NotChecked("it is signed; give the public key with --key" if signed else "it is not signed")
    signing.check(opened.file, signing.public(opened.key))


def _archive(opened: _Opened) -> None:
    if opened.checks[0].status == "fail":
        raise NotChecked("its signature is wrong")
    into = opened.folder("opened")
    archive.unpack(opened.file, into)
    opened.root = archive.top(into, opened.file)


def _root(opened: _Opened) -> Path:
    if opened.root is None:
        raise NotChecked("the archive could not be opened")
    return opened.root


def _card(opened: _Opened) -> None:
    root = _root(opened)
    card = cards.read(root / CARD)
    if root.name != (expected := f"{card['slug']}-{card['packager']}"):
        raise InputError(f"the folder is called {shown(root.name)}, not '{expected}' as the card says")
    _check_names(card)
    opened.card = card


def _check_names(card: Card) -> None:
    """Raises InputError where the card speaks of an input or output that it does not have."""
    inputs, outputs = ({spec["name"] for spec in specs} for specs in (card["inputs"], card["outputs"]))
    golds, declared, task = card["golden"], card["preprocess"], card["postprocess"]
    named = [("golden", item["name"], inputs) for item in golds["inputs"]]
    named += [("golden", item["name"], outputs) for item in golds["outputs"]]
    named += [("preprocess", declared["input"], inputs & {i["name"] for i in golds["inputs"]})] if declared else []
    named += [("postprocess", task["output"], outputs)] if task["task"] != "raw" else []
    named += [("postprocess", columns["name"], outputs) for columns in _columns(task)]
    for key, name, there in named:
        if name not in there:
            raise InputError(f"{CARD}: {key}: the model has no {shown(name)}")


def _columns(task: Postprocess) -> list[Columns]:
    """The outputs that boxes are read from. Raises InputError where a card does not tell what it speaks of."""
    if task["task"] == "segment" and "segment" not in task:
        raise InputError(f"{CARD}: postprocess: segment is missing")
    if task["task"] != "detect":
        return []
    if (how := task.get("detect")) is None:
        raise InputError(f"{CARD}: postprocess: detect is missing")
    return [columns for columns in (how["boxes"], how["scores"], how["classes"], how.get("points")) if columns]


def _known(opened: _Opened) -> Card:
    if opened.card is None:
        raise NotChecked("the card is missing or invalid")
    return opened.card


def _sums(opened: _Opened) -> str:
    """Each line right, and every file in a line."""
    root = _root(opened)
    try:
        told = _lines_of((root / SUMS).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{SUMS} is missing") from error
    there = _lines_of(sums(root))
    _check_same(there, told, SUMS)
    return f"{len(there)} files"


def _check_same(there: Mapping[str, str], listed: Mapping[str, str], where: str) -> None:
    """Raises InputError unless there are the files that `where` lists, with their sha256."""
    if missing := sorted(listed.keys() - there.keys()):
        raise InputError(f"{shown(missing[0])} is in {where} but not in the package")
    if more := sorted(there.keys() - listed.keys()):
        raise InputError(f"{shown(more[0])} is not in {where}")
    if wrong := [name for name in there if listed[name] != there[name]]:
        raise InputError(f"{shown(wrong[0])}: its sha256 differs from the one in {where}")


def _lines_of(text: str) -> dict[str, str]:
    digests: dict[str, str] = {}
    for line in text.split("\n")[:-1]:
        digest, between, name = line[:64], line[64:66], line[66:]
        if between != "  " or not name or name in digests:
            raise InputError(f"{SUMS}: a line is not 'sha256 path', or occurs twice: {shown(line)}")
        digests[name] = digest
    return digests


def _payload(opened: _Opened) -> str:
    """The model, the golden items, the labels and the card: these files with these bytes, and no other."""
    card, root = _known(opened), _root(opened)
    opened.module = registry.load("packagers", card["packager"])
    carried = payload = opened.module.payload(root, opened.folder("payload"))
    if is_packed(card):
        payload = opened.work / "unpacked"
        packed_payload.opened(card, carried, payload)
    files = [p for p in payload.rglob("*") if p.is_file() and p.relative_to(payload).parts[0] in PAYLOAD]
    there = {file.relative_to(payload).as_posix(): sha256_of(file) for file in files}
    _check_same(there, {**listed(card), CARD: sha256_of(root / CARD)}, "the card")
    _check_labels(payload / cards.LABELS, card)
    opened.carried, opened.payload = carried, payload
    return f"{len(there)} files"


def _check_labels(file: Path, card: Card) -> None:
    labels = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f"{cards.LABELS}: is not a list of strings")
    if len(labels) != card["labels"]["count"]:
        raise InputError(f"{cards.LABELS}: {len(labels)} labels, but the card declares {card['labels']['count']}")


def _whole(opened: _Opened) -> tuple[Card, Path]:
    if opened.payload is None:
        raise NotChecked("the payload is incomplete or damaged")
    return _known(opened), opened.payload


def _code(opened: _Opened) -> str:
    """The code around the model is what this version writes for the card."""
    card, payload = _whole(opened)
    if (by := card["packaged"]["by"]) != __version__:
        raise NotChecked(
            f"written by edgecompress {by}; this is {__version__}, whose code differs: package again to compare"
        )
    if (runtime := card["runtime"]["name"]) not in registry.names("runtimes"):
        raise NotChecked(f"this version has no runtime '{runtime}'")
    assert opened.module is not None and opened.carried is not None  # it found the payload
    written = rebuild_check.check(card, payload, opened.carried, opened.module, _root(opened), opened.folder("code"))
    return f"{written} files"


# --------------------------------------------------------------------------- the packaged model, run again


def _processing(opened: _Opened) -> None:
    """golden raw, processed as the card says, is the golden input."""
    card, payload = _whole(opened)
    how, raw = card["preprocess"], card["golden"]["raw"]
    if how is None or raw is None:
        raise NotChecked("the model declares no [preprocess]" if how is None else "the package has no raw golden item")
    declared, item = config.build(Preprocess, how, "preprocess"), golden.load(payload, raw)
    predictor.check_size(item.shape, declared)
    audio = declared.spectrogram
    if audio and max(audio.length / audio.hop + 1, audio.bins or 1) * audio.fft > predictor.PIXELS:
        raise InputError("its spectrogram is larger than this check computes")
    made = preprocess.numbers(preprocess.geometry(item, declared)[None], declared)
    kept = next(golden.load(payload, i) for i in card["golden"]["inputs"] if i["name"] == declared.input)
    spec = next(TensorSpec.from_json(s) for s in card["inputs"] if s["name"] == declared.input)
    golden.check_input(card, tensors.fitted(made, spec), kept)


def _golden(opened: _Opened) -> str:
    """The packaged model answers its golden input as it did, in its runtime here."""
    card, payload = _whole(opened)
    runtime = _runtime(card)
    answers = _answered(artifact(card, payload), card, runtime, opened.folder("answers"))
    return f"{card['runtime']['name']} here, {golden.check_answers(card, answers, payload):.1g} off (relative RMS)"


def _runtime(card: Card) -> ModuleType:
    name = card["runtime"]["name"]
    if name not in registry.names("runtimes"):
        raise NotChecked(f"this version has no runtime '{name}'")
    module = registry.load("runtimes", name)
    if card["model"]["format"] != module.FORMAT:
        raise InputError(f"runtime '{name}' runs {module.FORMAT}, but the model is {card['model']['format']}")
    if why := registry.runtime(name).not_opened:
        raise NotChecked(f"{module.FORMAT} {why}")
    if lacking := environments.missing(module):
        raise NotChecked(f"{', '.join(lacking)} not installed here; run: {environments.install_command(module)}")
    return module


def _answered(model: Artifact, card: Card, runtime: ModuleType, work: Path) -> dict[str, np.ndarray]:
    """The answers of an agent: a process of its own, which a stranger's model may crash."""
    items = {item["name"]: golden.load(model.path.parent, item) for item in card["golden"]["inputs"]}
    (work / "samples").mkdir()
    tensors.write_split(work / "samples" / golden.SPLIT, items)
    specs = tuple(TensorSpec(name, item.shape, str(item.dtype)) for name, item in items.items())
    samples = Artifact(work / "samples", "samples", specs, facts={"splits": {golden.SPLIT: 1}}).write()
    request = AgentRequest(
        "outputs",
        runtime=PluginModule(card["runtime"]["name"], runtime.__name__),
        artifact=str(model.path),
        samples=str(samples.path),
    )
    (work / "answered").mkdir()
    model.write()
    limits = sandbox.reading(model.size_bytes + samples.size_bytes, (str(work / "answered"),), RUN_S)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its log: what a stranger's model makes a runtime say
            shell = registry.load("transports", "host").confined(limits)
            agent_client.ask(shell, request, work / "answered", RUN_S)
    finally:
        (model.path / ARTIFACT).unlink()  # the package has none
    answered = Artifact(work / "answered", "golden")
    return {i["name"]: tensors.load(answered, golden.SPLIT, i["name"]) for i in card["golden"]["outputs"]}


def _accuracy(opened: _Opened) -> str:
    """How the accuracy lay to its limit when the model shipped."""
    quality = _known(opened)["quality"]
    if not quality or not quality.get("decision"):
        raise NotChecked("the card has no limit on its accuracy")
    says = brief(ascii(quality.get("says", ""))[1:-1])
    if quality["decision"] == "undecided" and not opened.strict:
        raise NotChecked(says)
    if quality["decision"] != "inside":
        raise InputError(says)
    return says


# --------------------------------------------------------------------------- the packager's own


def _own(opened: _Opened) -> Iterator[PackageCheck]:
    """What the packager looks at; whatever it raises is one failed check more."""
    if opened.module is None or opened.root is None or opened.card is None:
        return
    try:
        yield from opened.module.checks(opened.root, opened.card, opened.folder("own"))
    except Exception as error:  # as of every other check
        yield PackageCheck(opened.card["packager"], "fail", checks.wrong(error))


STEPS: Mapping[str, Callable[[_Opened], str | None]] = {
    "signature": _signature,
    "archive": _archive,
    "card": _card,
    "sums": _sums,
    "payload": _payload,
    "code": _code,
    "processing": _processing,
    "golden": _golden,
    "accuracy": _accuracy,
}
