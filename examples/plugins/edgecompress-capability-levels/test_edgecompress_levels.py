"""Each part keeps what its kind promises, on small nets."""

from pathlib import Path

from edgecompress.testing import conformance


def test_it_conforms(tmp_path: Path) -> None:
    conformance.check_technique("levels", tmp_path)
    conformance.check_section("levels", tmp_path)
    conformance.check_command("levels", tmp_path)
