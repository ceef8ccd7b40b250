"""Knowledge distillation: a student net, or the net itself, learns from the outputs and features of teachers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from edgecompress.core import user_code
from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Artifact, Request
from edgecompress.core.settings import Knob, is_factory
from edgecompress.formats import torch_edits, torch_module, torch_outputs
from edgecompress.techniques._training import batch_norms, features, setup
from edgecompress.techniques._training.data import Augment
from edgecompress.techniques._training.loop import Training, computing, zeros_kept
from edgecompress.techniques._training.losses import Named
from edgecompress.techniques._training.options import TrainingOptions
from edgecompress.techniques._training.rates import Kind

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "safetensors")
EXTRA = "torch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples", "dense", "training")
TRAINS = True
KNOBS = {"epochs": Knob(low=1, high=20, log=True), "temperature": Knob(low=1.0, high=8.0, log=True)}

SOURCE = "source"  # what the facts call the teacher that is always there
PROBED = 2  # items that the nets are tried with

Pair = tuple[str, str]  # a layer of the student's, one of the teacher's


@dataclass(frozen=True)
class Options(TrainingOptions):
    """Who learns from whom, by what, and how long."""

    student: str = ""  # its factory, pkg.mod:fn, with the source's inputs and outputs; empty: the net as it is
    inherit: tuple[Pair, ...] = ()  # pairs of modules: the student's begins with the weights of its teacher's; "": all
    teacher: str = ""  # instead of the source: a factory, or another variant of the target, an assistant
    teachers: tuple[str, ...] = ()  # factories of more teachers beside it; online: of the peers instead
    scheme: Literal["offline", "online", "self"] = "offline"  # online: peers learn together; self: generations
    generations: int = 1  # of self: each begins anew and is taught by the one before, the first by the source
    hard: float = 0.1  # weight of the error on the labels
    soft: float = 0.9  # weight of the distance to what the teachers answer: without labels, what they answer is all
    temperature: float = 4.0  # of the distillation of classes
    layers: tuple[Pair, ...] = ()  # pairs to compare: the student's layer, the source's; modules, as torch names them
    hints: float = 0.0  # weight of the distance between the layers' features, through a regressor where widths differ
    attention: float = 0.0  # weight of the distance between where the layers look
    distances: float = 0.0  # weight of how items lie apart, in the last pair of layers; none: in the answers
    angles: float = 0.0  # weight of how items lie around each other, in the same
    epochs: int = 20  # of each generation
    minutes: float | None = None  # of each, instead of epochs: as many as fit, by the time of the first steps
    batch_size: int = 128
    optimizer: Literal["sgd", "adamw"] = "sgd"  # SGD with Nesterov's momentum of 0.9
    lr: float | None = None  # the highest of the schedule; None: 0.05 for sgd, 0.001 for adamw, or what a net bears
    weight_decay: float = 1e-4
    schedule: Kind = "cosine"  # after a short warm-up; step: a tenth from each milestone on; constant
    milestones: tuple[float, ...] = (0.5, 0.75)  # of the schedule "step", as shares of it
    augment: tuple[Augment, ...] | None = None  # flip (mirror), crop (shift by 4 pixels at most); None: the source's
    loss: Literal["auto", "cross_entropy", "mse"] = "auto"  # auto: by the labels, whole numbers are classes
    amp: Literal["auto", "on", "off"] = "auto"  # 16-bit computing; auto: on a GPU, and on a CPU made for it
    loop: str = ""  # the user's own, pkg.mod:fn, called as fn(net, training); empty: ours

    def __post_init__(self) -> None:
        weights = (self.hard, self.soft, *self._compared.values())
        if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ValueError("loss weights must be at least 0, and at least one above 0")
        setup.check(self)
        if self.generations < 1 or (self.generations > 1 and self.scheme != "self"):
            raise ValueError("generations must be at least 1; more than 1 needs scheme = 'self'")
        if bool(self.layers) < bool(self.hints or self.attention):
            raise ValueError("hints and attention compare layers: give layers = [['the student's', 'the source's']]")
        if self.layers and not any(self._compared.values()):
            raise ValueError("layers need a loss that compares them; set hints, attention, distances or angles above 0")
        if self.scheme == "online" and any(self._compared.values()):
            raise ValueError(
                "scheme = 'online' compares outputs only; remove hints, attention, distances and angles, or use "
                "another scheme"
            )

    @property
    def _compared(self) -> dict[str, float]:
        """The weights of what layers are compared by."""
        return {name: getattr(self, name) for name in ("hints", "attention", "distances", "angles")}

    @property
    def distill(self) -> float:
        """The share of others in what is learned: 0 is labels alone."""
        taught = self.soft + sum(self._compared.values())
        return taught / (taught + self.hard)


def apply(request: Request) -> Artifact:
    """The student, trained: a "module" of its own factory, with the inputs and outputs of the source.

    Inputs: "model", "samples" (select), "dense" (the source, the first teacher), "training" (train).

    - offline: the teachers are trained already (Hinton, Vinyals & Dean 2015, arXiv:1503.02531). Of several, the mean
      of their softened probabilities is learned; layers are compared with the source's.
    - online: deep mutual learning (Zhang et al. 2018, arXiv:1706.00384, eq. 8): the student and its peers learn from
      the labels and from each other, in one step; the peers are then left. None named: a second net like the student.
    - self: born-again networks (Furlanello et al. 2018, arXiv:1805.04770): generations of one net, each from new
      weights; the last one is kept.

    facts: those of finetune of the last generation, "distill" being the share of others in what is learned; "scheme",
    "student": its factory or "", "teachers": names, "generations": the last score of each. Raises InputError for nets
    and data that do not fit, StageFailed where the loss diverges.
    """
    request = setup.settled(request)
    device = setup.best_device()
    done = torch_module.edits(request.model)
    if request.options.student and done:
        raise InputError(
            f"distill: the student {request.options.student} replaces the net, so the '{done[0]['edit']}' of an "
            "earlier step is lost; put distill first"
        )
    lessons: list[Lessons] = []
    net = None
    with computing(setup.cores(), device):
        for part in range(request.options.generations):
            net, lesson = _generation(request, device, part, net)
            lessons.append(lesson)
    assert net is not None
    return torch_module.save(net.to("cpu").eval(), request, [], _facts(lessons), request.options.student)


class DistillFacts(setup.TrainingFacts):
    """And who taught."""

    scheme: str
    student: str
    teachers: list[str]
    generations: list[float | None]


def _facts(lessons: Sequence[Lessons]) -> DistillFacts:
    options: Options = lessons[-1].options
    beside = options.teachers if options.scheme == "online" else (options.teacher or SOURCE, *options.teachers)
    return {
        **setup.facts(lessons[-1]),
        "distill": lessons[-1].objective.distill,
        "scheme": options.scheme,
        "student": options.student,
        "teachers": list(beside) if options.distill else [],
        "generations": [lesson.history[-1]["select"] for lesson in lessons if lesson.history],
    }


# --------------------------------------------------------------------------- a class and what it learns


@dataclass
class Lessons(Training):
    """Training of a class (see `_class`): what is called as the net answers as its student."""

    teachers: Sequence[torch.nn.Module] = ()  # trained nets
    pairs: Sequence[Pair] = ()
    mine: Mapping[str, torch.Tensor] = field(default_factory=dict)  # what the student's layers answered last
    theirs: Mapping[str, torch.Tensor] = field(default_factory=dict)  # and the first teacher's

    @property
    def options(self) -> Options:
        """The technique's."""
        options: Options = self.request.options
        return options

    def loss(self, net: torch.nn.Module, inputs: dict[str, torch.Tensor], labels: torch.Tensor | None) -> torch.Tensor:
        """Of one batch: the student's, and that of each peer."""
        answers = [self.call(each, inputs) for each in (net.student, *net.peers)]
        taught = self._from_teachers(inputs)
        parts = []
        for mine in answers:  # each hears what the teachers say; without them what the others of the class say
            others = [{name: t.detach() for name, t in other.items()} for other in answers if other is not mine]
            parts.append(self._response(mine, others if taught is None else [taught], labels))
        loss: torch.Tensor = sum(parts) + self._seen(net.regressors) + self._related(answers[0], taught)
        self.last = loss.detach()
        return loss

    def _from_teachers(self, inputs: dict[str, torch.Tensor]) -> Named | None:
        import torch

        with torch.no_grad():
            answers = [self.call(each, inputs) for each in self.teachers]
        return self.objective.together(answers) if answers else None

    def _response(self, answers: Named, heard: Sequence[Named], labels: torch.Tensor | None) -> torch.Tensor | float:
        """hard * the error on the labels + soft * the mean distance to what was heard."""
        o, parts = self.options, []
        if labels is not None and o.hard:
            parts.append(o.hard * self.objective.error(answers[self.objective.outputs[0]], labels))
        if o.soft:
            parts += [o.soft / len(heard) * self.objective.distance(answers, each) for each in heard]
        return sum(parts)

    def _seen(self, regressors: torch.nn.ModuleList) -> torch.Tensor | float:
        """The distances between layers."""
        o, parts = self.options, []
        for index, (mine, theirs) in enumerate(self.pairs):
            student, teacher = self.mine[mine], self.theirs[theirs]
            if o.hints:
                parts.append(o.hints * features.hint(*features.evened(regressors[index](student), teacher)))
            if o.attention:
                parts.append(o.attention * features.attention(*features.evened(student, teacher)))
        return sum(parts)

    def _related(self, answers: Named, taught: Named | None) -> torch.Tensor | float:
        """How items lie to each other, in the last pair of layers or in the first output."""
        o, first = self.options, self.objective.outputs[0]
        if taught is None or not (o.distances or o.angles):
            return 0.0
        ends = (self.mine[self.pairs[-1][0]], self.theirs[self.pairs[-1][1]]) if self.pairs else None
        student, teacher = map(features.embedding, ends or (answers[first], taught[first]))
        near = o.distances * features.distances(student, teacher) if o.distances else 0.0
        return near + (o.angles * features.angles(student, teacher) if o.angles else 0.0)


def _class(
    student: torch.nn.Module, peers: Sequence[torch.nn.Module], regressors: Sequence[torch.nn.Module]
) -> torch.nn.Module:
    """All that learns as one net, which answers as the student."""
    from torch import nn

    class Class(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.student = student
            self.peers, self.regressors = nn.ModuleList(peers), nn.ModuleList(regressors)

        def forward(self, **inputs: torch.Tensor) -> object:
            return self.student(**inputs)

    return Class()


# --------------------------------------------------------------------------- a generation


def _generation(
    request: Request, device: torch.device, part: int, before: torch.nn.Module | None
) -> tuple[torch.nn.Module, Lessons]:
    """A student taught by the teachers, or by the one of the generation before; and its training."""
    import numpy as np
    import torch

    lessons = _lessons(request, device, part, before)
    # the chances of a generation, of new weights
    seeds = np.random.SeedSequence([request.context.seed, part], spawn_key=(1,))
    torch.manual_seed(int(seeds.generate_state(1)[0]))
    student = _pupil(request, device)
    kept = [] if request.options.student else torch_edits.zeros(torch_module.edits(request.model))
    with (
        zeros_kept(student, kept) as settle,
        batch_norms.apart(student, lessons),
        _with_layer_outputs(student, lessons),
    ):
        if request.options.scheme != "offline" and not request.options.student:
            _begin_anew(student)
            settle()
        peers = list(_peers(request, device, student))
        _try(lessons, student, peers)
        regressors = [setup.placed(each, device, request.model) for each in _regressors(lessons)]
        setup.train(_class(student, peers, regressors), lessons)
    return student, lessons


def _lessons(request: Request, device: torch.device, part: int, before: torch.nn.Module | None) -> Lessons:
    """The training of a generation; raises InputError for data that does not do."""
    options: Options = request.options
    lessons = setup.training(request, device, Lessons)
    assert isinstance(lessons, Lessons)
    if options.scheme == "online" and lessons.items.labels is None:
        raise InputError(
            f"the split '{lessons.items.split}' has no labels: peers are trained on labels; give it labels, or use "
            "the source as teacher: scheme = 'offline'"
        )
    what, least = ("angles", 3) if options.angles else ("distances", 2) if options.distances else ("", 1)
    if lessons.size < least:
        raise InputError(
            f"{what} need batches of at least {least} items, but a batch has {lessons.size}; remove {what}"
        )
    teachers = [setup.placed(net, device, request.model) for net in _teachers(lessons, before)]
    pairs = options.layers if before is None else [(mine, mine) for mine, _ in options.layers]
    return replace(lessons, teachers=teachers, pairs=pairs, part=part, parts=options.generations)


def _teachers(lessons: Lessons, before: torch.nn.Module | None) -> list[torch.nn.Module]:
    """Trained nets that stay as they are: the source and those named, or the one of the generation before."""
    options: Options = lessons.options
    if lessons.dense is None or options.scheme == "online":
        return []
    first = [lessons.dense, *map(torch_module.factory, options.teachers)]
    return [net.requires_grad_(False).eval() for net in (first if before is None else [before])]


def _pupil(request: Request, device: torch.device) -> torch.nn.Module:
    """The student's factory's net, or the request's own."""
    options: Options = request.options
    net = torch_module.factory(options.student) if options.student else torch_module.rebuild(request.model)
    if options.inherit:
        _inherit(net, request)
    return setup.placed(net, device, request.model)


def _inherit(student: torch.nn.Module, request: Request) -> None:
    """Sets the modules that `inherit` pairs to the teacher's weights, where names and shapes agree."""
    options: Options = request.options
    own = is_factory(options.teacher)
    teacher = torch_module.factory(options.teacher) if own else torch_module.rebuild(request.inputs["dense"])
    for pair in options.inherit:
        ends = {}
        for who, name, net in zip(("student", "teacher"), pair, (student, teacher), strict=True):
            if name and name not in dict(net.named_modules()):
                known = [n for n, _ in net.named_modules() if n]
                raise InputError(f"distill: inherit: the {who} has no module '{name}'{did_you_mean(name, known)}")
            ends[who] = net.get_submodule(name)
        shapes = {name: tensor.shape for name, tensor in ends["student"].state_dict().items()}
        same = {n: t for n, t in ends["teacher"].state_dict().items() if shapes.get(n) == t.shape}
        if not same:
            raise InputError(f"distill: inherit: {list(pair)} have no weight of the same name and shape")
        ends["student"].load_state_dict(same, strict=False)


def _peers(request: Request, device: torch.device, student: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Those that learn beside the student: as named, or one like it with other weights."""
    import torch

    options: Options = request.options
    if options.scheme != "online":
        return
    for name in options.teachers:
        yield setup.placed(torch_module.factory(name), device, request.model)
    if not options.teachers:
        twin = _pupil(request, device)
        weights = zip(twin.parameters(), student.parameters(), strict=True)
        if not options.student or all(torch.equal(a, b) for a, b in weights):  # two that are one learn nothing
            _begin_anew(twin)
        yield twin


def _begin_anew(net: torch.nn.Module) -> None:
    """Draws all weights as torch does for new layers; raises InputError for a layer that does not know how."""
    for name, layer in net.named_modules():
        reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
        if reset is not None:
            reset()
        elif next(layer.parameters(recurse=False), None) is not None:
            raise InputError(
                f"the layer '{name}' ({type(layer).__name__}) has no reset_parameters to reset its weights; add it, "
                "or give a factory of the untrained net as student"
            )


# --------------------------------------------------------------------------- do they fit?


@contextlib.contextmanager
def _with_layer_outputs(student: torch.nn.Module, lessons: Lessons) -> Iterator[None]:
    """What the named layers answer goes into the lessons."""
    with contextlib.ExitStack() as stack:
        if lessons.pairs:
            mine, theirs = zip(*lessons.pairs, strict=True)
            lessons.mine = stack.enter_context(features.with_layer_outputs(student, mine, "student"))
            lessons.theirs = stack.enter_context(features.with_layer_outputs(lessons.teachers[0], theirs, "teacher"))
        yield


def _try(lessons: Lessons, student: torch.nn.Module, peers: Sequence[torch.nn.Module]) -> None:
    """Asks all nets for a few items; raises InputError for one that does not take them, or answers otherwise."""
    request = lessons.request
    source, fixed = request.model, request.model.batch
    inputs = torch_module.example(source, request.inputs["samples"], fixed if isinstance(fixed, int) else PROBED)
    expected = torch_module.outputs(torch_module.rebuild(source), source, inputs)
    moved = {name: tensor.to(lessons.device) for name, tensor in inputs.items()}
    for who, net in _named(lessons, student, peers):
        both = (_answers(who, net.eval(), moved), expected.values())
        mine, own = (", ".join(f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for t in each) for each in both)
        if mine != own:
            raise InputError(
                f"distill: {who} returns {mine}, the source {own} ({', '.join(expected)}); give it the same outputs"
            )


def _named(
    lessons: Lessons, student: torch.nn.Module, peers: Sequence[torch.nn.Module]
) -> Iterator[tuple[str, torch.nn.Module]]:
    """Each net of the class and its teachers, with what an error calls it."""
    options: Options = lessons.options
    yield f"the student {options.student}".rstrip(), student
    names = (options.teacher or SOURCE, *options.teachers)
    yield from ((f"the teacher {name}", net) for name, net in zip(names, lessons.teachers, strict=False))
    yield from ((f"the peer {name}", net) for name, net in zip(options.teachers, peers, strict=False))


def _answers(who: str, net: torch.nn.Module, inputs: Named) -> list[torch.Tensor]:
    import torch

    try:
        with torch.no_grad():
            return list(torch_outputs.flatten(torch_module.call(net, inputs)).values())
    except InputError as error:
        raise InputError(f"distill: {who}: {error}") from error
    except Exception as error:
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in inputs.items())
        raise InputError(
            f"distill: {who} does not take the source's inputs ({shapes}): {user_code.error_line(error)}; "
            "give its forward the same names and shapes"
        ) from error


def _regressors(lessons: Lessons) -> list[torch.nn.Module]:
    """One for each pair of layers, for hints; raises InputError for features that cannot be compared."""
    ends = [(lessons.mine[mine], lessons.theirs[theirs]) for mine, theirs in lessons.pairs]
    for pair, (student, teacher) in zip(lessons.pairs, ends, strict=True):
        features.check(pair, student, teacher, bool(lessons.options.attention))
    return [features.regressor(*each) for each in ends] if lessons.options.hints else []
