"""A schedule file: its instances and policies, checked; every mistake is one line with its place and a suggestion."""

from __future__ import annotations

import dataclasses
import re
import textwrap
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from edgecompress.core import config
from edgecompress.core.errors import ConfigError, did_you_mean
from edgecompress.extras.schedules import arguments, documents, quantizer_arguments, rate_arguments
from edgecompress.extras.schedules.documents import Document, Item

KINDS: dict[str, tuple[str, dict[str, type], type]] = {  # of a policy: its section, the classes, what `args` may hold
    "pruner": ("pruners", arguments.PRUNERS, arguments.PruningPolicy),
    "regularizer": ("regularizers", arguments.REGULARIZERS, arguments.RegularizationPolicy),
    "quantizer": ("quantizers", quantizer_arguments.QUANTIZERS, arguments.NoArguments),
    "lr_scheduler": ("lr_schedulers", rate_arguments.LR_SCHEDULERS, arguments.NoArguments),
    "extension": ("extensions", arguments.EXTENSIONS, arguments.NoArguments),
}
SECTIONS = {section: kind for kind, (section, _, _) in KINDS.items()}
# What names parameters and modules, of an instance or of a policy
NAMED = ("thresholds", "levels", "sensitivities", "reg_regims", "weights", "overrides", "input_overrides")
RANGE = ("starting_epoch", "ending_epoch", "frequency")
# Of torch's, those that are made of functions or of each other
UNSAYABLE = ("LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler")


@dataclass(frozen=True)
class Instance:
    """A pruner, regularizer, ... of a schedule; `arguments`: one of the dataclasses of `arguments`."""

    name: str
    cls: str  # as Distiller calls it
    arguments: object
    where: str  # the file and the line


@dataclass(frozen=True)
class Policy:
    """When an instance acts, and how; the last epoch is the one before `ending`."""

    kind: str
    instance: Instance
    arguments: object
    epochs: Sequence[int]
    starting: int
    ending: int
    frequency: int
    where: str


@dataclass(frozen=True)
class Schedule:
    """All that a file says. `instances`: by section and name; `warnings`: what is odd and was ignored by Distiller."""

    path: str
    instances: Mapping[str, Mapping[str, Instance]]
    policies: tuple[Policy, ...]
    warnings: tuple[str, ...]

    @property
    def thins(self) -> bool:
        """Whether any of its policies makes the model smaller."""
        return any(policy.kind == "extension" for policy in self.policies)


def read(path: str | Path, rename: Sequence[str] = ()) -> Schedule:
    """The schedule of a file; raises ConfigError: `FILE: line 3: unknown class 'X', did you mean 'Y'?` and the like.

    `rename`: texts `layer3=stage2`, for a net that calls a module, or a parameter, otherwise than the file.
    """
    document = documents.read(Path(path))
    _rename(document, rename)
    sections = _table(document, document.root, "the file")
    _known(document, sections, [*SECTIONS, "policies", "version"], "unknown key")
    instances = {
        section: _instances(document, section, item) for section, item in sections.items() if section in SECTIONS
    }
    policies = sections.get("policies", Item(None, 1))
    found = [_policy(document, item, instances) for item in _list(document, policies, "policies")]
    _warn(document, instances, found)
    return Schedule(document.path, instances, tuple(found), tuple(document.warnings))


def _rename(document: Document, rename: Sequence[str]) -> None:
    """Names in the document those of a net; raises ConfigError for what is no OLD=NEW, or names nothing."""
    for text in rename:
        if not all(text.partition("=")):
            raise ConfigError(f"--rename {text}: write OLD=NEW, for example layer3=stage2")
    of, seen, used = {text.partition("=")[0]: text.partition("=")[2] for text in rename}, set[str](), set[str]()
    longest = sorted(map(re.escape, of), key=len, reverse=True)
    begins = re.compile(rf"(module\.)?({'|'.join(longest)})(?=\.|$)")

    def named(name: str) -> str:
        seen.update(accumulate(name.removeprefix("module.").split("."), lambda module, part: f"{module}.{part}"))
        if not (found := begins.match(name)):
            return name
        used.add(found[2])
        return f"{found[1] or ''}{of[found[2]]}{name[found.end() :]}"

    def renamed(item: Item, names: bool = False) -> Item:
        if item.table is not None:
            table = {named(key) if names else key: renamed(each, key in NAMED) for key, each in item.table.items()}
            if len(table) < len(item.table):
                raise ConfigError(f"{document.where(item.line)}: --rename makes one of two names; give others")
            return Item(table, item.line)
        if isinstance(item.value, list):
            return Item([renamed(each, names) for each in item.value], item.line)
        return Item(named(item.value), item.line) if names and isinstance(item.value, str) else item

    document.root = renamed(document.root) if rename else document.root
    if idle := next((old for old in of if old not in used), None):
        raise ConfigError(f"--rename {idle}={of[idle]}: {document.path} names no '{idle}'{_hint(idle, seen)}")


# --------------------------------------------------------------------------- instances


def _instances(document: Document, section: str, item: Item) -> dict[str, Instance]:
    found = {name: _instance(document, section, name, each) for name, each in _table(document, item, section).items()}
    if section == "quantizers" and len(found) > 1:
        second = list(found.values())[1]
        raise ConfigError(f"{second.where}: quantizers.{second.name}: a schedule has at most one quantizer; remove it")
    return found


def _instance(document: Document, section: str, name: str, item: Item) -> Instance:
    path, where = f"{section}.{name}", document.where(item.line)
    table = dict(_table(document, item, path))
    if "class" not in table:
        raise ConfigError(f"{where}: {path}: key 'class' is missing")
    chosen = table.pop("class")
    classes = KINDS[SECTIONS[section]][1]
    if not isinstance(chosen.value, str) or chosen.value not in classes:
        if chosen.value in UNSAYABLE and section == "lr_schedulers":
            raise ConfigError(
                f"{document.where(chosen.line)}: {path}: {chosen.value} takes functions, which YAML has not"
            )
        hint = _hint(chosen.value, classes)
        raise ConfigError(f"{document.where(chosen.line)}: {path}: unknown class {_shown(chosen.value)}{hint}")
    what = f"{path} ({chosen.value})"
    return Instance(name, chosen.value, _built(document, classes[chosen.value], table, what, where), where)


def _built(document: Document, cls: type, table: Mapping[str, Item], what: str, where: str) -> object:
    """A dataclass of `arguments` from a table of the file."""
    hints, fields = config.hints(cls), {field.name: field for field in dataclasses.fields(cls)}
    _known(document, table, fields, f"{what}: unknown argument")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in table:
            raise ConfigError(f"{where}: {what}: the argument '{name}' is missing")
    values = {
        name: _value(document, hints[name], _listed(name, item), f"{what}: {name}") for name, item in table.items()
    }
    try:
        return cls(**values)
    except ValueError as error:  # a dataclass checks its own ranges
        raise ConfigError(f"{where}: {what}: {error}") from error


def _listed(name: str, item: Item) -> Item:
    """`weights: fc.weight` is a list of one."""
    return Item([item], item.line) if name == "weights" and isinstance(item.value, str) else item


def _value(document: Document, hint: object, item: Item, what: str) -> object:
    """A value as its type says; of tables, each entry with its own line."""
    choices = [each for each in typing.get_args(hint) if each is not type(None)]
    if type(None) in typing.get_args(hint) and len(choices) == 1:
        return None if item.value is None else _value(document, choices[0], item, what)
    if item.table is not None and typing.get_origin(hint) is Mapping:
        entry = typing.get_args(hint)[1]
        return {key: _value(document, entry, each, f"{what}.{key}") for key, each in item.table.items()}
    if item.table is not None and isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _built(document, hint, item.table, what, document.where(item.line))
    return config.convert(hint, item.plain(), f"{document.where(item.line)}: {what}")


# --------------------------------------------------------------------------- policies


def _policy(document: Document, item: Item, instances: Mapping[str, Mapping[str, Instance]]) -> Policy:
    where, table = document.where(item.line), _table(document, item, "a policy")
    _known(document, table, [*KINDS, *RANGE, "epochs"], "policies: unknown key")
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        raise ConfigError(f"{where}: policies: a policy must have exactly one of {', '.join(KINDS)}")
    kind = kinds[0]
    inner = _table(document, table[kind], kind)
    _known(document, inner, ("instance_name", "args"), f"policies: {kind}: unknown key")
    instance = _named(document, kind, table[kind].line, inner.get("instance_name"), instances)
    what = f"policies: {kind} {instance.name}"
    args = _table(document, inner["args"], f"{what}: args") if "args" in inner else {}
    built = _built(document, KINDS[kind][2], args, f"{what}: args", where)
    epochs, starting, ending, frequency = _epochs(document, table, where, what)
    policy = Policy(kind, instance, built, epochs, starting, ending, frequency, where)
    _fits(policy, what)
    return policy


def _named(
    document: Document, kind: str, line: int, name: Item | None, instances: Mapping[str, Mapping[str, Instance]]
) -> Instance:
    known = instances.get(KINDS[kind][0], {})
    if name is None:
        raise ConfigError(f"{document.where(line)}: policies: {kind}: key 'instance_name' is missing")
    if str(name.value) not in known:
        hint = _hint(name.value, known)
        where = document.where(name.line)
        raise ConfigError(f"{where}: policies: {KINDS[kind][0]} has no instance {_shown(name.value)}{hint}")
    return known[str(name.value)]


def _epochs(
    document: Document, table: Mapping[str, Item], where: str, what: str
) -> tuple[Sequence[int], int, int, int]:
    """The epochs of a policy, the first, the one after the last, and how many apart."""
    given = [key for key in RANGE if key in table]
    if ("epochs" in table) == bool(given) or (given and len(given) < len(RANGE)):
        raise ConfigError(f"{where}: {what}: give either epochs, or all of {', '.join(RANGE)}")
    if "epochs" in table:
        item = table["epochs"]
        at = f"{document.where(item.line)}: {what}: epochs"
        listed = typing.cast("tuple[int, ...]", config.convert(tuple[int, ...], item.plain(), at))
        if not listed or min(listed) < 0:
            raise ConfigError(f"{at}: must be a list of epochs, which count from 0")
        ordered = tuple(sorted(listed))
        return ordered, ordered[0], ordered[-1] + 1, 1
    start, end, frequency = (
        typing.cast(int, config.convert(int, table[key].plain(), f"{document.where(table[key].line)}: {what}: {key}"))
        for key in RANGE
    )
    if not 0 <= start < end:
        at = document.where(table["ending_epoch"].line)
        raise ConfigError(f"{at}: {what}: ending_epoch {end} must be larger than starting_epoch {start}, both from 0")
    if frequency < 1:
        raise ConfigError(f"{document.where(table['frequency'].line)}: {what}: frequency must be at least 1")
    if frequency > end - start:
        document.warnings.append(f"{where}: {what}: its frequency is larger than its epochs: it acts once, at {start}")
    return range(start, end, frequency), start, end, frequency


def _fits(policy: Policy, what: str) -> None:
    """Whether its epochs and `args` fit its instance."""
    given = policy.instance.arguments
    if isinstance(given, arguments.Gradual) and span(policy) < 1:
        raise ConfigError(f"{policy.where}: {what}: {policy.instance.cls} needs at least two epochs to act at")
    if isinstance(given, arguments.Rewinding) and policy.starting <= given.epoch:
        raise ConfigError(f"{policy.where}: {what}: it goes back to epoch {given.epoch}, so it acts at a later one")
    levels = getattr(policy.arguments, "levels", None)
    if levels is not None and not isinstance(given, arguments.Level):
        raise ConfigError(f"{policy.where}: {what}: args: levels is of SparsityLevelParameterPruner alone")


def span(policy: Policy) -> int:
    """Epochs between the first and the last at which a policy acts, as AGP counts them."""
    return (policy.ending - policy.starting - 1) // policy.frequency * policy.frequency


# --------------------------------------------------------------------------- what all share


def _warn(document: Document, instances: Mapping[str, Mapping[str, Instance]], policies: Sequence[Policy]) -> None:
    """Adds what Distiller says nothing of: what no policy uses, and masks that are to be kept and are not."""
    used = {id(policy.instance) for policy in policies}
    for section, found in instances.items():
        for each in found.values():
            if id(each) not in used and not isinstance(each.arguments, quantizer_arguments.PostTraining):
                document.warnings.append(f"{each.where}: {section}.{each.name} is used by no policy")
    for policy in policies:
        if getattr(policy.arguments, "keep_mask", False) and policy.ending - 1 not in policy.epochs:
            document.warnings.append(
                f"{policy.where}: policies: {policy.instance.name}: keep_mask does nothing: "
                f"epoch {policy.ending - 1}, the last, is not one of its epochs"
            )


def _known(document: Document, table: Mapping[str, Item], known: typing.Collection[str], what: str) -> None:
    for key, item in table.items():
        if key not in known:
            raise ConfigError(f"{document.where(item.line)}: {what} {_shown(key)}{_hint(key, known)}")


def _table(document: Document, item: Item, what: str) -> dict[str, Item]:
    if item.value is None:
        return {}
    if item.table is None:
        raise ConfigError(f"{document.where(item.line)}: {what} must be a table, not {_shown(item.plain())}")
    return item.table


def _list(document: Document, item: Item, what: str) -> list[Item]:
    if item.value is None:
        return []
    if not isinstance(item.value, list):
        raise ConfigError(f"{document.where(item.line)}: {what} must be a list, not {_shown(item.plain())}")
    return item.value


def _hint(value: object, known: typing.Collection[str]) -> str:
    """`, did you mean 'x'?`, or what is known, as far as it fits a line."""
    return textwrap.shorten(did_you_mean(str(value)[: config.SHOWN], known), documents.LONGEST, placeholder=" …")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= config.SHOWN else f"{text[: config.SHOWN]}…"
