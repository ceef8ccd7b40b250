"""The plan is pure: it resolves names, kinds and options before anything runs, and says what cannot work."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import nulls
import pytest

from edgecompress import plan, registry, routes
from edgecompress.errors import ConfigError, InputError, MissingDependency, NoPath, NotFound
from edgecompress.job import Job, job


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, str]:
    return nulls.make(tmp_path)


def planned(asked: dict[str, str], variants: str = "", **more: object) -> plan.Plan:
    target = Path(asked["target"])
    target.write_text(nulls.TARGET + variants)
    return plan.deploy(job(**{**asked, **more}))  # type: ignore[arg-type]


def demo(target: str = "x86", **more: object) -> Job:
    return job(None, target, **more)  # type: ignore[arg-type]


def test_stages_come_in_an_order_in_which_each_finds_its_inputs(asked: dict[str, str]) -> None:
    for made in (planned(asked), plan.deploy(demo())):
        seen: set[str] = set()
        for stage in made.stages:
            assert set(stage.inputs.values()) <= seen
            seen.add(stage.name)


def test_the_plan_is_the_same_each_time_and_touches_nothing(asked: dict[str, str], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert planned(asked) == planned(asked)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_demo_for_x86_shares_trace_and_export_between_variants() -> None:
    made = plan.deploy(demo())
    names = [s.name for s in made.stages]
    assert names.count("trace") == 1
    assert names.count("export-onnx") == 1
    assert "int8/ptq_int8" in names
    assert "openvino-int8/nncf_int8" in names
    assert next(s for s in made.stages if s.name == "export-openvino").variants == ("openvino-int8", "openvino-fp32")


def test_an_unknown_precision_suggests_the_nearest(asked: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=r"null\.toml: variant b: compress\[0\]: no technique .*'int88', did you mean"
    ):
        planned(asked, '[[variant]]\nname = "b"\ncompress = [{ use = "int88" }]\n')


def test_a_kind_that_cannot_be_reached_is_said_before_anything_runs(asked: dict[str, str]) -> None:
    made = planned(asked, '[[variant]]\nname = "b"\nruntime = "onnx"\n')
    assert made.race.left_out == {"b": "no path from null to onnx; give another source or runtime"}
    with pytest.raises(NoPath, match="variant b: no path from null to onnx"):
        planned(asked, '[[variant]]\nname = "b"\nruntime = "onnx"\n', only=("b",))


def test_a_typo_in_an_option_of_a_technique_is_found_with_its_place() -> None:
    with pytest.raises(
        ConfigError, match=r"variant int8: compress\[0\] \(ptq_int8\): unknown key 'calibratr', did you mean"
    ):
        plan.deploy(demo(settings={"variant.int8.calibratr": "entropy"}))


def test_only_keeps_the_named_variants_and_refuses_unknown_ones() -> None:
    assert [r.variant.name for r in plan.deploy(demo(only=("fp32",))).routes] == ["fp32"]
    with pytest.raises(NotFound, match=r"--only int9: .* did you mean 'int8'"):
        plan.deploy(demo(only=("int9",)))


def test_a_runtime_that_is_not_installed_says_what_to_type_and_what_goes_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from edgecompress import envs

    real = envs.version
    monkeypatch.setattr(envs, "version", lambda p: None if p == "openvino" else real(p))
    with pytest.raises(MissingDependency) as error:
        plan.deploy(demo())
    assert "pip install 'edgecompress[openvino]'" in str(error.value)
    assert "--only int8,litert-int8,executorch-int8,int8-dynamic," in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "nowhere.onnx"}, "nowhere.onnx: no such model file"),
        ({"model": "net.h5"}, "a model is a factory pkg.mod:fn, a SavedModel, or a file ending in .*onnx"),
        ({"data": ""}, "no data to calibrate and verify with; give --data"),
        ({"data": "nowhere.npz"}, "nowhere.npz: no such data"),
        ({"model": "net:build", "data": "random"}, "a torch source is loaded with samples; give real data"),
        ({"model": "net.pt2", "data": "random"}, "a torch source is loaded with samples; give real data"),
    ],
)
def test_input_that_cannot_work_is_refused_at_once(
    asked: dict[str, str], change: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(asked["model"]).parent)
    Path("net.pt2").touch()
    with pytest.raises(InputError, match=message):
        planned({**asked, **change})


def test_random_data_is_made_from_the_inputs_of_the_model(asked: dict[str, str]) -> None:
    made = planned(asked, data="random")
    assert [s.name for s in made.stages][:2] == ["source", "data"]
    assert next(s for s in made.stages if s.name == "data").inputs == {"source": "source"}


def test_threads_are_hidden_from_stages_whose_result_they_do_not_change() -> None:
    for stage in plan.deploy(demo()).stages:
        assert ("threads" in stage.context) == stage.call.startswith(("stages.verify", "stages.measure"))


def test_the_extras_of_x86_are_those_of_its_plug_ins() -> None:
    from edgecompress import catalog, envs

    assert envs.extras(routes.plugins(catalog.target("x86").value)) == [
        "executorch",
        "litert",
        "onnx",
        "openvino",
        "torch",
    ]


def test_the_bound_of_the_search_is_printed_and_covers_its_rounds(asked: dict[str, str]) -> None:
    race = planned(asked, profile="standard").race
    assert race.bound().startswith("at most 6 rounds, 6 sessions of 1 variants, about ")
    assert dataclasses.replace(race, profile=race.profile).estimate_s() == race.estimate_s() > 6 * 13


def test_no_technique_is_called_like_a_precision_that_another_provides() -> None:
    """`use = "fp16"` would mean the technique, whatever the format."""
    every = dict(registry.every("techniques"))
    assert not {name for name in every for other, m in every.items() if name == m.PROVIDES and other != name}


def test_a_variant_that_the_source_does_not_reach_is_left_out_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"read later")
    (tmp_path / "x.npy").write_bytes(b"read later")
    made = plan.deploy(job(str(tmp_path / "net.onnx"), "x86", data=str(tmp_path)))
    assert [r.variant.name for r in made.routes] == ["int8", "openvino-int8", "int8-dynamic", "fp32", "openvino-fp32"]
    assert made.race.left_out["litert-fp32"].startswith("no path from onnx to tflite")
    with pytest.raises(NoPath, match=r"x86\.toml: variant executorch-fp32: no path from onnx to pte"):
        plan.deploy(job(str(tmp_path / "net.onnx"), "x86", data=str(tmp_path), only=["executorch-fp32"]))
