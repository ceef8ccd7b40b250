"""What was measured, what there is, what is stored: compare, history, the lists, cache."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import handlers
from edgecompress.cli.grammar.entry import Command, CommandGroup, argument
from edgecompress.cli.grammar.shared import MEASURING, STORE

LISTS = {
    "targets": "what can be shipped",
    "devices": "where it can be measured",
    "profiles": "how it can be measured",
    "techniques": "ways to compress",
    "runtimes": "inference engines",
    "sensors": "ways to read energy",
    "profilers": "more ways to look at what is measured",
    "transports": "ways to reach a device",
    "packagers": "ways to wrap what shipped for an app",
}
SHOWN = {"targets": "x86", "devices": "host", "profiles": "quick"}


def _list(kind: str, what: str) -> Command:
    examples = f"{kind}\n{kind} --json" + (f"\n{kind} {SHOWN[kind]}" if kind in SHOWN else "")
    name = argument("name", nargs="?", metavar="NAME", help="show this one whole")
    return Command(kind, f"list {kind}: {what}", handlers.list_all, examples, (name,), kind=kind)


COMMANDS: tuple[Command | CommandGroup, ...] = (
    Command(
        "compare",
        "hold reports against the first one: ratios with their intervals, gates for CI",
        handlers.compare,
        "compare before/report.json dist/x86\n"
        "compare dist/x86@fp32 dist/x86 --json\n"
        'compare before dist/x86 --fail-if "latency_ms > 1.05x" --fail-if "accuracy_drop > 0.01"\n'
        "compare before dist/x86 --remeasure --profile strict\n"
        "compare dist/x86 dist/arm64 --html comparison.html",
        (
            argument(
                "reports",
                nargs="+",
                metavar="REPORT",
                help="a report.json or its folder, of a variant as REPORT@VARIANT",
            ),
            argument(
                "--fail-if",
                action="append",
                default=[],
                metavar="GATE",
                help='exit 1 when an interval shows it: "latency_ms > 1.05x" of the first, or "size_bytes > 500000"',
            ),
            *MEASURING,
            argument("--remeasure", action="store_true", help="measure the artifacts of the folders again, in turns"),
            argument(
                "--html",
                type=Path,
                metavar="FILE",
                help="write it as a page, too, with the fronts of all their variants",
            ),
            STORE,
        ),
    ),
    Command(
        "history",
        "list every result, with its change from the one before of its kind",
        handlers.history,
        "history\nhistory --source net.onnx --target x86 --limit 5\nhistory --json",
        (
            argument("--source", default="", help="only of this model (a part of its name will do)"),
            argument("--target", default="", help="only of this target"),
            argument("--limit", type=int, default=20, metavar="N", help="the newest N (default: 20)"),
            STORE,
        ),
    ),
    *(_list(kind, what) for kind, what in LISTS.items()),
    CommandGroup(
        "cache",
        "look into the store of results: ls, why, gc, verify",
        "Looks into the store of results.",
        (
            Command(
                "ls", "list the stored results, newest first", handlers.cache_ls, "cache ls\ncache ls --json", (STORE,)
            ),
            Command(
                "why",
                "say what the result of a stage depends on",
                handlers.cache_why,
                "cache why int8/verify",
                (argument("stage", metavar="STAGE", help="a stage's name, as plan lists it"), STORE),
            ),
            Command(
                "gc",
                "remove old results",
                handlers.cache_gc,
                "cache gc --older-than 30\ncache gc --older-than 0",
                (
                    argument(
                        "--older-than", type=float, default=30.0, metavar="DAYS", help="older than this (default: 30)"
                    ),
                    STORE,
                ),
            ),
            Command(
                "verify",
                "compare every stored byte with its sha256; exit 1 on damage",
                handlers.cache_verify,
                "cache verify",
                (STORE,),
            ),
        ),
    ),
)
