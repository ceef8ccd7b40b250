"""`edgecompress energy calibrate`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from edgecompress.cli.arguments import Command, argument

HELP = "calibrate a model of energy for devices without a sensor"
PURPOSE = "set up"
ORDER = 1
DESCRIPTION = "Fit a model of energy on a device with a sensor, for devices of its class without one."


def calibrate(args: argparse.Namespace) -> int:
    """Calibrates a model of energy on a device that has a sensor."""
    from edgecompress.cli import console
    from edgecompress.commands import energy_calibrate
    from edgecompress.core import config

    file = energy_calibrate.run(args.device, args.out, args.profile, args.threads, console.steps(args))
    table = config.read_toml(file)
    error = cast("Mapping[str, float]", table["error"])
    words = (
        f"held-out error {error['rms']:.1%} (RMS); an estimate is within ±{error['band']:.1%} for {error['covers']:.0%}"
    )
    console.say(args, {"file": str(file), **table}, f"{file}: {words} of nets like these")
    return 0


COMMANDS = (
    Command(
        "calibrate",
        "measure what a second, a MAC and a byte take, on a device that has a sensor",
        calibrate,
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
    ),
)
