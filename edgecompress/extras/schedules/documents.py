"""A stranger's YAML as plain values, each with its line; nothing in it is executed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import config, package_files
from edgecompress.core.errors import ConfigError, MissingDependency, brief

if TYPE_CHECKING:
    import yaml

LARGEST = 1 << 17  # bytes of a file: it is parsed in pure Python
DEEPEST = 32  # levels of tables and lists
MOST = 20_000  # values, those that an alias repeats counted again
LONGEST = 500  # characters of a key
TOLD = 200  # characters of what an error repeats
NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+")  # a number in YAML 1.2, a text in 1.1
TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Item:
    """A value and its line: a scalar, a list of items, or a table of items, whose lines are those of their keys."""

    value: object
    line: int

    @property
    def table(self) -> dict[str, Item] | None:
        """Its entries, if it is a table."""
        return self.value if isinstance(self.value, dict) else None

    def plain(self) -> object:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value


@dataclass
class Document:
    """A file: its outermost value, and what is odd about it."""

    path: str
    root: Item = field(init=False)
    warnings: list[str] = field(default_factory=list)

    def where(self, line: int) -> str:
        """What an error about a line begins with."""
        return f"{self.path}: line {line}"


def read(path: Path) -> Document:
    """A YAML file of one document. Raises ConfigError with the line; InputError for what is no file."""
    text = config.read_text(path, LARGEST)
    document = Document(str(path))
    document.root = _Reading(document, text).root()
    return document


@cache
def _loader() -> type[yaml.SafeLoader]:
    try:
        import yaml
    except ImportError as error:
        raise MissingDependency(f"PyYAML is not installed; run: {package_files.install('torch')}") from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no stubs
        """Of plain values only."""

    Loader.add_implicit_resolver(f"{TAG}float", re.compile(f"(?:{NUMBER.pattern})$"), list("-+0123456789"))
    return Loader


class _Reading:
    """One text, from its nodes to items."""

    def __init__(self, document: Document, text: str) -> None:
        self.document = document
        self.text = text
        self.left = MOST

    def root(self) -> Item:
        import yaml

        try:
            self.loader = _loader()(self.text)
            node = self.loader.get_single_node()
            if node is None:
                raise ConfigError(f"{self.document.path}: is empty")
            return self._item(node, 1, 0)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = self.document.where(mark.line + 1) if mark else self.document.path
            raise ConfigError(f"{where}: not valid YAML: {brief(str(error.problem or error.context))}") from error
        except yaml.YAMLError as error:  # a character that YAML does not allow
            raise ConfigError(f"{self.document.path}: not valid YAML: {str(error).splitlines()[0]}") from error
        except RecursionError as error:
            raise ConfigError(f"{self.document.path}: nested more than {DEEPEST} levels deep") from error

    def _item(self, node: yaml.Node, line: int, depth: int) -> Item:
        import yaml

        self.left -= 1
        if self.left < 0 or depth > DEEPEST:
            what = f"more than {MOST} values" if self.left < 0 else f"nested more than {DEEPEST} levels deep"
            raise ConfigError(f"{self.document.where(line)}: {what}")
        own = {yaml.MappingNode: "map", yaml.SequenceNode: "seq"}.get(type(node))
        if own and node.tag != TAG + own:
            raise ConfigError(f"{self.document.where(line)}: the tag {node.tag[:TOLD]!r} is not allowed; remove it")
        if isinstance(node, yaml.MappingNode):
            return Item(self._table(node, depth), line)
        if isinstance(node, yaml.SequenceNode):
            return Item([self._item(each, _line(each), depth + 1) for each in node.value], line)
        try:
            return Item(self.loader.construct_object(node), line)
        except (ValueError, OverflowError) as error:  # a date that there is not, a number of thousands of digits
            raise ConfigError(f"{self.document.where(line)}: not valid YAML: {brief(str(error))}") from error

    def _table(self, node: yaml.MappingNode, depth: int) -> dict[str, Item]:
        table: dict[str, Item] = {}
        for key, item in self._entries(node, depth):
            if key in table:
                where, first = self.document.where(item.line), table[key].line
                self.document.warnings.append(f"{where}: '{key}' was given in line {first} already; the last counts")
            table[key] = item
        return table

    def _entries(self, node: yaml.MappingNode, depth: int) -> Iterator[tuple[str, Item]]:
        import yaml

        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or len(key.value) > LONGEST or not key.value.isprintable():
                raise ConfigError(
                    f"{self.document.where(_line(key))}: a key must be a text of at most {LONGEST} letters"
                )
            yield str(key.value), self._item(value, _line(key), depth + 1)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
