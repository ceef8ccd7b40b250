"""What a run is asked, each keyword once: its type, its default and its help.

The functions for Python have these keywords (`Unpack[How]`), the command line makes its arguments of them
(cli/arguments.py), the tools of `edgecompress mcp` their schema, and `job` makes the effective configuration of a
request.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypedDict, TypeVar, Union, cast

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.json import Json

if TYPE_CHECKING:
    import keras
    import onnx
    import torch
    from numpy.typing import ArrayLike

    from edgecompress.pipeline.runner import Listener

Name = Union[str, "os.PathLike[str]"]  # of a target, a device or a profile, or the path of its file
Devices = Union[Name, Mapping[str, Name]]  # of all targets, or by target; "arm64=rpi5,x86=host" is text of the latter
Threads = Union[int, str, Sequence[Union[int, str]]]  # per inference; of several, "1,2,all", the fastest is found
Net = Union["torch.nn.Module", "torch.export.ExportedProgram", "keras.Model", "onnx.ModelProto"]
Model = Union[Name, Net, Callable[[], Net]]
Arrays = Union["ArrayLike", Mapping[str, "ArrayLike"], "tuple[ArrayLike, ...]"]  # of many items, on axis 0
Items = Union[Arrays, "tuple[Arrays, ArrayLike]", Iterable[object]]  # the latter: a DataLoader or a Dataset of torch
Data = Union[Name, Items, Mapping[str, Items], Callable[[str], "Iterable[object] | None"]]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Keyword:
    """What the command line and the tools tell of a keyword.

    `kind`: of its text: str, int, Path, bool (there or not), list (of texts; --NAME may repeat) or dict (KEY=VALUE);
    `shown`: what stands for its value; `default`: of who names none, told where it is something.
    """

    help: str
    default: Json = None
    kind: type = str
    shown: str = ""


class How(TypedDict, total=False):
    """With which data, where and how."""

    data: Annotated[
        Data | None,
        Keyword(
            "samples: pkg.mod:fn, an .npz, a folder of .npy files or images, texts (.tsv, .jsonl, .txt), or `random`"
        ),
    ]
    metric: Annotated[str | None, Keyword("accuracy metric: top1, perplexity, map, miou, ..., none, or pkg.mod:fn")]
    samples: Annotated[int | None, Keyword("use at most N items per split", kind=int, shown="N")]
    device: Annotated[
        Devices | None,
        Keyword("name or TOML file of a device; of several targets TARGET=DEVICE,... (default: the target's)"),
    ]
    profile: Annotated[Name, Keyword("how to measure: quick, standard, strict, or a TOML file", "standard")]
    strict: Annotated[
        bool,
        Keyword("refuse what intervals of 95 % leave undecided, too (limits.strict = true)", False, bool),
    ]
    only: Annotated[
        str | Sequence[str],
        Keyword(
            "variants to build, comma-separated (default: all); or a precision without a variant: int4, openvino-int4",
            (),
            list,
            "VARIANT",
        ),
    ]
    threads: Annotated[
        Threads, Keyword("threads per inference; of several (1,2,all) the fastest is found", 1, shown="N")
    ]
    batch: Annotated[int, Keyword("batch size", 1, int, "N")]
    seed: Annotated[int, Keyword("random seed", 0, int, "N")]
    settings: Annotated[
        Mapping[str, Json] | None, Keyword("override a value of a TOML file; may repeat", None, dict, "KEY=VALUE")
    ]


class JobRequest(How, total=False):
    """All that a run is asked."""

    model: Annotated[
        Model | None,
        Keyword(
            "a factory pkg.mod:fn, a .pt2, .onnx, .tflite or .keras file, a SavedModel, a Hugging Face folder, or a "
            "source TOML (default: the embedded demo)",
            shown="MODEL",
        ),
    ]
    target: Annotated[Name, Keyword("name or TOML file of the target", "x86")]


@dataclass(frozen=True)
class Options:
    """How a job is run; nothing here changes a result."""

    store: Annotated[
        Name | None,
        Keyword("the folder of stored results (default: .edgecompress in the folder where you run it)", kind=Path),
    ] = None
    out: Annotated[
        Name | None, Keyword("output folder (default: dist/TARGET; with several targets: OUT/TARGET)", kind=Path)
    ] = None
    until: Annotated[str, Keyword("stop after this stage; `plan` lists the stages", "", shown="STAGE")] = ""
    offline: Annotated[bool, Keyword("fetch nothing, and run every stage without network access", False, bool)] = False
    untrusted: Annotated[bool, Keyword("refuse models and data that execute their author's code", False, bool)] = False
    remeasure: Annotated[bool, Keyword("measure again, even if a stored measurement is recent", False, bool)] = False
    require_measured: Annotated[bool, Keyword("fail (exit 1) when no sensor measured the energy", False, bool)] = False
    jobs: Annotated[
        int | None,
        Keyword(
            "stages that build at once, while memory lasts; what measures is alone (default: EDGECOMPRESS_JOBS, else "
            "as many as processors, 4 at most)",
            kind=int,
            shown="N",
        ),
    ] = None
    on: Annotated[
        str,
        Keyword(
            "where stages are done: this machine, or a Ray cluster (ray://HOST:10001) with the same disk",
            "local",
            shown="WHERE",
        ),
    ] = "local"
    command: str = "edgecompress.deploy(...)"  # for the report
    progress: bool | None = None  # one line of it; None: in notebooks and on terminals
    listener: "Listener | None" = None  # hears what happens, in the place of that line

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"jobs: must be at least 1, not {self.jobs}")

    @property
    def hears(self) -> "Listener":
        """Who is told what happens."""
        from edgecompress.pipeline import progress_line

        return self.listener or progress_line.Line(self.progress)


# What a value may be in Python, by what its text is on the command line.
FORMS: Mapping[type, tuple[tuple[type, ...], str]] = {
    int: ((Integral,), "a whole number"),  # of numpy, too
    bool: ((bool,), "True or False"),
    list: ((str, Sequence), "a name, or a list of names"),
    dict: ((Mapping,), 'a dictionary, as {"limits.items_lost": 2}'),
}
KEYWORDS: Mapping[str, Keyword] = {
    **{name: cast("Any", hint).__metadata__[0] for name, hint in JobRequest.__annotations__.items()},
    **{f.name: f.type.__metadata__[0] for f in fields(Options) if hasattr(f.type, "__metadata__")},
}


def checked(how: Mapping[str, object]) -> None:
    """Raises TypeError for what is no keyword, InputError for a value of another type than its keyword's."""
    for name, value in how.items():
        if name not in How.__annotations__:
            options = f"; give options=Options({name}=...)" if name in Options.__dataclass_fields__ else ""
            raise TypeError(f"unknown keyword '{name}'{options or did_you_mean(name, How.__annotations__)}")
        wanted, form = FORMS.get(KEYWORDS[name].kind, ((object,), ""))
        truth = isinstance(value, bool) and Integral in wanted  # which Python takes for a number
        if value is not None and (truth or not isinstance(value, wanted)):
            raise InputError(f"{name}: is of type {type(value).__name__}; give {form}")


def default(name: str) -> Any:
    """The value of a keyword that is not given."""
    return KEYWORDS[name].default


def device_of(device: Devices | None, target: str, targets: Iterable[str] = ()) -> Name | None:
    """The device of a target, None: its own. Raises InputError for one of a target that is not among `targets`."""
    if isinstance(device, str) and "=" in device:
        pairs = [[word.strip() for word in part.split("=", 1)] for part in device.split(",")]
        if not all(len(pair) == 2 and all(pair) for pair in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
            raise InputError(f"--device {device}: write TARGET=DEVICE once for a target, with commas between them")
        device = dict(pairs)
    if not isinstance(device, Mapping):
        return device
    known = [*targets]
    if other := next((name for name in device if known and name not in (*known, *map(_stem, known))), ""):
        hint = did_you_mean(other, known)
        raise InputError(f"--device {other}={device[other]}: no target '{other}' is asked for{hint}")
    return device.get(target) or device.get(_stem(target))


def _stem(target: str) -> str:
    """The name of a target by the path of its file."""
    return Path(target).stem


def keywords(call: Callable[P, T]) -> Callable[P, T]:
    """The function, whose `**how` is told as the keywords of `How`, each with its default: for help() and an editor."""
    told = inspect.signature(call)
    own = [p for p in told.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    for name in How.__annotations__:
        if name not in told.parameters:
            keyword = inspect.Parameter.KEYWORD_ONLY
            own.append(inspect.Parameter(name, keyword, default=default(name)))
    call.__signature__ = told.replace(parameters=own)  # type: ignore[attr-defined]
    return call
