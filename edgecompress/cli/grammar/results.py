"""Commands for results, lists and the store: compare, history, targets and the other lists, cache."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import handlers
from edgecompress.cli.grammar.entry import Command, CommandGroup, argument
from edgecompress.cli.grammar.shared import SHIPPED_THREADS, STORE, measuring

LISTS = {
    "targets": "what a deploy can make",
    "devices": "where a deploy can measure",
    "profiles": "how long and how often a deploy measures",
    "techniques": "ways to compress",
    "runtimes": "inference engines",
    "sensors": "sources of energy readings",
    "profilers": "further measurements of the fastest variants",
    "transports": "ways to reach a device",
    "packagers": "formats of packages for apps",
}
SHOWN = {"targets": "x86", "devices": "host", "profiles": "quick"}


def _list(kind: str, what: str) -> Command:
    examples = f"{kind}\n{kind} --json" + (f"\n{kind} {SHOWN[kind]}" if kind in SHOWN else "")
    name = argument("name", nargs="?", metavar="NAME", help="show the details of this one")
    return Command(kind, f"list {kind}: {what}", handlers.list_all, examples, (name,), kind=kind)


COMMANDS: tuple[Command | CommandGroup, ...] = (
    Command(
        "compare",
        "compare reports with the first one: ratios with intervals, gates for CI",
        handlers.compare,
        "compare before/report.json dist/x86\n"
        "compare dist/x86@fp32 dist/x86 --json\n"
        'compare before dist/x86 --fail-if "latency_ms > 1.05x" --fail-if "accuracy_drop > 0.01"\n'
        'compare before dist/x86 --fail-if "metric_loss > 0.01"\n'
        "compare before dist/x86 --remeasure --profile strict\n"
        "compare dist/x86 dist/arm64 --html comparison.html",
        (
            argument(
                "reports",
                nargs="+",
                metavar="REPORT",
                help="report.json or its folder; REPORT@VARIANT selects a variant",
            ),
            argument(
                "--fail-if",
                action="append",
                default=[],
                metavar="GATE",
                help='"latency_ms > 1.05x" (of the first report) or "size_bytes > 500000": fail (exit 1) if the '
                "whole interval is beyond the limit, exit 4 if only part of it is; accuracy_drop is what the metric "
                "lost in its own unit (0.01 of top1: a point), metric_loss what it lost relative to the first report "
                "(for mse, psnr, ...)",
            ),
            argument("--strict", action="store_true", help="a gate that is undecided fails (exit 1)"),
            argument("--across-models", action="store_true", help="compare reports of different models, too"),
            *measuring(SHIPPED_THREADS),
            argument(
                "--remeasure", action="store_true", help="measure the artifacts of all folders again, interleaved"
            ),
            argument(
                "--html",
                type=Path,
                metavar="FILE",
                help="also write an HTML page with the Pareto fronts of all variants",
            ),
            STORE,
        ),
    ),
    Command(
        "history",
        "list all results, each with its change from the previous one of its kind",
        handlers.history,
        "history\nhistory --source net.onnx --target x86 --limit 5\nhistory --json",
        (
            argument("--source", default="", help="only results of this model (part of its name is enough)"),
            argument("--target", default="", help="only results of this target"),
            argument(
                "--limit", type=int, default=20, metavar="N", help="number of results, newest first (default: 20)"
            ),
            STORE,
        ),
    ),
    CommandGroup(
        "cache",
        "inspect the store of results: ls, why, gc, verify",
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
                (argument("stage", metavar="STAGE", help="name of a stage, as `plan` lists it"), STORE),
            ),
            Command(
                "gc",
                "remove old results",
                handlers.cache_gc,
                "cache gc --older-than 30\ncache gc --older-than 0",
                (
                    argument(
                        "--older-than", type=float, default=30.0, metavar="DAYS", help="age in days (default: 30)"
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
LISTED = tuple(_list(kind, what) for kind, what in LISTS.items())
