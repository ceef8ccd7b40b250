"""LSTM, GRU and RNN: as torch's modules where these compute the same, else step by step as the standard has it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from edgecompress.extras.onnx_nets.values import Value, numbers, operator, tensor

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node

Tensor: TypeAlias = torch.Tensor
ONE: Mapping[str, Callable[..., Tensor]] = {
    "Sigmoid": lambda x, a, b: torch.sigmoid(x),
    "Tanh": lambda x, a, b: torch.tanh(x),
    "Relu": lambda x, a, b: torch.relu(x),
    "HardSigmoid": lambda x, a, b: torch.clamp((a or 0.2) * x + (0.5 if b is None else b), 0, 1),
    "LeakyRelu": lambda x, a, b: nn.functional.leaky_relu(x, a or 0.01),
    "Softsign": lambda x, a, b: nn.functional.softsign(x),
    "Softplus": lambda x, a, b: nn.functional.softplus(x),
    "Elu": lambda x, a, b: nn.functional.elu(x, 1.0 if a is None else a),
    "ThresholdedRelu": lambda x, a, b: torch.where(x > (1.0 if a is None else a), x, torch.zeros_like(x)),
    "Affine": lambda x, a, b: (1.0 if a is None else a) * x + (b or 0.0),
}
USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # torch's order of gates, in the standard's
MODULES: Mapping[str, type[nn.RNNBase]] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


def directions(node: Node) -> list[bool]:
    """Whether each direction goes backwards."""
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[node.get("direction", "forward")]


class Recurrent(nn.Module):  # type: ignore[misc]
    """A module of torch with the standard's ends: Y [steps, directions, n, size], the last h, of an LSTM the last c."""

    def __init__(self, node: Node, weights: Sequence[Tensor | None]) -> None:
        super().__init__()
        w, r, b = weights
        assert w is not None and r is not None
        self.backwards, self.lstm = directions(node), node.op == "LSTM"
        self.batch_first = bool(node.get("layout", 0))
        more = {"nonlinearity": node.get("activations", USUAL["RNN"])[0].lower()} if node.op == "RNN" else {}
        two = len(self.backwards) == 2
        self.cell = MODULES[node.op](w.shape[2], r.shape[2], bias=b is not None, bidirectional=two, **more)
        for i in range(len(self.backwards)):
            end = "_reverse" if i else ""
            parts = {"weight_ih_l0": w[i], "weight_hh_l0": r[i]}
            if b is not None:
                parts |= {"bias_ih_l0": b[i][: b.shape[1] // 2], "bias_hh_l0": b[i][b.shape[1] // 2 :]}
            for name, value in parts.items():
                gates = torch.chunk(value, len(GATES[node.op]))
                getattr(self.cell, name + end).data = torch.cat([gates[i] for i in GATES[node.op]]).contiguous()

    def forward(self, x: Tensor, *state: Tensor | None) -> tuple[Tensor, ...]:
        """`state`: the first h and c, [directions, n, size], or None for zeros."""
        if self.batch_first:
            x = x.transpose(0, 1)
            state = tuple(None if each is None else each.transpose(0, 1) for each in state)
        reverse = self.backwards == [True]
        x = torch.flip(x, [0]) if reverse else x
        first: Any = state[0] if state else None
        if self.lstm and first is not None:
            first = (first, state[1] if len(state) > 1 and state[1] is not None else torch.zeros_like(first))
        y, last = self.cell(x, first) if first is not None else self.cell(x)
        y = torch.flip(y, [0]) if reverse else y
        y = y.reshape(y.shape[0], y.shape[1], len(self.backwards), -1).transpose(1, 2)
        ends = tuple(last) if self.lstm else (last,)
        return _ends(y, ends, self.batch_first)


def _ends(y: Tensor, last: Sequence[Tensor], batch_first: bool) -> tuple[Tensor, ...]:
    """The outputs as `layout` has them."""
    if not batch_first:
        return y, *last
    return y.permute(2, 0, 1, 3), *(each.transpose(0, 1) for each in last)


def usual(node: Node) -> bool:
    """Whether torch's module computes the same."""
    asked = node.get("activations") or USUAL[node.op] * len(directions(node))
    plain = asked == USUAL[node.op] * len(directions(node)) or (node.op == "RNN" and {*asked} == {"Relu"})
    odd = [name for name in ("clip", "activation_alpha", "activation_beta", "input_forget") if node.get(name)]
    masked = [i for i in (4, 7) if len(node.inputs) > i and node.inputs[i]]
    return plain and not odd and not masked and (node.op != "GRU" or bool(node.get("linear_before_reset")))


# --------------------------------------------------------------------------- step by step


@operator("LSTM", "GRU", "RNN", known=(4,))
def recurrent(node: Node, x: Tensor, w: Value, r: Value, *more: Value) -> tuple[Tensor, ...]:
    """Any cell of the standard: lengths, peepholes, clipping and other activations too."""
    bias, lengths, first_h, first_c, peepholes = (*more, None, None, None, None, None)[:5]
    w, r = tensor(w, x), tensor(r, x)
    batch_first, size = bool(node.get("layout", 0)), r.shape[2]
    x = x.transpose(0, 1) if batch_first else x
    steps, n = x.shape[:2]
    zeros = x.new_zeros((w.shape[0], n, size))
    h0, c0 = (zeros if v is None else tensor(v, x).transpose(0, 1) if batch_first else tensor(v, x)
              for v in (first_h, first_c))  # fmt: skip
    ends = numbers(lengths) if lengths is not None else [steps] * n
    inside = torch.tensor([[t < end for end in ends] for t in range(steps)], device=x.device)[..., None]
    every, last_h, last_c = [], [], []
    for d, backwards in enumerate(directions(node)):
        run = _Cell(node, d, [tensor(v, x)[d] if v is not None else None for v in (w, r, bias, peepholes)])
        h, c = h0[d], c0[d]
        outputs = [h] * steps
        for t in reversed(range(steps)) if backwards else range(steps):
            new_h, new_c = run(x[t], h, c)
            outputs[t] = torch.where(inside[t], new_h, torch.zeros_like(new_h))
            h, c = torch.where(inside[t], new_h, h), torch.where(inside[t], new_c, c)
        every.append(torch.stack(outputs))
        last_h.append(h)
        last_c.append(c)
    last = (torch.stack(last_h), torch.stack(last_c)) if node.op == "LSTM" else (torch.stack(last_h),)
    return _ends(torch.stack(every, 1), last, batch_first)


class _Cell:
    """One step of one direction."""

    def __init__(self, node: Node, direction: int, weights: Sequence[Tensor | None]) -> None:
        self.node, self.op = node, node.op
        w, r, self.bias, self.peepholes = weights
        assert w is not None and r is not None
        self.w, self.r = w, r
        count = len(USUAL[node.op])
        names = node.get("activations") or USUAL[node.op] * (direction + 1)
        alphas, betas = node.get("activation_alpha") or [], node.get("activation_beta") or []
        chosen = range(direction * count, (direction + 1) * count)
        self.f = [functools.partial(_activated, names[i], _at(alphas, i), _at(betas, i)) for i in chosen]
        self.clip = node.get("clip")

    def __call__(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        wb, rb = torch.chunk(self.bias, 2) if self.bias is not None else (0.0, 0.0)
        a, b = x @ self.w.T + wb, h @ self.r.T + rb
        return {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.op](a, b, h, c)

    def _cut(self, v: Tensor) -> Tensor:
        return torch.clamp(v, -self.clip, self.clip) if self.clip else v

    def _rnn(self, a: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return self.f[0](self._cut(a + b)), c

    def _gru(self, a: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        (az, ar, ah), (bz, br, bh) = torch.chunk(a, 3, -1), torch.chunk(b, 3, -1)
        z, r = self.f[0](self._cut(az + bz)), self.f[0](self._cut(ar + br))
        if self.node.get("linear_before_reset"):
            new = self.f[1](self._cut(ah + r * bh))
        else:
            size = h.shape[-1]
            more = self.bias[-size:] if self.bias is not None else 0.0
            new = self.f[1](self._cut(ah + (r * h) @ self.r[2 * size :].T + more))
        return (1 - z) * new + z * h, c

    def _lstm(self, a: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, o, f, g = torch.chunk(a + b, 4, -1)
        pi, po, pf = torch.chunk(self.peepholes, 3) if self.peepholes is not None else (0.0, 0.0, 0.0)
        i = self.f[0](self._cut(i + pi * c))
        f = 1 - i if self.node.get("input_forget") else self.f[0](self._cut(f + pf * c))
        new = f * c + i * self.f[1](self._cut(g))
        return self.f[0](self._cut(o + po * new)) * self.f[2](new), new


def _activated(name: str, a: float | None, b: float | None, v: Tensor) -> Tensor:
    return ONE[name](v, a, b)


def _at(values: Sequence[float], i: int) -> float | None:
    return values[i] if i < len(values) else None
