"""The power chip of the Raspberry Pi 5: currents and voltages of its rails, by `vcgencmd pmic_read_adc`.

Not included: USB devices, fans and HATs on the 5 V supply, and the chip's own losses.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import brief
from edgecompress.plugins.sensors import _sampler
from edgecompress.plugins.sensors._sampler import Origin, Sampled

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
STATUS = "measured"
SCOPE = "board"

PROGRAM = "usr/bin/vcgencmd"
PERIOD_S = 0.25  # each reading starts a program: more often would cost power itself
DEADLINE_S = 2.0
READING = re.compile(r"(\w+)_([AV])\s+(?:current|volt)\(\d+\)=(-?[\d.]+)[AV]")


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why the rails cannot be read, or ""."""
    program = _program(root)
    if not program:
        return f"no {root / PROGRAM}, and none on the PATH: it comes with Raspberry Pi OS"
    try:
        moved = _sampler.moving({"power": partial(_watts, program)}, 4 * PERIOD_S)
    except (OSError, ValueError) as error:
        return str(error)
    return "" if moved else "the rails of vcgencmd pmic_read_adc do not change"


def open(device: Mapping[str, Json], root: Path) -> Sampled:
    """A meter over the sum of the rails."""
    program = _program(root)
    rails = len(_rails(_readings(program)))
    source = f"Raspberry Pi PMIC, {rails} rails (without USB, fan and HATs at 5 V, and conversion losses)"
    return Sampled(partial(_watts, program), Origin(source, SCOPE), PERIOD_S)


def _program(root: Path) -> str:
    file = root / PROGRAM
    return str(file) if file.exists() else (shutil.which("vcgencmd") or "") if root == Path("/") else ""


def _readings(program: str) -> str:
    """What the chip says; raises ValueError with the reason when it says nothing."""
    try:
        done = subprocess.run([program, "pmic_read_adc"], capture_output=True, text=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{program} pmic_read_adc gave no answer within {DEADLINE_S:g} s") from None
    if done.returncode or not _rails(done.stdout):
        message = brief(done.stderr or done.stdout) or "nothing"
        raise ValueError(
            f"{program} pmic_read_adc lists no rails (it printed: {message}): it needs a Raspberry Pi 5, and a user "
            "in the group `video`"
        )
    return done.stdout


def _rails(text: str) -> dict[str, float]:
    """Watts by rail; those with a voltage alone (the 5 V input, the clock's battery) tell no power."""
    amperes, volts = ({n: float(v) for n, unit, v in READING.findall(text) if unit == u} for u in "AV")
    return {name: current * volts[name] for name, current in amperes.items() if name in volts}


def _watts(program: str) -> float:
    return sum(_rails(_readings(program)).values())
