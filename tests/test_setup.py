"""The set-up decides before it installs: which extras, which build of torch, and whether anything is to be done."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("edgecompress_setup", ROOT / "scripts" / "setup.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


setup = _load()


def recorded(name: str) -> str:
    """What `uv pip install --dry-run torch==2.13.0` printed on Linux."""
    return (ROOT / "tests" / "data" / f"uv-dry-run-{name}.txt").read_text()


def test_a_cpu_wheel_is_taken() -> None:
    assert setup.CUDA.search(recorded("cpu")) is None


def test_the_torch_of_the_public_index_is_refused_on_linux() -> None:
    assert setup.CUDA.search(recorded("cuda"))[1] == "cuda-bindings"


@pytest.mark.parametrize("build", ["cu130", "rocm6.4", "xpu"])
def test_a_build_for_another_accelerator_is_refused(build: str) -> None:
    assert setup.CUDA.search(recorded("cpu").replace("+cpu", f"+{build}"))[1] == f"torch==2.13.0+{build}"


@pytest.mark.parametrize("package", ["nvidia-cublas-cu12==12.8", "triton==3.7.1", "pytorch-triton-rocm==3.1"])
def test_each_package_of_an_accelerator_is_seen(package: str) -> None:
    assert setup.CUDA.search(f"{recorded('cpu')} + {package}\n")[1] == package.partition("==")[0]


@pytest.mark.parametrize("package", ["tritonclient==2.5", "torch-pruning==1.6.1+cu1", "pycuda==2025.1"])
def test_a_name_that_only_resembles_one_is_not_taken_for_it(package: str) -> None:
    assert setup.CUDA.search(f"{recorded('cpu')} + {package}\n") is None


def test_uv_looks_where_pip_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in setup.SETTINGS.values():
        monkeypatch.delenv(name, raising=False)
    config = (
        ":env:.find-links='/wheels'\n"
        "global.extra-index-url='https://one.example/simple\\nhttps://user:secret@two.example/simple'\n"
        "global.find-links='/other'\n"
        "global.timeout='60'\n"
        "install.trusted-host='two.example'\n"
    )
    assert setup.uv_settings(config) == {
        "UV_FIND_LINKS": "/wheels",
        "UV_INDEX": "https://one.example/simple https://user:secret@two.example/simple",
        "UV_INSECURE_HOST": "two.example",
    }


def test_a_variable_of_uv_goes_before_what_pip_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    assert setup.uv_settings("global.index-url='https://pip.example/simple'") == {}


def test_extras_of_the_x86_target_are_its_runtimes_torch_and_what_packs_it() -> None:
    found, _ = setup.target_extras("x86", sys.executable)
    assert found == ("executorch", "litert", "onnx", "openvino", "package", "torch")


def test_extras_are_told_by_a_python_that_has_nothing_installed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "from edgecompress.pipeline.requirements import main; sys.exit(main())"
    )
    told = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(ROOT), "x86"], capture_output=True, text=True)
    assert (told.returncode, told.stdout.splitlines()[0]) == (0, "executorch,litert,onnx,openvino,package,torch"), (
        told.stderr
    )


def test_an_unknown_target_ends_the_setup_with_a_suggestion(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        setup.target_extras("x68", sys.executable)
    assert ended.value.code == 2
    assert capfd.readouterr().err.strip().endswith("no target 'x68', did you mean 'x86'?")


@pytest.mark.parametrize(
    ("extras", "torch"), [(("onnx", "openvino"), False), (("images",), False), ((), False), (("prune",), True)]
)
def test_torch_is_installed_only_where_an_extra_needs_it(extras: tuple[str, ...], torch: bool) -> None:
    assert setup.needs_torch(extras) is torch


def test_a_pin_is_the_constraint_without_its_hashes() -> None:
    text = "torch-pruning==1.6.1\ntorch==2.13.0\ntorchao==0.18.0\nuv==0.13.9 \\\n    --hash=sha256:00\n"
    assert (setup.pin("torch", text), setup.pin("uv", text)) == ("torch==2.13.0", "uv==0.13.9")


def test_a_pin_that_is_missing_ends_the_setup() -> None:
    with pytest.raises(SystemExit, match="no line 'torch==VERSION'"):
        setup.pin("torch", "torch-pruning==1.6.1\n")


def state(files: str = "a", torch: str = "cpu", extras: tuple[str, ...] = ("onnx",)) -> Any:
    return setup.State(files, torch, extras)


def test_a_venv_with_more_than_is_wanted_is_left_alone() -> None:
    assert state(extras=("dev", "onnx")).covers(state())


@pytest.mark.parametrize("wanted", [state(files="b"), state(torch="gpu"), state(extras=("dev", "onnx"))])
def test_a_change_of_versions_build_or_extras_sets_up_again(wanted: Any) -> None:
    assert not state().covers(wanted)


def test_what_is_there_stays_when_more_is_wanted() -> None:
    assert state(extras=("dev",)).joined(state(files="b")) == state("b", extras=("dev", "onnx"))


def test_a_stamp_that_is_missing_or_torn_means_nothing_is_there(tmp_path: Path) -> None:
    torn = tmp_path / "stamp"
    torn.write_text('{"files": "a", "tor')
    assert setup.read_state(torn) == setup.read_state(tmp_path / "none") == setup.NOTHING


def test_torch_of_another_version_or_build_is_not_taken_for_the_pinned_one(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    venv = setup.Venv(tmp_path)
    assert venv.has_torch("torch==2.13.0", "cpu")
    assert not venv.has_torch("torch==2.14.0", "cpu")
    assert not venv.has_torch("torch==2.13.0", "gpu")
    (packages / "nvidia").mkdir()
    assert not venv.has_torch("torch==2.13.0", "cpu")


def test_this_environment_has_no_cuda_package_unless_its_torch_is_a_gpu_build() -> None:
    names = {d.metadata["Name"].lower() for d in metadata.distributions()}
    gpu_builds = {n for n in names if n.startswith(("nvidia-cu", "nvidia-nccl")) or n == "triton"}
    assert not gpu_builds or setup.read_state(Path(sys.prefix) / "edgecompress-setup.json").torch == "gpu"


def test_a_target_that_no_torch_net_reaches_is_asked_for_what_packs_it(tmp_path: Path) -> None:
    target = tmp_path / "null.toml"
    target.write_text('description = "n"\nruntime = "null"\n[[variant]]\nname = "plain"\n')
    assert setup.target_extras(str(target), sys.executable) == (("package",), False)
