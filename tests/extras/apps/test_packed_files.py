"""Packed files: every file comes back to the bit, damaged ones end in one error, real weights take what they should."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import swiftlang
from hypothesis import given
from hypothesis import strategies as st

from edgecompress.cli import main
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.extras.apps import pack_file, render
from edgecompress.extras.apps.packagers import _android_java
from edgecompress.formats import packed_file, stored_tensors

CODEBOOK = np.random.default_rng(0).choice(np.array([0, 0, 0, -0.0, 1.5, np.nan], "<f4"), 3000)
FLOATS = np.random.default_rng(0).normal(size=999).astype("<f4")


def packed_of(*arrays: np.ndarray, between: bytes = b"<>") -> tuple[bytes, bytes]:
    """A file with these arrays, and it packed."""
    data = between.join([b"head", *(array.tobytes() for array in arrays), b"tail"])
    return data, packed_file.pack(data, map(stored_tensors.tensor, arrays))


@given(st.binary(max_size=300), st.lists(st.binary(min_size=64, max_size=99), max_size=3))
def test_any_bytes_come_back_whatever_the_tensors(data: bytes, strange: list[bytes]) -> None:
    for width in packed_file.WIDTHS:
        tensors = [(width, raw) for raw in (*strange, data[5:200], data[100:])]
        assert packed_file.unpack(packed_file.pack(data, tensors)) == data


def test_tensors_come_back_in_any_order_and_twice() -> None:
    data, packed = packed_of(FLOATS, CODEBOOK, FLOATS, FLOATS.astype("<f8"), CODEBOOK.astype("<f2"))
    assert packed_file.unpack(packed) == data
    turned = [stored_tensors.tensor(array) for array in (CODEBOOK, FLOATS, FLOATS)]
    assert packed_file.unpack(packed_file.pack(data, turned)) == data


def test_a_file_of_many_segments_comes_back() -> None:
    data = bytes(packed_file.MOST + 1) + FLOATS.tobytes()
    packed = packed_file.pack(data)
    assert packed_file.unpack(packed) == data
    assert len(packed) < 20_000 and packed_file.size(packed) == len(data)


def test_few_values_take_their_entropy_and_floats_lose_what_their_exponents_repeat() -> None:
    """2.5 bits of an element in 6 kinds, each a half zero; a mantissa of 23 random bits stays."""
    assert len(packed_of(CODEBOOK)[1]) < 0.09 * CODEBOOK.nbytes
    assert len(packed_of(FLOATS)[1]) < 0.95 * FLOATS.nbytes


def test_floats_with_zeros_take_the_bytes_of_those_that_are_none_and_a_mask() -> None:
    pruned = np.where(np.random.default_rng(0).random(9000) < 0.9, 0, np.resize(FLOATS, 9000)).astype("<f4")
    data, packed = packed_of(pruned)
    assert packed_file.unpack(packed) == data
    assert len(packed) < 0.1 * pruned.nbytes + 9000 / 8 + 200


def test_the_layout_is_the_documented_one() -> None:
    data = b"abc"
    packed = packed_file.pack(data)
    assert packed[:40] == b"ECP1" + struct.pack("<I", 3) + hashlib.sha256(data).digest()
    assert packed[40:48] == struct.pack("<BBHI", 0, 1, 0, 3)
    (length,) = struct.unpack("<I", packed[48:52])
    assert len(packed) == 52 + length


def damaged(packed: bytes) -> list[bytes]:
    """A few hundred: cut off, with other bytes, with bytes behind."""
    random = np.random.default_rng(1)
    cut = [packed[:end] for end in random.integers(0, len(packed), 100)]
    flipped = []
    for at in [*range(80), *random.integers(80, len(packed), 200)]:
        other = bytearray(packed)
        other[at] ^= 1 << int(random.integers(8))
        flipped.append(bytes(other))
    return [*cut, *flipped, packed + b"\0", packed + packed[40:]]


def test_a_damaged_file_is_one_error_and_no_bytes() -> None:
    """But for the few bits that pad a stream or a bitmask: then the bytes are the right ones."""
    data, packed = packed_of(CODEBOOK, FLOATS)
    errors = 0
    for each in damaged(packed):
        try:
            assert packed_file.unpack(each) == data
        except InputError as error:
            errors += 1
            assert ("damaged" in str(error) or "no packed file" in str(error)) and "\n" not in str(error)
    assert errors > 370


def test_a_segment_never_makes_more_than_the_header_says() -> None:
    """A header of 3 bytes before a segment of 4 MiB of zeros."""
    zeros = packed_file.pack(bytes(packed_file.MOST))
    with pytest.raises(InputError, match="no such form"):
        packed_file.unpack(packed_file.pack(b"abc")[:40] + zeros[40:])


def test_a_safetensors_file_says_where_its_tensors_lie(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [3000], "data_offsets": [0, 12000]},
        "b": {"dtype": "BF16", "shape": [100], "data_offsets": [12000, 12200]},
    }
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + CODEBOOK.tobytes() + bytes(200)
    (tmp_path / "w.safetensors").write_bytes(content)
    found = list(stored_tensors.of(Artifact(tmp_path, "")))
    assert found == [(4, CODEBOOK.tobytes()), (2, bytes(200))]
    (tmp_path / "w.safetensors").write_bytes(content[:100])
    with pytest.raises(InputError, match=r"w\.safetensors: is no sound"):
        list(stored_tensors.of(Artifact(tmp_path, "")))


def test_the_commands_write_a_file_and_give_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file, packed, back = (tmp_path / name for name in ("net.pte", "net.pte.packed", "back.pte"))
    file.write_bytes(FLOATS.tobytes() + bytes(5000))
    assert main.main(["pack", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"out": packed.name, "bytes": 8996, "packed_bytes": packed.stat().st_size}
    assert main.main(["unpack", str(packed), "--out", str(back)]) == 0
    assert capsys.readouterr().out == f"{back}: 8,996 bytes, {told['packed_bytes']:,} packed\n"
    assert back.read_bytes() == file.read_bytes()
    assert main.main(["unpack", str(file), "--out", str(back)]) == 2
    assert f"{file}: is no packed file" in capsys.readouterr().err
    assert main.main(["unpack", str(file)]) == 2
    capsys.readouterr()
    assert main.main(["pack", str(file), "--out", str(file)]) == 2
    assert f"{file}: is the file itself" in capsys.readouterr().err
    assert main.main(["pack", str(packed)]) == 2
    assert f"{packed}: is packed already" in capsys.readouterr().err
    assert file.stat().st_size == 8996


@pytest.mark.slow
def test_the_file_of_a_folder_that_was_shipped_is_packed_by_its_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx import helper, numpy_helper, save

    monkeypatch.chdir(tmp_path)
    made = [numpy_helper.from_array(CODEBOOK.reshape(30, 100), "w"), numpy_helper.from_array(FLOATS[:300], "b")]
    ends = [[helper.make_tensor_value_info(name, 1, [1, size])] for name, size in (("x", 30), ("y", 100))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", *ends, made)
    (tmp_path / "net").mkdir()
    save(helper.make_model(graph), tmp_path / "net" / "model.onnx")
    Artifact(tmp_path / "net", "onnx").write()
    done = pack_file.pack("net")
    assert done.packed_bytes < 0.09 * CODEBOOK.nbytes + FLOATS[:400].nbytes
    assert packed_file.unpack(Path("model.onnx.packed").read_bytes()) == Path("net/model.onnx").read_bytes()


# --------------------------------------------------------------------------- in the languages of packages

JAVA = """
package ai.edgecompress.model;

import java.io.*;

/** Unpacks "0.packed", "1.packed", ... below a folder; of a damaged one nothing is left. */
public final class Main {
    public static void main(String[] given) throws IOException {
        for (int i = 0; new File(given[0], i + ".packed").exists(); i++) {
            File out = new File(given[0], i + ".out");
            try (InputStream in = new BufferedInputStream(new FileInputStream(new File(given[0], i + ".packed")));
                    OutputStream to = new BufferedOutputStream(new FileOutputStream(out))) {
                Unpack.write(in, to);
            } catch (IOException damaged) {
                out.delete();
            }
        }
    }
}
"""
NODE = """
import { existsSync, readFileSync, writeFileSync } from "node:fs";
const [script, folder] = process.argv.slice(-2);
const { unpacked } = await import(script);
const sizes = JSON.parse(readFileSync(`${folder}/sizes.json`));
for (let i = 0; i < sizes.length; i++) {
  const packed = new Uint8Array(readFileSync(`${folder}/${i}.packed`)).buffer;
  const found = await unpacked(packed, sizes[i]).catch((error) => error);
  if (!(found instanceof Error)) writeFileSync(`${folder}/${i}.out`, new Uint8Array(found));
  else if (!found.message.startsWith("the packed model ")) throw found;
}
"""
SWIFT = """
import Foundation

enum ModelSpec {
    static var digest = ""
    static var files: [FileSpec] = []
}

enum Digest {
    static func sha256(of file: URL) throws -> String {
        SHA256.hash(data: try Data(contentsOf: file)).map { String(format: "%02x", $0) }.joined()
    }
}

let given = URL(fileURLWithPath: "/given")
for line in try String(contentsOf: given.appendingPathComponent("files.txt"), encoding: .utf8).split(separator: "\\n") {
    let parts = line.split(separator: " ").map(String.init)
    ModelSpec.digest = parts[0]
    ModelSpec.files = [FileSpec(path: parts[0], bytes: Int(parts[1])!, sha256: parts[2])]
    for _ in 0..<2 {  // the second time it is there
        guard let folder = try? Unpack.folder(from: given) else { continue }
        let out = given.appendingPathComponent(parts[0] + ".out")
        try? FileManager.default.removeItem(at: out)
        try FileManager.default.copyItem(at: folder.appendingPathComponent(parts[0]), to: out)
    }
}
"""
TEMPLATES = render.FOLDER


def java(work: Path) -> None:
    (work / "Main.java").write_text(JAVA)
    shutil.copy(TEMPLATES / "android/java/model/Unpack.java", work)
    _android_java.compile([work / "Main.java", work / "Unpack.java"], work / "classes")
    subprocess.run(["java", "-cp", str(work / "classes"), "ai.edgecompress.model.Main", str(work)], check=True)


def node(work: Path) -> None:
    script = TEMPLATES / "web/unpack.js"
    subprocess.run(["node", "--input-type=module", "-e", NODE, "--", str(script), str(work)], check=True)


def swift(work: Path) -> None:
    system = Path(__file__).with_name("data") / "swift" / "system"
    made = {
        "Unpack.swift": "Unpack.swift.j2",
        "zlib/module.modulemap": "module.modulemap.j2",
        "zlib/shim.h": "sources/shim.h",
    }
    render.render("ios", work, {"camel": "Net"}, made)
    swiftlang.put_zlib(work / "zlib")
    sources = [TEMPLATES / "ios/sources" / name for name in ("Numbers.swift", "Engine.swift")]
    for file in (*sources, system / "CryptoKit.swift"):
        shutil.copy(file, work)
    (work / "main.swift").write_text(SWIFT)
    given = [f"/given/{name}.swift" for name in ("Unpack", "Numbers", "Engine", "CryptoKit", "main")]
    flags = ("-O", "-wmo", "-swift-version", "5", "-I/given/zlib", "-L/given/zlib", "-o", "/given/unpack")
    for tool, arguments in (("swiftc", [*flags, *given]), ("/given/unpack", [])):
        done = swiftlang.swift(work, tool, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.shared
@pytest.mark.parametrize(
    "language",
    [
        pytest.param(java, marks=[pytest.mark.jdk, pytest.mark.slow]),
        pytest.param(node, marks=pytest.mark.node),
        pytest.param(swift, marks=[pytest.mark.swift, pytest.mark.slow]),
    ],
)
def test_every_language_of_packages_unpacks_squeezenet_and_refuses_what_python_refuses(
    language: Callable[[Path], None], shared_data: Path, tmp_path: Path
) -> None:
    net = (shared_data / "models" / "squeezenet_v1.0_dc.safetensors").read_bytes()
    small, packed = packed_of(CODEBOOK, FLOATS, np.where(CODEBOOK == 1.5, np.resize(FLOATS, 3000), 0), between=b"")
    (tmp_path / "0.safetensors").write_bytes(net)
    tensors = stored_tensors.of(Artifact(tmp_path, ""))
    files = [(net, packed_file.pack(net, tensors)), (small, packed), *((small, each) for each in damaged(packed))]
    for i, (_, each) in enumerate(files):
        (tmp_path / f"{i}.packed").write_bytes(each)
    lines = [f"{i} {len(data)} {hashlib.sha256(data).hexdigest()}" for i, (data, _) in enumerate(files)]
    (tmp_path / "files.txt").write_text("\n".join(lines))
    (tmp_path / "sizes.json").write_text(json.dumps([len(data) for data, _ in files]))
    language(tmp_path)
    outs = [tmp_path / f"{i}.out" for i in range(len(files))]
    assert outs[0].read_bytes() == net and outs[1].read_bytes() == small
    found = {i for i, out in enumerate(outs) if out.exists()}
    assert all(outs[i].read_bytes() == files[i][0] for i in found)
    if language is swift:  # size and digest are compiled in there, and not read
        files = [(data, each[:4] + packed[4:40] + each[40:]) for data, each in files]
    assert found - {0} == {i for i, (_, each) in enumerate(files) if i and sound(each)}


def sound(packed: bytes) -> bool:
    try:
        packed_file.unpack(packed)
    except InputError:
        return False
    return True


@pytest.mark.shared
def test_squeezenet_of_deep_compression_is_packed_to_a_ninth_of_its_bytes(shared_data: Path, tmp_path: Path) -> None:
    """Pruned and with weights that are shared by at most 256 in a layer (Han, Mao and Dally, ICLR 2016)."""
    file = shared_data / "models" / "squeezenet_v1.0_dc.safetensors"
    (tmp_path / file.name).symlink_to(file)
    data = file.read_bytes()
    packed = packed_file.pack(data, stored_tensors.of(Artifact(tmp_path, "")))
    assert len(data) > 4_990_000 and len(packed) <= 560_000
    assert packed_file.unpack(packed) == data
