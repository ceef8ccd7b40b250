"""The plan is pure: it resolves names, kinds and options before anything runs, and says what cannot work."""

from __future__ import annotations

from pathlib import Path

import nulls
import pytest

from edgecompress.commands import report_request
from edgecompress.core import environments, package_files, registry
from edgecompress.core.errors import ConfigError, InputError, MissingDependency, NoPath, NotFound
from edgecompress.core.model import Goal, Stage, seconds
from edgecompress.pipeline import conversion, plan
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.searches.race import START_S
from edgecompress.pipeline.searches.strength import Fit
from edgecompress.pipeline.variant_stages import EPOCH_S


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


CHAIN = """description = "t"
runtime = "onnx"
[[variant]]
name = "small"
compress = [{ use = "distill", student = "edgecompress.demo.net:build", teacher = "assistant" }, { use = "int8" }]
[[variant]]
name = "assistant"
compress = [{ use = "distill", student = "edgecompress.demo.net:build" }, { use = "int8" }]
"""


@pytest.mark.parametrize("only", ["small", "small,assistant"])
def test_a_teacher_may_be_the_net_of_another_variant(tmp_path: Path, only: str) -> None:
    (tmp_path / "chain.toml").write_text(CHAIN)
    made = plan.deploy(demo(str(tmp_path / "chain.toml"), only=only))
    stages = {stage.name: stage for stage in made.stages}
    assert [name for name in stages if name.endswith("distill")] == ["assistant/distill", "small/distill"]
    assert stages["small/distill"].inputs["dense"] == "assistant/distill"
    assert stages["assistant/distill"].inputs["dense"] == stages["small/distill"].inputs["model"] == "source"
    assert ("assistant/ptq_int8" in stages) == ("," in only)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"assistant" }', '"asistant" }', "teacher = 'asistant': no such variant, did you mean 'assistant'"),
        ('"assistant" }', '"small" }', "teacher = 'small': it learns from small itself"),
        ('build" }, {', 'build", teacher = "small" }, {', "teacher = 'small': it learns from assistant itself"),
    ],
)
def test_a_teacher_that_cannot_be_is_refused(tmp_path: Path, before: str, after: str, said: str) -> None:
    (tmp_path / "chain.toml").write_text(CHAIN.replace(before, after))
    with pytest.raises(ConfigError, match=said):
        plan.deploy(demo(str(tmp_path / "chain.toml")))


def test_an_unknown_precision_suggests_the_nearest(asked: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=r"null\.toml: variant b: compress\[0\]: no technique .*'int88', did you mean"
    ):
        planned(asked, '[[variant]]\nname = "b"\ncompress = [{ use = "int88" }]\n')


def test_a_kind_that_cannot_be_reached_is_said_before_anything_runs(asked: dict[str, str]) -> None:
    made = planned(asked, '[[variant]]\nname = "b"\nruntime = "onnx"\n')
    assert made.race.left_out == {
        "b": "no path from null to onnx; give another source (a factory pkg.mod:fn, .pt2, .onnx, .keras) or runtime"
    }
    with pytest.raises(NoPath, match="variant b: no path from null to onnx"):
        planned(asked, '[[variant]]\nname = "b"\nruntime = "onnx"\n', only=("b",))


def test_only_keeps_the_named_variants() -> None:
    assert [c.name for c in plan.deploy(demo(only=("fp32",))).candidates] == ["fp32"]


@pytest.mark.parametrize(
    ("target", "name", "runtime", "technique"),
    [
        ("x86", "int4", "onnx", "onnx_int4"),
        ("x86", "openvino-int4", "openvino", "nncf_int4"),
        ("x86", "executorch-int4", "executorch", "torchao_int4"),
        ("arm64", "int4", "litert", "litert_int4"),
        ("arm64", "fp16", "litert", "litert_fp16"),
        ("macos", "int4", "coreml", "coreml_int4"),
    ],
)
def test_a_precision_is_a_variant_where_a_technique_gives_it_to_a_runtime_of_the_target(
    target: str, name: str, runtime: str, technique: str
) -> None:
    (candidate,) = plan.deploy(job(target=target, only=name)).candidates
    assert (candidate.name, candidate.runtime) == (name, runtime) and f"{name}/{technique}" in candidate.made


def test_a_precision_without_a_technique_is_no_variant() -> None:
    for target, name in (("macos", "int8"), ("x86", "sparse"), ("arm64", "openvino-int4")):
        with pytest.raises(NotFound, match=f"--only {name}: .*{target}.toml has no such variant"):
            plan.deploy(job(target=target, only=name))


def test_of_several_targets_a_precision_is_a_variant_where_none_has_one_of_that_name() -> None:
    def made(only: str) -> list[list[str]]:
        plans, _ = plan.deploy_all(["x86", "ios"], lambda name: job(target=name, only=only))
        return [[c.name for c in steps.candidates] for _, steps in plans]

    assert made("int8,fp16") == [["int8"], ["fp16"]] and made("int4") == [["int4"], ["int4"]]


def test_a_runtime_that_is_not_installed_says_what_to_type_and_what_goes_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from edgecompress.core import environments

    real = environments.version
    monkeypatch.setattr(environments, "version", lambda p: None if p == "openvino" else real(p))
    with pytest.raises(MissingDependency) as error:
        plan.deploy(demo())
    assert package_files.install("openvino") in str(error.value)
    assert "--only int8,litert-int8,executorch-int8,int8-dynamic," in str(error.value)
    assert error.value.exit_code == 2


def test_one_error_names_all_extras_that_are_lacking_and_warns_of_torchs_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgecompress.core import environments

    real = environments.version
    gone = {"torch", "openvino", "onnxruntime"}
    monkeypatch.setattr(environments, "version", lambda p: None if p in gone else real(p))
    with pytest.raises(MissingDependency) as error:
        plan.deploy(demo(only=("int8", "openvino-int8")))
    assert package_files.install("onnx,openvino,torch") in str(error.value)
    assert "uv pip install torch --torch-backend=cpu" in str(error.value)


def test_the_extras_that_bring_no_torch_are_those_of_the_project_file() -> None:
    import tomllib

    from edgecompress.core import environments

    project = Path(__file__).parent.parent / "pyproject.toml"
    extras = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    def brings(extra: str) -> bool:
        inner = [r.partition("[")[2].rstrip("]").split(",") for r in extras[extra] if r.startswith("edgecompress[")]
        return extra == "torch" or any(brings(name) for names in inner for name in names)

    assert [extra for extra in extras if not brings(extra)] == [e for e in extras if not environments.brings_torch(e)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model": "net.tf"},
            "net.tf: no such file or folder; a model must be a factory pkg.mod:fn, a SavedModel, a Hugging Face "
            "folder, or a file ending in .*onnx",
        ),
        ({"model": "net:build", "data": "random"}, "a torch source cannot be loaded without samples; give real data"),
        ({"model": "net.pt2", "data": "random"}, "a torch source cannot be loaded without samples; give real data"),
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
        assert ("threads" in stage.context) == stage.call.startswith(("stages.verify", "stages.latency"))


def test_the_extras_of_x86_are_those_of_its_plug_ins() -> None:
    from edgecompress.core import catalog, environments

    assert environments.extras(conversion.plugins(catalog.target("x86").value)) == [
        "executorch",
        "litert",
        "onnx",
        "openvino",
        "torch",
    ]


def test_the_bound_of_the_search_is_printed_and_covers_its_rounds(asked: dict[str, str]) -> None:
    race = planned(asked, profile="standard").race
    assert race.bound().startswith(
        "at most 9 rounds of 1 variant; a variant that fails verification or cannot win any more leaves; about "
    )
    p = race.profile
    assert race.estimate_s() > p.sessions * (START_S + p.warmup_s + p.window_s)


def test_no_technique_is_called_like_a_precision_that_another_provides() -> None:
    """`use = "fp16"` would mean the technique, whatever the format."""
    every = dict(registry.every("techniques"))
    assert not {name for name in every for other, m in every.items() if name == m.PROVIDES and other != name}


def test_a_variant_that_the_source_does_not_reach_is_left_out_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(b"read later")
    (tmp_path / "x.npy").write_bytes(b"read later")
    made = plan.deploy(job(str(tmp_path / "net.tflite"), "x86", data=str(tmp_path)))
    assert [c.name for c in made.candidates] == ["litert-int8", "litert-int8-dynamic", "litert-fp32"]
    assert made.race.left_out["openvino-fp32"].startswith("no path from tflite to openvino")
    row = dict(made.race.step({}).table)["openvino-fp32"]
    assert row["verdict"] == "unreached" and row["reason"] == made.race.left_out["openvino-fp32"]
    asked = job(str(tmp_path / "net.tflite"), "x86", data=str(tmp_path))
    assert "ai-edge-litert" in report_request._versions(asked, plan.ranking(asked, ())), (
        "what was not reached is in no report's way"
    )
    with pytest.raises(NoPath, match=r"x86\.toml: variant executorch-fp32: no path from tflite to pte"):
        plan.deploy(job(str(tmp_path / "net.tflite"), "x86", data=str(tmp_path), only=["executorch-fp32"]))


def test_a_file_is_imported_only_where_the_libraries_for_that_are_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.onnx").write_bytes(b"read later")
    (tmp_path / "x.npy").write_bytes(b"read later")
    asked = job(str(tmp_path / "net.onnx"), "x86", data=str(tmp_path))
    assert len(plan.deploy(asked).candidates) == len(asked.target.value.variant)
    here = environments.missing
    monkeypatch.setattr(environments, "missing", lambda m: ["torch"] if "torch" in m.REQUIRES else here(m))
    made = plan.deploy(asked)
    assert [c.name for c in made.candidates] == ["int8", "openvino-int8", "int8-dynamic", "fp32", "openvino-fp32"]
    assert "stage 'onnx_import' needs torch, not installed; run: pip install" in made.race.left_out["litert-fp32"]


# --------------------------------------------------------------------------- compression before the format

PRUNED = """
[[variant]]
name = "pruned"
compress = [{strength}, {{ use = "finetune", epochs = 1 }}, {{ use = "int8" }}]

[[variant]]
name = "fp32"
reference = true
"""


def compressing(folder: Path, strength: str, **more: object) -> plan.Plan:
    file = folder / "target.toml"
    head = 'description = "d"\nruntime = "litert"\nplatforms = ["*-x86_64", "*-amd64"]\n'
    file.write_text(head + PRUNED.format(strength=strength))
    return plan.deploy(demo(str(file), **more))


def test_a_strength_to_be_measured_is_a_search_in_the_place_of_its_stage(tmp_path: Path) -> None:
    made = compressing(tmp_path, '{ use = "prune_channels", latency_ratio = 0.6, align = 8 }')
    found = next(s for s in made.stages if isinstance(s, Fit))
    assert (found.name, found.goal, found.variants) == ("pruned/prune_channels", Goal("ratio", 0.6), ("pruned",))
    assert [s.call for s in found.rest] == [
        "stages.trace:run",
        "runtimes.litert:export",
        "techniques.litert_int8:apply",
    ]
    assert next(s for s in made.stages if s.name == "pruned/finetune").inputs["model"] == found.name
    assert "until 0.6 of the dense net's latency is met" in found.bound()


def test_training_has_data_of_its_own_and_days_of_time(tmp_path: Path) -> None:
    made = compressing(tmp_path, '{ use = "prune_channels", macs = 0.5, align = 8 }')
    stages = {s.name: s for s in made.stages if isinstance(s, Stage)}
    inputs = {"model": "pruned/prune_channels", "samples": "data", "dense": "source", "training": "training"}
    assert stages["pruned/finetune"].inputs == inputs
    assert stages["pruned/finetune"].timeout_s > 86400 and stages["pruned/finetune"].user_code


def test_equal_steps_of_two_variants_are_estimated_once_and_training_by_its_epochs(tmp_path: Path) -> None:
    def estimated(*variants: str, epochs: int = 10) -> float:
        target, train = tmp_path / "t.toml", f'{{ use = "finetune", epochs = {epochs} }}'
        tables = (f'[[variant]]\nname = "{name}"\ncompress = [{train}]\n' for name in variants)
        target.write_text('description = "t"\nruntime = "onnx"\n' + "".join(tables), encoding="utf-8")
        stages = plan.deploy(demo(str(target))).stages
        return sum(map(seconds, plan._once(stages)))

    one = estimated("a")
    assert estimated("a", "b") - one < EPOCH_S  # each has a verdict of its own
    assert estimated("a", epochs=20) - one == pytest.approx(10 * EPOCH_S)


def test_the_channel_block_is_the_devices_or_measured(tmp_path: Path) -> None:
    strength = '{ use = "prune_channels", macs = 0.5 }'
    measured = {s.name: s for s in compressing(tmp_path, strength).stages}
    assert measured["pruned/prune_channels"].inputs["block"] == "block/litert-int8"
    device = tmp_path / "mine.toml"
    device.write_text('description = "mine"\n[blocks]\n"litert-int8" = 32\n')
    known = {s.name: s for s in compressing(tmp_path, strength, device=str(device)).stages}
    stage = known["pruned/prune_channels"]
    assert isinstance(stage, Stage) and stage.options["align"] == 32 and "block/litert-int8" not in known


def test_what_cannot_be_measured_here_is_said_before_anything_runs(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.toml"
    body = PRUNED.format(strength='{ use = "prune_channels", latency_ratio = 0.6, align = 8 }')
    elsewhere.write_text('description = "d"\nruntime = "litert"\nplatforms = ["nowhere-*"]\n' + body)
    with pytest.raises(ConfigError, match=r"latency_ratio needs measurements, but this machine is .*; give macs or"):
        plan.deploy(demo(str(elsewhere)))


def test_several_steps_are_pruned_and_trained_in_turns(tmp_path: Path) -> None:
    strength = '{ use = "prune_channels", macs = 0.25, align = 8, steps = 2, between = { epochs = 3 } }'
    made = {s.name: s for s in compressing(tmp_path, strength).stages if isinstance(s, Stage)}
    names = [n for n in made if n.startswith("pruned/")][:4]
    assert names == ["pruned/prune_channels", "pruned/finetune", "pruned/prune_channels-2", "pruned/finetune-2"]
    assert [made[names[0]].options["macs"], made[names[2]].options["macs"]] == [0.5, 0.25]
    assert [made[names[1]].options["epochs"], made[names[3]].options["epochs"]] == [3, 1]


def test_what_zeros_save_as_bytes_is_told_of_sparse_variants_alone(tmp_path: Path) -> None:
    made = compressing(tmp_path, '{ use = "prune_unstructured" }')
    stored = [s for s in made.stages if s.name.endswith("/storage")]
    assert [(s.name, s.inputs, s.variants) for s in stored] == [
        ("pruned/storage", {"model": "pruned/litert_int8"}, ("pruned",))
    ]
    assert next(e for e in made.race.entrants if e.name == "pruned").made[-1] == "pruned/storage"


def test_the_answers_of_a_file_are_of_the_runtime_whose_code_is_in_their_key(asked: dict[str, str]) -> None:
    golden = next(s for s in planned(asked).stages if s.name == "golden")
    assert golden.plugins == ("runtimes.null",)
    assert next(s for s in plan.deploy(demo()).stages if s.name == "golden").plugins == ()


def test_diagnose_names_its_own_option(tmp_path: Path) -> None:
    from edgecompress.commands import diagnose
    from edgecompress.pipeline.job_request import Options

    with pytest.raises(NotFound, match=r"--variant int9: .* has no such variant, did you mean 'int8'"):
        diagnose.diagnose(request=diagnose.DiagnosisRequest(variant="int9"), options=Options(store=tmp_path))
