"""The sample app as far as the distribution's tools build it: linked, aligned, signed with a key made here, verified.

No dexer is among them: the APK has all but its classes.dex.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import android_packages
import package_inputs
import pytest
from android_packages import Opened

from edgecompress.extras.apps.packagers import _android_checks
from edgecompress.extras.apps.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.jdk, pytest.mark.android]
PASSWORD = "pass:secret"
ALIGNMENT = 4


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A classifier of pictures, packed for Android."""
    folder = tmp_path_factory.mktemp("apk")
    return android_packages.packed(package_inputs.shipped(folder / "shipped"), folder)


@pytest.fixture(scope="module")
def aligned(small: Opened, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's APK, unsigned: its manifest linked against the framework, the library's assets, aligned."""
    work = tmp_path_factory.mktemp("linked")
    manifest = (small.root / "sample/app/src/main/AndroidManifest.xml").read_text()
    package = f'<manifest package="{small.namespace}.sample"'  # what Gradle adds
    (work / "AndroidManifest.xml").write_text(manifest.replace("<manifest", package, 1))
    versions = (
        "--min-sdk-version",
        "24",
        "--target-sdk-version",
        "35",
        "--version-code",
        "1",
        "--version-name",
        "1.0.0",
    )
    places = ("-I", str(_android_checks.FRAMEWORK), "--manifest", str(work / "AndroidManifest.xml"))
    tool("aapt2", "link", "-o", str(work / "linked.apk"), *places, *versions, "-A", str(small.assets), "-0", "onnx")
    tool("zipalign", "-f", str(ALIGNMENT), str(work / "linked.apk"), str(work / "aligned.apk"))
    return work / "aligned.apk"


@pytest.fixture(scope="module")
def signed(aligned: Path) -> Path:
    """The APK, signed with a key that is made here."""
    key = aligned.with_name("key.jks")
    owner = ("-dname", "CN=Test", "-keyalg", "RSA", "-keysize", "2048", "-validity", "10000")
    tool("keytool", "-genkeypair", "-keystore", str(key), "-storepass", "secret", "-alias", "app", *owner)
    out = aligned.with_name("signed.apk")
    tool("apksigner", "sign", "--ks", str(key), "--ks-pass", PASSWORD, "--out", str(out), str(aligned))
    return out


def tool(*command: str) -> str:
    """Runs one of the build tools; returns what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_verify_links_the_library_with_aapt2(small: Opened) -> None:
    assert {check.name: check.status for check in verify(small.file)}["aapt2"] == "pass"


def test_the_apk_says_what_the_sample_is(aligned: Path) -> None:
    told = tool("aapt2", "dump", "badging", str(aligned))
    assert "package: name='ai.edgecompress.models.small_pets.sample' versionCode='1'" in told
    assert "sdkVersion:'24'" in told
    assert "launchable-activity: name='ai.edgecompress.models.small_pets.sample.MainActivity'" in told


def test_the_model_lies_in_the_apk_as_it_is_where_it_can_be_mapped(small: Opened, aligned: Path) -> None:
    with zipfile.ZipFile(aligned) as archive:
        entry = archive.getinfo("assets/small-pets/model/model.onnx")
        assert entry.compress_type == zipfile.ZIP_STORED
        assert archive.read(entry) == (small.slug / "model/model.onnx").read_bytes()
    assert offset(aligned, entry) % ALIGNMENT == 0
    tool("zipalign", "-c", str(ALIGNMENT), str(aligned))


def offset(file: Path, entry: zipfile.ZipInfo) -> int:
    """Where the bytes of an entry begin."""
    with file.open("rb") as stream:
        stream.seek(entry.header_offset + 26)
        name, extra = struct.unpack("<HH", stream.read(4))
    return int(entry.header_offset) + 30 + int(name) + int(extra)


def test_every_asset_of_the_library_is_in_the_apk(small: Opened, aligned: Path) -> None:
    files = {f"assets/{p.relative_to(small.assets).as_posix()}" for p in small.assets.rglob("*") if p.is_file()}
    with zipfile.ZipFile(aligned) as archive:
        assert files <= {*archive.namelist()}


def test_apksigner_verifies_what_it_signed(signed: Path) -> None:
    told = tool("apksigner", "verify", "--verbose", "--print-certs", str(signed))
    assert "Verifies" in told
    assert "v2 scheme (APK Signature Scheme v2): true" in told
    assert "certificate DN: CN=Test" in told


def test_apksigner_refuses_a_changed_byte_of_the_model(small: Opened, signed: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.apk"
    shutil.copy(signed, changed)
    with zipfile.ZipFile(changed) as archive:
        at = offset(changed, archive.getinfo("assets/small-pets/model/model.onnx")) + 100
    data = bytearray(changed.read_bytes())
    data[at] ^= 1
    changed.write_bytes(bytes(data))
    done = subprocess.run(["apksigner", "verify", str(changed)], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "DOES NOT VERIFY" in done.stdout + done.stderr
