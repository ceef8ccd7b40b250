"""The set-up decides before it installs: which extras, which build of torch, and whether anything is to be done."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from contextlib import nullcontext
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


def uv_settings(pip_config: str) -> Any:
    """What uv is told of the output of `pip config list`."""
    return setup.uv_settings(setup.read_settings(pip_config))


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the person who runs the tests decides."""
    for name in {name for names in setup.SETTINGS.values() for name in names}:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_settings")
def test_uv_looks_where_pip_looks(capsys: pytest.CaptureFixture[str]) -> None:
    config = (
        ":env:.find-links='/wheels'\n"
        ":env:.disable-pip-version-check='1'\n"
        "global.extra-index-url='https://one.example/simple\\nhttps://user:secret@two.example/simple'\n"
        "global.find-links='/other'\n"
        'global.client-cert="/it\'s/me.pem"\n'
        "global.index-url=''\n"
        "global.no-index='false'\n"
        "global.timeout='60'\n"
        "download.cert='/not/for/install.pem'\n"
        "install.trusted-host='two.example'\n"
    )
    settings = {
        "UV_FIND_LINKS": "/wheels",
        "UV_INDEX": "https://one.example/simple https://user:secret@two.example/simple",
        "UV_INSECURE_HOST": "two.example",
        "SSL_CLIENT_CERT": "/it's/me.pem",
        "UV_HTTP_TIMEOUT": "60",
    }
    assert (uv_settings(config), capsys.readouterr().out) == ((settings, []), "")


@pytest.mark.usefixtures("no_settings")
def test_a_proxy_of_pip_is_one_for_every_scheme() -> None:
    settings, _ = uv_settings("global.proxy='http://me:secret@proxy.example:3128'")
    assert set(settings) == {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}


def test_what_uv_has_no_variable_for_is_an_option() -> None:
    config = "global.no-index='true'\ninstall.only-binary='numpy,scipy'\n"
    assert uv_settings(config) == ({}, ["--no-index", "--only-binary=numpy", "--only-binary=scipy"])


def test_a_setting_that_uv_ignores_is_named_without_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert uv_settings("global.keyring-provider='secret'\ninstall.constraint='c.txt'") == ({}, [])
    assert capsys.readouterr().out == "setup: uv ignores these settings of pip: keyring-provider, constraint\n"


def test_a_variable_of_uv_goes_before_what_pip_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    assert uv_settings("global.index-url='https://pip.example/simple'") == ({}, [])


def test_nothing_in_a_folder_above_the_clone_decides_what_is_installed(tmp_path: Path) -> None:
    for folder, text in {
        "": '[project]\nname = "above"\nversion = "1"\n[tool.uv.workspace]\nmembers = ["clone"]\n'
        '[tool.uv.sources]\nstray = { path = "evil" }\n',
        "clone": '[project]\nname = "clone"\nversion = "1"\ndependencies = ["stray"]\n',
        "evil": '[project]\nname = "stray"\nversion = "1"\n',
    }.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "pyproject.toml").write_text(text)
    (tmp_path / "uv.toml").write_text("this ends a uv that reads it")
    (tmp_path / "clone" / "constraints.txt").touch()
    command = setup.module(
        sys.executable, "uv", "pip", "install", "--python", sys.executable, "--dry-run", "--no-index"
    )

    def asked(*options: str) -> str:
        done = subprocess.run([*command, *options, "-e", "."], cwd=tmp_path / "clone", capture_output=True, text=True)
        return done.stderr

    assert f"{tmp_path}/evil" in asked("--no-config")
    assert "stray was not found" in asked(*setup.UV)


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
    assert setup.pin("uv", text, hashes=True) == "uv==0.13.9 \\\n    --hash=sha256:00"


def test_a_pin_that_is_missing_ends_the_setup() -> None:
    with pytest.raises(SystemExit, match="no line 'torch==VERSION'"):
        setup.pin("torch", "torch-pruning==1.6.1\n")


def state(files: str = "a", torch: str = "cpu", extras: tuple[str, ...] = ("onnx",), place: str = "/here") -> Any:
    return setup.State(files, torch, extras, place)


def test_a_venv_with_more_than_is_wanted_is_left_alone() -> None:
    assert state(extras=("dev", "onnx")).covers(state())


@pytest.mark.parametrize("wanted", [state(files="b"), state(torch="gpu"), state(extras=("dev", "onnx"))])
def test_a_change_of_versions_build_or_extras_sets_up_again(wanted: Any) -> None:
    assert not state().covers(wanted)


def test_what_is_there_stays_when_more_is_wanted() -> None:
    assert state(extras=("dev",)).joined(state(files="b")) == state("b", extras=("dev", "onnx"))


def test_an_extra_that_pyproject_no_longer_has_is_dropped() -> None:
    assert state(extras=("gone", "dev")).joined(state()) == state(extras=("dev", "onnx"))


@pytest.fixture
def venv(tmp_path: Path) -> Any:
    """One that is set up, as far as its stamp tells."""
    there = setup.Venv(tmp_path / "venv")
    (there.path / "bin").mkdir(parents=True)
    (there.path / "pyvenv.cfg").touch()
    Path(there.python).symlink_to(sys.executable)
    there.stamp.write_text(json.dumps(setup.asdict(state(place=there.place))))
    return there


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would have run."""
    commands: list[list[str]] = []
    monkeypatch.setattr(setup, "_run", lambda command, **_: commands.append(command) or "")
    return commands


def test_a_venv_is_known_by_its_stamp(venv: Any) -> None:
    assert venv.state() == state(place=venv.place)


def test_a_venv_without_its_python_counts_for_nothing(venv: Any) -> None:
    Path(venv.python).unlink()
    Path(venv.python).symlink_to("/no/such/python")
    assert venv.state() == setup.NOTHING


def test_a_venv_that_was_moved_or_copied_counts_for_nothing(venv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.path.rename(venv.path.parent / "moved")
    assert setup.Venv(venv.path.parent / "moved").state() == setup.NOTHING
    (venv.path.parent / "moved").rename(venv.path)
    monkeypatch.setattr(setup, "ROOT", Path("/another/clone"))
    assert setup.Venv(venv.path).state() == setup.NOTHING


def test_a_stamp_of_an_older_setup_counts_for_nothing(venv: Any) -> None:
    venv.stamp.write_text('{"files": "a", "torch": "cpu", "extras": []}')
    assert venv.state() == setup.NOTHING


def test_an_interrupted_setup_leaves_no_stamp(venv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_run", lambda *_, **__: sys.exit(1))
    with pytest.raises(SystemExit):
        setup.install(venv, venv.state(), state("b"))
    assert venv.state() == setup.NOTHING


def test_what_another_setup_left_is_removed_before_the_venv_is_made(
    venv: Any, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(Path(sys.executable).resolve())
    monkeypatch.setattr(sys, "executable", venv.python)  # as in a shell that has activated it
    venv.create()
    assert [path.name for path in venv.path.iterdir()] == ["pyvenv.cfg"]
    assert ran == [[python, "-P", "-m", "venv", str(venv.path)]]


def test_a_folder_that_is_no_venv_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(SystemExit, match="is not empty and not a virtual environment"):
        setup.Venv(tmp_path).create()
    assert (tmp_path / "thesis.tex").exists()


def test_uv_is_installed_by_its_sha256(venv: Any, ran: list[list[str]]) -> None:
    venv.pip_settings = {}
    venv.install_uv("uv==1 --hash=sha256:00")
    assert "--require-hashes" in ran[0]
    assert Path(ran[0][-1]).read_text() == "uv==1 --hash=sha256:00"


def test_libraries_are_compiled_as_a_stage_cannot_keep_what_it_compiles(
    venv: Any, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.settings, venv.pip_settings = ({}, []), {}
    monkeypatch.setattr(setup.Venv, "has_torch", lambda *_: False)
    monkeypatch.setattr(setup.Venv, "check", lambda *_: None)
    setup.install(venv, venv.state(), state(extras=("onnx", "torch")))
    installs = [command for command in ran if "uv" in command and "--dry-run" not in command]
    assert len(installs) == 2 and all("--compile-bytecode" in command for command in installs)


def wheel(folder: Path, name: str, module: str = "") -> str:
    """Writes a wheel of one module; its sha256."""
    file, info = folder / f"{name}-1-py3-none-any.whl", f"{name}-1.dist-info"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(f"{name}.py", module)
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clone in which uv finds what lies in it, and nothing else."""
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    venv = setup.Venv(tmp_path / "venv")
    venv.python, venv.settings = sys.executable, ({"UV_FIND_LINKS": str(tmp_path)}, ["--no-index"])
    return venv


# Of a name each: no sha256 is checked, another version, another place, another uv, an option that ends it.
HOSTILE = {
    "UV_NO_VERIFY_HASHES": "1",
    "UV_OVERRIDE": "other.txt",
    "UV_CONSTRAINT": "other.txt",
    "UV_EXCLUDE_NEWER": "2000-01-01",
    "UV_TARGET": "elsewhere",
    "UV_CONFIG_FILE": "none.toml",
    "UV_TORCH_BACKEND": "cu130",
    "UV_INSECURE_NO_ZIP_VALIDATION": "1",
    "PYTHONPATH": ".",
    "PYTHONHOME": "/nowhere",
}


def test_no_variable_of_the_user_changes_what_is_installed_or_leaves_a_sha256_unchecked(
    alone: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    (setup.ROOT / "uv.py").touch()
    (setup.ROOT / "other.txt").write_text("thing==2\n")
    right, there = wheel(setup.ROOT, "thing"), setup.ROOT / "there"
    for sha256 in ("0" * 64, right):
        (setup.ROOT / "constraints.txt").write_text(f"thing==1 --hash=sha256:{sha256}\n")
        with pytest.raises(SystemExit) if sha256 != right else nullcontext():
            alone.uv("--target", str(there), "thing")
        assert ("Hash mismatch" in capfd.readouterr().err) is (sha256 != right) is not (there / "thing.py").exists()


def test_what_says_where_uv_looks_and_how_is_left_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for names in setup.SETTINGS.values() for name in names} | {
        *("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_MINE_USERNAME", "UV_INDEX_MINE_PASSWORD", "UV_CACHE_DIR"),
        *("UV_NO_CACHE", "UV_OFFLINE", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_HTTP_RETRIES", "NO_PROXY", "PATH"),
    }
    for name in names | HOSTILE.keys():
        monkeypatch.setenv(name, "x")
    assert names <= setup.environment().keys() and not HOSTILE.keys() & setup.environment().keys()


def test_what_builds_the_package_has_a_sha256_too(alone: Any, capfd: pytest.CaptureFixture[str]) -> None:
    backend = "def get_requires_for_build_editable(settings=None): raise SystemExit('the backend ran')\n"
    sha256 = wheel(setup.ROOT, "backend", backend)
    (setup.ROOT / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\n[build-system]\nrequires = ["backend"]\nbuild-backend = "backend"\n'
    )
    for pinned, ran in {"backend==1": False, f"backend==1 --hash=sha256:{sha256}": True}.items():
        (setup.ROOT / "constraints.txt").write_text(f"{pinned}\n")
        with pytest.raises(SystemExit):
            alone.uv("--target", str(setup.ROOT / "there"), "--editable", ".")
        assert ("the backend ran" in capfd.readouterr().err) is ran


def test_pip_keeps_the_settings_that_say_where_it_looks_and_loses_those_that_say_where_it_installs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text(
        "[install]\nuser = yes\n[global]\nretries = 7\nindex-url = https://a.example\n"
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    moving = {"target", "prefix", "root", "user", "requirement", "constraint", "dry-run"}
    for name in moving - {"user"}:
        monkeypatch.setenv(f"PIP_{name.upper().replace('-', '_')}", "x")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more")
    venv = setup.Venv(tmp_path)
    venv.python = sys.executable
    command, env = [sys.executable, "-m", "pip", "config", "list"], setup.pip_environment(venv.pip_settings)
    told = setup.read_settings(subprocess.run(command, env=env, capture_output=True, text=True).stdout)
    expected = {"retries": ["7"], "index-url": ["https://a.example"], "find-links": ["/wheels", "/more"]}
    assert told.items() >= expected.items() and not told.keys() & moving


def test_a_setup_that_installed_nothing_is_not_ready(venv: Any, ran: list[list[str]]) -> None:
    venv.settings, venv.pip_settings = ({}, []), {}
    with pytest.raises(SystemExit, match="bin/edgecompress: must be there and say 'edgecompress "):
        setup.install(venv, venv.state(), state(files="b"))
    command = venv.path / "bin" / "edgecompress"
    for version, ready in (("0.0.1", False), (setup.project()["version"], True)):
        command.write_text(f"#!/bin/sh\necho edgecompress {version}\n")
        command.chmod(0o755)
        with pytest.raises(SystemExit) if not ready else nullcontext():
            setup.install(venv, setup.replace(state(), place=venv.place), state(files="b"))
        assert (setup.read_state(venv.stamp) != setup.NOTHING) is ready


def test_a_command_that_fails_ends_the_setup_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"):
        setup._run(["false"], advice="; check the network")
    assert capsys.readouterr().err == ("setup: failed with code 1; the message above is of: false; check the network\n")


def test_a_second_setup_waits_for_the_first_and_for_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    with (tmp_path / "pyproject.toml").open() as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        child = subprocess.Popen(["sleep", "0.3"], pass_fds=[first.fileno()])
    setup.wait_for_others()
    assert child.wait(1) == 0
    assert capsys.readouterr().out == "setup: waits for another set-up\n"


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


def test_a_target_is_asked_again_when_a_file_of_it_or_of_the_package_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "target_extras", lambda target, python: (asked.append(target), (("onnx",), False))[1])
    venv = setup.Venv(tmp_path / "venv")
    venv.path.mkdir()
    code, target = tmp_path / "edgecompress" / "a.py", tmp_path / "mine.toml"
    code.parent.mkdir()

    def extras() -> int:
        assert setup.remembered_extras(str(target), venv, "python") == (("onnx",), False)
        return len(asked)

    code.write_text("1")
    target.write_text("1")
    assert (extras(), extras()) == (1, 2)  # nothing is remembered in a venv that is not complete
    venv.stamp.touch()
    assert (extras(), extras()) == (3, 3)
    code.write_text("22")
    assert (extras(), extras()) == (4, 4)
    target.write_text("22")
    assert (extras(), extras()) == (5, 5)
