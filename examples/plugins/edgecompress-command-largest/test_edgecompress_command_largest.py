"""The plug-in keeps what its kind promises."""

from pathlib import Path

from edgecompress.testing import conformance


def test_it_conforms(tmp_path: Path) -> None:
    conformance.check_command("largest", tmp_path)
