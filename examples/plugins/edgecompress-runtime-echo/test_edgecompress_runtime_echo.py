"""The plug-in keeps what its kind promises, on small nets."""

from pathlib import Path

from edgecompress.testing import conformance


def test_it_conforms(tmp_path: Path) -> None:
    conformance.check_runtime("echo", tmp_path)
