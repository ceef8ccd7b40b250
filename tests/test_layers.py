"""Architecture as a test: who may import whom, what may be imported at the top, and what a cold start costs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgecompress import registry

STAGES = "stages"  # the folder of what every deploy runs; its modules have levels like any other
PACKAGE = Path(registry.__file__).parent
# From the ground up: a module imports from lower levels only, whether at its top or inside a function.
LEVELS = (
    "errors lifeline machine openvino_ir statistic storage",
    "config emulated gate settings mil",
    "model",
    "registry sketch spectrogram tensors tflite_file",
    "costs envs estimate",
    "agent",
    "bundle",
    "dispatch",
    "preprocess usercode",
    "feeds metrics outputs risk shipped",
    "torch_edits",
    "torch_net",
    "data trace",  # from here on: what workers run
    "golden",
    "agree excerpt measure report verify",
    "analyze comparison diagnose look measured",
    "elsewhere stored",
    "catalog store race zoo",
    "count fit",
    "job turns worker",
    "calibrate routes",
    "blocks diagnosis judge",
    "chain",
    "block guard",
    "plan",
    "run doctor history scaffold",
    "listing packaging",
    "board",
    "api probe",
    "conformance",
    "analysis compare findings reporting staircase",
    "compare_page",
    "console",
    "actions",
    "cli __main__ __init__",
)
UPWARD = {("envs", "routes"), ("envs", "catalog")}  # `python -m edgecompress.envs`, which set-up calls
PLUGINS_MAY = {
    *("board", "costs", "emulated", "errors", "lifeline", "machine", "mil", "model"),
    *("openvino_ir", "packaging", "statistic", "tensors", "tflite_file", "torch_edits", "torch_net", "usercode"),
}
FOLDERS = {
    "edgecompress",
    "edgecompress.stages",
    *(f"edgecompress.{kind}" for kind in registry.KINDS),
}  # what is imported from them is a module
CPU_LIMIT_S = 0.150
HEAVY = "torch numpy onnx onnxruntime onnxscript openvino nncf tensorflow safetensors PIL scipy rich shtab vl_convert"


def level(module: str) -> int:
    """The level of a module of the core."""
    found = [i for i, names in enumerate(LEVELS) if module in names.split()]
    assert found, f"edgecompress/{module}: give it a level in tests/test_layers.py"
    return found[0]


def sources() -> list[Path]:
    """The core and the plug-ins; the demo's net and its training script are a user's code that we ship."""
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p.relative_to(PACKAGE).parts[0] != "demo"]


def owner(path: Path) -> str:
    """The first part below the package (a stage: below stages): a module's name, or the folder it is in."""
    parts = [p for p in path.relative_to(PACKAGE).parts if p != STAGES]
    return parts[0].removesuffix(".py")


def imports(path: Path, everywhere: bool) -> Iterator[str]:
    """Dotted names a file imports: at its top (types-only imports left out), or everywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if everywhere else _top(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            folder = node.module in FOLDERS
            yield from (f"{node.module}.{a.name}" for a in node.names) if folder else (node.module,)


def _top(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        yield node
        if isinstance(node, ast.Try):
            yield from _top(node.body)
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from _top(node.body)


def own_imports(path: Path) -> set[str]:
    """What a file imports of edgecompress, by the first part below the package."""
    names = [n.split(".") for n in imports(path, everywhere=True)]
    inner = [n[1:] for n in names if n[0] == "edgecompress" and len(n) > 1]
    found = {n[1] if n[0] == STAGES and len(n) > 1 else n[0] for n in inner}
    return {n for n in found if not n.startswith("__")}


CORE = [p for p in sources() if owner(p) not in registry.KINDS]
PLUGINS = [p for p in sources() if owner(p) in registry.KINDS]


@pytest.mark.parametrize("path", CORE, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_the_core_imports_downwards_only(path: Path) -> None:
    me = owner(path)
    above = {n for n in own_imports(path) - {me} if n not in registry.KINDS and level(n) >= level(me)}
    assert {(me, n) for n in above} <= UPWARD


@pytest.mark.parametrize("path", CORE, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_the_core_names_no_plugin(path: Path) -> None:
    assert own_imports(path).isdisjoint(registry.KINDS), "plug-ins are reached by name, through the registry"


@pytest.mark.parametrize("path", PLUGINS, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_a_plugin_imports_nouns_and_errors_and_the_helper_of_its_folder(path: Path) -> None:
    names = {n for n in imports(path, everywhere=True) if n.startswith("edgecompress.")}
    strangers = {n for n in names if n.replace(f".{STAGES}.", ".").split(".")[1] not in PLUGINS_MAY}
    helpers = {n for n in strangers if n.startswith(f"edgecompress.{owner(path)}._")}
    assert strangers == helpers


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_the_top_of_a_file_imports_the_standard_library_only(path: Path) -> None:
    roots = {n.split(".")[0] for n in imports(path, everywhere=False)}
    assert roots <= {"edgecompress", "__future__", *sys.stdlib_module_names}


def test_every_plugin_can_be_listed_and_imported_without_its_library() -> None:
    code = (
        "import sys\nfrom edgecompress import registry\n"
        "for kind in registry.KINDS:\n    dict(registry.every(kind))\n"
        f"print([m for m in {HEAVY.split()} if m in sys.modules])"
    )
    assert _python(code) == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["deploy", "--help"], ["targets", "--json"]])
def test_a_cold_command_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys\nsys.argv = ['edgecompress', *{arguments!r}]\nfrom edgecompress.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY.split()} if m in sys.modules])"
    )
    assert _python(code).splitlines()[-1] == "[]"


def test_help_starts_within_its_budget_of_cpu() -> None:
    assert min(_cpu_s([*_command(), "--help"]) for _ in range(7)) < CPU_LIMIT_S


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _command() -> list[str]:
    script = Path(sys.executable).with_name("edgecompress")
    return [str(script)] if script.exists() else [sys.executable, "-m", "edgecompress"]


def _cpu_s(argv: list[str]) -> float:
    """User plus system seconds of one child: unlike the wall clock, a busy machine hardly moves it."""
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime
