"""The generated parts of docs/architecture.md: the picture of the layers, the two flows, the table of the folders."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "edgecompress"
PAGE = ROOT / "docs" / "architecture.md"
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
BY_NAME = [f"  stages -. by name .-> {folder}" for folder in ("engines", "plugins", "techniques")]
# Each step: the file or folder below edgecompress/, and what it does there.
DEPLOY = (
    ("cli/main.py", "reads the command line"),
    ("cli/commands/deploy.py", "turns arguments into a request"),
    ("pipeline/job.py", "reads target, device, profile, source: one job"),
    ("pipeline/plan.py", "turns the job into stages"),
    ("commands/deploy.py", "runs the plan, ships the choice"),
    ("pipeline/runner.py", "looks each stage up, or starts a worker"),
    ("pipeline/store.py", "keeps results by the content of their inputs"),
    ("pipeline/worker.py", "is the process of one stage"),
    ("stages", "loads the source, traces, verifies, measures"),
    ("engines", "compress and export, by name"),
    ("stages/report.py", "writes the report"),
)
MEASUREMENT = (
    ("pipeline/searches/race.py", "decides which variants are measured, and how long"),
    ("stages/latency.py", "measures a round: one process per session and variant"),
    ("plugins/transports", "connect to the device"),
    ("device/bundle.py", "packs the agent into one file for devices elsewhere"),
    ("device/agent_client.py", "sends the request, fetches the answer"),
    ("device/agent", "runs the artifact on the device"),
    ("engines", "open it"),
    ("plugins/sensors", "read the energy"),
    ("core/session_stats.py", "summarises the sessions"),
    ("reporting/report_json.py", "puts the numbers and their intervals into report.json"),
)


def page() -> str:
    """The page with its generated parts written again."""
    parts = {"layers": _layers(), "deploy": _flow(DEPLOY), "measurement": _flow(MEASUREMENT), "folders": _folders()} | {
        "engines": _engines()
    }
    text = PAGE.read_text(encoding="utf-8")
    return PART.sub(lambda match: f"{match[1]}{parts[match[2]]}\n{match[3]}", text)


def layers() -> tuple[tuple[str, ...], ...]:
    """The layers from the ground up, as tests/test_layers.py holds them."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    value = next(n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "LAYERS")
    return tuple(ast.literal_eval(value))


def _layers() -> str:
    """The layers as a picture; an arrow is an import that no other arrow implies."""
    folders = [folder for level in layers() for folder in level]
    used = {folder: _used(folder, folders) for folder in folders}
    lines = ["```mermaid", "flowchart TD"]
    for folder in reversed(folders):
        lines.append(f'  {folder}["{folder}/"]')
    for folder in reversed(folders):
        implied = {below for other in used[folder] for below in _reached(other, used)}
        lines += [f"  {folder} --> {below}" for below in folders if below in used[folder] - implied]
    return "\n".join([*lines, "  pipeline -. by name, in a worker .-> stages", *BY_NAME, "```"])


def _reached(folder: str, used: dict[str, set[str]]) -> set[str]:
    return used[folder] | {below for other in used[folder] for below in _reached(other, used)}


def _used(folder: str, folders: Sequence[str]) -> set[str]:
    """The other folders that the files of one import from, for a type checker too."""
    names = {name for file in _files(folder) for name in _imports(ast.parse(file.read_text(encoding="utf-8")))}
    return {n.split(".")[1] for n in names if n.startswith("edgecompress.")} & set(folders) - {folder}


def _files(folder: str) -> list[Path]:
    return [file for file in sorted((PACKAGE / folder).rglob("*.py")) if "templates" not in file.parts]


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _flow(steps: Sequence[tuple[str, str]]) -> str:
    """One step after the other; a step that names no file is an error."""
    lines = ["```mermaid", "flowchart TD"]
    for number, (path, does) in enumerate(steps):
        if not (PACKAGE / path).exists() and not (PACKAGE / f"{path}.py").exists():
            raise SystemExit(f"scripts/architecture.py: edgecompress/{path}: no such file; name the one that {does}")
        lines.append(f'  s{number}["{path}<br/>{does}"]')
    return "\n".join([*lines, "  " + " --> ".join(f"s{number}" for number in range(len(steps))), "```"])


def _folders() -> str:
    """What each folder holds, from its docstring, its files and its imports; the top layer first."""
    order = [folder for level in layers() for folder in level]
    lines = ["| folder | what it holds | files | imports |", "|---|---|---|---|"]
    for folder in reversed(order):
        says = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8"))) or ""
        used = _used(folder, order)
        below = ", ".join(f"`{name}`" for name in order if name in used) or "nothing of ours"
        link = f"[`{folder}/`](../edgecompress/{folder})"
        lines.append(f"| {link} | {' '.join(says.split())} | {_listing(PACKAGE / folder)} | {below} |")
    return "\n".join(lines)


def _listing(folder: Path, without: Collection[str] = ()) -> str:
    """The files of a folder by name, and how many are in each folder below, but for those in `without`."""
    stems = [file.stem for file in sorted(folder.glob("*.py")) if file.stem != "__init__"]
    inner = [path for path in sorted(folder.iterdir()) if (path / "__init__.py").is_file() and path.name not in without]
    counts = {path.name: sum(file.name != "__init__.py" for file in path.rglob("*.py")) for path in inner}
    return ", ".join([*(f"`{stem}`" for stem in stems), *(f"`{name}/` ({n} files)" for name, n in counts.items())])


def _engines() -> str:
    """What each engine's folder holds: its runtimes, its techniques, and what lies beside them."""
    lines = ["| engine | runtimes | techniques | beside them |", "|---|---|---|---|"]
    for folder in sorted(path for path in (PACKAGE / "engines").iterdir() if (path / "__init__.py").is_file()):
        parts = {
            kind: _listing(folder / kind) if (folder / kind).is_dir() else "" for kind in ("runtimes", "techniques")
        }
        beside = _listing(folder, parts)
        link = f"[`{folder.name}/`](../edgecompress/engines/{folder.name})"
        lines.append(f"| {link} | {parts['runtimes']} | {parts['techniques']} | {beside} |")
    return "\n".join(lines)
