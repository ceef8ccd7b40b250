"""`edgecompress init`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import argument, options_of
from edgecompress.core.errors import InputError

HELP = "write a commented TOML file, or a plug-in to start from, for a case of your own"
PURPOSE = "set up"
ORDER = 4
EXAMPLES = (
    "init my-board --runtime openvino --runtime onnx\n"
    "init --source net.onnx\n"
    "init my-net --kind source --model my_pkg.nets:build --data my_pkg.nets:data\n"
    "init my-board --kind device --output devices/my-board.toml\n"
    "init mine --kind technique"
)
ARGUMENTS = (
    argument("name", metavar="NAME", nargs="?", default="", help="name of the new file or plug-in"),
    argument(
        "--source",
        metavar="MODEL",
        default="",
        help="model file: write a source file for it, and a function for its data that names each input",
    ),
    argument(
        "--kind",
        choices=("target", "source", "device", "profile", "technique", "engine", "sensor", "command", "section"),
        default="target",
        help="kind of file, or of plug-in: technique, engine, sensor, command, section (default: target)",
    ),
    argument("--runtime", action="append", default=[], help="runtime of a new target's variants; may repeat"),
    argument("--model", default="my_package.nets:build", help="model of a new source"),
    argument("--data", default="", help="samples of a new source"),
    argument(
        "--output",
        type=Path,
        help="output file (default: KINDs/NAME.toml), or folder of a plug-in (default: edgecompress-KIND-NAME)",
    ),
)


def run(args: argparse.Namespace) -> int:
    """Writes a commented TOML file, or a plug-in to start from."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import init, init_plugin, init_source

    if not args.name and not args.source:
        raise InputError("init: give the NAME of the new file, or the model file with --source")
    if args.source:
        with Progress(console.open(args), args) as progress:
            options = options_of(args, progress)
            file, code = init_source.write(args.source, args.name, (args.output, args.data), options)
        step = f"fill in {code}, then {init.next_step('source', file)}" if code else init.next_step("source", file)
    elif args.kind in init_plugin.KINDS:
        file = init_plugin.write(args.kind, args.name, args.output)
        step = init_plugin.next_step(file, args.name)
    else:
        file = init.write(
            args.output or init.place(args.kind, args.name),
            init.text(args.kind, {**vars(args), "data": args.data or "my_package.nets:data"}),
        )
        step = init.next_step(args.kind, file)
    console.say(args, {"written": str(file)}, str(file) if args.quiet else f"{file}\nnext: {step}")
    return 0
