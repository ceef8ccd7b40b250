"""Architecture as a test: who may import whom, what may be imported at the top, and what a cold start costs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from edgecompress.core import extras, registry
from edgecompress.core.package_files import PACKAGE

# From the ground up: a file imports from its own folder and from lower ones, at its top or inside a function.
LAYERS = (
    ("core",),
    ("data",),
    ("formats",),
    ("device",),
    ("reporting",),
    ("techniques",),
    ("engines", "plugins", "stages"),  # all are reached by name, and do not know each other
    ("pipeline",),
    ("commands",),
    ("testing",),
    ("cli",),
    ("extras",),
)
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
# Which engine builds on which; no other engine imports another's files.
BUILDS_ON = {
    ("ethos_u", "litert"),
    ("executorch", "coreml"),
    ("tensorflow", "litert"),
    ("onnx", "tensorflow"),
    ("qnn", "onnx"),
}
TOP = {"__init__.py", "__main__.py", "py.typed", "demo", "schedules.py"}  # the demo is a user's code that we ship
CPU_LIMIT_S = 0.150
HEAVY = (
    "torch numpy onnx onnxruntime onnxscript openvino nncf tensorflow safetensors PIL scipy rich shtab vl_convert "
    "fast_sugiyama"
)


def sources() -> list[Path]:
    """Every module but the demo's, and but the files that packages get."""
    parts = {path: path.relative_to(PACKAGE).parts for path in sorted(PACKAGE.rglob("*.py"))}
    return [path for path, names in parts.items() if names[0] != "demo" and "templates" not in names]


def module(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in sources()}


def imports(path: Path, everywhere: bool = True, types: bool = True) -> Iterator[str]:
    """The modules and names that a file imports: everywhere, with `types` for a type checker too; or at its top."""
    for node in _statements(ast.parse(path.read_text(encoding="utf-8")), everywhere, types and everywhere):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def _statements(node: ast.AST, everywhere: bool, types: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not types and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        if everywhere or isinstance(child, (ast.If, ast.Try)):
            yield from _statements(child, everywhere, types)


def folder(name: str) -> str:
    """The folder of a module of ours; empty for the package itself."""
    return name.split(".")[1] if "." in name else ""


def kind(name: str) -> str:
    """What a module of `plugins`, `engines` or `extras` belongs to: the kind of plug-in, the engine, the extra."""
    return name.split(".")[2] if folder(name) in ("plugins", "engines", "extras") and name.count(".") > 1 else ""


PLUGINS = {registry.load(kind, name).__name__ for kind in registry.KINDS for name in registry.names(kind)}


def test_the_package_has_the_layers_and_a_front_door() -> None:
    held = {path.name for path in PACKAGE.iterdir()} - {"__pycache__", "targets", "devices", "profiles"}
    assert held == TOP | set(LEVEL)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_file_imports_from_its_own_folder_and_from_lower_ones(name: str) -> None:
    own = {n for n in imports(MODULES[name]) if n.split(".")[0] == PACKAGE.name}
    if folder(name) in LEVEL:
        above = {n for n in own if folder(n) != folder(name) and LEVEL.get(folder(n), 99) >= LEVEL[folder(name)]}
        assert not above
    reached = {n for n in own if n in PLUGINS and n != name}
    assert not reached, "plug-ins are reached by name, through the registry"


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {name: {n for n in imports(path) if n in MODULES} for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("name", sorted(n for n in MODULES if folder(n) == "plugins"))
def test_plug_ins_of_one_kind_import_none_of_another(name: str) -> None:
    assert {kind(n) for n in imports(MODULES[name]) if folder(n) == "plugins"} - {"", kind(name)} == set()


def test_engines_import_each_other_only_as_they_build_on_each_other() -> None:
    engines = [name for name in MODULES if folder(name) == "engines"]
    found = {(kind(name), kind(n)) for name in engines for n in imports(MODULES[name]) if folder(n) == "engines"}
    assert {(one, other) for one, other in found if one != other} == BUILDS_ON


@pytest.mark.parametrize("name", sorted(n for n in MODULES if folder(n) == "extras"))
def test_an_extra_imports_no_other_extra(name: str) -> None:
    assert {kind(n) for n in imports(MODULES[name]) if folder(n) == "extras"} - {"", kind(name)} == set()


def test_the_commands_and_techniques_that_an_extra_would_take_along_are_those_that_it_has() -> None:
    found = sorted({n.split(".")[2] for n in MODULES if folder(n) == "extras" and n.count(".") > 1})
    for kind, told in (("commands", extras.COMMANDS), ("techniques", extras.TECHNIQUES)):
        here = {name: sorted(PACKAGE.glob(f"extras/{name}/{kind}/[a-z]*.py")) for name in found}
        files = {name: tuple(file.stem for file in files) for name, files in here.items() if files}
        assert files == {name: tuple(word.replace(" ", "_") for word in words) for name, words in told.items()}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_top_of_a_file_imports_the_standard_library_only(name: str) -> None:
    """But for nets, the report, the card (classes of msgspec's) and the Trainer's callback: a start imports none."""
    roots = {n.split(".")[0] for n in imports(MODULES[name], everywhere=False)}
    typed = (f"{PACKAGE.name}.reporting.", f"{PACKAGE.name}.core.model_card")
    own = {"msgspec"} if name.startswith(typed) or ".sections." in name else set()
    of_torch = (f"{PACKAGE.name}.extras.onnx_nets.", f"{PACKAGE.name}.extras.schedules.nets")
    own |= {"numpy", "torch"} if name.startswith(of_torch) else set()
    own |= {"transformers"} if name == f"{PACKAGE.name}.extras.schedules.hugging_face" else set()
    assert roots <= {PACKAGE.name, "__future__", *own, *sys.stdlib_module_names}


CALL = re.compile(r'"((?:extras|stages|runtimes|techniques)\.[a-z_.0-9]+:[a-z_]+)"')  # "stages.verify:run"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_what_a_file_calls_by_name_is_there(name: str) -> None:
    for call in CALL.findall(MODULES[name].read_text(encoding="utf-8")):
        found, function = registry.call(call)
        assert callable(getattr(found, function, None)), call


def test_every_plugin_can_be_listed_and_imported_without_its_library() -> None:
    code = (
        "import sys\nfrom edgecompress.core import registry\n"
        "for kind in registry.KINDS:\n    dict(registry.every(kind))\n"
        f"print([m for m in {HEAVY.split()} if m in sys.modules])"
    )
    assert _python(code) == "[]"


@pytest.mark.parametrize("arguments", [["--help"], ["deploy", "--help"], ["targets", "--json"]])
def test_a_cold_command_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys\nsys.argv = ['edgecompress', *{arguments!r}]\nfrom edgecompress.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY.split()} if m in sys.modules])"
    )
    assert _python(code).splitlines()[-1] == "[]"


def test_help_starts_within_its_budget_of_cpu() -> None:
    assert min(_cpu_s([*_command(), "--help"]) for _ in range(7)) < CPU_LIMIT_S


def test_the_package_runs_as_a_module_of_python() -> None:
    command = [sys.executable, "-m", "edgecompress", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("edgecompress ")


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
