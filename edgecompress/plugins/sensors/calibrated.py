"""Energy from measured time and counted work, by a calibration that `edgecompress energy calibrate` made.

Device options: `calibrated = { file = "rpi5-energy.toml" }`. The file holds for one class of devices (their processor,
cores and architecture) and one number of threads, and for work like that of the calibration: MACs of a dtype and bytes
a second within its ranges. Outside of these there is no estimate, and the reason says what is outside: the held-out
error, which is the band here, tells nothing of what was never tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.model import Measured
from edgecompress.plugins.sensors._counter import no_energy

REQUIRES: tuple[str, ...] = ()
LOCAL = True
READS_FILE = True  # the one that its options name
STATUS = "estimated"
SCOPE = "package"  # unless the calibration's sensor had another
NEEDS_WORK = True  # the stage gives device["work"]: op_counts.total of the artifact
FORMAT = 1
LARGEST = 1 << 20  # bytes of a calibration


def device_class(device: Mapping[str, Any]) -> str:
    """What devices must share for one's calibration to hold for another; "" where the device has not been asked."""
    facts = device.get("fingerprint") or {}
    cores = device.get("cores") or facts.get("cores")
    return f"{facts.get('cpu') or 'unknown processor'}, {cores} cores, {facts['machine']}" if facts else ""


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why there is no calibration for this device, or ""."""
    file = _file(device)
    if file is None:
        return "no calibration is named; add calibrated = { file = ... } to the device's options"
    try:
        calibration = load(file)
    except InputError as error:
        return str(error)
    mine = device_class(device)
    if mine and mine != calibration["device_class"]:
        return (
            f"{file}: calibrated on '{calibration['device_class']}', this is '{mine}'; calibrate a device of this class"
        )
    return ""


def open(device: Mapping[str, Any], root: Path) -> CalibratedMeter:
    """A meter of the work in `device["work"]`, done by `device["threads"]` threads (0: idle)."""
    file = _file(device)
    assert file is not None  # `unavailable` has said so
    work = device.get("work") or {"macs": None, "why": "the operators were not counted"}
    return CalibratedMeter(load(file), work, int(device.get("threads", 1)))


def _file(device: Mapping[str, Any]) -> Path | None:
    name = ((device.get("options") or {}).get("calibrated") or {}).get("file")
    return Path(name) if name else None


def load(file: Path) -> dict[str, Json]:
    """A calibration file; raises InputError when it is none."""
    if not file.is_file():
        return _refuse(file, "no such file")
    import tomllib  # of Python 3.11: these files are on the machine that asks, not on the device

    try:
        calibration = tomllib.loads(plain_file.read(file, LARGEST).decode())
    except (OSError, ValueError, RecursionError) as error:
        return _refuse(file, f"cannot be read: {error}")
    if calibration.get("format") != FORMAT:
        return _refuse(file, f"not a calibration of format {FORMAT}")
    numbers = [
        *_numbers(calibration.get("coefficients")),
        *_numbers(calibration.get("error")),
        *_numbers(calibration.get("hull")),
    ]
    texts = [calibration.get(key) for key in ("device_class", "sensor", "scope", "runtime", "date")]
    whole = {"coefficients", "error", "hull", "threads"} <= calibration.keys() and all(
        isinstance(t, str) for t in texts
    )
    return calibration if whole and all(n >= 0 for n in numbers) else _refuse(file, "damaged")


def _refuse(file: Path, why: str) -> dict[str, Json]:
    raise InputError(f"{file}: {why}; write one with `edgecompress energy calibrate`")


def _numbers(table: object) -> Iterator[float]:
    """The numbers in a table; something else counts as one that is none."""
    for value in table.values() if isinstance(table, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _numbers(value)
        else:
            yield from (
                v if isinstance(v, (int, float)) else -1.0 for v in (value if isinstance(value, list) else [value])
            )


class CalibratedMeter:
    """Watts while it computes, and picojoules of each MAC and byte, over a window that is one inference long."""

    def __init__(self, calibration: Mapping[str, Any], work: Mapping[str, Any], threads: int) -> None:
        self.calibration, self.work, self.threads = calibration, work, threads
        self.scope = str(calibration["scope"])
        self.source = f"calibration: {calibration['sensor']} of {calibration['device_class']}, {calibration['date']}"

    def start(self) -> None:
        """Nothing to start."""

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules of one inference that took the window, with the calibration's held-out error as band."""
        seconds = end_s - begin_s
        why_not = self._why_not(seconds)
        if why_not:
            return no_energy(self.scope, self.source, why_not)
        joules, band = self._joules(seconds), float(self.calibration["error"]["band"])
        low, high = joules * max(0.0, 1 - band), joules * (1 + band)
        by, ran = self.calibration["runtime"], self.work["kind"]
        remark = "" if ran == by else f"calibrated with {by}, not with {ran}"
        return Measured("energy", joules, "J", "estimated", 1, low, high, self.source, self.scope, remark)

    def stop(self) -> None:
        """Nothing to stop."""

    def _joules(self, seconds: float) -> float:
        coefficients = self.calibration["coefficients"]
        if not self.threads:
            return float(coefficients["idle_w"] * seconds)
        macs = {d: n / self.work["batch"] for d, n in self.work["macs_of"].items()}
        picojoules = coefficients["pj_per_byte"] * self.work["bytes"] / self.work["batch"]
        picojoules += sum(coefficients["pj_per_mac"][dtype] * count for dtype, count in macs.items())
        return float(coefficients["busy_w"] * seconds + picojoules * 1e-12)

    def _why_not(self, seconds: float) -> str:
        if seconds <= 0:
            return "an empty window"
        if self.work["macs"] is None:
            return str(self.work["why"])
        if self.threads not in (0, self.calibration["threads"]):
            return f"calibrated with {self.calibration['threads']} threads, this ran on {self.threads}"
        return "; ".join(self._outside(seconds))

    def _outside(self, seconds: float) -> Iterator[str]:
        """How the work is unlike any that was measured."""
        hull, batch = self.calibration["hull"], self.work["batch"]
        rates = {f"MACs of {dtype}": (n, hull["macs_per_s"].get(dtype)) for dtype, n in self.work["macs_of"].items()}
        rates["bytes"] = (self.work["bytes"], hull["bytes_per_s"])
        for name, (count, span) in rates.items():
            rate = count / batch / seconds
            if span is None:
                yield f"outside the calibration: it has no {name}"
            elif not span[0] <= rate <= span[1]:
                yield f"outside the calibration: {rate:.3g} {name} a second, it has {span[0]:.3g} to {span[1]:.3g}"
