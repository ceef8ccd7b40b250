"""Commands for devices, this machine and what users add: energy, device, doctor, init, conformance, mcp."""

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
        argument("--device", required=True, help="name or TOML file of a device"),
        argument(
            "--profile",
            default="quick",
            help="how to measure each of the 30 nets (default: quick; 12 minutes in total)",
        ),
        argument("--threads", type=int, default=1, metavar="N", help="threads per inference (default: 1)"),
        argument("--out", type=Path, help="output file (default: DEVICE-energy.toml)"),
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
                "--ssh", required=True, metavar="USER@BOARD", help="address of the board, or an alias of ~/.ssh/config"
            ),
            argument("--name", default="", help="name of the device (default: its host name)"),
            argument("--output", type=Path, help="output file (default: devices/NAME.toml)"),
            settings("an option of the transport: port, user, python"),
        ),
    ),
    Command(
        "build",
        "make an emulated device from the distribution's packages, without root",
        handlers.device_build,
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
        handlers.device_blocks,
        "device blocks\ndevice blocks rpi5 --runtime onnx --precision fp32 --json",
        (
            argument("device", nargs="?", default="host", metavar="DEVICE", help="name or TOML file of the device"),
            argument("--runtime", default="litert", help="runtime whose kernels are measured (default: litert)"),
            argument("--precision", default="int8", help="int8 or fp32 (default: int8)"),
            settings("override a value of the device, as options.port=2222; may repeat"),
            *RUNNING,
        ),
    ),
)

COMMANDS: tuple[Command | CommandGroup, ...] = (
    CommandGroup(
        "energy",
        "calibrate a model of energy for devices without a sensor",
        "Fit a model of energy on a device with a sensor, for devices of its class without one.",
        (ENERGY,),
    ),
    CommandGroup(
        "device",
        "add a board, build an emulated device, measure the channel block of its kernels",
        "Add a board, build an emulated device, or measure the channel block of a device's kernels.",
        DEVICE,
    ),
    Command(
        "doctor",
        "say what this machine can do; paste it into a bug report",
        handlers.doctor,
        "doctor\ndoctor --json",
        (argument("--device", default="", help="device to inspect (default: host, this machine)"),),
    ),
    Command(
        "init",
        "write a commented TOML file, or a plug-in to start from, for a case of your own",
        handlers.init,
        "init my-board --runtime openvino --runtime onnx\n"
        "init --source net.onnx\n"
        "init my-net --kind source --model my_pkg.nets:build --data my_pkg.nets:data\n"
        "init my-board --kind device --output devices/my-board.toml\n"
        "init mine --kind technique",
        (
            argument("name", metavar="NAME", nargs="?", default="", help="name of the new file or plug-in"),
            argument(
                "--source",
                metavar="MODEL",
                default="",
                help="model file: write a source file for it, and a function for its data that names each input",
            ),
            argument(
                "--kind",
                choices=("target", "source", "device", "profile", "technique", "engine", "sensor"),
                default="target",
                help="kind of file, or of plug-in: technique, engine, sensor (default: target)",
            ),
            argument("--runtime", action="append", default=[], help="runtime of a new target's variants; may repeat"),
            argument("--model", default="my_package.nets:build", help="model of a new source"),
            argument("--data", default="", help="samples of a new source"),
            argument(
                "--output",
                type=Path,
                help="output file (default: KINDs/NAME.toml), or folder of a plug-in (default: edgecompress-KIND-NAME)",
            ),
        ),
    ),
    Command(
        "conformance",
        "check that a plug-in or a target keeps what its kind promises",
        handlers.conformance,
        "conformance ptq_int8\nconformance mine --kind engine --json",
        (
            argument("name", metavar="NAME", help="name of an installed plug-in, or of a target"),
            argument(
                "--kind",
                choices=("technique", "engine", "runtime", "sensor", "profiler", "transport", "packager", "target"),
                default="",
                help="kind of plug-in; an engine is a runtime (default: all that have this name)",
            ),
        ),
    ),
    Command(
        "mcp",
        "serve plan, deploy, report, compare and diagnose to coding assistants (Model Context Protocol)",
        handlers.mcp,
        "mcp",
        description="Serves plan, deploy, report, compare and diagnose as tools of the Model Context Protocol, on "
        "stdin and stdout: a coding assistant starts it.",
        common=False,
    ),
)
