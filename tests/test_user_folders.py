"""The user's folders stand behind what is installed, and answer no import of an installed library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(tmp_path: Path, code: str) -> str:
    """What `code` prints where an installed library `lib` and the user's folder "own" are."""
    site = tmp_path / "lib" / "site-packages"
    (site / "spaced" / "inner").mkdir(parents=True)  # a package without __init__.py
    (site / "spaced" / "inner" / "__init__.py").write_text("WHOSE = 'installed'\n")
    (site / "lib.py").write_text(
        "import importlib\ntry:\n    import optional\n    FOUND = True\nexcept ImportError as error:\n"
        "    FOUND = error.name\n\ndef named(name):\n    return importlib.import_module(name)\n"
    )
    own = tmp_path / "own"
    own.mkdir()
    (own / "spaced.py").write_text("print('spaced.py ran')\n")
    (own / "optional.py").write_text("print('optional.py ran')\n")
    (own / "nets.py").write_text("import helpers\nimport spaced.inner\nWHOSE = helpers.WHOSE + spaced.inner.WHOSE\n")
    (own / "helpers.py").write_text("WHOSE = 'own, '\n")
    begin = f"from edgecompress.core import user_folders\nuser_folders.append([{str(own)!r}])\n"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    done = subprocess.run(
        [sys.executable, "-P", "-c", begin + code], env=env, cwd=own, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_an_installed_package_without_a_file_of_its_own_is_not_replaced(tmp_path: Path) -> None:
    assert run(tmp_path, "import spaced.inner\nprint(spaced.inner.WHOSE)") == "installed\n"


def test_what_a_library_tries_to_import_is_not_found_in_the_users_folder(tmp_path: Path) -> None:
    assert run(tmp_path, "import lib\nprint(lib.FOUND)") == "optional\n"


def test_the_users_own_modules_find_each_other(tmp_path: Path) -> None:
    assert run(tmp_path, "import nets\nprint(nets.WHOSE)") == "own, installed\n"


def test_a_library_that_is_given_a_name_finds_the_users_module(tmp_path: Path) -> None:
    assert run(tmp_path, "import lib\nprint(lib.named('nets').WHOSE)") == "own, installed\n"


def test_folders_are_added_once_and_by_one_guard(tmp_path: Path) -> None:
    code = (
        "import sys\nuser_folders.append(sys.path[-1:])\nuser_folders.append(['/other', '/other'])\n"
        "print(sys.path.count('/other'), sum(type(f).__name__ == '_Guard' for f in sys.meta_path))"
    )
    assert run(tmp_path, code) == "1 1\n"
