"""An Android package: its library and repository, hostile texts in it, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import android_packages
import package_inputs
import prove
import pytest
from android_packages import PASSES, Opened, packed, values

from edgecompress.core.errors import ConfigError, InputError, MissingDependency
from edgecompress.extras.apps import pack
from edgecompress.extras.apps.packagers import _android_classes, _android_engines, _android_java
from edgecompress.extras.apps.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.jdk]
HOSTILE = (
    'Cat"; System.exit(1); //',
    "line\nbreak\r\n}",
    "*/ class Evil {} /*",
    "\\u000a \\u0022 \u2028 \u202eRTL \u2066x\u2069",
    "<x a='1'>&amp;]]></x> ${evil} $(evil) `evil` ''' \"\"\" '",
    "@string/app \x07 \\ {{ 7 * 7 }} {% raw %}",
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A classifier of pictures in ONNX, packed."""
    folder = tmp_path_factory.mktemp("android")
    return packed(package_inputs.shipped(folder / "shipped"), folder)


def statuses(file: Path) -> dict[str, str]:
    """What `package verify` says."""
    return {check.name: check.status for check in verify(file)}


def resealed(opened: Opened, work: Path) -> Path:
    """The package again after its tree was changed, its sums right: what is left are the packager's own checks."""
    (opened.root / pack.SUMS).write_text(pack.sums(opened.root))
    shutil.make_archive(str(work / "changed"), "zip", opened.root.parent)
    return work / "changed.zip"


# --------------------------------------------------------------------------- the package


def test_the_bill_of_materials_names_the_library_that_gradle_fetches(small: Opened) -> None:
    bom = json.loads((small.root / "bom.cdx.json").read_text())
    runtime = next(c for c in bom["components"] if c["bom-ref"] == "runtime")
    pom = ElementTree.parse(next(small.root.rglob("*.pom"))).getroot()
    found = {e.tag.split("}")[-1]: e.text for e in pom.iter()}  # the dependency comes last
    assert runtime["purl"] == f"pkg:maven/{found['groupId']}/{found['artifactId']}@{found['version']}"


def test_verify_passes_every_check_and_names_what_it_cannot_look_at(small: Opened) -> None:
    found = statuses(small.file)
    skipped = {name for name, status in found.items() if status == "skipped"}
    assert skipped - {"aapt2"} == {"signature", "real jar", "accuracy"}
    assert {name for name, status in found.items() if status == "fail"} == set()


def test_the_library_has_what_gradle_looks_for(small: Opened) -> None:
    there = {p.relative_to(small.aar).as_posix() for p in small.aar.rglob("*") if p.is_file()}
    assert {"AndroidManifest.xml", "classes.jar", "R.txt", "proguard.txt"} <= there
    assert {"assets/small-pets/model/model.onnx", "assets/small-pets/golden/raw.bin"} <= there
    least = ElementTree.parse(small.aar / "AndroidManifest.xml").getroot().find("uses-sdk")
    assert least is not None and "24" in least.attrib.values()


def test_the_pom_depends_on_the_runtime_at_the_version_that_verified_the_model(small: Opened) -> None:
    pom = next((small.root / "maven").rglob("*.pom"))
    said = [e.text for e in ElementTree.parse(pom).getroot().iter() if e.tag.endswith(("artifactId", "version"))]
    assert said == ["small-pets", "1.0.0", "onnxruntime-android", "1.31.1"]


def test_each_file_of_the_repository_has_its_sums(small: Opened) -> None:
    sums = ("md5", "sha1", "sha256")
    files = [p for p in (small.root / "maven").rglob("*") if p.is_file() and p.suffix[1:] not in sums]
    assert {p.suffix for p in files} == {".aar", ".jar", ".pom", ".xml"}
    for file in files:
        for name in sums:
            assert Path(f"{file}.{name}").read_text() == hashlib.new(name, file.read_bytes()).hexdigest()


def test_sources_and_javadoc_lie_beside_it(small: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = [zipfile.ZipFile(next(small.root.rglob(f"*-{end}.jar"))) for end in ("sources", "javadoc")]
    here, (sources, pages) = small.namespace.replace(".", "/"), [set(jar.namelist()) for jar in jars]
    compiled = {name.split("$")[0].removesuffix(".class") for name in map(str, android_packages.classes(small))}
    assert {name.removesuffix(".java") for name in sources} == compiled
    assert {f"{here}/{name}.html" for name in ("SmallPetsModel", "ModelSpec", "Prediction", "SelfTest")} <= pages
    monkeypatch.setattr(_android_java, "javac", lambda: str(tmp_path / "javac"))  # of a JDK without javadoc
    _android_java.document(tmp_path, small.namespace, tmp_path / "again")
    assert [file.name for file in (tmp_path / "again").iterdir()] == ["README.md"]


def test_the_classes_are_of_java_8_in_one_namespace_and_use_nothing_younger_than_their_android(small: Opened) -> None:
    found = _android_classes.jar(small.aar / "classes.jar")
    assert {c.major for c in found.values()} == {52}
    assert all(name.startswith("ai.edgecompress.models.small_pets.") for name in found)
    uses = {used for c in found.values() for used in c.uses}
    assert "java.nio.ByteBuffer" in uses
    young = ("java.nio.file.", "java.time.", "java.util.Base64", "java.lang.StringConcatFactory")  # from API 26 on
    assert not [used for used in uses if used.startswith(young)]


def test_two_models_share_no_class(small: Opened, tmp_path: Path) -> None:
    other = packed(package_inputs.shipped(tmp_path / "shipped", name="Big pets"), tmp_path)
    assert not {*android_packages.classes(small)} & {*android_packages.classes(other)}


def test_the_sample_compiles_against_the_library(small: Opened, tmp_path: Path) -> None:
    jar = small.aar / "classes.jar"
    _android_java.compile(sorted((small.root / "sample").rglob("*.java")), tmp_path / "sample", [str(jar)])
    assert (tmp_path / "sample/ai/edgecompress/models/small_pets/sample/MainActivity.class").is_file()


@pytest.mark.parametrize("name", ["litert", "onnx", "executorch", "qnn"])
def test_the_sources_compile_without_a_warning(name: str, small: Opened, tmp_path: Path) -> None:
    found = _android_engines.ENGINES[name]
    _android_java.write(
        tmp_path / "src", "com.example.x", found, values(small, namespace="com.example.x", engine=found.java)
    )
    sources = [str(p) for p in sorted((tmp_path / "src").rglob("*.java"))]
    strict = ("-Xlint:all,-options", "-Werror", "-implicit:none")
    places = ("-sourcepath", str(_android_java.TEMPLATES / "stubs"), "-d", str(tmp_path / "classes"))
    command = ["javac", *_android_java.BRIEF, "--release", "8", *strict, *places, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_inference_has_the_threads_that_it_was_measured_with(tmp_path: Path) -> None:
    folder = package_inputs.shipped(tmp_path / "shipped")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    (folder / "report.json").write_text(json.dumps({**report, "run": {"batch": 1, "threads": 2}}), encoding="utf-8")
    opened = packed(folder, tmp_path)
    assert opened.card["runtime"]["threads"] == 2
    assert "fail" not in statuses(opened.file).values()


def test_an_ai_pack_holds_the_model_and_the_library_does_not(tmp_path: Path) -> None:
    opened = packed(package_inputs.shipped(tmp_path / "shipped"), tmp_path, ai_pack=True)
    model = opened.root / "aipack/small_pets/src/main/assets/small-pets/model/model.onnx"
    assert hashlib.sha256(model.read_bytes()).hexdigest() == opened.card["model"]["files"][0]["sha256"]
    assert not (opened.slug / "model").exists()
    assert "com.android.ai-pack" in (opened.root / "aipack/small_pets/build.gradle").read_text()
    assert "assetPacks = [':small_pets']" in (opened.root / "sample/app/build.gradle").read_text()
    assert "fail" not in statuses(opened.file).values()


# --------------------------------------------------------------------------- hostile texts


def scripts(opened: Opened) -> dict[str, str]:
    """Gradle's scripts and the app's manifest, the model's own names taken out."""
    slug = opened.card["slug"]
    own = (slug.replace("-", "_"), slug, "".join(word.capitalize() for word in slug.split("-")))
    files = [p for p in (opened.root / "sample").rglob("*") if p.suffix in (".gradle", ".xml", ".properties")]
    return {p.name: re.sub("|".join(map(re.escape, own)), "NAME", p.read_text()) for p in files}


@pytest.mark.parametrize("text", prove.some(HOSTILE, 1))
def test_a_hostile_name_neither_breaks_nor_gets_into_java_xml_or_gradle(
    text: str, small: Opened, tmp_path: Path
) -> None:
    shipped = package_inputs.shipped(tmp_path / "shipped", name=text, labels=[text, *HOSTILE[:3]], description=text)
    opened = packed(shipped, tmp_path)
    assert "fail" not in statuses(opened.file).values()
    spec = _android_classes.jar(opened.aar / "classes.jar")[f"{opened.namespace}.ModelSpec"]
    assert spec.texts["NAME"] == opened.card["name"] == text
    pom = ElementTree.parse(next((opened.root / "maven").rglob("*.pom"))).getroot()
    assert pom.findtext("{http://maven.apache.org/POM/4.0.0}packaging") == "aar"
    assert len(list(pom.iter("{http://maven.apache.org/POM/4.0.0}dependency"))) == 1
    assert scripts(opened) == scripts(small)
    _android_java.compile(
        sorted((opened.root / "sample").rglob("*.java")), tmp_path / "sample", [str(opened.aar / "classes.jar")]
    )
    names = {p.name for p in (tmp_path / "sample").rglob("*.class")}
    assert names == {"MainActivity.class", "MainActivity$Work.class"}


@pytest.mark.prove
def test_ten_megabytes_of_name_and_of_label_are_packed(tmp_path: Path) -> None:
    long = 'ab"\n' * 2_500_000
    shipped = package_inputs.shipped(tmp_path / "shipped", name=long, labels=[long, "b", "c", "d"])
    opened = packed(shipped, tmp_path)
    assert "fail" not in statuses(opened.file).values()
    assert (opened.slug / "labels.json").stat().st_size > 10_000_000
    run = android_packages.jvm(opened, tmp_path / "jvm", "onnx")
    assert android_packages.steps(run("selftest", [opened.assets])[0]) == PASSES


@pytest.mark.parametrize("name", prove.some(["class", "Native", "model", "3D", "日本"], 2))
def test_a_name_that_is_no_java_name_becomes_one(name: str, tmp_path: Path) -> None:
    opened = packed(package_inputs.shipped(tmp_path / "shipped", name=name), tmp_path)
    assert "fail" not in statuses(opened.file).values()


# --------------------------------------------------------------------------- what is refused


def test_a_changed_package_fails_where_it_was_changed(small: Opened, tmp_path: Path) -> None:
    def changed(name: str, change: Callable[[Opened], None]) -> dict[str, str]:
        work = tmp_path / name
        shutil.copytree(small.root.parent, work / "opened")
        opened = dataclasses.replace(small, root=work / "opened" / small.root.name)
        change(opened)
        return statuses(resealed(opened, work))

    def pom(opened: Opened) -> None:
        file = next((opened.root / "maven").rglob("*.pom"))
        file.write_text(file.read_text().replace("1.31.1", "1.31.0"))

    def entities(opened: Opened) -> None:
        file = next((opened.root / "maven").rglob("*.pom"))
        file.write_text('<!DOCTYPE x [<!ENTITY a "b">]>' + file.read_text())

    def sources(opened: Opened) -> None:
        with zipfile.ZipFile(next(opened.root.rglob("*-sources.jar")), "a") as jar:
            jar.writestr("More.java", "class More {}")

    def library(opened: Opened) -> None:
        next((opened.root / "maven").rglob("*.aar")).unlink()

    assert {k for k, v in changed("pom", pom).items() if v == "fail"} == {"maven", "pom"}
    assert {k for k, v in changed("entities", entities).items() if v == "fail"} == {"maven", "pom"}
    assert changed("sources", sources)["code"] == "fail"
    assert changed("library", library)["payload"] == "fail"


def test_another_constant_than_the_cards_is_found_in_the_class_file(small: Opened, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(small.root.parent, work / "opened")
    opened = dataclasses.replace(small, root=work / "opened" / small.root.name)
    aar = next((opened.root / "maven").rglob("*.aar"))
    shutil.copytree(small.aar, tmp_path / "aar")
    jar = tmp_path / "aar/classes.jar"
    with zipfile.ZipFile(jar) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in entries if n.endswith("/ModelSpec.class"))
    entries[name] = entries[name].replace(b'"mean":[0.485', b'"mean":[0.484')
    with zipfile.ZipFile(jar, "w") as archive:
        for entry, data in entries.items():
            archive.writestr(entry, data)
    shutil.make_archive(str(tmp_path / "new"), "zip", tmp_path / "aar")
    aar.write_bytes((tmp_path / "new.zip").read_bytes())
    for sums in ("md5", "sha1", "sha256"):
        Path(f"{aar}.{sums}").write_text(hashlib.new(sums, aar.read_bytes()).hexdigest())
    found = statuses(resealed(opened, work))
    assert {k for k, v in found.items() if v == "fail"} == {"constants"}


def test_a_jar_that_is_damaged_or_a_bomb_is_refused(tmp_path: Path) -> None:
    def jar(name: str, data: bytes, count: int) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for i in range(count):
                archive.writestr(f"a/B{i}.class", data)
        return tmp_path / name

    damaged = jar("damaged", b"class" * 100, 1)
    data = bytearray(damaged.read_bytes())
    data[data.index(b"B0.class") + 8] = 0xFF  # the kind of a block that deflate does not have
    damaged.write_bytes(data)
    bomb = jar("bomb", bytes(1 << 20), 100)
    for file, says in ((damaged, "cannot be unpacked"), (bomb, "a bomb"), (jar("many", b"", 1001), "1000 entries")):
        with pytest.raises(InputError, match=says):
            _android_classes.jar(file)


def test_a_class_of_another_java_or_namespace_is_found(small: Opened) -> None:
    with zipfile.ZipFile(small.aar / "classes.jar") as archive:
        data = archive.read(archive.namelist()[0])
    assert _android_classes.parse(data).major == 52
    for cut in range(0, len(data) - 1, 97):
        with pytest.raises(InputError, match="class file"):
            _android_classes.parse(data[:cut]) and _android_classes.parse(b"")


def test_what_an_app_cannot_run_is_refused(small: Opened) -> None:
    def refused(match: str, **changes: Any) -> None:
        with pytest.raises(InputError, match=match):
            _android_engines.engine({**small.card, **changes})

    end = small.card["inputs"][0]
    per_channel = {"scale": [0.1, 0.2], "zero_point": [0, 0], "axis": 1}
    refused("float16", inputs=[{**end, "dtype": "float16"}])
    refused("per channel", inputs=[{**end, "dtype": "int8", "quantization": per_channel}])
    refused("not supported in Android packages", runtime={"name": "openvino", "version": "1"})
    refused("deploy it again", runtime={"name": "onnx", "version": ""})
    refused("skip files", model={**small.card["model"], "files": [{"path": "model/.x", "bytes": 1, "sha256": "0"}]})
    golden = {**small.card["golden"], "raw": {**small.card["golden"]["raw"], "dtype": "float32"}}
    refused("takes uint8", golden=golden)


@pytest.mark.parametrize("namespace", ["Digits", "com.class.x", "com", "com.example.", "a.b;c", "com.exämple"])
def test_a_namespace_that_is_none_is_refused(namespace: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        packed(package_inputs.shipped(tmp_path / "shipped"), tmp_path, namespace=namespace)


def test_the_namespace_and_group_are_those_asked_for(tmp_path: Path) -> None:
    opened = packed(package_inputs.shipped(tmp_path / "s"), tmp_path, namespace="com.example.pets", group="com.example")
    assert opened.namespace == "com.example.pets"
    assert (opened.root / "maven/com/example/small-pets/1.0.0/small-pets-1.0.0.aar").is_file()
    assert "fail" not in statuses(opened.file).values()


def test_without_a_jdk_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MissingDependency, match="apt-get install openjdk"):
        packed(package_inputs.shipped(tmp_path / "shipped"), tmp_path)
