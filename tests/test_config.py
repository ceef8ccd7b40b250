"""Strict TOML: every mistake has its address and a suggestion; every value knows where it came from."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from edgecompress.core import catalog, config, source
from edgecompress.core.errors import ConfigError, InputError, NotFound
from edgecompress.core.settings import Profile, Target, Variant, is_factory
from edgecompress.pipeline import verification
from edgecompress.pipeline.job import job
from edgecompress.pipeline.job_request import device_of

TARGET = """
description = "test"
runtime = "null"
[limits]
items_lost = 2
[[variant]]
name = "a"
compress = [{ use = "x", ratio = 0.5 }]
"""


@dataclass(frozen=True)
class Inner:
    depth: int = 1


@dataclass(frozen=True)
class Outer:
    ratio: float
    mode: Literal["fast", "small"] = "fast"
    names: tuple[str, ...] = ()
    inner: Inner = Inner()
    maybe: int | None = None

    def __post_init__(self) -> None:
        if self.ratio > 1:
            raise ValueError("ratio is at most 1")


@pytest.mark.parametrize(
    ("told", "least"),
    [
        ({}, 60.0),
        ({"limits.sqnr_db": 30.0}, 30.0),
        ({"variant.fp32.limits.sqnr_db": 20.0}, 20.0),
        ({"limits.sqnr_db": 30.0, "variant.fp32.limits.sqnr_db": 20.0}, 20.0),
        ({"limits.cosine": 0.5}, 60.0),
    ],
)
def test_a_limit_of_the_command_line_holds_for_a_variant_with_its_own(told: dict[str, float], least: float) -> None:
    asked = job(None, "x86", settings=told)
    variants = {variant.name: variant for variant in asked.target.value.variant}
    assert verification.limits(asked, variants["fp32"]).sqnr_db == least
    assert verification.limits(asked, variants["int8"]).sqnr_db == told.get("limits.sqnr_db")


@pytest.mark.parametrize(
    ("own", "told", "cosine"),
    [({}, {}, None), ({"cosine": 0.8}, {}, 0.8), ({}, {"limits.cosine": 0.9}, 0.9), ({"size_bytes": 9}, {}, None)],
)
def test_what_is_trained_need_not_answer_as_the_source_unless_it_or_the_command_line_says_so(
    own: dict[str, float], told: dict[str, float], cosine: float | None
) -> None:
    asked = job(None, "x86", settings=told)
    trained = Variant("trained", compress=({"use": "finetune"}, {"use": "int8"}), limits=own)
    found = verification.limits(asked, trained)
    assert (found.cosine, found.items_lost) == (cosine, asked.target.value.limits.items_lost)
    assert verification.limits(asked, Variant("int8", compress=({"use": "int8"},))).cosine == told.get(
        "limits.cosine", 0.95
    )


def test_a_table_becomes_a_dataclass() -> None:
    built = config.build(Outer, {"ratio": 1, "names": ["x"], "inner": {"depth": 2}, "maybe": 3}, "t.toml")
    assert built == Outer(1.0, "fast", ("x",), Inner(2), 3)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"raito": 0.5}, "t.toml: unknown key 'raito', did you mean 'ratio'?"),
        ({}, "t.toml: key 'ratio' is missing; it must be a number"),
        ({"ratio": "half"}, "t.toml: ratio: must be a number, not 'half'"),
        ({"ratio": True}, "t.toml: ratio: must be a number, not True"),
        ({"ratio": 0.5, "mode": "fats"}, "t.toml: mode: 'fats' is not a valid value, did you mean 'fast'?"),
        ({"ratio": 0.5, "names": ["x", 1]}, "t.toml: names[1]: must be a string, not 1"),
        ({"ratio": 0.5, "inner": {"dept": 1}}, "t.toml: inner: unknown key 'dept', did you mean 'depth'?"),
        ({"ratio": 0.5, "maybe": 1.5}, "t.toml: maybe: must be a whole number, not 1.5"),
        ({"ratio": 2}, "t.toml: ratio is at most 1"),
    ],
)
def test_every_mistake_has_its_address_and_a_suggestion(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.build(Outer, table, "t.toml")
    assert str(error.value) == message


def test_a_broken_toml_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("a = \n")
    with pytest.raises(ConfigError, match=r"t\.toml: not valid TOML: .*line 1"):
        config.read_toml(tmp_path / "t.toml")


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("true", True), ("entropy", "entropy"), ("[1, 2]", [1, 2])])
def test_a_set_value_is_toml_or_else_text(text: str, value: Any) -> None:
    assert config.from_text(text) == value


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "t.toml").write_text(TARGET)
    return str(tmp_path / "t.toml")


def test_a_setting_over_a_variant_reaches_the_option_of_its_step(target: str) -> None:
    found = catalog.target(target, {"variant.a.ratio": 0.7, "limits.items_lost": 3, "variant.a.reference": True})
    assert found.value.variant[0].compress == ({"use": "x", "ratio": 0.7},)
    assert found.value.variant[0].reference
    origins = {s.key: (s.value, s.origin) for s in found.settings}
    assert origins["variant[0].compress[0].ratio"] == (0.7, "command line")
    assert origins["variant[0].compress[0].use"] == ("x", "t.toml")
    assert origins["limits.items_lost"] == (3, "command line")
    assert origins["limits.cosine"] == (None, "default")


def test_a_setting_names_the_step_where_a_variant_has_several(tmp_path: Path) -> None:
    steps = '[{ use = "prune", macs = 0.5 }, { use = "finetune" }]'
    (tmp_path / "t.toml").write_text(
        TARGET.partition("[[variant]]")[0] + f'[[variant]]\nname = "a"\ncompress = {steps}\n'
    )
    found = catalog.target(str(tmp_path / "t.toml"), {"variant.a.finetune.epochs": 3})
    assert found.value.variant[0].compress[1] == {"use": "finetune", "epochs": 3}
    with pytest.raises(
        ConfigError, match=r"which one is meant\? Write variant\.a\.STEP\.epochs, STEP one of prune, fine"
    ):
        catalog.target(str(tmp_path / "t.toml"), {"variant.a.epochs": 3})


def test_a_setting_for_an_unknown_variant_is_refused_with_a_suggestion(target: str) -> None:
    with pytest.raises(ConfigError, match=r"--set variant\.b: no such variant in .*t\.toml; known: a"):
        catalog.target(target, {"variant.b.ratio": 0.7})


def test_a_setting_in_an_unknown_group_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match=r"--set limit\.items_lost: .* did you mean 'limits'"):
        job(None, target, settings={"limit.items_lost": 1})


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(NotFound, match="no target 'x68', did you mean 'x86'"):
        catalog.target("x68")


@pytest.mark.parametrize("kind", sorted(catalog.KINDS))
def test_every_shipped_file_is_valid(kind: str) -> None:
    found = catalog.names(kind)
    assert found
    for name in found:
        path = catalog.path_of(kind, name)
        assert config.build(catalog.KINDS[kind], config.read_toml(path), str(path)).description


def test_two_variants_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two variants are named 'a'"):
        config.build(
            Target, {"description": "", "runtime": "null", "variant": [{"name": "a"}, {"name": "a"}]}, "t.toml"
        )


def test_paths_of_a_source_toml_are_relative_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "source.toml").write_text('model = "net.null"\ndata = "data.npz"\n')
    value = catalog.source(str(tmp_path / "source.toml"), {"metric": "none"}).value
    assert (value.model, value.data) == (str(tmp_path / "net.null"), str(tmp_path / "data.npz"))
    assert value.metric == "none"


def test_paths_on_the_command_line_are_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source.toml").write_text('model = "net.null"\ndata = "data.npz"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    value = catalog.source("../source.toml", {"data": "mine.npz"}).value
    assert (value.model, value.data) == (str(tmp_path / "net.null"), str(tmp_path / "elsewhere" / "mine.npz"))
    assert catalog.source(None, {"data": "mine.npz"}).value.data == str(tmp_path / "elsewhere" / "mine.npz")


@pytest.mark.parametrize(
    ("text", "factory"), [("a.b:c", True), ("a:b", True), ("/x/y.onnx", False), ("C:net.onnx", False), ("a-b:c", False)]
)
def test_a_factory_is_told_from_a_file(text: str, factory: bool) -> None:
    assert is_factory(text) is factory


def test_a_source_is_resolved_once_and_reaches_a_worker_as_json_of_its_class(tmp_path: Path) -> None:
    (tmp_path / "net.null").touch()
    table = {"data": "nets:data", "metric": "top1", "labels": ["a"], "preprocess": {"crop": 8}, "augment": ["flip"]}
    resolved = source.resolved(catalog.source(str(tmp_path / "net.null"), table).value)
    assert (resolved.kind, resolved.call, resolved.runtime) == ("null", "runtimes.null:read", "null")
    assert (resolved.files("model"), resolved.files("data")) == ((str(tmp_path / "net.null"),), ())
    there = source.read(json.loads(json.dumps(resolved.for_data(augment=True))))
    assert there == resolved
    factory = source.resolved(catalog.source("nets:build", {"data": "random"}).value)
    assert (factory.kind, factory.files("model"), factory.files("data"), factory.title) == (
        "module",
        (),
        (),
        "nets:build",
    )
    assert source.read(json.loads(json.dumps(factory.for_model()))).model == "nets:build"


def test_a_key_of_an_older_version_is_answered_with_its_name_of_today() -> None:
    with pytest.raises(ConfigError) as caught:
        config.build(Profile, {"description": "d", "passes": {"cold": {}}}, "mine.toml")
    assert str(caught.value) == "mine.toml: 'passes' was renamed to 'profilers' in edgecompress 0.2; use the new name"


LONG = ("title=1" + "0" * 900_000, 'title = "' + "a-" * 400_000 + '"', "a." * 400_000, '"' * 900_000)


@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:12])
def test_a_long_line_is_read_or_refused_at_once(text: str, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(text)
    begin = time.process_time()
    with contextlib.suppress(ConfigError):
        config.read_toml(tmp_path / "long.toml")
    assert time.process_time() - begin < 5, "the limit that the docs promise"


DEVICES = "arm64=qemu-cortex-a76, x86=host"


@pytest.mark.parametrize(("target", "device"), [("arm64", "qemu-cortex-a76"), ("x86", "host"), ("ios", None)])
def test_each_of_several_targets_may_have_a_device_of_its_own(target: str, device: str | None) -> None:
    assert device_of(DEVICES, target) == device
    assert device_of({"arm64": "qemu-cortex-a76", "x86": "host"}, target) == device
    assert device_of("host", target) == "host"


def test_a_device_of_a_target_that_nobody_asks_for_is_refused() -> None:
    with pytest.raises(InputError, match="--device arm=host: no target 'arm' is asked for, did you mean 'arm64'"):
        device_of("arm=host", "arm64", ["arm64", "x86"])


def test_a_device_of_another_platform_is_refused_before_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgecompress.pipeline.job.context", lambda *_: pytest.fail("it was reached"))
    with pytest.raises(InputError, match=r"it is linux-aarch64, target x86 runs on .*--device x86=DEVICE"):
        job(target="x86", device="qemu-cortex-a76")
