"""Arm Ethos-U55: Vela compiles int8 TFLite files and estimates them; LiteRT runs the uncompiled file here."""

from __future__ import annotations

import csv
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.core import child_process
from edgecompress.core.errors import StageFailed, brief
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.litert import model_file, session
from edgecompress.engines.litert import precision as litert_precision
from edgecompress.formats.precision import walk

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    from edgecompress.core.json import Json
    from edgecompress.core.operations import Kernels, Operation
    from edgecompress.core.protocols import OperatorTimes

REQUIRES = ("ethos-u-vela>=5", "ai-edge-litert")
IMPORTS = ("ai_edge_litert.interpreter",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "ethos-u"
ACCELERATOR = "the Ethos-U55"
FORMAT = "vela"
FIXED = True
NOT_OPENED = "runs on its device only"
NO_ARENA = "the report has Vela's estimate of the SRAM"
NO_EMPTY = "it runs on its device only, and nothing is timed here"
READS: tuple[str, ...] = ("tflite",)

SIMULATED = "LiteRT (the file from before Vela)"  # what runs it here: its speed says nothing
ESTIMATES = "Vela"  # who tells of each artifact how many cycles it takes
NO_TIMES = "it runs only on a device with an Ethos-U; the report has Vela's estimates"
ALL_LEFT = "Vela left every operator on the CPU: it compiles int8 files"

FILE, BEFORE = "model_vela.tflite", "model.tflite"  # for the device; what it was compiled from, to run here
CONFIG = "Arm/vela.ini"  # comes with Vela
CYCLES = ("npu", "sram_access", "dram_access", "on_chip_flash_access", "off_chip_flash_access", "total")
WARNED = re.compile(r"^Warning \(supported operators\) operator: \S+ ofm: '(.*)'\nReason: (.+(?:\n.+)*)", re.MULTILINE)


@dataclass(frozen=True)
class Options:
    """The accelerator, the system around it as Arm's vela.ini has it, and what Vela is to save."""

    accelerator: Literal["ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256"] = "ethos-u55-128"
    # High_End: 500 MHz, flash of 0.5 GB/s, as in Corstone-300; Deep: 200 MHz, flash of 0.1 GB/s
    system: Literal["Ethos_U55_High_End_Embedded", "Ethos_U55_Deep_Embedded"] = "Ethos_U55_High_End_Embedded"
    memory: Literal["Shared_Sram", "Sram_Only"] = "Shared_Sram"  # weights in flash, or in the SRAM too
    optimise: Literal["Performance", "Size"] = "Performance"  # fewer cycles, or less SRAM


# --------------------------------------------------------------------------- a TFLite file is compiled


def export(request: Request) -> Artifact:
    """The TFLite file compiled by Vela, beside the file itself.

    facts: {"estimate": what Vela estimates of it (cycles of one inference, bytes of SRAM and flash, and the operators
    it left on the CPU: no estimate counts those), "fallback": their names, "here": the file that no device needs}.
    Raises InputError for a damaged file, StageFailed where Vela cannot compile it.
    """
    source = request.model.file(".tflite")
    data = source.read_bytes()
    model_file.check(data, source.name)
    (request.out / BEFORE).write_bytes(data)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        log = _compiled(request.out / BEFORE, scratch, request.options)
        estimate = {**_configuration(request.options), **_estimate(scratch, log, model_file.operators(data))}
        shutil.copyfile(scratch / FILE, request.out / FILE)
    facts: dict[str, Any] = {
        "estimate": estimate,
        "fallback": [op["name"] for op in estimate["fallback"]],
        "here": [BEFORE],
    }
    if request.model.facts.get("given"):  # a source that came quantized is what it is
        facts["given"] = True
    return Artifact(request.out, FORMAT, request.model.inputs, request.model.outputs, facts).write()


def _compiled(file: Path, out: Path, options: Options) -> str:
    """Runs Vela in a process of its own, which may crash: its files go to `out`, returned is what it said."""
    flags = [f"--accelerator-config={options.accelerator}", f"--system-config={options.system}", f"--config={CONFIG}"]
    flags += [f"--memory-mode={options.memory}", f"--optimise={options.optimise}", f"--output-dir={out}"]
    words = child_process.python(__name__, str(file), *flags, "--verbose-performance")
    child = child_process.spawn(words, out / "log")
    try:
        heard = child.stdout.read() if child.stdout else b""
        code = child.wait()
    finally:
        child_process.end(child)
    log = heard.decode(errors="replace") + (out / "log").read_text(encoding="utf-8", errors="replace")
    print(log)
    if code:
        raise StageFailed(f"runtime ethos_u: {_broke(code, log)}")
    return log


def _broke(code: int, log: str) -> str:
    """What ended Vela, in a line."""
    if code < 0:
        return f"Vela crashes on this file ({signal.Signals(-code).name})"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    begin = next((place for place, line in enumerate(lines) if "Error: " in line), -1)  # it names the operator
    return f"Vela: {brief(' '.join(lines[begin:]).split('Error: ')[-1]) or f'exit code {code}'}"


def main() -> int:
    """`python -m edgecompress.engines.ethos_u.runtimes.ethos_u ...`: Vela, which ends when its parent ends."""
    child_process.tie()
    from ethosu.vela import vela

    return int(vela.main(sys.argv[1:]))


# --------------------------------------------------------------------------- what it estimates


def _configuration(options: Options) -> dict[str, Json]:
    """By whom, and for what, the estimates are."""
    hardware = {"accelerator": options.accelerator, "system": options.system, "memory": options.memory}
    return {
        "status": "estimated",
        "source": f"Vela {version('ethos-u-vela')}",
        **hardware,
        "optimise": options.optimise,
    }


def _estimate(folder: Path, log: str, operators: Mapping[str, str]) -> dict[str, Any]:
    """What Vela estimates, by the tables that it wrote; None for all of it where no operator runs on the NPU."""
    (summary,), layers = _rows(folder, "*_summary_*.csv"), _rows(folder, "*_per-layer.csv")
    on_cpu = [row for row in layers if row["Target"] == "CPU"]
    counts = {"npu_operators": len(layers) - len(on_cpu), "cpu_operators": len(on_cpu)}
    # each operator that stays on the CPU: "TYPE:number in the file", its type, and why as Vela says it
    reasons = {
        name: "; ".join(re.sub(r" \(.*\)$", "", line.strip()) for line in lines.splitlines())
        for name, lines in WARNED.findall(log)
    }
    fallback = []
    for row in on_cpu:
        name = operators.get(row["Name"], row["Original Operator"])
        why = reasons.get(row["Name"], "Vela gives no reason")
        fallback.append({"name": name, "type": name.split(":")[0], "why": why})
    estimate = {
        "clock_mhz": float(summary["core_clock"]) / 1e6,
        **counts,
        "fallback": fallback,
        "reason": "" if counts["npu_operators"] else ALL_LEFT,
    }
    return {**estimate, **(_numbers(summary) if counts["npu_operators"] else dict.fromkeys(_NUMBERS))}


_NUMBERS = ("cycles", "inference_ms", "macs", "sram_bytes", "flash_bytes")


def _numbers(row: Mapping[str, str]) -> dict[str, Json]:
    """Of one inference: cycles by what takes them (`total`: of each layer what takes most), multiplications, bytes."""
    flash_kib = sum(float(row[f"{chip}_chip_flash_memory_used"]) for chip in ("on", "off"))
    cycles = {kind.removesuffix("_access"): int(float(row[f"cycles_{kind}"])) for kind in CYCLES}
    sizes = round(1024 * float(row["sram_memory_used"])), round(1024 * flash_kib)
    return dict(
        zip(_NUMBERS, (cycles, 1e3 * float(row["inference_time"]), int(float(row["nn_macs"])), *sizes), strict=True)
    )


def _rows(folder: Path, pattern: str) -> list[dict[str, str]]:
    """One of the tables that Vela wrote. Raises StageFailed: there is none."""
    tables = sorted(folder.glob(pattern))
    if len(tables) != 1:
        raise StageFailed(
            f"runtime ethos_u: Vela wrote {len(tables)} files {pattern}, expected 1; check that Vela 5 is installed"
        )
    with tables[0].open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


# --------------------------------------------------------------------------- a session


def kernels(operation: Operation, precision: str) -> Kernels:
    """What it makes of an operator in a variant of that precision."""
    from edgecompress.engines.ethos_u import kernels as ethos_u_kernels

    return ethos_u_kernels.kernels(operation, precision)


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """That of the file that Vela compiled, whose numbers it leaves as they are; its own are packed."""
    return walk.weights_and_computes(litert_precision.net(artifact.path / BEFORE))


def open(artifact: Artifact, threads: int, profile: bool = False) -> EthosSession:
    """A session of the file from before Vela, on this CPU: an Ethos-U computes as TFLite's own kernels do."""
    from ai_edge_litert.interpreter import Interpreter

    return EthosSession(Interpreter(str(artifact.path / BEFORE), num_threads=threads), artifact)


class EthosSession(session.TfliteSession):
    """LiteRT's session, whose operators are those that Vela placed."""

    def __init__(self, interpreter: Interpreter, artifact: Artifact) -> None:
        super().__init__(interpreter, artifact)
        self.left = list(artifact.facts["fallback"])

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """No times, and why; the operators that Vela left on the CPU."""
        return {"ops": [], "why": NO_TIMES, "fallback": self.left}


if __name__ == "__main__":
    sys.exit(main())
