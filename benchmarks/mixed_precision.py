"""Bits layer by layer by an integer program: in a budget of time on a net that int8 breaks, in a budget of bytes.

    python benchmarks/mixed_precision.py [--only layers,bits] [--folder DIR] [--minutes 25] [--json FILE]

layers: ResNet-32 with a channel that int8 has no levels for; the guard keeps layers in float, at most 11 % slower than
all of it in int8. Told are top-1 on the 500 test images (Wilson's interval, and that of the paired difference to fp32),
the speed in turns as in int4_race.py, and the seconds of the program. bits: the net of tiny_llama.py, trained for so
many minutes where DIR has none, with weights of 4 bits: the eight worst layers in 8 bits, as doubling would end, and
the choice of the program with as many bits. Perplexity is of text that chose nothing; intervals are bootstrapped over
windows. Exit 1 where a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import figures
import int4
import int4_race
import numpy as np
import tiny_llama
import torch

import edgecompress
from edgecompress.core import registry
from edgecompress.core.model import Artifact
from edgecompress.data import paired_proportions, tensors
from edgecompress.formats.precision import facts

MIXED = Path(__file__).parent / "mixed"
WORST = 8  # layers of the doubling's last step: guard.layers
LOST, SPEED = 0.02, 0.9  # what int8 loses at least; what is left of its speed


def main() -> int:
    """Prints both tables, and what is not kept."""
    parser = figures.flags(__doc__, "store", "json")
    parser.add_argument("--only", default="layers,bits")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "tiny_llama")
    parser.add_argument("--minutes", type=float, default=25, help="of training")
    parser.add_argument("--rounds", type=int, default=60)
    asked = parser.parse_args()
    made = {"layers": layers, "bits": bits}
    found = {name: made[name](asked) for name in asked.only.split(",")}
    print(json.dumps(found, indent=1))
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), **found})
    said = [text for each in found.values() for text in each["not kept"]]
    print("\n".join(f"NOT KEPT: {text}" for text in said))
    return 1 if said else 0


def deployed(asked: argparse.Namespace, model: Path, target: str, **more: Any) -> edgecompress.Result:
    """A run of one target of the folder `mixed`."""
    options = edgecompress.Options(store=asked.store, out=Path("dist/mixed") / target)
    result = edgecompress.deploy(str(model), str(MIXED / f"{target}.toml"), profile="quick", options=options, **more)
    assert isinstance(result, edgecompress.Result)
    return result


def artifact(result: edgecompress.Result, stage: str) -> Artifact:
    made = result.outcomes[stage].artifact
    assert made is not None, f"{stage}: {result.outcomes[stage].reason}"
    return made


# --------------------------------------------------------------------------- a budget of time


def layers(asked: argparse.Namespace) -> dict[str, Any]:
    """int8 with some layers in float."""
    result = deployed(asked, MIXED / "source.toml", "int8")
    stages = {"fp32": "export-onnx", "int8": "int8/guard/plain/ptq_int8", "mixed": "int8/guard"}
    nets = {name: artifact(result, stage) for name, stage in stages.items()}
    samples = artifact(result, "data")
    right = {name: hits(net, samples) for name, net in nets.items()}
    image = next(iter(tensors.batches(samples, "test", 1, 1, nets["fp32"])))
    onnx = registry.load("runtimes", "onnx")
    sessions = {name: onnx.open(net, 1) for name, net in nets.items()}
    runs = {name: lambda s=session: s.run(image) for name, session in sessions.items()}
    times = {name: np.array(seconds) for name, seconds in int4_race.raced(runs, asked.rounds).items()}
    speeds = {name: int4_race.ratio(times["int8"], each) for name, each in times.items()}
    ladder = result.read_report()["ladders"][0]
    lost = float(right["fp32"].mean() - right["int8"].mean())
    said = [] if lost > LOST else [f"int8 loses {lost:.1%}, no more than {LOST:.0%}"]
    said += [] if result.exit_code == 0 and "mixed" in nets else ["the guard ends outside of the budget"]
    said += [] if speeds["mixed"][0] >= SPEED else [f"{speeds['mixed'][0]:.3f} of the speed of int8"]
    said += [] if right["fp32"].sum() - right["mixed"].sum() <= 0.01 * len(right["fp32"]) else ["mixed loses too much"]
    return {
        "nets": {
            n: {**accuracy(right[n], right["fp32"]), "speed": speeds[n], "ms": 1e3 * np.median(times[n])} for n in nets
        },
        "chosen": next(r for r in ladder["rungs"] if r["chosen"])["label"],
        "skip": next(r for r in ladder["rungs"] if r["chosen"])["options"].get("skip", []),
        "layers tried": ladder["layers"],
        "program_s": result.outcomes["int8/guard/program"].wall_s,
        "machine": figures.machine(result.read_report()["environment"]),
        "not kept": said,
    }


def hits(net: Artifact, samples: Artifact) -> np.ndarray:
    """Whether each test image is told right, [n]."""
    session, labels = registry.load("runtimes", "onnx").open(net, 1), tensors.labels(samples, "test")
    assert labels is not None
    answers = [next(iter(session.run(x).values())) for x in tensors.batches(samples, "test", 1, len(labels), net)]
    session.close()
    return np.concatenate(answers).argmax(1) == labels


def accuracy(right: np.ndarray, before: np.ndarray) -> dict[str, Any]:
    from scipy import stats

    share = stats.binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
    gained, lost = int((right & ~before).sum()), int((before & ~right).sum())
    change = paired_proportions.interval(gained, lost, len(right))
    return {"top1": float(right.mean()), "interval": [share.low, share.high], "against fp32": [gained - lost, *change]}


# --------------------------------------------------------------------------- a budget of bytes


def bits(asked: argparse.Namespace) -> dict[str, Any]:
    """Weights of 4 and 8 bits and float in one net."""
    folder = tiny_llama.trained(asked.folder, asked.minutes)
    given: dict[str, Any] = {"data": str(folder / "select.txt"), "metric": "perplexity", "samples": 64}
    first = deployed(asked, folder, "int4", only=["mixed"], **given)
    numbers: Mapping[str, int] = artifact(first, "mixed/onnx_int4/plain").facts["numbers"]
    rows = first.outcomes["mixed/onnx_int4/diagnosis"].facts["layers"]
    known = sorted((r for r in rows if r["operator"] in numbers and r["effect"]), key=lambda r: -r["effect"])
    worst = [row["operator"] for row in known[:WORST]]
    budget = 4 + 4 * sum(numbers[name] for name in worst) / sum(numbers.values())
    settings = {"variant.mixed.bits": budget, "variant.doubling.int8": worst}
    result = deployed(asked, folder, "int4", settings=settings, **given)
    ends = {"fp32": "export-onnx", "int8": "int8/onnx_int8_weights"}
    ends |= {name: f"{name}/onnx_int4" for name in ("int4", "doubling", "mixed")}
    nets = {name: artifact(result, stage) for name, stage in ends.items()}
    windows = int4.cut(folder, "test")
    losses = {name: nats(net, windows) for name, net in nets.items()}
    told = {
        name: {
            "weights": facts.of(net)["weights"],
            "bytes": net.size_bytes,
            "perplexity": math.exp(losses[name].mean()),
            "more nats than fp32": between(losses[name] - losses["fp32"]),
            "sqnr_db": result.outcomes[f"{name}/verify"].facts["outputs"][0]["sqnr_db"],
        }
        for name, net in nets.items()
    }
    held = {name: sum((told[name]["weights"] or {}).values()) for name in nets}
    said = [] if held["mixed"] <= held["doubling"] else ["mixed has more bytes than doubling"]
    said += [] if told["mixed"]["sqnr_db"] > told["doubling"]["sqnr_db"] else ["mixed loses more than doubling"]
    return {
        "nets": told,
        "layers": {"known": len(known), "of": len(numbers)},
        "budget_bits": budget,
        "doubling": worst,
        "mixed": {name: list(nets["mixed"].facts[name]) for name in ("quantized", "int8")},
        "more nats of mixed than of doubling": between(losses["mixed"] - losses["doubling"]),
        "program_s": result.outcomes["mixed/onnx_int4/program"].wall_s,
        "machine": figures.machine(result.read_report()["environment"]),
        "not kept": said,
    }


def nats(net: Artifact, windows: np.ndarray) -> np.ndarray:
    """The mean loss of each window's tokens but the first, [n]."""
    session, found = registry.load("runtimes", "onnx").open(net, 2), []
    for ids in windows[:, None].astype(net.inputs[0].dtype):
        inputs = {spec.name: ids if spec.name == "input_ids" else np.ones_like(ids) for spec in net.inputs}
        logits = torch.from_numpy(np.array(next(iter(session.run(inputs).values()))))
        found.append(torch.nn.functional.cross_entropy(logits[0, :-1].float(), torch.from_numpy(ids[0, 1:]).long()))
    session.close()
    return torch.stack(found).double().numpy()


def between(off: np.ndarray) -> list[float]:
    """The mean of the windows, and its interval."""
    draws = np.random.default_rng(0).integers(0, len(off), (int4.DRAWS, len(off)))
    return [float(off.mean()), *map(float, np.percentile(off[draws].mean(1), (2.5, 97.5)))]


if __name__ == "__main__":
    sys.exit(main())
