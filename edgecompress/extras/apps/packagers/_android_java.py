"""The wrapper's Java: gathered for one model, in its own namespace, and compiled."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import MissingDependency, StageFailed, brief
from edgecompress.extras.apps.packagers._android_engines import Engine
from edgecompress.extras.apps.render import FOLDER, render

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card

TEMPLATES = FOLDER / "android"
OURS = re.compile(r"\bai\.edgecompress\.(model|processing)\b")  # packages of the sources as they lie here
FACTS = (
    *("name", "version", "slug", "runtime", "model", "inputs", "outputs"),
    *("preprocess", "postprocess", "labels", "golden"),
)  # what of the card is compiled in
PART = 32_000  # characters of a constant: a class file takes 65535 bytes
LIMIT_S = 300.0
BRIEF = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")  # it runs for a second: the JIT's second stage never pays
SILENT = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "JDK_JAVAC_OPTIONS")  # would change what comes out


def facts(card: Card) -> str:
    """What is compiled in, as JSON: ModelSpec holds this text, and the wrapper knows nothing else."""
    kept = {key: value for key, value in card.items() if key in FACTS}
    return json.dumps(kept, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))


def parts(text: str) -> list[str]:
    """A text in pieces that a class file can hold."""
    return [text[at : at + PART] for at in range(0, len(text), PART)]


def write(root: Path, namespace: str, engine: Engine, values: Mapping[str, object]) -> None:
    """All sources of the wrapper below `root`, in `namespace`: plain ones moved there, the others rendered."""
    here = root / namespace.replace(".", "/")
    for folder, place in (
        ("model", here),
        *((each, here) for each in engine.folders),
        ("processing", here / "processing"),
    ):
        place.mkdir(parents=True, exist_ok=True)
        for file in sorted((TEMPLATES / "java" / folder).glob("*.java")):
            (place / file.name).write_text(moved(file.read_text(encoding="utf-8"), namespace), encoding="utf-8")
    rendered = {
        "ModelSpec.java": "java/model/ModelSpec.java.j2",
        f"{values['camel']}Model.java": "java/model/Wrapper.java.j2",
    }
    render("android", here, values, rendered)


def moved(source: str, namespace: str) -> str:
    """A source in the package of one model: two models in one app share no class."""
    return OURS.sub(lambda match: namespace if match[1] == "model" else f"{namespace}.processing", source)


def compile(sources: Sequence[Path], out: Path, more: Sequence[str] = ()) -> None:
    """Java 8 classes of `sources` below `out`, against the signatures, whose classes are not written.

    Raises MissingDependency, StageFailed.
    """
    out.mkdir(parents=True, exist_ok=True)
    listed = out.with_name(f"{out.name}.sources")
    escaped = (str(file).replace("\\", "\\\\").replace('"', '\\"') for file in sources)
    listed.write_text("".join(f'"{path}"\n' for path in escaped), encoding="utf-8")
    command = [javac(), *BRIEF, "--release", "8", "-g:source,lines", "-encoding", "UTF-8", "-proc:none", "-nowarn"]
    places = [
        "-implicit:none",
        "-sourcepath",
        str(TEMPLATES / "stubs"),
        "-classpath",
        os.pathsep.join([*more, str(out)]),
    ]
    _run([*command, *places, "-d", str(out), f"@{listed}"])
    listed.unlink()


def document(sources: Path, namespace: str, out: Path) -> None:
    """The Javadoc of the library's own classes; where a JDK lacks the tool, a README, which Maven Central takes, too.

    Raises MissingDependency, StageFailed.
    """
    out.mkdir()
    tool = shutil.which("javadoc", path=str(Path(javac()).resolve().parent))
    if tool is None:
        render("android", out, {}, {"README.md": "maven/no-javadoc.md"})
        return
    how = ("-locale", "en", "-quiet", "-notimestamp", "-noindex", "-nohelp", "-notree", "-Xdoclint:none")
    texts = ("--release", "8", "-encoding", "UTF-8", "-docencoding", "UTF-8", "-charset", "UTF-8")
    places = ("-sourcepath", os.pathsep.join([str(sources), str(TEMPLATES / "stubs")]), "-d", str(out))
    files = map(str, sorted((sources / namespace.replace(".", "/")).glob("*.java")))
    _run([tool, *BRIEF, *how, *texts, *places, *files])


def _run(command: Sequence[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in SILENT}
    done = subprocess.run(
        command,
        capture_output=True, encoding="utf-8", errors="replace", timeout=LIMIT_S, env=environment, check=False,
    )  # fmt: skip
    if done.returncode:
        message = next((line for line in done.stderr.splitlines() if "error:" in line), done.stderr)
        tool = Path(command[0]).stem
        raise StageFailed(f"packager 'android': {tool} refuses the wrapper: {brief(message)}; report this")


def javac() -> str:
    """The compiler. Raises MissingDependency."""
    home = os.environ.get("JAVA_HOME")
    compiler = (shutil.which("javac", path=str(Path(home) / "bin")) if home else None) or shutil.which("javac")
    if compiler is None:
        raise MissingDependency(
            "packager 'android' needs javac to compile the wrapper; install a JDK, version 9 or later (Debian: "
            "apt-get install openjdk-17-jdk-headless), or set JAVA_HOME"
        )
    return compiler
