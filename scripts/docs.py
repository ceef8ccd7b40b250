"""Writes docs/reference and the generated parts of other pages; `--check` fails where the pages differ."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs"
NOTE = "<!-- Written by scripts/docs.py from the code; change the code and run `make docs`. -->"
os.environ["COLUMNS"] = "100"  # help texts are wrapped to the terminal, which CI does not have
os.chdir(ROOT / "docs")  # where there are no targets of one's own

import architecture  # noqa: E402  # beside this file
import contracts  # noqa: E402

from edgecompress.cli import main as cli  # noqa: E402
from edgecompress.commands import listing  # noqa: E402
from edgecompress.core import catalog, errors, registry, settings  # noqa: E402
from edgecompress.extras.apps import model_card  # noqa: E402
from edgecompress.pipeline import conversion  # noqa: E402
from edgecompress.reporting import model  # noqa: E402
from edgecompress.testing import zoo  # noqa: E402

HEADINGS = {
    "techniques": "Techniques",
    "runtimes": "Runtimes",
    "transports": "Transports",
    "sensors": "Sensors",
    "packagers": "Packagers",
    "sections": "Sections of the report",
    "commands": "Commands",
}
CONSTANTS = {
    "techniques": ("PROVIDES", "READS", "WRITES"),
    "runtimes": ("FORMAT", "READS", "SUFFIX"),
    "sensors": ("STATUS", "SCOPE"),
    "packagers": ("SUFFIX",),
    "transports": (),
    "sections": (),
    "commands": ("HELP",),
}


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(c) for c in line) + " |" for line in lines)


def cell(value: Any) -> str:
    """A value in a table: no pipes, no line breaks."""
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else "" if value is None else str(value)
    return " ".join(text.split()).replace("|", "\\|")


def own(kind: str) -> list[tuple[str, Any]]:
    """The plug-ins of the repository: those of other distributions are not ours to document."""
    return [(n, m) for n, m in registry.every(kind) if m.__name__.startswith("edgecompress.")]


# --------------------------------------------------------------------------- pages


def commands() -> str:
    """The help text of every command."""
    parts = [
        "# Commands\n",
        "Exit codes: 0 done, 1 a check failed and nothing shipped, 2 your input, 3 a stage failed,",
    ]
    parts.append(
        "4 a gate of `compare`, or an accuracy that is not above chance, is undecided, 130 interrupted, "
        "129 and 143 ended by SIGHUP and SIGTERM, "
        "141 nobody reads the output. `NO_COLOR` is obeyed. "
        "Text goes to stdout; with `--json` progress goes to stderr.\n"
        "What is called experimental may change or go with the next version.\n"
    )
    parts += [f"## {name}\n\n```text\n{text.rstrip()}\n```\n" for name, text in helps(cli.parser())]
    return "\n".join(parts)


def helps(parser: argparse.ArgumentParser) -> Iterable[tuple[str, str]]:
    """(command, help text) of a parser and of the ones below it."""
    yield parser.prog, parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from helps(below)


def plugins() -> str:
    """A table per kind of plug-in, then each one's options."""
    parts = ["# Plug-ins\n", "A plug-in is a file; its name is the file's. [How to add one](../../CONTRIBUTING.md).\n"]
    for kind, heading in HEADINGS.items():
        words = CONSTANTS[kind]
        rows = [
            [
                f"[{name}](../../{m.__name__.replace('.', '/')}.py)",
                listing.summary(m),
                *(getattr(m, w, "") for w in words),
                getattr(m, "REQUIRES", ()),
            ]
            for name, m in own(kind)
        ]
        parts += [f"## {heading}\n", table(["name", "what it is", *(w.lower() for w in words), "needs"], rows), ""]
    for kind in ("techniques", "runtimes"):
        parts += [option_table(kind, name, m) for name, m in own(kind) if listing.options(m)]
    defines = (
        "## What each kind defines\n\nNames in capitals are constants, the others functions with what they take and "
        "return. A name that is nearly one of these is an error of the conformance suite.\n"
    )
    return "\n".join([*parts, formats(), "", defines, contracts.tables()])


def option_table(kind: str, name: str, module: Any) -> str:
    """The options of one plug-in, with the comments beside them in its source."""
    says = comments(module.Options)
    rows = [
        [f"`{o['name']}`", o["type"], f"`{o['default']}`", says.get(o["name"], "")] for o in listing.options(module)
    ]
    return (
        f"### Options of {kind.removesuffix('s')} {name}\n\n{table(['key', 'type', 'default', 'what it does'], rows)}\n"
    )


def sources() -> dict[str, str]:
    """The kinds of sources, by what users call them."""
    kinds = {"torch factory": "module", "`.pt2`": "program"}
    for runtime in registry.runtimes():
        if runtime.suffix and not runtime.for_tests:
            kinds[f"`{runtime.suffix}`"] = runtime.format
    return kinds


def formats() -> str:
    """Which source reaches which format without compression: the planner's own routes."""
    kinds = sources()
    goals = sorted({m.FORMAT for _, m in own("runtimes")})
    rows = [[source, *(_way(kind, goal) for goal in goals)] for source, kind in kinds.items()]
    return f"## From which source to which format\n\n{table(['source', *goals], rows)}\n"


def _way(kind: str, goal: str) -> str:
    found = conversion.shortest_path(kind, [goal])
    if found is None:
        return "no"
    return " → ".join(found) or "as it is"


def targets() -> str:
    """The shipped targets, devices and profiles."""
    parts = ["# Targets, devices, profiles\n", "`edgecompress init NAME --kind target` writes one of your own.\n"]
    for kind in catalog.KINDS:
        names = sorted(p.stem for p in catalog.shipped(kind).glob("*.toml"))
        rows = [[f"[{n}](../../{kind}/{n}.toml)", listing.READERS[kind](n).value.description] for n in names]
        parts += [f"## {kind.capitalize()}\n", table(["name", "what it is"], rows), ""]
    return "\n".join([*parts, reached()])


def reached() -> str:
    """Which source reaches which target: the planner's own answers."""
    kinds = sources()
    read = {
        file.stem: listing.READERS["targets"](file.stem).value for file in catalog.shipped("targets").glob("*.toml")
    }
    rows = [[name, *(_reached(target, kind) for kind in kinds.values())] for name, target in sorted(read.items())]
    says = (
        "How many of a target's variants a source of each kind reaches; `edgecompress plan` names them. Those that it "
        "does not reach are left out; where it reaches none, the deploy ends with exit code 2."
    )
    return f"## Which source reaches which target\n\n{says}\n\n{table(['target', *kinds], rows)}"


def _reached(target: settings.Target, kind: str) -> str:
    found = [variant for variant in target.variant if _has_path(target, variant, kind)]
    return f"{len(found)} of {len(target.variant)}" if found else "none"


def _has_path(target: settings.Target, variant: settings.Variant, kind: str) -> bool:
    try:
        conversion.steps(target, variant, kind, "")
    except errors.NoPath:
        return False
    return True


def files() -> str:
    """Every key of every TOML file."""
    classes = (settings.Target, settings.Variant, settings.Limits, settings.Source)
    parts = ["# Keys of the TOML files\n", "A key that is not here is an error, with a suggestion.\n"]
    data = (settings.Detect, settings.Decode, settings.Preprocess, settings.Spectrogram)
    for cls in (*classes, *data, settings.Device, settings.PowerModel, settings.Roof, settings.Profile):
        says = comments(cls)
        rows = [[f"`{f.name}`", str(f.type), default(f), says.get(f.name, "")] for f in dataclasses.fields(cls)]
        doc = inspect.cleandoc(cls.__doc__ or "")
        parts += [f"## {cls.__name__}\n", doc, "", table(["key", "type", "default", "what it means"], rows), ""]
    return "\n".join(parts)


def default(field: dataclasses.Field[Any]) -> str:
    """The default of a key, as it is written."""
    if field.default is not dataclasses.MISSING:
        value = field.default
        return "left out" if value is None else "" if dataclasses.is_dataclass(value) else f"`{value!r}`"
    return "required" if field.default_factory is dataclasses.MISSING else ""


def comments(cls: type) -> dict[str, str]:
    """What the source says beside each field, that of the classes below it too."""
    said: dict[str, str] = {}
    for each in reversed([c for c in cls.__mro__ if dataclasses.is_dataclass(c)]):
        said |= dict(re.findall(r"^    (\w+): .*?  # (?!type: ignore)(.+)$", inspect.getsource(each), re.MULTILINE))
    return said


def error_page() -> str:
    """The tree of errors."""
    return f"# Errors and exit codes\n\n```text\n{inspect.cleandoc(errors.__doc__ or '')}\n```\n"


ZOO = """# What every runtime was tried on

Small nets with random weights, one of each shape that people bring, taken from torch to each runtime on the planner's
own road and held against torch: at least 100 dB in fp32, 20 dB in int8. Written from the results of
`tests/test_zoo.py`, which fails when a cell changes, for the better too. "fixed batch": the net takes any number of
items, a file of this runtime only one; one was made and run for each batch that was asked for. All of it ran on a CPU,
`onnx_gpu` too; `coreml` by the interpreter of its programs, `ethos_u` by LiteRT with the file as it was before Vela,
`qnn` by Qualcomm's emulator.
"""


def zoo_page() -> str:
    """How each net of the zoo fared in each runtime, and what one can do where it failed."""
    stored = json.loads((ROOT / "tests" / "golden" / "zoo.json").read_text(encoding="utf-8"))
    rows = [
        [f"`{name}`", net.says, ", ".join(f"{k} {list(i.shape)}" for k, i in net.inputs.items())]
        for name, net in zoo.NETS.items()
    ]
    parts = [ZOO, table(["net", "what it has", "inputs, of one item"], rows), ""]
    notes: list[str] = []
    for precision in ("fp32", "int8"):
        lines = [[runtime, *zoo_row(runtime, cells[precision], notes)] for runtime, cells in stored.items()]
        parts += [f"## {precision}\n", table(["runtime", *zoo.NETS], lines), ""]
    parts += ["## Where not, and what to do\n", *(f"{i}. {note}" for i, note in enumerate(notes, 1))]
    return "\n".join(parts)


def zoo_row(runtime: str, cells: dict[str, str] | str, notes: list[str]) -> list[str]:
    """The cells of a runtime; what is wrong goes to the notes, and its number into the cell."""
    if isinstance(cells, str):
        return ["not reachable" + noted(f"{runtime}: {cells}.", notes)] + [""] * (len(zoo.NETS) - 1)
    return [
        f"no{noted(f'{runtime}: {known(runtime, cells[net])}', notes)}" if cells[net].startswith("no: ") else cells[net]
        for net in zoo.NETS
    ]


def noted(note: str, notes: list[str]) -> str:
    """The number of a note, which is added where it is new."""
    if note not in notes:
        notes.append(note)
    return f" ({notes.index(note) + 1})"


def known(runtime: str, said: str) -> str:
    """An expected failure in upstream's words and ours."""
    table = tomllib.loads((ROOT / "tests" / "zoo_expected.toml").read_text(encoding="utf-8"))
    error = said.removeprefix("no: ")
    do = next(f["do"] for f in table["failure"] if f["runtime"] == runtime and re.search(f["error"], error))
    return f"`{error}` {do}"


OPERATORS = """# Which operator runs in which engine

What became of each function and module of PyTorch's own test databases, at most four classes of arguments of each, as
a net of one operator: exported, opened, verified, and compared with torch in float64. `yes`: right for all of them.
`2 of 4`: for so many; which ones fail stands below. `no`: for none; `deploy` names the operator and its layer. An
empty cell was not tried: some engines had a seeded sample. `litert`, `executorch` and `mnn` run on Android, `coreml`
(here its interpreter) on iOS and macOS, `onnx` and `openvino` on PCs. `edgecompress check` says it of your own net.
"""


def operators_page() -> str:
    """What the newest record of benchmarks/operators.py says."""
    kept = json.loads(max((ROOT / "benchmarks").glob("operators-*.json")).read_text(encoding="utf-8"))
    samples, found = kept["samples"], kept["found"]
    by_operator: dict[str, list[str]] = {}
    for name, (operator, _) in samples.items():
        by_operator.setdefault(operator, []).append(name)
    rows, partly = [], []
    for operator, names in sorted(by_operator.items(), key=lambda item: item[0].lower()):
        cells = []
        for told in found.values():
            tried = [name for name in names if name.rpartition("_")[0] in told["tried"]]
            right = sum(name not in told["not right"] for name in tried)
            cells.append(
                "" if not tried else "no" if not right else "yes" if right == len(tried) else f"{right} of {len(tried)}"
            )
        rows.append([f"`{operator}`", *cells])
        for name in names:
            of_engines = [engine for engine, cell in zip(found, cells, strict=True) if " of " in cell]
            if fails := [engine for engine in of_engines if name in found[engine]["not right"]]:
                partly.append([f"`{operator}`", f"`{samples[name][1][:160]}`", ", ".join(fails)])
    shares = [
        [engine, told["date"], len(tried), f"{1 - len(told['not right']) / len(tried):.0%}"]
        for engine, told in found.items()
        for tried in [[name for name in samples if name.rpartition("_")[0] in told["tried"]]]
    ]
    return "\n".join(
        [
            OPERATORS,
            table(["engine", "on", "samples", "right"], shares),
            "",
            "## Operators\n",
            table(["operator", *found], rows),
            "",
            "## Arguments that fail where others run\n",
            table(["operator", "arguments", "fail in"], partly),
        ]
    )


def by_parts(schema: dict[str, Any]) -> str:
    """A JSON Schema, a line per part."""
    parts = ",\n".join(f"{json.dumps(name)}: {json.dumps(part)}" for name, part in schema.pop("$defs").items())
    return f'{json.dumps(schema)[:-1]}, "$defs": {{\n{parts}\n}}}}'


PAGES = {
    "reference/commands.md": commands,
    "reference/plugins.md": plugins,
    "reference/targets.md": targets,
    "reference/files.md": files,
    "reference/errors.md": error_page,
    "reference/zoo.md": zoo_page,
    "reference/operators.md": operators_page,
    "reference/report.schema.json": lambda: by_parts(model.json_schema()),
    f"../{model_card.SCHEMA_FILE.relative_to(ROOT)}": lambda: by_parts(model_card.json_schema()),
    "architecture.md": architecture.page,
}


def main() -> int:
    """Writes the pages, or compares them."""
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, page in PAGES.items():
        file, text = OUT / name, f"{page().rstrip()}\n"
        if name.startswith("reference/") and name.endswith(".md"):  # all of it is generated
            text = f"{NOTE}\n\n{text}"
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        if before == text:
            continue
        stale.append(name)
        if check:
            print(
                "\n".join(difflib.unified_diff(before.splitlines(), text.splitlines(), name, "the code", lineterm=""))
            )
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if stale:
        print(f"docs: {', '.join(stale)} {'out of date; run: make docs' if check else 'written'}")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
