"""The events of ExecuTorch's runs, read without ExecuTorch: the same as its Inspector's, and of damage one error."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import numpy as np
import pytest

from edgecompress.core.errors import InputError
from edgecompress.engines.executorch import etdump
from edgecompress.engines.executorch.runtimes import executorch

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
pytest.importorskip("executorch")
RUNS = 3


@pytest.fixture(scope="module", params=["xnnpack", "portable"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ExecuTorch wrote of three runs of a small net."""
    folder = tmp_path_factory.mktemp(request.param)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3)).eval()
    item = torch.from_numpy(np.zeros((1, 1, 8, 8), np.float32))
    (folder / "model.pte").write_bytes(executorch._lowered(torch.export.export(net, (item,)), request.param))
    program, method = executorch._loaded(folder / "model.pte", events=True)
    for _ in range(RUNS):
        method([item])
    program.write_etdump_result_to_file(str(folder / "events.etdp"))
    return folder / "events.etdp"


def test_it_agrees_with_executorchs_inspector(file: Path) -> None:
    from executorch.devtools import Inspector

    blocks = [block for block in Inspector(etdump_path=str(file)).event_blocks if block.name == etdump.EXECUTE]
    theirs = {
        etdump.Event(event.name, event._instruction_id, event.is_delegated_op): event.perf_data.raw
        for block in blocks
        for event in block.events
    }
    ours = etdump.read(file)
    assert list(ours) == list(theirs) and len(ours) > 3
    for event, ms in ours.items():
        assert len(ms) == RUNS
        assert statistics.fsum(ms) == pytest.approx(statistics.fsum(theirs[event]), abs=1e-6)


def test_damage_is_an_error_of_the_input_or_leaves_events(file: Path, tmp_path: Path) -> None:
    content, rolled = file.read_bytes(), random.Random(0)
    broken = [content[:size] for size in range(0, len(content), 97)]
    for _ in range(200):
        changed = bytearray(content)
        changed[rolled.randrange(len(changed))] = rolled.randrange(256)
        broken.append(bytes(changed))
    refused = 0
    for number, each in enumerate(broken):
        path = tmp_path / str(number)
        path.write_bytes(each)
        try:
            assert isinstance(etdump.read(path), dict)
        except InputError as error:
            assert str(error).startswith(str(path))
            refused += 1
    assert refused > len(content) // 97 // 2
