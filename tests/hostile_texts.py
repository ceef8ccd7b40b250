"""Hostile texts: TOML, reports, measurements, packages, and what a device answers."""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hostile_inputs
import measured_inputs
import package_inputs
from hostile_inputs import Hostile, irregular, pipes, written
from hostile_models import EITHER, ESCAPES, zipped

NULL = ("net.null", "--data", "data", "--target", "null.toml")
DEEP = 100_000


def cases() -> Iterator[Hostile]:
    """Every text of a stranger."""
    yield from _toml()
    yield from _words()
    yield from _reports()
    yield from _packages()
    yield from _devices()


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
            model_a_date={"model": "1979-05-27"},
            model_a_list={"model": '["net.null"]'},
            model_with_nul={"model": '"a\\u0000.null"'},
            model_with_escapes={"model": '"\\u001b[2J.null"'},
            model_of_a_megabyte={"model": '"' + "m" * (1 << 20) + '.null"'},
            model_of_code={"model": '"os:system"'},
            model_empty={"model": '""'},
            model_of_itself={"model": '"x.toml"'},
            data_of_a_device={"data": '"/dev/zero"'},
            data_with_nul={"data": '"a\\u0000b"'},
            metric_unknown={"metric": '"__class__"'},
            samples_negative={"samples": "-1"},
            samples_0={"samples": "0"},
            samples_true={"samples": "true"},
            samples_infinite={"samples": "inf"},
            labels_of_numbers={"labels": "[1, 2]"},
            dynamic_a_list={"dynamic": "[1]"},
            preprocess_a_list={"preprocess": "[1]"},
            resize_2_62={"preprocess": "{resize = 4611686018427387904}"},
            resize_negative={"preprocess": "{resize = -5}"},
            scale_nan={"preprocess": "{scale = nan}"},
            scale_infinite={"preprocess": "{scale = inf}"},
            std_0={"preprocess": "{std = [0.0]}"},
            std_nan={"preprocess": "{std = [nan]}"},
            mean_of_words={"preprocess": '{mean = ["a"]}'},
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
            runtime_with_nul={"runtime": '"a\\u0000"'},
            runtime_a_date={"runtime": "1979-05-27"},
            runtime_empty={"runtime": '""'},
            device_that_climbs={"device": '"../../x"'},
            device_of_a_device={"device": '"/dev/zero"'},
            platforms_of_numbers={"platforms": "[1]"},
            limits_a_list={"limits": "[1]"},
            limits_nan={"limits": "{cosine = nan}"},
            limits_of_words={"limits": '{items_lost = "many"}'},
            limits_a_float={"limits": "{items_lost = 1.5}"},
            guard_a_word={"guard": '"on"'},
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
        "variant-dots": (TARGET.replace("plain", ".."), (2,)),
        "variant-of-1-mb": (TARGET.replace("plain", "v" * (1 << 20)), (2,)),
        "variant-called-data": (TARGET.replace("plain", "data"), EITHER),
        "compress-of-code": (_variant(compress='[{use = "os:system"}]'), (2,)),
        "compress-that-climbs": (_variant(compress='[{use = "../../x"}]'), (2,)),
        "compress-without-use": (_variant(compress="[{ratio = 1}]"), (2,)),
        "compress-a-word": (_variant(compress='"int8"'), (2,)),
        "compress-a-date": (_variant(compress='[{use = "int8", calibrator = 1979-05-27}]'), (2,)),
        "compress-of-numbers": (_variant(compress="[1]"), (2,)),
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
            transport_a_number={"transport": "1"},
            sensors_of_python={"sensors": '["os"]'},
            sensors_that_climb={"sensors": '["../x"]'},
            sensors_a_word={"sensors": '"rapl"'},
            cores_of_words={"cores": '"four"'},
            cores_negative={"cores": "-1"},
            memory_negative={"memory_mib": "-1"},
            power_a_list={"power": "[1]"},
            power_nan={"power": '{idle_w = nan, active_w = 1.0, error = 0.1, source = "x"}'},
            power_infinite={"power": '{idle_w = 1.0, active_w = inf, error = 0.1, source = "x"}'},
            roof_0={"roof": '{gflops = 0.0, gb_per_s = 1.0, source = "x"}'},
            roof_nan={"roof": '{gflops = nan, gb_per_s = 1.0, source = "x"}'},
            blocks_0={"blocks": "{onnx-int8 = 0}"},
            options_a_list={"options": "[1]"},
            options_a_date={"options": "{when = 1979-05-27}"},
            options_nan={"options": "{x = nan}"},
            options_a_program={"transport": '"adb"', "options": '{adb = "./evil"}'},
            options_a_config={"transport": '"ssh"', "options": '{host = "x", config = "./evil"}'},
            host_of_options={"transport": '"ssh"', "options": '{host = "-oProxyCommand=touch executed"}'},
            host_of_shell={"transport": '"ssh"', "options": '{host = "$(touch executed)"}'},
            host_a_number={"transport": '"ssh"', "options": "{host = 7}"},
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
            sessions_negative={"sessions": "-1"},
            sessions_2_62={"sessions": "4611686018427387904"},
            sessions_true={"sessions": "true"},
            window_infinite={"window_s": "inf"},
            window_nan={"window_s": "nan"},
            window_1e300={"window_s": "1e300"},
            window_negative={"window_s": "-1.0"},
            window_runs_2_62={"window_runs": "4611686018427387904"},
            warmup_infinite={"warmup_s": "inf"},
            warmup_negative={"warmup_s": "-1.0"},
            warmup_runs_2_62={"warmup_runs": "4611686018427387904"},
            warmup_runs_negative={"warmup_runs": "-1"},
            warmup_cap_infinite={"warmup_cap_s": "inf"},
            warmup_tolerance_nan={"warmup_tolerance": "nan"},
            energy_window_infinite={"energy_window_s": "inf"},
            energy_windows_2_62={"energy_windows": "4611686018427387904"},
            energy_windows_negative={"energy_windows": "-1"},
            idle_infinite={"idle_s": "inf"},
            idle_negative={"idle_s": "-1.0"},
            max_age_nan={"max_age_s": "nan"},
            max_age_negative={"max_age_s": "-1.0"},
            ops_runs_2_62={"ops_runs": "4611686018427387904"},
            count_runs_2_62={"count_runs": "4611686018427387904"},
            profilers_that_climb={"profilers": '{"../../x" = {}}'},
            profilers_of_python={"profilers": "{os = {}}"},
            profilers_a_list={"profilers": "[1]"},
            profilers_infinite={"profilers": "{sustained = {window_s = inf}}"},
            profilers_nan={"profilers": "{throughput = {seconds = nan}}"},
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


# --------------------------------------------------------------------------- reports


def _reports() -> Iterator[Hostile]:
    for name, (data, codes) in _report_texts().items():
        make = lambda folder, d=data: _with_report(folder, d)  # noqa: E731 - one per case
        yield Hostile(f"report/{name}", ("report", "out"), make, codes)
        if name.startswith(("variants", "nan", "infinite", "nested")):
            yield Hostile(f"compare/{name}", ("compare", "good", "out"), make, (0, 1, 2) if 0 in codes else codes)
    for name, make in pipes("out/report.json"):
        yield Hostile(f"report/{name}", ("report", "out"), make)
    for name, data in _measurements().items():
        words = ("report", "out", "--add", "told.json")
        yield Hostile(f"measured/{name}", words, lambda folder, d=data: _to_add(folder, d))
    for name, make in pipes("told.json"):
        words = ("report", "out", "--add", "told.json")
        yield Hostile(f"measured/{name}", words, lambda folder, make=make: (_to_add(folder, b""), make(folder))[0])


@cache
def _good_folder() -> Path:
    import tempfile

    return measured_inputs.shipped(Path(tempfile.mkdtemp(prefix="hostile-")))


@cache
def _good_report() -> dict[str, Any]:
    return json.loads((_good_folder() / "report.json").read_text())  # type: ignore[no-any-return]


def _with_report(folder: Path, data: bytes) -> None:
    (folder / "out").mkdir()
    (folder / "good").mkdir()
    (folder / "out/report.json").write_bytes(data)
    (folder / "good/report.json").write_text(json.dumps(_good_report()))


def _to_add(folder: Path, data: bytes) -> None:
    shutil.copytree(_good_folder(), folder / "out")
    (folder / "told.json").write_bytes(data)


def _report_texts() -> dict[str, tuple[bytes, tuple[int, ...]]]:
    schema = {"schema": "edgecompress/stages/report/1"}
    texts: dict[str, tuple[bytes, tuple[int, ...]]] = {
        "empty": (b"", (2,)),
        "noise": (random.Random(13).randbytes(4096), (2,)),
        "nul": (b"\0" * 4096, (2,)),
        "nested-200000": (b"[" * 200_000, (2,)),
        "nested-and-closed": (b"[" * 200_000 + b"]" * 200_000, (2,)),
        "nested-in-a-key": (
            json.dumps(schema).encode()[:-1] + b', "variants": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
            (2,),
        ),
        "schema-only": (json.dumps(schema).encode(), (2,)),
        "a-list": (b"[]", (2,)),
        "a-number": (b"1", (2,)),
        "digits": (b'{"schema": ' + b"9" * 10_000 + b"}", (2,)),
        "utf-16": (json.dumps(_good_report()).encode("utf-16"), (2,)),
        "no-utf-8": (b'{"schema": "\xff"}', (2,)),
        "half": (json.dumps(_good_report()).encode()[:5000], (2,)),
        "100-mb": (b'{"schema": "' + b"x" * (100 << 20) + b'"}', (2,)),
        "ten-million-lists": (json.dumps(schema).encode()[:-1] + b', "a": [' + b"[]," * 5_000_000 + b"[]]}", (2,)),
    }
    for key in ("variants", "target", "source", "summary", "device", "title", "date", "data"):
        without = {k: v for k, v in _good_report().items() if k != key}
        texts[f"without-{key}"] = (json.dumps(without).encode(), EITHER)
        for name, value in {"null": None, "text": "x", "list": [7]}.items():
            if (key, name) not in (("title", "text"), ("date", "text")):
                texts[f"{key}-{name}"] = (json.dumps({**_good_report(), key: value}).encode(), EITHER)
    whole = json.dumps(_good_report())
    texts["nan-everywhere"] = (_numbers(whole, "NaN"), EITHER)
    texts["infinite-everywhere"] = (_numbers(whole, "1e9999"), EITHER)
    texts["huge-everywhere"] = (_numbers(whole, "9" * 400), EITHER)
    texts["text-everywhere"] = (_numbers(whole, '"x"'), (2,))
    texts["surrogates"] = (json.dumps({**_good_report(), "title": "\ud800"}).encode(), EITHER)
    texts["escapes"] = (json.dumps({**_good_report(), "title": ESCAPES}).encode(), EITHER)
    texts["title-of-1-mb"] = (json.dumps({**_good_report(), "title": "t" * (1 << 20)}).encode(), EITHER)
    texts["title-of-markup"] = (json.dumps({**_good_report(), "title": "[/red][link=x]"}).encode(), EITHER)
    return texts


def _numbers(text: str, value: str) -> bytes:
    """Every number of a JSON, another."""
    import re

    return re.sub(r"(?<=[:\[,] )-?[0-9.]+(e-?[0-9]+)?(?=[,}\]])", value, text).encode()


def _measurements() -> dict[str, bytes]:
    told = measured_inputs.told()

    def changed(**changes: Any) -> bytes:
        return json.dumps(measured_inputs.told(**changes)).encode()

    return {
        "empty": b"",
        "noise": random.Random(15).randbytes(4096),
        "nested": b"[" * 200_000,
        "17-mb": b" " * (17 << 20),
        "another-model": json.dumps(told).encode(),
        "nan": json.dumps({**told, "clock_step_ns": float("nan")}).encode(),
        "infinite": changed(latencies_ns=[float("inf")] * 60),
        "digits": b'{"schema": ' + b"9" * 10_000 + b"}",
        "latencies-zero": changed(latencies_ns=[0] * 60),
        "latencies-of-words": changed(latencies_ns=["fast"] * 60),
        "latencies-true": changed(latencies_ns=[True] * 60),
        "cores-2-62": changed(device__cores=2**62),
        "name-with-escapes": changed(device__name=ESCAPES, schema="x"),
        "keys-twice": json.dumps(told).encode()[:-1] + b', "schema": "x"}',
    }


# --------------------------------------------------------------------------- packages


def _packages() -> Iterator[Hostile]:
    words = ("package", "verify", "x.pkg")
    for name, data in _package_bytes().items():
        yield Hostile(f"package/{name}", words, written("x.pkg", data), (1,))
    for name, make in pipes("x.pkg"):
        yield Hostile(f"package/{name}", words, make)
    commands = (("package", "out", "--as", "tar"), ("profile", "out"), ("verify", "out"))
    for number, (name, spoil) in enumerate(_SHIPPED.items()):
        make_ = lambda folder, spoil=spoil: _spoiled(folder, spoil)  # noqa: E731 - one per case
        yield Hostile(f"shipped/{name}", commands[number % len(commands)], make_)


def _package_bytes() -> dict[str, bytes]:
    climbing = (
        "../../climbed",
        "/tmp/climbed",
        "a/../../climbed",
        "C:\\climbed",
        "a\\..\\b",
        ".",
        "",
        "a//b",
        "n" * 5000,
    )
    made = {
        "empty": b"",
        "noise": random.Random(19).randbytes(4096),
        "gzip-of-nothing": gzip.compress(b"", mtime=0),
        "gzip-of-noise": gzip.compress(random.Random(21).randbytes(4096), mtime=0),
        "gzip-bomb": _gzip_bomb(),
        "zip-bomb": zipped({"a/b": bytes(256 << 20)}),
        "zip-of-nothing": zipped({}),
        "zip-entries-20000": zipped({f"a/{i}": b"" for i in range(20_000)}),
        "zip-of-zips": zipped({f"a/{i}.zip": zipped({"b": bytes(1 << 20)}) for i in range(64)}),
        "zip-link": _zip_of_kind(stat.S_IFLNK, b"/etc/passwd"),
        "zip-device": _zip_of_kind(stat.S_IFCHR, b""),
        "zip-fifo": _zip_of_kind(stat.S_IFIFO, b""),
        "card-deep": zipped({"x-tar/edgecompress.json": b"[" * 200_000}),
        "card-of-a-list": zipped({"x-tar/edgecompress.json": b"[]"}),
        "apk": zipped({"AndroidManifest.xml": b"\x03\0\x08\0" + b"\xff" * 64, "classes.dex": b"dex\n035\0"}),
        "apk-manifest-loops": zipped({"x/AndroidManifest.xml": b"\x03\0\x08\0\x08\0\0\0" + b"\0" * 64}),
        "jar-called": zipped({"META-INF/MANIFEST.MF": b"Main-Class: Evil\n", "Evil.class": b"\xca\xfe\xba\xbe"}),
    }
    made |= {f"zip-called-{i}": zipped({name: b"x"}) for i, name in enumerate(climbing)}
    made |= {f"tar-called-{i}": _tarred(tarfile.TarInfo(name)) for i, name in enumerate(climbing)}
    kinds = {
        "symlink": tarfile.SYMTYPE,
        "hard-link": tarfile.LNKTYPE,
        "device": tarfile.CHRTYPE,
        "fifo": tarfile.FIFOTYPE,
    }
    for name, kind in {**kinds, "block": tarfile.BLKTYPE, "sparse": tarfile.GNUTYPE_SPARSE}.items():
        entry = tarfile.TarInfo("x/a")
        entry.type, entry.linkname, entry.size = kind, "/etc/passwd", 0
        made[f"tar-{name}"] = _tarred(entry)
    huge = tarfile.TarInfo("x/a")
    huge.size = 2**62
    made["tar-size-2-62"] = gzip.compress(huge.tobuf(tarfile.GNU_FORMAT), mtime=0)
    return made


@cache
def _gzip_bomb() -> bytes:
    """A tar of half a gibibyte of zeros, in half a megabyte."""
    entry = tarfile.TarInfo("x/a")
    entry.size = 512 << 20
    return gzip.compress(entry.tobuf() + bytes(entry.size + 1024), 9, mtime=0)


def _zip_of_kind(kind: int, data: bytes) -> bytes:
    entry = zipfile.ZipInfo("x/a", (1980, 1, 1, 0, 0, 0))
    entry.create_system, entry.external_attr = 3, (kind | 0o644) << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(entry, data)
    return out.getvalue()


def _tarred(entry: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(entry, io.BytesIO(b"\0" * entry.size))
    return gzip.compress(out.getvalue(), mtime=0)


@cache
def _shipped_folder() -> Path:
    import tempfile

    return package_inputs.null(Path(tempfile.mkdtemp(prefix="hostile-")) / "out")


def _spoiled(folder: Path, spoil: Callable[[Path], None]) -> None:
    """What a deploy shipped, spoiled."""
    shutil.copytree(_shipped_folder(), folder / "out")
    spoil(folder / "out")


def _text(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda out: void((out / name).write_bytes(data))


def void(_: object) -> None:
    """Nothing."""


_SHIPPED: dict[str, Callable[[Path], None]] = {
    "no-card": lambda out: (out / "artifact/artifact.json").unlink(),
    "card-empty": _text("artifact/artifact.json", b""),
    "card-deep": _text("artifact/artifact.json", b"[" * 200_000),
    "card-a-list": _text("artifact/artifact.json", b"[]"),
    "card-of-numbers": _text(
        "artifact/artifact.json", b'{"kind": 1, "inputs": 2, "outputs": 3, "facts": 4, "sha256": 5}'
    ),
    "card-no-utf-8": _text("artifact/artifact.json", b"\xff"),
    "model-changed": _text("artifact/model.null", b"{}"),
    "origin-deep": _text("deploy.json", b"[" * 200_000),
    "origin-a-list": _text("deploy.json", b"[]"),
    "origin-of-numbers": _text("deploy.json", b'{"variant": 1, "runtime": [], "model": {}, "target": 7}'),
    "origin-no-utf-8": _text("deploy.json", b"\xff"),
}
_SHIPPED |= {f"card-{name}": make for name, make in pipes("artifact/artifact.json")}
_SHIPPED |= {f"origin-{name}": make for name, make in pipes("deploy.json")}
_SHIPPED |= {f"model-{name}": make for name, make in pipes("artifact/model.null")}


# --------------------------------------------------------------------------- what a device answers


PHONE = """description = "a phone"
transport = "adb"
platform = "android-x86_64"
[options]
serial = "evil"
folder = "{folder}/phone"
python = "{folder}/phone-python"
"""
# adb: what is asked of the device is asked of this machine, which is thereby a sound device; then it lies.
ADB = """
PATH=/usr/bin:/bin  # of the device
case "$1" in devices) printf 'List of devices attached\\nevil\\tdevice\\n'; exit 0;; esac
shift 2
case "$1" in
  shell) {shell} exec /bin/sh -c "$2";;
  push) cp -r "$2" "$3";;
esac
"""


def _devices() -> Iterator[Hostile]:
    looks = ("doctor", "--device", "devices/phone.toml")
    plans = ("plan", *NULL, "--device", "devices/phone.toml")
    for name, script in _ADBS.items():
        make = lambda folder, script=script: _phone(folder, script, "")  # noqa: E731 - one per case
        yield Hostile(f"device/{name}-doctor", looks, make, (0, 3))
        yield Hostile(f"device/{name}-plan", plans, make, (0, 2, 3))
    words = ("profile", "out", "--device", "devices/phone.toml", "--profile", "quick")
    fast = ("--set", "profile.window_s=0.02", "--set", "profile.warmup_s=0.0")
    for name, answer in _ANSWERS.items():
        make = lambda folder, answer=answer: _phone(folder, "", answer)  # noqa: E731 - one per case
        codes = (2, 3) if name == "error-with-escapes" else (3,)  # it names an error of the user's
        yield Hostile(f"device/answer-{name}", (*words, *fast), make, codes)


def _phone(folder: Path, shell: str, answer: str) -> None:
    (folder / "devices").mkdir()
    (folder / "devices/phone.toml").write_text(PHONE.format(folder=folder))
    hostile_inputs.program(folder / "bin/adb", ADB.format(shell=shell))
    hostile_inputs.program(folder / "phone-python", answer or "exit 0")
    shutil.copytree(_shipped_folder(), folder / "out")


_ADBS = {
    "adb-garbage": "head -c 65536 /dev/urandom; exit 0;",
    "adb-endless": "exec cat /dev/zero;",
    "adb-endless-line": "yes | tr -d '\\n'; exit 0;",
    "adb-silent": "exit 0;",
    "adb-fails": "echo no >&2; exit 1;",
    "adb-escapes": "printf '\\033]0;owned\\007\\033[2J\\n'; exit 0;",
    "adb-no-utf-8": "printf '\\377\\376'; exit 0;",
}
# In place of the device's Python: $2 or $1 is the request, beside which the answer lies.
_RESULT = 'for last; do :; done; cd "$(dirname "$last")"; '
_FILLED = "printf '{}' > result.json; head -c {} /dev/zero | tr '\\0' {} >> result.json; printf '{}' >> result.json"
_SCRIPTS = {
    "nothing": "exit 0",
    "garbage": "head -c 65536 /dev/urandom > result.json",
    "empty": ": > result.json",
    "a-list": "echo '[]' > result.json",
    "a-number": "echo 1 > result.json",
    "nan": "echo '{\"n\": NaN}' > result.json",
    "deep": _FILLED.format("", 200_000, "[", ""),
    "digits": _FILLED.format('{"n": ', 10_000, "9", "}"),
    "wrong-types": 'echo \'{"n": "x", "batch": [], "memory": 7, "environment": null}\' > result.json',
    "no-keys": "echo '{}' > result.json",
    "error-of-code": 'echo \'{"error": "x", "class": "__import__"}\' > result.json',
    "error-of-a-megabyte": _FILLED.format('{"error": "', 1_000_000, "e", '"}'),
    "error-with-escapes": 'printf \'{"error": "\\\\u001b[2J", "class": "InputError"}\' > result.json',
    "a-link": "ln -s /etc/passwd result.json",
    "a-fifo": "mkfifo result.json",
    "a-folder": "mkdir result.json",
    "endless-output": "exec cat /dev/zero",
    "crash": "kill -SEGV $$",
    "one-gigabyte": "head -c 1073741824 /dev/zero > result.json",
    "sparse-100-gib": "truncate -s 100G result.json",
}
_ANSWERS = {name: f"{_RESULT}{script}" for name, script in _SCRIPTS.items()}
