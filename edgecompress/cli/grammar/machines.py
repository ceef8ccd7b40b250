"""Devices, this machine, files of one's own: energy, device, doctor, init."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import handlers
from edgecompress.cli.grammar.entry import Command, CommandGroup, argument
from edgecompress.cli.grammar.shared import RUNNING, settings

ENERGY = Command(
    "calibrate",
    "measure what a second, a MAC and a byte take, on a device that has a sensor",
    handlers.energy_calibrate,
    "energy calibrate --device rpi5\nenergy calibrate --device rpi5 --profile energy --out calibrations/rpi5.toml",
    (
        argument("--device", required=True, help="a device's name or TOML file"),
        argument(
            "--profile", default="quick", help="how to measure each of the 30 nets (default: quick, 12 minutes in all)"
        ),
        argument("--threads", type=int, default=1, metavar="N", help="threads of an inference (default: 1)"),
        argument("--out", type=Path, help="the file it writes (default: DEVICE-energy.toml)"),
    ),
)
DEVICE = (
    Command(
        "add",
        "probe a board and write its device file",
        handlers.device_add,
        "device add --ssh user@board\ndevice add --ssh user@10.0.0.7 --name lab-board --set port=2222",
        (
            argument(
                "--ssh", required=True, metavar="USER@BOARD", help="where it is; an alias of ~/.ssh/config will do"
            ),
            argument("--name", default="", help="what it is called (default: by the name of its host)"),
            argument("--output", type=Path, help="the file (default: devices/NAME.toml)"),
            settings("an option of the transport: port, user, python"),
        ),
    ),
    Command(
        "build",
        "make an emulated device from the distribution's packages, without root",
        handlers.device_build,
        "device build qemu-arm64",
        (argument("name", choices=("qemu-arm64",), help="what is built; its devices are qemu-cortex-..."),),
    ),
    Command(
        "blocks",
        "find how many channels a device's kernels compute at once, and write it into its file",
        handlers.device_blocks,
        "device blocks\ndevice blocks rpi5 --runtime onnx --precision fp32 --json",
        (
            argument("device", nargs="?", default="host", metavar="DEVICE", help="its name or TOML file"),
            argument("--runtime", default="litert", help="whose kernels (default: litert)"),
            argument("--precision", default="int8", help="in which precision, or fp32 (default: int8)"),
            settings("lay a value over the device's: options.port"),
            *RUNNING,
        ),
    ),
)

COMMANDS: tuple[Command | CommandGroup, ...] = (
    CommandGroup(
        "energy",
        "energy where no sensor is: calibrate",
        "Learns energy on a device that has a sensor, for the devices of its class that have none.",
        (ENERGY,),
    ),
    CommandGroup(
        "device",
        "get a device: add a board, build an emulated one; learn how wide its kernels are",
        "Gets a device to measure on, and learns what its kernels are like.",
        DEVICE,
    ),
    Command(
        "doctor",
        "say what this machine can do; paste it into a bug report",
        handlers.doctor,
        "doctor\ndoctor --json",
        (argument("--device", default="host", help="ask this device (default: host)"),),
    ),
    Command(
        "init",
        "write a commented TOML file for a case of your own",
        handlers.init,
        "init my-board --runtime openvino --runtime onnx\n"
        "init my-net --kind source --model my_pkg.nets:build --data my_pkg.nets:data\n"
        "init my-board --kind device --output devices/my-board.toml",
        (
            argument("name", metavar="NAME", help="its name"),
            argument("--kind", choices=("target", "source", "device", "profile"), default="target", help="of what"),
            argument("--runtime", action="append", default=[], help="of a target's variants; may be repeated"),
            argument("--model", default="my_package.nets:build", help="of a source"),
            argument("--data", default="my_package.nets:data", help="of a source"),
            argument("--output", type=Path, help="the file (default: KINDs/NAME.toml)"),
        ),
    ),
)
