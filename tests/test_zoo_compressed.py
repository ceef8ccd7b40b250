"""The zoo's nets pruned and of low rank: in every runtime they answer as torch does with the same net."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import prove
import pytest
import test_zoo
import vectors

from edgecompress.core import environments, registry
from edgecompress.core.errors import InputError
from edgecompress.testing import conformance, zoo
from edgecompress.testing.conformance import ZooOutcome

pytestmark = [pytest.mark.slow, pytest.mark.prove, pytest.mark.timeout(900)]

Zoo = Callable[[str], Mapping[str, ZooOutcome]]
TECHNIQUES = tuple(conformance.ZOO_STRENGTH)
CORE = ("residual_cnn", "depthwise_cnn", "lstm", "transformer")
EVERY = ("onnx", "openvino")  # through which all nets go
SLOW = "torchinductor"  # ten seconds a cell: each net goes through one of the techniques
INT8 = ("onnx", "openvino", "litert", "ethos_u", "tflite")
REFUSED = {
    (entry["technique"], net): entry["error"]
    for entry in tomllib.loads((test_zoo.HERE / "zoo_expected.toml").read_text(encoding="utf-8"))["refusal"]
    for net in entry["nets"]
}


def cells(runtime: str) -> list[str]:
    """What goes through a runtime."""
    nets = {"fp32": tuple(zoo.NETS) if runtime in EVERY else CORE, "int8": CORE if runtime in INT8 else ()}
    return [
        f"{net} {precision} {technique}"
        for precision in nets
        if not test_zoo.ROADS[runtime, precision]
        for number, net in enumerate(nets[precision])
        for turn, technique in enumerate(TECHNIQUES)
        if (technique, net) not in REFUSED and (runtime != SLOW or turn == number % len(TECHNIQUES))
    ]


ONE = {"openvino": "lstm", "litert": "transformer", "coreml": "residual_cnn"}


def short(runtime: str) -> list[str]:
    """All that goes through ONNX Runtime, and one net through each other converter that takes seconds."""
    return [cell for cell in cells(runtime) if runtime == "onnx" or cell.split()[0] == ONE.get(runtime)]


CELLS = prove.pairwise(
    [(runtime, cell) for runtime in test_zoo.RUNTIMES for cell in (cells if prove.WHOLE else short)(runtime)],
    lambda case: (case[0], *case[1].split()),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is made on the way, for all tests here."""
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="module")
def through_the_zoo(folder: Path) -> Zoo:
    """The cells of a runtime, computed once."""

    @functools.cache
    def found(runtime: str) -> Mapping[str, ZooOutcome]:
        if missing := environments.missing(registry.load("runtimes", runtime)):
            pytest.skip(f"{runtime} needs {', '.join(missing)}")
        return conformance.check_zoo(runtime, folder, [cell for name, cell in CELLS if name == runtime])

    return found


@pytest.mark.parametrize(("runtime", "cell"), CELLS)
def test_a_compressed_net_answers_as_in_torch(runtime: str, cell: str, through_the_zoo: Zoo) -> None:
    error, (net, precision, _) = through_the_zoo(runtime)[cell].error, cell.split()
    known = test_zoo.expected(runtime, f"{net} {precision}")  # of the net as it was
    if known and error:
        assert re.search(known.error, error)
    else:
        assert not error or (vectors.saturates(runtime, precision) and vectors.NEAR.search(error))


@pytest.mark.parametrize("name", zoo.NETS)
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_net_becomes_smaller_or_is_refused_with_the_reason(technique: str, name: str, folder: Path) -> None:
    if error := REFUSED.get((technique, name)):
        with pytest.raises(InputError, match=error):
            conformance.zoo_source(name, [technique], folder)
    else:
        facts = conformance.zoo_source(name, [technique], folder).model.facts
        assert all(facts[what]["after"] < facts[what]["before"] for what in ("macs", "parameters"))


FRESH = """
import sys, pickle, numpy, torch
def refuse(*_, **__): raise SystemExit("pickle")
pickle.load = pickle.loads = pickle.Unpickler = torch.load = refuse
from pathlib import Path
from edgecompress.data import tensors
from edgecompress.formats import torch_module as torch_net
from edgecompress.core.model import Artifact
samples, *models = (Artifact.read(Path(path)) for path in sys.argv[2:])
for number, model in enumerate(models):
    given = torch_net.example(model, samples, 4)
    answer = torch_net.outputs(torch_net.rebuild(model), model, given)["output"].numpy()
    numpy.save(Path(sys.argv[1]) / f"{number}.npy", answer)
"""


@pytest.mark.parametrize("name", ["residual_cnn", "lstm"])
def test_a_compressed_net_computes_the_same_in_a_fresh_process_without_pickle(
    name: str, folder: Path, tmp_path: Path
) -> None:
    import numpy as np

    from edgecompress.formats import torch_module

    sources = [conformance.zoo_source(name, [technique], folder) for technique in TECHNIQUES]
    paths = [str(artifact.path) for artifact in (sources[0].samples, *(source.model for source in sources))]
    subprocess.run([sys.executable, "-c", FRESH, str(tmp_path), *paths], check=True)
    for number, source in enumerate(sources):
        given = torch_module.example(source.model, source.samples, 4)
        here = torch_module.outputs(torch_module.rebuild(source.model), source.model, given)["output"].numpy()
        np.testing.assert_array_equal(np.load(tmp_path / f"{number}.npy"), here)
