"""The options that every technique that trains has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from edgecompress.techniques._training.data import Augment
    from edgecompress.techniques._training.rates import Kind


class TrainingOptions(Protocol):
    """How a net is trained; a technique's `Options` says what each one means."""

    RATES: ClassVar[Mapping[str, float]] = {"sgd": 0.05, "adamw": 0.001}  # where `lr` is None

    @property
    def epochs(self) -> int: ...
    @property
    def minutes(self) -> float | None:
        """As many epochs as fit; None: `epochs`."""
        return None

    @property
    def batch_size(self) -> int: ...
    @property
    def optimizer(self) -> Literal["sgd", "adamw"] | None:
        """Unless there is a choice, SGD; None: by the net, see `setup.settled`."""
        return "sgd"

    @property
    def lr(self) -> float | None: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def schedule(self) -> Kind:
        """Of the learning rate; unless there is a choice, it is constant."""
        return "constant"

    @property
    def milestones(self) -> tuple[float, ...]:
        """Of the schedule "step"."""
        return ()

    @property
    def clip(self) -> float | None:
        """The largest norm of all gradients together; None: any."""
        return None

    @property
    def plateau(self) -> float | None:
        """What the rate is divided by after an epoch that is no better on "select"; None: it is not."""
        return None

    @property
    def augment(self) -> tuple[Augment, ...] | None: ...
    @property
    def distill(self) -> float: ...
    @property
    def teacher(self) -> str:
        """A factory, pkg.mod:fn, or another variant of the target, whose net is then the input "dense"."""
        return ""

    @property
    def temperature(self) -> float: ...
    @property
    def loss(self) -> Literal["auto", "cross_entropy", "mse"]: ...
    @property
    def amp(self) -> Literal["auto", "on", "off"]: ...
    @property
    def loop(self) -> str: ...

    @property
    def momentum(self) -> float:
        """Of SGD."""
        return 0.9

    @property
    def nesterov(self) -> bool:
        """Whether the momentum is Nesterov's."""
        return True

    @property
    def rate(self) -> float:
        """The highest learning rate."""
        return self.RATES[self.optimizer or "sgd"] if self.lr is None else self.lr

    @property
    def whole_epochs(self) -> int:
        """Epochs of the schedule, of which the last `epochs` are trained: all are."""
        return self.epochs
