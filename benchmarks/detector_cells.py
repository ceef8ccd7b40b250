"""What ships of detectors: four heads, from torch and from ONNX, on four targets, judged by COCO's average precision.

    python benchmarks/detector_cells.py [--work DIR] [--targets x86,android,ios,web] [--untrained] [--json FILE]

The heads: SSD's (offsets to anchors), YOLOv8's (distributions of the distances; examples/detector), CenterNet's (heat
maps), and RetinaFace's (anchors with five key points, judged by COCO's similarity of these). The first and the last two
are those of detector_nets.py, trained here, and raw: the deploy decodes them. Two ONNX files have their choice inside,
YOLOv8's NonMaxSuppression and CenterNet's TopK. One sweep deploys all cells with --profile quick; the precision is that
of 200 scenes, the speed that of what ships over fp32 in the same race. --untrained: two more shapes instead, whose
export and verification are the question: DETR's set of boxes, and masks of instances.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import damage_nets
import detector_nets
import figures
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "detector"
SQUARES = "[[[8, 8], [13, 13]], [[21, 21]]]", "[[[10, 10], [15, 15]], [[22, 22]]]"
DECODE = {
    "ssd": f'head = "ssd"\nboxes = ["loc"]\nscores = ["conf"]\nstrides = [8, 16]\nanchors = {SQUARES[0]}\n',
    "heat": 'head = "centernet"\nboxes = ["wh"]\nscores = ["hm"]\noffsets = ["reg"]\n',
    "faces": 'head = "ssd"\nboxes = ["loc"]\nscores = ["conf"]\npoints = ["landms"]\nkeypoints = 5\n'
    f"strides = [4, 8]\nanchors = {SQUARES[1]}\n",
}
NETS_OF = {**detector_nets.NETS, **detector_nets.HEADS}
TRAINED = {"ssd": "anchors", "heat": "heat", "faces": "faces"}  # of which weights
METRIC = {"faces": "oks"}
CHOSEN = {"heat": 'detect = { boxes = "found", scores = "found", format = "xyxy", unit = "pixels" }\n'}
LIMIT, FASTER = 0.01, 1.3  # of the average precision, and of fp32's speed
NETS = """import os, sys
os.environ["DAMAGE_WEIGHTS"] = {weights!r}
sys.path.insert(0, {here!r})
import numpy as np
import detector_cells
import detector_nets as nets

SIZES = {{"calibrate": 100, "select": 100, "test": 200}}


def _data(name, split):
    if split not in SIZES:
        return None
    draw = detector_cells.NETS_OF[detector_cells.TRAINED[name]].draw
    return list(zip(*draw(np.random.default_rng([*SIZES].index(split) + 10), SIZES[split])))


"""
EACH = """def {name}():
    return detector_cells.raw({name!r})


def {name}_data(split):
    return _data({name!r}, split)


"""


def main() -> int:
    parser = figures.flags(__doc__, "work", "json")
    parser.add_argument("--targets", default="x86,android,ios,web")
    parser.add_argument("--untrained", action="store_true", help="a set of boxes and masks of instances instead")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        work = Path(asked.work or scratch).resolve()
        work.mkdir(parents=True, exist_ok=True)
        sources = [*(untrained if asked.untrained else prepared)(work)]
        listed = "".join(f'[[source]]\nname = "{name}"\nmodel = "{file}"\n' for name, file in sources)
        targets = json.dumps(asked.targets.split(","))
        (work / "matrix.toml").write_text(f'targets = {targets}\nprofiles = ["quick"]\n{listed}', encoding="utf-8")
        began = time.monotonic()
        words = ["-m", "edgecompress", "sweep", "matrix.toml", "--store", "store", "--out", "out"]
        code = subprocess.run([sys.executable, "-P", *words], cwd=work).returncode
        rows = [cell(work / "out", row) for row in json.loads((work / "out/matrix.json").read_text())["rows"]]
    found = {"date": time.strftime("%Y-%m-%d"), "machine": figures.machine(), "exit_code": code, "rows": rows}
    narrow = [row for row in rows if row["narrow"] and row["loss"] is not None and row["loss"] <= LIMIT]
    timed = [row["faster"] for row in narrow if row["faster"]]
    found |= {"minutes": (time.monotonic() - began) / 60, "cells": len(rows), "narrow_within_limit": len(narrow)}
    found |= {"least_faster": min(timed, default=None), "most_faster": max(timed, default=None)}
    figures.write(asked.json, found)
    show(rows)
    print(
        f"{len(rows)} cells: {len(narrow)} ship 8 bits within {100 * LIMIT:g} point, "
        f"{sum(row['wrong'] for row in rows)} ship wrong; of {len(timed)} timed here "
        f"{sum(ratio >= FASTER for ratio in timed)} are {FASTER} times as fast as fp32 or more"
    )
    return int(any(row["wrong"] for row in rows))


def raw(name: str) -> torch.nn.Module:
    """The trained net, which answers what its last layers say."""
    net = damage_nets.trained(TRAINED[name], NETS_OF)
    if name == "ssd":
        bare = detector_nets.Raw()
        bare.load_state_dict(net.state_dict())
        net = bare
    return net.eval()


class Best(torch.nn.Module):
    """CenterNet's own decoding: the thirty best peaks as [n, 30, 6] of corners, score, class."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        made = self.net(image)
        heat = made["hm"].sigmoid()
        peaks = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)
        wide, cells = heat.shape[3], heat.shape[2] * heat.shape[3]
        scores, at = peaks.flatten(1).topk(30)
        place = at % cells
        size, offset = (made[key].flatten(2).gather(2, place[:, None].expand(-1, 2, -1)) for key in ("wh", "reg"))
        middle = torch.stack([place % wide, torch.div(place, wide, rounding_mode="floor")], 1) + offset
        corners = torch.cat([middle - size / 2, middle + size / 2], 1) * (detector_nets.SIZE / wide)
        kind = torch.div(at, cells, rounding_mode="floor")
        return {"found": torch.cat([corners, scores[:, None], kind[:, None].float()], 1).transpose(1, 2)}


def prepared(work: Path) -> Any:
    """The sources, by name: a TOML for each net, as a factory of torch and as an ONNX file of it."""
    os.environ["DAMAGE_WEIGHTS"] = str(work / "weights")
    for name in TRAINED.values():
        damage_nets.train(name, work / "weights", NETS_OF)
    code = NETS.format(weights=str(work / "weights"), here=str(Path(__file__).parent))
    (work / "nets.py").write_text(code + "".join(EACH.format(name=name) for name in DECODE), encoding="utf-8")
    sys.path.insert(0, str(EXAMPLE))
    import net as example

    export(example.build().eval(), (1, 3, example.SIDE, example.SIDE), work / "bins.onnx")
    suppress(work / "bins.onnx")
    text = (EXAMPLE / "source.toml").read_text(encoding="utf-8")
    (work / "net.py").write_text((EXAMPLE / "net.py").read_text(encoding="utf-8"), encoding="utf-8")
    (work / "detector.safetensors").write_bytes((EXAMPLE / "detector.safetensors").read_bytes())
    own = "\n".join(line for line in text.splitlines() if not line.startswith("detect")) + "\n"
    (work / "bins-onnx.toml").write_text(own.replace('"net:build"', '"bins.onnx"'), encoding="utf-8")
    yield from (("bins", EXAMPLE / "source.toml"), ("bins-onnx", work / "bins-onnx.toml"))
    for name, decode in DECODE.items():
        net, chosen = raw(name), CHOSEN.get(name)
        export(Best(net) if chosen else net, (1, 3, detector_nets.SIZE, detector_nets.SIZE), work / f"{name}.onnx")
        common = f'name = "{name}"\ndata = "nets:{name}_data"\nmetric = "{METRIC.get(name, "map")}"\n'
        decoded = f"[decode]\n{decode}"
        (work / f"{name}.toml").write_text(f'model = "nets:{name}"\n{common}{decoded}', encoding="utf-8")
        own = f'model = "{name}.onnx"\n{common}{chosen or decoded}'
        (work / f"{name}-onnx.toml").write_text(own, encoding="utf-8")
        yield from ((each, work / f"{each}.toml") for each in (name, f"{name}-onnx"))


def untrained(work: Path) -> Any:
    """The sources of the nets that nobody trained, by name; the source's own answers judge."""
    os.environ["DAMAGE_WEIGHTS"] = str(work / "weights")
    code = NETS.format(weights=str(work / "weights"), here=str(Path(__file__).parent))
    code += "def data(split):\n    return detector_cells.pictures(split)\n"
    shape = (1, 3, detector_nets.SIZE, detector_nets.SIZE)
    for name, build in detector_nets.UNTRAINED.items():
        code += f"\n\ndef {name}():\n    return nets.UNTRAINED[{name!r}]().eval()\n"
        export(build().eval(), shape, work / f"{name}.onnx")
        for each, model in ((name, f"nets:{name}"), (f"{name}-onnx", f"{name}.onnx")):
            text = f'model = "{model}"\nname = "{each}"\ndata = "nets:data"\nmetric = "none"\n'
            (work / f"{each}.toml").write_text(text, encoding="utf-8")
            yield each, work / f"{each}.toml"
    (work / "nets.py").write_text(code, encoding="utf-8")


def pictures(split: str) -> Any:
    """Scenes without labels."""
    count = {"calibrate": 60, "select": 60, "test": 100}.get(split)
    return count and list(detector_nets.scenes(3, np.random.default_rng(count), count)[0])


def export(net: torch.nn.Module, shape: tuple[int, ...], file: Path) -> None:
    """The net as PyTorch exports it."""
    with torch.no_grad():
        names = [*net(torch.zeros(shape))]
    torch.onnx.export(
        net, (torch.zeros(shape),), file, dynamo=True, input_names=["image"], output_names=names, verbose=False
    )


def suppress(file: Path) -> None:
    """Puts NonMaxSuppression behind "boxes" and "scores" [n, k, classes], and the boxes that it chooses."""
    proto = onnx.load_model(file)
    numbers = {"most": 30, "two": [2], "three": [3], "one": [1], "first": [0]}
    constants = {name: np.array(value) for name, value in numbers.items()}
    constants |= {"iou": np.array(0.5, np.float32), "least": np.array(0.5, np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    proto.graph.node.extend(
        [
            helper.make_node("Transpose", ["scores"], ["by_class"], perm=[0, 2, 1]),
            helper.make_node("NonMaxSuppression", ["boxes", "by_class", "most", "iou", "least"], ["chosen"]),
            helper.make_node("Slice", ["chosen", "two", "three", "one"], ["place"]),
            helper.make_node("Squeeze", ["place", "one"], ["at"]),
            helper.make_node("Gather", ["boxes", "at"], ["rows_of"], axis=1),
            helper.make_node("Squeeze", ["rows_of", "first"], ["found_boxes"]),
        ]
    )
    del proto.graph.output[:]
    outputs = (("found_boxes", TensorProto.FLOAT, ("k", 4)), ("chosen", TensorProto.INT64, ("k", 3)))
    proto.graph.output.extend(helper.make_tensor_value_info(*output) for output in outputs)
    onnx.save_model(proto, file)


def cell(out: Path, row: dict[str, Any]) -> dict[str, Any]:
    """What shipped in a cell: its precision in words, what it lost, how fast it is, and why 8 bits did not ship."""
    told = {
        "cell": row["cell"],
        "state": row["state"],
        "ships": row["variant"],
        "loss": None,
        "faster": None,
        "why": "",
    }
    told |= {"narrow": False, "wrong": False}
    if not row["report"]:
        return {**told, "why": row["says"]}
    report = json.loads((out / row["report"]).with_name("report.json").read_text(encoding="utf-8"))
    coco = (report.get("detections") or {}).get("coco") or {}
    by_name = {variant["name"]: variant for variant in report["variants"]}
    shipped = by_name.get(row["variant"])
    if shipped is None or not shipped["verify"]:
        return {**told, "why": row["says"]}
    metric, narrow = shipped["verify"]["metric"], "int8" in row["variant"]
    loss = metric["before"] - metric["after"] if metric else None
    times = [by_name[name]["numbers"]["latency"]["value"] for name in ("fp32", row["variant"]) if name in by_name]
    lost = [v["reason"] for v in report["variants"] if "int8" in v["name"] and v["verdict"] in ("lost", "failed")]
    return {
        **told,
        "narrow": narrow,
        "loss": loss,
        "wrong": loss is not None and loss > 0.02,  # twice the limit: no interval of 200 scenes hides it
        "faster": times[0] / times[1] if len(times) == 2 and all(times) else None,
        "why": "" if narrow else next(iter(lost), "8 bits were slower, or are not of this target"),
        "ap50": (coco.get("IoU 0.5") or [None])[0],  # of the source
    }


def show(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        numbers = [
            f"{row[key]:{form}}" if row[key] is not None else "-" for key, form in (("loss", "+.4f"), ("faster", ".2f"))
        ]
        lines.append((row["cell"].removesuffix("/quick"), row["state"], row["ships"], *numbers, row["why"][:60]))
    figures.show("Detectors", ("cell", "", "ships", "AP lost", "times as fast", "why not 8 bits"), lines)


if __name__ == "__main__":
    sys.exit(main())
