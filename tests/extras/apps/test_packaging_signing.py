"""Signatures: ours and minisign's are the same, and nothing else passes for one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("minisign")
from minisign import KeyPair

from edgecompress.core.errors import InputError
from edgecompress.extras.apps import signing

tool = pytest.mark.skipif(
    not shutil.which("minisign"), reason="minisign not installed (Debian: apt-get install minisign)"
)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """A secret and a public key, as files."""
    pair = KeyPair.generate()
    secret, public = tmp_path / "mine.key", tmp_path / "mine.pub"
    secret.write_bytes(bytes(pair.secret_key) + b"\n")
    public.write_bytes(bytes(pair.public_key) + b"\n")
    return secret, public


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "pets-tar.tar.gz"
    place.write_bytes(bytes(range(256)) * 100)
    return place


def minisign(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["minisign", *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_a_signed_file_passes(file: Path, keys: tuple[Path, Path]) -> None:
    made = signing.sign(file, signing.secret(keys[0]))
    assert made.name == "pets-tar.tar.gz.minisig"
    signing.check(file, signing.public(str(keys[1])))
    signing.check(file, signing.public(keys[1].read_text().splitlines()[1]))


def test_the_same_file_has_the_same_signature(file: Path, keys: tuple[Path, Path]) -> None:
    first = signing.sign(file, signing.secret(keys[0])).read_bytes()
    assert signing.sign(file, signing.secret(keys[0])).read_bytes() == first


@pytest.mark.parametrize("name", ["größe \u202e.zip", "a\tb.zip", "n" * 200 + ".zip"])
def test_any_name_can_be_signed(tmp_path: Path, keys: tuple[Path, Path], name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    signing.sign(tmp_path / name, signing.secret(keys[0]))
    signing.check(tmp_path / name, signing.public(str(keys[1])))


@pytest.mark.parametrize("name", ["a\tb.zip", "a\x1b[2Jb.zip", "a\rb.zip", "a\nb.zip", "a\x7f\u202eb.zip", "größe.zip"])
def test_the_name_that_is_signed_is_printable(tmp_path: Path, keys: tuple[Path, Path], name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    comment = signing.sign(tmp_path / name, signing.secret(keys[0])).read_bytes().split(b"\n")[2].decode("ascii")
    signed = comment.removeprefix("trusted comment: file:").removesuffix("\thashed")
    assert signed.isprintable() and signed == "".join(c if c.isascii() and c.isprintable() else "?" for c in name)


def test_a_changed_byte_of_file_or_signature_fails(file: Path, keys: tuple[Path, Path]) -> None:
    made, key = signing.sign(file, signing.secret(keys[0])), signing.public(str(keys[1]))
    for changed in (file, made):
        data = changed.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 40)):
            if changed == made and data[:at].count(b"\n") == 0:
                continue  # the first line is a comment that nobody trusts
            changed.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            with pytest.raises(InputError, match="is not a valid signature of this file") as raised:
                signing.check(file, key)
            assert "\n" not in str(raised.value)
        changed.write_bytes(data)
    signing.check(file, key)


def test_another_key_fails(file: Path, keys: tuple[Path, Path]) -> None:
    signing.sign(file, signing.secret(keys[0]))
    with pytest.raises(InputError, match="is not a valid signature of this file by that key"):
        signing.check(file, KeyPair.generate().public_key)


def test_a_signature_that_is_missing_or_none_fails(file: Path, keys: tuple[Path, Path]) -> None:
    key = signing.public(str(keys[1]))
    with pytest.raises(InputError, match="is missing"):
        signing.check(file, key)
    for data in (b"", b"\0" * 100, b"a\nb\nc\nd\n", bytes(1 << 20)):
        signing.signature_of(file).write_bytes(data)
        with pytest.raises(InputError, match="is not a valid signature of this file"):
            signing.check(file, key)


@pytest.mark.parametrize("data", [b"", b"text\n", b"untrusted comment: x\nAAAA\n", bytes(500), b"\xff" * 90])
def test_what_is_no_key_is_refused_in_a_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad").write_bytes(data)
    for read in (lambda: signing.secret(tmp_path / "bad"), lambda: signing.public(str(tmp_path / "bad"))):
        with pytest.raises(InputError, match="bad: n") as raised:
            read()
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="nowhere: not a minisign secret key"):
        signing.secret(tmp_path / "nowhere")
    with pytest.raises(InputError, match="neither a file"):
        signing.public("nowhere\0")


def test_an_encrypted_key_wants_its_password(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = KeyPair.generate()
    public = pair.public_key
    pair.secret_key.encrypt("pass", opslimit=32768, memlimit=1 << 20)
    (tmp_path / "mine.key").write_bytes(bytes(pair.secret_key) + b"\n")
    monkeypatch.delenv(signing.PASSWORD, raising=False)
    with pytest.raises(InputError, match=signing.PASSWORD):
        signing.secret(tmp_path / "mine.key")
    monkeypatch.setenv(signing.PASSWORD, "wrong")
    with pytest.raises(InputError, match="wrong password"):
        signing.secret(tmp_path / "mine.key")
    monkeypatch.setenv(signing.PASSWORD, "pass")
    signing.sign(file, signing.secret(tmp_path / "mine.key"))
    signing.check(file, public)


@tool
def test_minisign_takes_our_signature_and_we_take_its(file: Path, tmp_path: Path) -> None:
    made = minisign("-G", "-W", "-p", tmp_path / "their.pub", "-s", tmp_path / "their.key")
    assert made.returncode == 0, made.stderr
    ours = signing.sign(file, signing.secret(tmp_path / "their.key"))
    assert minisign("-Vm", file, "-p", tmp_path / "their.pub").returncode == 0
    ours.unlink()
    assert minisign("-Sm", file, "-s", tmp_path / "their.key").returncode == 0
    signing.check(file, signing.public(str(tmp_path / "their.pub")))
    file.write_bytes(b"changed")
    assert minisign("-Vm", file, "-p", tmp_path / "their.pub").returncode != 0
    with pytest.raises(InputError, match="is not a valid signature of this file"):
        signing.check(file, signing.public(str(tmp_path / "their.pub")))


@tool
def test_minisign_reads_the_keys_that_we_read(file: Path, keys: tuple[Path, Path]) -> None:
    assert minisign("-Sm", file, "-s", keys[0]).returncode == 0
    signing.check(file, signing.public(str(keys[1])))
