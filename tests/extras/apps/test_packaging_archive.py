"""Archives: the same bytes each time; a stranger's is opened into its folder, or refused with a line."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgecompress.core.errors import InputError
from edgecompress.extras.apps import archive

pytestmark = pytest.mark.slow

SUFFIXES = (".zip", ".tar.gz")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree: a folder, a program, names that need care."""
    root = tmp_path / "tree"
    (root / "top" / "a" / "b").mkdir(parents=True)
    (root / "top" / "README.md").write_text("# read\n")
    (root / "top" / "a" / "run").write_bytes(b"#!/bin/sh\n")
    (root / "top" / "a" / "run").chmod(0o700)
    (root / "top" / "a" / "b" / "größe.bin").write_bytes(bytes(range(256)) * 40)
    (root / "top" / "a" / ("n" * 200)).write_bytes(b"")
    return root


def content(root: Path) -> dict[str, tuple[bytes, int]]:
    """Each file with its bytes and its mode."""
    files = [p for p in sorted(root.rglob("*")) if p.is_file()]
    return {p.relative_to(root).as_posix(): (p.read_bytes(), p.stat().st_mode & 0o777) for p in files}


# --------------------------------------------------------------------------- writing


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_packed_comes_out(tree: Path, tmp_path: Path, suffix: str) -> None:
    archive.write(tree, tmp_path / "out", suffix)
    (tmp_path / "into").mkdir()
    archive.unpack(tmp_path / "out", tmp_path / "into")
    found, packed = content(tmp_path / "into"), content(tree)
    assert {name: data for name, (data, _) in found.items()} == {name: data for name, (data, _) in packed.items()}
    assert {name for name, (_, mode) in found.items() if mode == 0o755} == {"top/a/run"}
    assert {mode for _, mode in found.values()} == {0o644, 0o755}
    assert archive.top(tmp_path / "into", tmp_path / "out").name == "top"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_times_owners_and_the_order_of_writing_change_no_byte(tree: Path, tmp_path: Path, suffix: str) -> None:
    archive.write(tree, tmp_path / "first", suffix)
    other = tmp_path / "other"
    for file in sorted((p for p in tree.rglob("*") if p.is_file()), reverse=True):
        place = other / file.relative_to(tree)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
        place.chmod(0o744 if file.stat().st_mode & 0o100 else 0o600)
        os.utime(place, (1e9, 1e9))
    archive.write(other, tmp_path / "second", suffix)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_zip_has_sorted_entries_of_1980(tree: Path, tmp_path: Path) -> None:
    archive.write(tree, tmp_path / "out", ".zip", stored=("top/README.md",))
    with zipfile.ZipFile(tmp_path / "out") as packed:
        entries = packed.infolist()
        assert packed.testzip() is None
    assert [e.filename for e in entries] == sorted(e.filename for e in entries)
    assert {e.date_time for e in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {e.filename for e in entries if e.compress_type == zipfile.ZIP_STORED} == {"top/README.md"}
    assert {stat.S_IFMT(e.external_attr >> 16) for e in entries} == {stat.S_IFREG}


def test_a_tar_has_no_owner_and_no_time(tree: Path, tmp_path: Path) -> None:
    archive.write(tree, tmp_path / "out", ".tar.gz")
    with tarfile.open(tmp_path / "out") as packed:
        entries = packed.getmembers()
    assert {(e.mtime, e.uid, e.gid, e.uname, e.gname) for e in entries} == {(0, 0, 0, "", "")}
    assert (tmp_path / "out").read_bytes()[4:8] == b"\0\0\0\0"


def test_a_link_is_not_packed(tree: Path, tmp_path: Path) -> None:
    (tree / "top" / "link").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="is a link or a device"):
        archive.write(tree, tmp_path / "out", ".zip")


def test_another_suffix_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a \.zip or a \.tar\.gz"):
        archive.write(tree, tmp_path / "out", ".rar")


# --------------------------------------------------------------------------- a stranger's


def zipped(file: Path, *entries: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in entries:
            packed.writestr(name, data)
    return file


def tarred(file: Path, *entries: tuple[tarfile.TarInfo | str, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as packed:
        for name, data in entries:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
    return file


PACK: dict[str, Callable[..., Path]] = {"zip": zipped, "tar": tarred}


def refused(file: Path, says: str) -> None:
    """The archive is refused in one line that names it; nothing of it lies outside of its folder."""
    into = file.parent / "deep" / "into"
    into.mkdir(parents=True)
    before = {p for p in file.parent.rglob("*") if into not in p.parents}
    with pytest.raises(InputError, match=says) as raised:
        archive.unpack(file, into)
    line = str(raised.value)
    assert "\n" not in line and line.isprintable() and str(file) in line and len(line) < 500
    assert {p for p in file.parent.rglob("*") if into not in p.parents} == before


NAMES = {
    "../evil": "points outside its folder",
    "a/../../evil": "points outside its folder",
    "a/..": "points outside its folder",
    "/tmp/evil": "an absolute path",
    "//server/evil": "an absolute path",
    "C:/evil": "an absolute path",
    "c:evil": "an absolute path",
    "..\\evil": "a backslash",
    "a\\b": "a backslash",
    "a//b": "empty parts",
    "./a": "empty parts",
    "a/./b": "empty parts",
    "a\nb": "cannot be printed",
    "a\x1b[2Jb": "cannot be printed",
    "a\u202etxt.exe": "cannot be printed",
    "ab:stream": "a colon",
    "a./b": "ends in a dot",
    "a /b": "ends in a dot or a space",
    "n" * 300: "too long",
    "/".join(["n" * 100] * 12): "too long",
}


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_plain_path_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    refused(PACK[kind](tmp_path / "bad", ("top/fine", b"x"), (name, b"evil")), NAMES[name])


SAME = (("a", "a"), ("top/A", "top/a"), ("straße", "STRASSE"), ("e\u0301", "\u00e9"), ("a", "a/b"), ("a/b", "A"))


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("names", SAME)
def test_two_entries_that_are_one_on_some_disk_are_refused(tmp_path: Path, kind: str, names: tuple[str, str]) -> None:
    with pytest.warns(UserWarning, match="Duplicate") if names == ("a", "a") and kind == "zip" else _nothing():
        file = PACK[kind](tmp_path / "bad", *((name, b"x") for name in names))
    refused(file, "occurs twice")


def _nothing() -> object:
    import contextlib

    return contextlib.nullcontext()


TYPES = {
    "symlink": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "contiguous": tarfile.CONTTYPE,
    "sparse": tarfile.GNUTYPE_SPARSE,
    "unknown": b"Z",
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_tar_holds_files_and_folders_alone(tmp_path: Path, kind: str) -> None:
    info = tarfile.TarInfo("top/odd")
    info.type, info.linkname = TYPES[kind], "/etc/passwd"
    refused(tarred(tmp_path / "bad", (info, b"")), "is a link or a device")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFDIR])
def test_a_zip_holds_files_and_folders_alone(tmp_path: Path, kind: int) -> None:
    info = zipfile.ZipInfo("top/odd")
    info.create_system, info.external_attr = 3, (kind | 0o777) << 16
    refused(zipped(tmp_path / "bad", (info, b"/etc/passwd")), "is a link or a device")


def test_a_link_through_which_a_later_entry_would_leave_is_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("top/out")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    refused(tarred(tmp_path / "bad", (link, b""), ("top/out/evil", b"x")), "is a link or a device")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    file = zipped(tmp_path / "bad", ("top/a", b"x" * 100))
    data = bytearray(file.read_bytes())
    for magic, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(magic) + at] |= 1
    file.write_bytes(data)
    refused(file, "is encrypted")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_way_of_packing_that_we_do_not_use_is_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "bad", "w", method) as packed:
        packed.writestr("top/a", b"x" * 100)
    refused(tmp_path / "bad", "uses a compression method that is not supported")


@pytest.mark.parametrize("kind", PACK)
def test_more_entries_than_a_package_has_are_refused(tmp_path: Path, kind: str) -> None:
    refused(
        PACK[kind](tmp_path / "bad", *((f"top/{i}", b"") for i in range(archive.ENTRIES + 1))),
        "more than 10000 entries",
    )


@pytest.mark.parametrize("kind", PACK)
def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path, kind: str) -> None:
    file = PACK[kind](tmp_path / "bad", ("top/zeros", bytes(200 << 20)))
    assert file.stat().st_size < 1 << 20
    refused(file, "a bomb")
    assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) < 70 << 20


def test_a_bomb_that_lies_about_its_size_is_counted_on_its_bytes(tmp_path: Path) -> None:
    file = zipped(tmp_path / "bad", ("top/zeros", bytes(200 << 20)))
    data = bytearray(file.read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\1\2") + 24, 10)
    struct.pack_into("<I", data, data.index(b"PK\3\4") + 22, 10)
    file.write_bytes(data)
    refused(file, "a bomb|cannot be unpacked")


def test_many_small_files_are_a_bomb_together(tmp_path: Path) -> None:
    refused(zipped(tmp_path / "bad", *((f"top/{i}", bytes(1 << 20)) for i in range(100))), "a bomb")


def test_small_and_dense_is_no_bomb(tmp_path: Path) -> None:
    file = zipped(tmp_path / "fine", ("top/zeros", bytes(60 << 20)))
    (tmp_path / "into").mkdir()
    archive.unpack(file, tmp_path / "into")
    assert (tmp_path / "into/top/zeros").stat().st_size == 60 << 20


def test_more_than_the_limit_in_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "BYTES", 1 << 20)
    for kind, pack in PACK.items():
        (tmp_path / kind).mkdir()
        refused(
            pack(tmp_path / kind / "bad", *((f"top/{i}", os.urandom(1 << 18)) for i in range(5))), "holds more than"
        )


def test_a_header_that_claims_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    (tmp_path / "bad").write_bytes(gzip.compress(info.tobuf() + bytes(50 << 20)))
    tracemalloc.start()
    refused(tmp_path / "bad", "a header of more than 4 KiB|bomb")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_header_that_is_slow_to_read_is_refused_unread(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = kind, 900_000
    (tmp_path / "bad").write_bytes(
        gzip.compress(info.tobuf() + b"1" * 901_120)
    )  # digits: the square of them, in tarfile
    refused(tmp_path / "bad", "a header of more than 4 KiB")


def test_a_chain_of_headers_is_as_one(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type = tarfile.XHDTYPE
    (tmp_path / "bad").write_bytes(gzip.compress(info.tobuf() * 5000))
    refused(tmp_path / "bad", "a header of more than 4 KiB")


def test_the_longest_name_fits_into_its_header(tmp_path: Path) -> None:
    name = "/".join(["é" * 100] * 5)
    (tmp_path / "into").mkdir()
    archive.unpack(tarred(tmp_path / "fine", (name, b"x" * 9000)), tmp_path / "into")
    assert (tmp_path / "into" / name).stat().st_size == 9000


def test_a_second_name_in_a_field_of_a_zip_is_refused(tmp_path: Path) -> None:
    """Pythons from 3.13 on put the Unicode path of an extra field into `filename`."""
    entry = zipfile.ZipInfo("top/a")
    entry.filename = "../../evil"
    with pytest.raises(InputError, match="has a second name"):
        archive._check_zip_entry(tmp_path / "bad", entry)


def test_a_table_of_contents_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    file = zipped(tmp_path / "bad", ("top/a", b"x"))
    data = bytearray(file.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\5\6") + 12, 0x7FFFFFFF)
    file.write_bytes(data)
    refused(file, "more than 10000 entries")


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"PK\3\4", b"\x1f\x8b", b"\x1f\x8b\x08" + bytes(20), b"text", b"PK\5\6" + bytes(5)]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad").write_bytes(data)
    refused(tmp_path / "bad", "neither|cannot be unpacked|truncated")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_cut_or_changed_archive_is_refused_or_whole(tree: Path, tmp_path: Path, suffix: str) -> None:
    archive.write(tree, tmp_path / "good", suffix)
    data, want = (tmp_path / "good").read_bytes(), {n: d for n, (d, _) in content(tree).items()}
    for i in range(0, len(data), max(1, len(data) // 60)):
        for name, bad in (("cut", data[:i]), ("changed", data[:i] + bytes([data[i] ^ 0x55]) + data[i + 1 :])):
            (tmp_path / "bad").write_bytes(bad)
            into = tmp_path / f"{name}{i}"
            into.mkdir()
            try:
                archive.unpack(tmp_path / "bad", into)
            except InputError as error:
                assert "\n" not in str(error)
            else:
                found = {n: d for n, (d, _) in content(into).items()}
                assert all(want[n] == d for n, d in found.items() if n in want)


def test_a_package_has_one_folder_at_its_top(tmp_path: Path) -> None:
    for entries in ([("a", b"x")], [("a/x", b"x"), ("b/x", b"x")], []):
        into = tmp_path / f"into{len(entries)}{entries[0][0] if entries else ''}".replace("/", "")
        into.mkdir()
        archive.unpack(zipped(tmp_path / "bad", *entries), into)
        with pytest.raises(InputError, match="one folder at its top"):
            archive.top(into, tmp_path / "bad")
