"""The plan of an ExecuTorch program, read without ExecuTorch: the same as its own reader's, and of damage one error."""

from __future__ import annotations

import base64
import random
import zlib
from pathlib import Path

import pytest

from edgecompress.core.errors import InputError
from edgecompress.engines.executorch import pte
from edgecompress.engines.executorch.runtimes import executorch

pytest.importorskip("flatbuffers")
PROGRAM = zlib.decompress(base64.b64decode(executorch.EMPTY))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.pte"


def test_a_program_that_answers_its_input_calls_nothing(file: Path) -> None:
    file.write_bytes(PROGRAM)
    plan = pte.read(file)
    assert (plan.operators, plan.delegates, plan.kernel_calls, plan.delegate_calls) == ((), (), {}, {})


def test_damage_is_an_error_of_the_input_or_leaves_a_plan(file: Path) -> None:
    rolled = random.Random(0)
    broken = [PROGRAM[:size] for size in range(0, len(PROGRAM), 7)]
    for _ in range(2000):
        changed = bytearray(PROGRAM)
        for _ in range(rolled.randint(1, 4)):
            changed[rolled.randrange(len(changed))] = rolled.randrange(256)
        broken.append(bytes(changed))
    refused = 0
    for content in broken:
        file.write_bytes(content)
        try:
            assert isinstance(pte.read(file), pte.Plan)
        except InputError as error:
            assert str(error).startswith(str(file))
            refused += 1
    assert refused > len(PROGRAM) // 7 // 2


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["xnnpack", "portable"])
def test_it_agrees_with_executorchs_own_reader(file: Path, backend: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("executorch")
    from executorch.exir._serialize._program import deserialize_pte_binary

    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)).eval()
    program = torch.export.export(net, (torch.zeros(1, 1, 8, 8),))
    file.write_bytes(executorch._lowered(program, backend))
    ours, theirs = pte.read(file), deserialize_pte_binary(file.read_bytes()).program.execution_plan[0]
    names = [f"{each.name}.{each.overload}" if each.overload else each.name for each in theirs.operators]
    assert list(ours.operators) == names
    assert list(ours.delegates) == [each.id for each in theirs.delegates]
    assert ours.planned_bytes == sum(theirs.non_const_buffer_sizes)
    calls = [each.instr_args for each in theirs.chains[0].instructions]
    assert ours.kernel_calls == {i: names[c.op_index] for i, c in enumerate(calls) if hasattr(c, "op_index")}
    assert ours.delegate_calls == {
        i: ours.delegates[c.delegate_index] for i, c in enumerate(calls) if hasattr(c, "delegate_index")
    }
    assert (backend == "portable") is (not ours.delegates) and (ours.kernel_calls or ours.delegate_calls)
