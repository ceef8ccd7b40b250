"""What a Swift package has to keep: looked at as text and as syntax, nothing in it is run."""

from __future__ import annotations

import json
import plistlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from edgecompress.core import child_process
from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import PackageCheck, digest, listed
from edgecompress.extras.apps import checks
from edgecompress.extras.apps.checks import NotChecked

if TYPE_CHECKING:
    from tree_sitter import Parser

    from edgecompress.core.model_card import Card

MANIFEST, PRIVACY, SPEC = "Package.swift", "PrivacyInfo.xcprivacy", "ModelSpec.swift"
LARGEST = 4 << 20  # bytes of a source: ours have some kilobytes
PARSE_S = 60.0  # that all sources of a package take at most: ours take one
PARSED = "all parse"
NO_PARSER = "no Swift parser here: pip install 'edgecompress[package]'"
PRIVATE: Mapping[str, type] = {
    "NSPrivacyTracking": bool,
    "NSPrivacyTrackingDomains": list,
    "NSPrivacyCollectedDataTypes": list,
    "NSPrivacyAccessedAPITypes": list,
}
TEXT = r'"((?:[^"\\\n]|\\.)*)"'  # the inside of a literal
PLACE = re.compile(rf"\bpath:\s*{TEXT}")
RESOURCE = re.compile(rf"\.(?:copy|process|embedInCode)\(\s*{TEXT}")
TARGET = re.compile(r"\.(?:target|executableTarget|testTarget|systemLibrary)\(\s*name:")
FILE = re.compile(rf"FileSpec\(\s*path: {TEXT}, bytes: (\d+),\s*sha256: {TEXT}\)")
TENSOR = re.compile(rf"TensorSpec\(\s*name: {TEXT}, feature: {TEXT},\s*shape: (\[[\d, ]*\]), dtype: \.(\w+),")
NORMALISED = re.compile(r"scale: ([-+.\de]+),\s*mean: (\[[^\]\n]*\]),\s*std: (\[[^\]\n]*\]),")
CONSTANT = re.compile(rf"static let (name|version|runtime|main|digest)(?:: String)? = {TEXT}")
LIMIT = re.compile(r"static let (tolerance|processingReal|processingWhole): Double = ([-+.\de]+)")
SETTING = re.compile(rf"^        \({TEXT}, {TEXT}\),$", re.MULTILINE)
ESCAPE = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def every(root: Path, card: Card, resources: Path, models: Path) -> Iterator[PackageCheck]:
    """A check each; what is wrong is its reason. `models`: the resources with the model's files as they are."""
    looks: dict[str, Callable[[], None]] = {
        MANIFEST: lambda: _manifest(root),
        "Swift syntax": lambda: _syntax(root),
        SPEC: lambda: _constants(resources.parent / SPEC, card),
        "privacy manifest": lambda: _privacy(resources.parent / PRIVACY),
    }
    if card["model"]["format"] == "mlpackage":
        looks["mlpackage items"] = lambda: _items(models / card["model"]["main"])
    return checks.made(looks)


def _text(file: Path) -> str:
    return checks.text(file, LARGEST)


# --------------------------------------------------------------------------- the manifest


def _manifest(root: Path) -> None:
    """Each target lies in the package, and each resource in its target."""
    text = _text(root / MANIFEST)
    if not text.startswith("// swift-tools-version:"):
        raise InputError(f"{MANIFEST} does not begin with its swift-tools-version")
    places = [(match.start(), match[1]) for match in PLACE.finditer(text)]
    if len(places) != len(TARGET.findall(text)):
        raise InputError(f"{MANIFEST} has {len(TARGET.findall(text))} targets and {len(places)} paths")
    for _, place in places:
        if not _inside(root, place).is_dir():
            raise InputError(f"{MANIFEST} names the folder {place!a}, which is not there")
    for match in RESOURCE.finditer(text):
        place = next((p for start, p in reversed(places) if start < match.start()), "")
        if not _inside(root / place, match[1]).exists():
            raise InputError(f"{MANIFEST} names the resource {match[1]!a}, which is not there")


def _inside(folder: Path, path: str) -> Path:
    """A path of the manifest; raises InputError for one that leaves its folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith(("/", "~")) or ".." in parts or "\\" in path:
        raise InputError(f"{MANIFEST} names {ascii(path)[:100]}, which points outside the package")
    return folder / path


# --------------------------------------------------------------------------- the sources


def _syntax(root: Path) -> None:
    """Each source, parsed in a process of its own, which a stranger's may crash or hold up for ever."""
    if parser() is None:
        raise NotChecked(NO_PARSER)
    words = child_process.python(__name__, str(root))
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PARSE_S)
    except subprocess.TimeoutExpired as error:
        raise InputError(f"the parser took more than {PARSE_S:.0f} s for the sources") from error
    output = done.stdout.decode("ascii", "replace").strip()
    if done.returncode or not output:
        raise InputError(f"the parser broke on the sources ({done.returncode})")
    if output != PARSED:
        raise InputError(output)


def _wrong(root: Path) -> str:
    """The first three sources that do not parse, in a line; or that all do."""
    parse, sources = parser(), sorted(p for p in root.rglob("*.swift") if p.is_file())
    assert parse  # who asks has looked
    wrong = (_error(parse, file, file.relative_to(root).as_posix()) for file in sources)
    return "; ".join([message for message in wrong if message][:3]) or PARSED


def parser() -> Parser | None:
    """A parser of Swift, or None where it is not installed."""
    try:
        import tree_sitter
        import tree_sitter_swift
    except ImportError:
        return None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language()))


def _error(parse: Parser, file: Path, name: str) -> str:
    try:
        root = parse.parse(_text(file).encode()).root_node
    except InputError as error:
        return str(error)
    if not root.has_error:
        return ""
    node = root
    while inner := next((c for c in node.children if c.has_error or c.is_missing), None):
        node = inner
    return f"{name}: line {node.start_point[0] + 1} is not Swift"


# --------------------------------------------------------------------------- what is compiled in


def _constants(file: Path, card: Card) -> None:
    """The compiled constants are the card's, and the sums those of the files beside it."""
    text = _text(file)
    constants = {name: _plain(value) for name, value in CONSTANT.findall(text)}
    _equal("version", constants.get("version"), card["version"])
    _equal("runtime", constants.get("runtime"), card["runtime"]["name"])
    _equal("main", constants.get("main"), card["model"]["main"])
    _equal("digest", constants.get("digest"), digest(card))
    settings = {_plain(setting): _plain(value) for setting, value in SETTING.findall(text)}
    _equal("settings", settings, {name: str(value) for name, value in card["runtime"].get("settings", {}).items()})
    files = FILE.findall(text)
    _equal("files", {path: sha256 for path, _, sha256 in files}, listed(card))
    sizes = {path: int(size) for path, size, _ in files}
    expected_sizes = {f["path"]: f["bytes"] for f in card["model"]["files"]}
    _equal("sizes", {path: sizes[path] for path in expected_sizes}, expected_sizes)
    tensors = [(_plain(n), json.loads(shape), dtype) for n, _, shape, dtype in TENSOR.findall(text)]
    expected = [(spec["name"], spec["shape"], spec["dtype"]) for spec in (*card["inputs"], *card["outputs"])]
    _equal("inputs and outputs", tensors, expected)
    how = card["preprocess"]
    _equal("normalisation", _normalised(text), [float(how["scale"]), how["mean"], how["std"]] if how else None)
    golden = card["golden"]
    limits = {"tolerance": golden["tolerance"], "processingReal": golden["processing"]["float"]}
    limits["processingWhole"] = golden["processing"]["int8"]
    _equal("limits", {name: float(value) for name, value in LIMIT.findall(text)}, limits)


def _equal(what: str, compiled: object, declared: object) -> None:
    if compiled != declared:
        raise InputError(f"{SPEC}: {what}: compiled in is {ascii(compiled)[:80]}, the card says {ascii(declared)[:80]}")


def _normalised(text: str) -> list[object] | None:
    match = NORMALISED.search(text)
    try:
        return [float(match[1]), json.loads(match[2]), json.loads(match[3])] if match else None
    except ValueError as error:
        raise InputError(f"{SPEC}: the normalisation is not a list of numbers") from error


def _plain(inside: str) -> str:
    """The text that the inside of a literal stands for."""
    return ESCAPE.sub(lambda match: chr(min(int(match[1], 16), 0x10FFFF)), inside)


# --------------------------------------------------------------------------- resources


def _privacy(file: Path) -> None:
    """A property list with the keys that Apple asks for, of their types; nothing is tracked."""
    data = _text(file).encode()
    try:
        properties = plistlib.loads(data, fmt=plistlib.FMT_XML)
    except Exception as error:  # expat's errors have no base of their own
        raise InputError(f"{PRIVACY} is not a property list: {type(error).__name__}") from error
    wrong = [
        key
        for key, kind in PRIVATE.items()
        if not isinstance(properties, dict) or type(properties.get(key)) is not kind
    ]
    if wrong:
        raise InputError(f"{PRIVACY}: {wrong[0]} is missing, or not a {PRIVATE[wrong[0]].__name__}")
    if properties["NSPrivacyTracking"] or properties["NSPrivacyTrackingDomains"]:
        raise InputError(f"{PRIVACY} declares tracking, which the package does not do")


def _items(package: Path) -> None:
    """What the manifest of a .mlpackage lists is there, and its root model is among it."""
    try:
        manifest = json.loads(_text(package / "Manifest.json"))
        entries, first = dict(manifest["itemInfoEntries"]), manifest["rootModelIdentifier"]
        paths = {key: str(entry["path"]) for key, entry in entries.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{package.name}/Manifest.json: damaged: {ascii(str(error))[1:80]}") from error
    if first not in paths:
        raise InputError(f"{package.name}/Manifest.json: its root model is not among its items")
    for path in paths.values():
        if ".." in PurePosixPath(path).parts or path.startswith("/"):
            raise InputError(f"{package.name}/Manifest.json names {path[:100]!a}, which points outside the package")
        if not (package / "Data" / path).exists():
            raise InputError(f"{package.name}/Manifest.json names {ascii(path)[:100]}, which is not there")


if __name__ == "__main__":
    print(ascii(_wrong(Path(sys.argv[1])))[1:-1])
