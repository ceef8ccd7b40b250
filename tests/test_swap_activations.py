"""Activations that others take the place of: which, what stays, and the net that is rebuilt with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgecompress.core.errors import InputError
from edgecompress.core.model import REWRITES, Artifact, Context, Dim, Request, TensorSpec
from edgecompress.formats import torch_module
from edgecompress.techniques import swap_activations

torch = pytest.importorskip("torch")
nn = torch.nn
SPEC = (TensorSpec("input", (Dim("batch", 1, 8), 4)),)


class GELUActivation(nn.Module):  # type: ignore[misc]
    """As Hugging Face's are called."""

    def forward(self, x: Any) -> Any:
        return nn.functional.gelu(x)


def smooth() -> Any:
    torch.manual_seed(0)
    shared = nn.SiLU()  # as YOLO's blocks have one
    layers = [nn.Linear(4, 4), nn.Hardswish(), nn.Linear(4, 4), shared, nn.Linear(4, 4), shared]
    return nn.Sequential(*layers, nn.Linear(4, 4), GELUActivation(), nn.Linear(4, 4), nn.Sigmoid())


def plain() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU6())


def request(tmp_path: Path, make: Any, **options: Any) -> Request:
    for name in ("model", "out"):
        (tmp_path / name).mkdir()
    torch_module.write(make(), tmp_path / "model", f"{__name__}:{make.__name__}", [])
    model = Artifact(tmp_path / "model", "module", SPEC, SPEC).write()
    return Request({"model": model}, tmp_path / "out", swap_activations.Options(**options), Context())


def classes(made: Artifact) -> list[str]:
    return [type(part).__name__ for part in torch_module.rebuild(made) if not isinstance(part, nn.Linear)]


def test_smooth_activations_become_relu6_and_the_net_is_rebuilt_with_them(tmp_path: Path) -> None:
    made = swap_activations.apply(request(tmp_path, smooth))
    assert made.facts[REWRITES] == {
        "Hardswish as ReLU6": ["1"],
        "SiLU as ReLU6": ["3", "5"],
        "GELUActivation as ReLU6": ["7"],
    }
    assert classes(made) == [*["ReLU6"] * 4, "Sigmoid"]
    x = torch.randn(3, 4)
    right = smooth()
    for place in (1, 3, 5, 7):
        right[place] = nn.ReLU6()
    torch.testing.assert_close(torch_module.rebuild(made)(x), right(x))


def test_only_what_is_asked_for_goes(tmp_path: Path) -> None:
    made = swap_activations.apply(request(tmp_path, smooth, to="hardswish", of=("SiLU", "sigmoid"), skip=("5",)))
    assert classes(made) == ["Hardswish", "Hardswish", "SiLU", "GELUActivation", "Hardswish"]


def test_a_net_without_any_is_told(tmp_path: Path) -> None:
    assert "functions that it calls" in swap_activations.apply(request(tmp_path, plain)).facts["lost"]


def test_a_module_that_there_is_not_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="skip: no module 'layer9'"):
        swap_activations.apply(request(tmp_path, smooth, skip=("layer9",)))
