"""Hostile texts: TOML, and words of the command line."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from hostile_inputs import Hostile, irregular, pipes, written
from hostile_models import EITHER, ESCAPES

NULL = ("net.null", "--data", "data", "--target", "null.toml")
DEEP = 100_000


def cases() -> Iterator[Hostile]:
    """Every text of a stranger."""
    yield from _toml()
    yield from _words()


# --------------------------------------------------------------------------- TOML

SOURCE = 'model = "net.null"\ndata = "data"\n'
TARGET = 'description = "a target"\nruntime = "null"\n[[variant]]\nname = "plain"\n'
DEVICE = 'description = "a device"\ntransport = "host"\n'
PROFILE = (
    'description = "a profile"\nsessions = 1\nwarmup_s = 0.0\nwarmup_runs = 1\nwindow_s = 0.02\nwindow_runs = 3\n'
    "energy_windows = 1\nenergy_window_s = 0.1\n"
)
KINDS = {  # a sound text of each kind, and the command that reads it
    "source": (SOURCE, ("plan", "x.toml", "--target", "null.toml")),
    "target": (TARGET, ("plan", "net.null", "--data", "data", "--target", "x.toml")),
    "device": (DEVICE, ("plan", *NULL, "--device", "x.toml")),
    "profile": (PROFILE, ("plan", *NULL, "--profile", "x.toml")),
}


def _toml() -> Iterator[Hostile]:
    for kind, (sound, words) in KINDS.items():
        for name, (data, codes) in _any_toml(sound.encode()).items():
            if kind != "target" and name not in ("list-nested", "key-with-escapes", "crlf"):
                continue  # they are read alike
            yield Hostile(f"toml-{kind}/{name}", words, written("x.toml", data), codes)
        for name, make in irregular("x.toml") if kind == "source" else pipes("x.toml"):
            yield Hostile(f"toml-{kind}/{name}", words, make)
        for name, (text, codes) in _OWN[kind].items():
            yield Hostile(f"toml-{kind}/{name}", words, written("x.toml", text.encode()), codes)
    for folder in ("targets", "devices", "profiles"):
        yield from _shadowing(folder)


def _any_toml(sound: bytes) -> dict[str, tuple[bytes, tuple[int, ...]]]:
    """What is wrong with any TOML."""
    key = b"unknown = "
    return {
        "empty": (b"", (2,)),
        "nul": (b"\0" * 64, (2,)),
        "noise": (random.Random(11).randbytes(4096), (2,)),
        "a-bom": (b"\xef\xbb\xbf" + sound, EITHER),
        "crlf": (sound.replace(b"\n", b"\r\n"), (0,)),
        "cr": (sound.replace(b"\n", b"\r"), (2,)),
        "utf-16": (sound.decode().encode("utf-16"), (2,)),
        "no-utf-8": (sound + b"x = '\xff\xfe'\n", (2,)),
        "surrogate": (sound + b'x = "\\ud800"\n', (2,)),
        "50-mb": (sound + b"# " + b"c" * (50 << 20), (2,)),
        "list-nested": (key + b"[" * DEEP + b"]" * DEEP + b"\n" + sound, (2,)),
        "table-nested": (key + b"{a=" * DEEP + b"1" + b"}" * DEEP + b"\n" + sound, (2,)),
        "key-nested": (sound + b"[" + b"a." * DEEP + b"a]\n", (2,)),
        "number-of-10000-digits": (key + b"9" * 10_000 + b"\n" + sound, (2,)),
        "number-1e9999": (key + b"1e9999\n" + sound, (2,)),
        "keys-100000": (sound + b"".join(b"k%d = 1\n" % i for i in range(100_000)), (2,)),
        "key-of-1-mb": (b"k" * (1 << 20) + b" = 1\n" + sound, (2,)),
        "key-with-escapes": (json.dumps(ESCAPES).encode() + b" = 1\n" + sound, (2,)),
        "text-of-1-mb": (key + b'"' + b"v" * (1 << 20) + b'"\n' + sound, (2,)),
        "key-twice": (sound + sound, (2,)),
        "date": (key + b"1979-05-27T07:32:00Z\n" + sound, (2,)),
        "half": (sound[: len(sound) // 2], (2,)),
        "a-page": (b"<html></html>", (2,)),
    }


def _replaced(text: str, **values: str) -> str:
    """A text with other values of its keys, or more of them: at the top."""
    rest = [line for line in text.splitlines() if line.partition(" = ")[0] not in values]
    return "\n".join([*(f"{key} = {value}" for key, value in values.items()), *rest]) + "\n"


def _own(text: str, codes: tuple[int, ...], **changes: dict[str, str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name.replace("_", "-"): (_replaced(text, **values), codes) for name, values in changes.items()}


def _variant(**values: str) -> str:
    return TARGET + "".join(f"{key} = {value}\n" for key, value in values.items())


_OWN: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "source": {
        **_own(
            SOURCE,
            (2,),
            model_of_a_device={"model": '"/dev/zero"'},
            model_of_a_terminal={"model": '"/dev/stdin"'},
            model_a_folder={"model": '"data"'},
            model_with_nul={"model": '"a\\u0000.null"'},
            model_with_escapes={"model": '"\\u001b[2J.null"'},
            model_of_a_megabyte={"model": '"' + "m" * (1 << 20) + '.null"'},
            model_of_code={"model": '"os:system"'},
            model_empty={"model": '""'},
            model_of_itself={"model": '"x.toml"'},
            data_of_a_device={"data": '"/dev/zero"'},
            metric_unknown={"metric": '"__class__"'},
            samples_negative={"samples": "-1"},
            samples_0={"samples": "0"},
            samples_infinite={"samples": "inf"},
            resize_2_62={"preprocess": "{resize = 4611686018427387904}"},
            scale_nan={"preprocess": "{scale = nan}"},
            std_0={"preprocess": "{std = [0.0]}"},
            spectrogram_2_62={
                "preprocess": "{spectrogram = {rate=1, length=4611686018427387904, frame=1, hop=1, fft=2}}"
            },
            fft_2_62={"preprocess": "{spectrogram = {rate=1, length=8, frame=8, hop=1, fft=4611686018427387904}}"},
        ),
        **_own(SOURCE, (0,), samples_2_62={"samples": "4611686018427387904"}),
        **_own(
            SOURCE,
            EITHER,
            name_with_escapes={"name": '"\\u001b]0;x\\u0007"'},
            licence_of_a_megabyte={"licence": '"' + "l" * (1 << 20) + '"'},
        ),
    },
    "target": {
        **_own(
            TARGET,
            (2,),
            runtime_that_climbs={"runtime": '"../../evil"'},
            runtime_of_python={"runtime": '"os"'},
            runtime_private={"runtime": '"_onnx_session"'},
            runtime_empty={"runtime": '""'},
            device_that_climbs={"device": '"../../x"'},
            device_of_a_device={"device": '"/dev/zero"'},
            limits_nan={"limits": "{cosine = nan}"},
            guard_layers_2_62={"guard": "{on = true, layers = -1}"},
            also_that_climbs={"also": '["../../x"]'},
        ),
        **_own(TARGET, EITHER, platforms_slow={"platforms": '["' + "*a" * 60 + '"]'}),
        **_own(
            TARGET,
            EITHER,
            package_that_climbs={"package": '"../../x"'},
            limits_infinite={"limits": "{latency_ms = inf}"},
        ),
        "no-variant": ('description = ""\nruntime = "null"\nvariant = []\n', (2,)),
        "variant-a-table": ('description = ""\nruntime = "null"\n[variant]\nname = "plain"\n', (2,)),
        "variants-10000": (TARGET + "".join(f'[[variant]]\nname = "v{i}"\n' for i in range(10_000)), (2,)),
        "variant-twice": (TARGET + TARGET[TARGET.index("[[") :], (2,)),
        "variant-that-climbs": (TARGET.replace("plain", "../../x"), (2,)),
        "variant-of-1-mb": (TARGET.replace("plain", "v" * (1 << 20)), (2,)),
        "variant-called-data": (TARGET.replace("plain", "data"), EITHER),
        "compress-of-code": (_variant(compress='[{use = "os:system"}]'), (2,)),
        "compress-that-climbs": (_variant(compress='[{use = "../../x"}]'), (2,)),
        "compress-without-use": (_variant(compress="[{ratio = 1}]"), (2,)),
        "compress-a-date": (_variant(compress='[{use = "int8", calibrator = 1979-05-27}]'), (2,)),
        "compress-10000-steps": (_variant(compress="[" + '{use = "int8"},' * 10_000 + "]"), (2,)),
        "export-a-date": (_variant(export="{when = 1979-05-27}"), (2,)),
        "export-nan": (_variant(export="{x = nan}"), (2,)),
        "limits-of-a-variant": (_variant(limits="{items_lost = 1979-05-27}"), (2,)),
    },
    "device": {
        **_own(
            DEVICE,
            (2,),
            transport_that_climbs={"transport": '"../../evil"'},
            transport_of_python={"transport": '"os"'},
            transport_private={"transport": '"_process"'},
            sensors_of_python={"sensors": '["os"]'},
            sensors_that_climb={"sensors": '["../x"]'},
            cores_negative={"cores": "-1"},
            memory_negative={"memory_mib": "-1"},
            power_nan={"power": '{idle_w = nan, active_w = 1.0, error = 0.1, source = "x"}'},
            roof_0={"roof": '{gflops = 0.0, gb_per_s = 1.0, source = "x"}'},
            blocks_0={"blocks": "{onnx-int8 = 0}"},
            options_a_date={"options": "{when = 1979-05-27}"},
            options_nan={"options": "{x = nan}"},
            options_a_program={"transport": '"adb"', "options": '{adb = "./evil"}'},
            options_a_config={"transport": '"ssh"', "options": '{host = "x", config = "./evil"}'},
            host_of_options={"transport": '"ssh"', "options": '{host = "-oProxyCommand=touch executed"}'},
            host_of_shell={"transport": '"ssh"', "options": '{host = "$(touch executed)"}'},
        ),
        "unreachable": (_replaced(DEVICE, unreachable='"\\u001b[2J it is gone\\nreally"'), (3,)),
        "file-of-a-sensor-a-device": (
            _replaced(DEVICE, sensors='["replay"]', options='{replay = {file = "/dev/zero"}}'),
            EITHER,
        ),
    },
    "profile": {
        **_own(
            PROFILE,
            (2,),
            sessions_0={"sessions": "0"},
            sessions_2_62={"sessions": "4611686018427387904"},
            window_infinite={"window_s": "inf"},
            window_1e300={"window_s": "1e300"},
            window_runs_2_62={"window_runs": "4611686018427387904"},
            warmup_infinite={"warmup_s": "inf"},
            warmup_tolerance_nan={"warmup_tolerance": "nan"},
            energy_windows_2_62={"energy_windows": "4611686018427387904"},
            idle_infinite={"idle_s": "inf"},
            ops_runs_2_62={"ops_runs": "4611686018427387904"},
            count_runs_2_62={"count_runs": "4611686018427387904"},
            profilers_that_climb={"profilers": '{"../../x" = {}}'},
            profilers_of_python={"profilers": "{os = {}}"},
            profilers_infinite={"profilers": "{sustained = {window_s = inf}}"},
        ),
    },
}


def _shadowing(kind: str) -> Iterator[Hostile]:
    """Files of the working folder under the names of installed ones."""
    name, option = {
        "targets": ("x86", "--target"),
        "devices": ("host", "--device"),
        "profiles": ("quick", "--profile"),
    }[kind]
    text = {"targets": TARGET, "devices": DEVICE, "profiles": PROFILE}[kind]
    words = ("plan", *NULL, option, name)
    yield Hostile(f"toml-{kind}/installed-name", words, written(f"{kind}/{name}.toml", text.encode()))
    own = ("deploy", *NULL, option, "own", "--until", "data", "--untrusted")
    yield Hostile(f"toml-{kind}/own-name-untrusted", own, written(f"{kind}/own.toml", text.encode()))
    for each, make in pipes(f"{kind}/own.toml"):
        yield Hostile(f"toml-{kind}/{each}", ("plan", *NULL, option, "own"), make)
        codes = (0,)  # a list tells of each file
        yield Hostile(f"toml-{kind}/list-{each}", (kind,), make, codes)


# --------------------------------------------------------------------------- the command line


def _words() -> Iterator[Hostile]:
    """Words that a stranger may have chosen: names of files and values."""
    nothing = lambda folder: None  # noqa: E731 - one per case
    settings = {
        "deep": "limits.items_lost=" + "[" * 50_000 + "]" * 50_000,
        "digits": "limits.items_lost=" + "9" * 10_000,
        "date": "limits.items_lost=1979-05-27",
        "nan": "limits.cosine=nan",
        "two-lines": "limits.items_lost=1\nruntime='onnx'",
        "group": "os.system=1",
        "empty": "=",
        "dots": "limits..x=1",
        "dots-deep": "limits" + ".x" * 20_000 + "=1",
        "no-utf-8": "limits.items_lost=\udcff",
        "variant": "variant.plain=1",
    }
    for name, text in settings.items():
        yield Hostile(f"words/set-{name}", ("plan", *NULL, "--set", text), nothing)
    models = {
        "no-utf-8": "\udcff\udcfe.null",
        "escapes": f"{ESCAPES}.null",
        "of-5000-characters": "m" * 5000 + ".null",
        "newlines": "a\nedgecompress: error: b.null",
        "url": "https://127.0.0.1:1/net.null",
        "pipe": "|touch executed",
        "shell": "$(touch executed).null",
        "empty": "",
        "dash": "-",
        "folder": "data",
        "percent": "%s%n.null",
    }
    for name, model in models.items():
        yield Hostile(f"words/model-{name}", ("plan", model, *NULL[1:]), nothing)
    for name, flag in {"threads": "--threads", "batch": "--batch", "seed": "--seed", "samples": "--samples"}.items():
        for value in ("-1", "9" * 30, "1e9", "nan"):
            words = ("deploy", *NULL, flag, value, "--until", "data")
            codes = EITHER if value == "9" * 30 else (2,)
            yield Hostile(f"words/{name}-{value[:4]}-{len(value)}", words, nothing, codes)
    sound = "deploy", *NULL, "--until", "data"
    yield Hostile("words/sound-model-no-utf-8", (*sound[:1], "\udcff.null", *sound[2:]), _no_utf_8)
    yield Hostile("words/sound-model-with-escapes", (*sound[:1], f"a{ESCAPES}.null", *sound[2:]), _escaped)


def _no_utf_8(folder: Path) -> None:
    (folder / "net.null").rename(folder / "\udcff.null")


def _escaped(folder: Path) -> None:
    (folder / "net.null").rename(folder / f"a{ESCAPES}.null")
