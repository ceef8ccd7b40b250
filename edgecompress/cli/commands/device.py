"""`edgecompress device`: add, build, blocks."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import RUNNING, Command, argument, asked, options_of, settings_of

HELP = "add a board, build an emulated device, measure the channel block of its kernels"
PURPOSE = "set up"
ORDER = 2
DESCRIPTION = "Add a board, build an emulated device, or measure the channel block of a device's kernels."


def add(args: argparse.Namespace) -> int:
    """Probes a board and writes its file."""
    from edgecompress.cli import console
    from edgecompress.commands import device_add

    added = device_add.add(args.ssh, args.name, args.output, settings_of(args.settings, "port=2222"))
    facts = {"file": str(added.file), "found": list(added.present), "missing": list(added.missing)}
    console.say(args, facts, str(added.file) if args.quiet else device_add.text(added))
    return 0


def build(args: argparse.Namespace) -> int:
    """Makes an emulated device."""
    from edgecompress.cli import console
    from edgecompress.device.emulation import build as machine

    place = machine.build(console.steps(args))
    console.say(args, {"name": args.name, "path": str(place)}, f"{args.name}: ready in {place}")
    return 0


def blocks(args: argparse.Namespace) -> int:
    """Finds the channel block of a device and writes it into its file."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import device_blocks
    from edgecompress.core import catalog

    with Progress(console.open(args), args) as progress:
        laid = settings_of(args.settings, "options.host=user@board")
        device = catalog.device(args.device, {key.removeprefix("device."): value for key, value in laid.items()})
        staircase = device_blocks.measure(device, args.runtime, args.precision, options_of(args, progress))
    file = device_blocks.write(staircase)
    console.say(args, {"file": str(file), **staircase.facts}, device_blocks.text(staircase, file, brief=args.quiet))
    return 0


COMMANDS = (
    Command(
        "add",
        "probe a board and write its device file",
        add,
        "device add --ssh user@board\ndevice add --ssh user@10.0.0.7 --name lab-board --set port=2222",
        (
            argument(
                "--ssh", required=True, metavar="USER@BOARD", help="address of the board, or an alias of ~/.ssh/config"
            ),
            argument("--name", default="", help="name of the device (default: its host name)"),
            argument("--output", type=Path, help="output file (default: devices/NAME.toml)"),
            asked("settings", help="an option of the transport: port, user, python"),
        ),
    ),
    Command(
        "build",
        "make an emulated device from the distribution's packages, without root",
        build,
        "device build qemu-arm64",
        (
            argument(
                "name",
                choices=("qemu-arm64",),
                help="machine to build, of the devices qemu-cortex-* and qemu-neoverse-*",
            ),
        ),
    ),
    Command(
        "blocks",
        "measure how many channels a device's kernels compute at once, and write that into its file",
        blocks,
        "device blocks\ndevice blocks rpi5 --runtime onnx --precision fp32 --json",
        (
            argument("device", nargs="?", default="host", metavar="DEVICE", help="name or TOML file of the device"),
            argument("--runtime", default="litert", help="runtime whose kernels are measured (default: litert)"),
            argument("--precision", default="int8", help="int8 or fp32 (default: int8)"),
            asked("settings", help="override a value of the device, as options.port=2222; may repeat"),
            *RUNNING,
        ),
    ),
)
