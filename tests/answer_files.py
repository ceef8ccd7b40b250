"""`python answer_files.py FOLDER`: runs each NAME.tflite there on NAME.npz, in a process of its own; prints JSON.

{NAME: the largest difference to the answers "want_0", ... of NAME.npz, relative to the largest of them; or what broke}.
It runs in the environment of LiteRT's elder, too: it imports nothing of ours.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

try:
    from ai_edge_litert.interpreter import Interpreter
except ImportError:
    from tflite_runtime.interpreter import Interpreter


def difference(file: Path) -> float:
    """Of all outputs of a file."""
    with np.load(file.with_suffix(".npz")) as stored:
        arrays = dict(stored)
    session = Interpreter(str(file), num_threads=1)
    session.allocate_tensors()
    for detail in session.get_input_details():
        session.set_tensor(detail["index"], arrays[detail["name"]])
    session.invoke()
    largest = 0.0
    for place, detail in enumerate(session.get_output_details()):
        found, wanted = session.get_tensor(detail["index"]).astype(float), arrays[f"want_{place}"].astype(float)
        largest = max(largest, float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-9)))
    return largest


def apart(file: Path) -> object:
    """The same in a child, which may crash."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            said: object = difference(file)
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writes, json.dumps(said).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        heard = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(heard) if heard else f"ends with status {status}"


if __name__ == "__main__":
    print(json.dumps({file.stem: apart(file) for file in sorted(Path(sys.argv[1]).glob("*.tflite"))}))
