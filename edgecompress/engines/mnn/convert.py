"""MNN's converter, in a process of its own, since it may crash.

The programs of MNN's wheel (`mnnconvert`) install packages when they start; here the function below them is called.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edgecompress.core import child_process
from edgecompress.core.errors import StageFailed, brief, first_line
from edgecompress.engines.mnn.session import Net, dtype

FILE = "model.mnn"
OWNER = "edgecompress"  # the converter asks whose file it is
NO_UUID = b"00000000-0000-0000-0000-000000000000"
CONVERT_S = 600.0


def convert(source: Path, kind: str, out: Path, *flags: str) -> Mapping[str, str]:
    """Writes `source`, a file of `kind` ("ONNX", "MNN"), as FILE in the folder `out`; equal files give equal bytes.

    Returns the types of its inputs and outputs by name, as numpy calls them. Raises StageFailed with what MNN says.
    """
    with tempfile.NamedTemporaryFile() as answer:
        words = ["-f", kind, "--modelFile", str(source), "--MNNModel", str(out / FILE), "--bizCode", OWNER, *flags]
        _run(answer.name, *words)
        types: Mapping[str, str] = json.loads(answer.read())
        return types


def _run(*words: str) -> None:
    try:
        done = subprocess.run(
            child_process.python(__name__, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CONVERT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise StageFailed(f"MNN's converter gave no answer within {CONVERT_S:.0f} s") from error
    log = done.stdout.decode(errors="replace")
    print(log)
    if done.returncode < 0:
        raise StageFailed(f"MNN's converter crashes on this model ({signal.Signals(-done.returncode).name})")
    if done.returncode:
        raise StageFailed(f"MNN's converter: {_why(log) or 'it wrote nothing, and does not say why'}")


def _why(log: str) -> str:
    """The errors in what it printed, in a line."""
    marked = (line.partition("rror") for line in log.replace("ERROR", "Error").splitlines())
    told = dict.fromkeys(rest.strip(" ]:.!") for _, mark, rest in marked if mark)
    return brief("; ".join(filter(None, told)))


def main() -> int:
    """`python -m edgecompress.engines.mnn.convert ANSWER FLAG...`; 1 with "Error: " and why in what it prints."""
    child_process.end_with_parent()
    answer, *words = sys.argv[1:]
    try:
        return _convert(Path(words[words.index("--MNNModel") + 1]), Path(answer), words)
    except Exception as error:  # the boundary: MNN raises plain Exception
        print(f"Error: {first_line(error)}", flush=True)
        return 1


def _convert(file: Path, answer: Path, words: list[str]) -> int:
    import _tools
    import MNN

    _tools.mnnconvert(["mnnconvert", *words])
    if not file.is_file():  # it has said why, and returned as always
        return 1
    uuid = MNN.get_model_uuid(str(file)).encode()  # drawn anew for each file
    file.write_bytes(file.read_bytes().replace(uuid, NO_UUID, 1))
    net = Net(file, threads=1, settings={})
    types = {name: dtype(tensor) for name, tensor in {**net.inputs, **net.outputs}.items()}
    answer.write_text(json.dumps(types), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
