"""What pyproject.toml cannot say: folders of the root, of TOML files and of examples, ship inside the package."""

import shutil
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

DATA = ("targets", "devices", "profiles")
EXAMPLES = "edgecompress.plugin_examples"  # what `edgecompress init` starts from
FOLDERS = {**{f"edgecompress.{name}": name for name in DATA}, EXAMPLES: "examples/plugins"}
# All of it stands here: a table [tool.setuptools.package-data] in pyproject.toml would replace this one.
INSIDE = ["py.typed", "demo/*", "**/*.json", "**/*.css", "**/*.c", "**/*.cpp", "extras/apps/packagers/templates/**/*"]


class Build(build_py):
    """Without what an earlier build of these sources has left: a file deleted since would ship."""

    def run(self) -> None:
        """Copies the package into the folder of which the wheel is made."""
        shutil.rmtree(Path(self.build_lib) / "edgecompress", ignore_errors=True)
        super().run()


setup(
    cmdclass={"build_py": Build},
    packages=[*find_namespace_packages(include=["edgecompress*"]), *FOLDERS],
    package_dir=FOLDERS,
    package_data={
        "edgecompress": INSIDE,
        **{f"edgecompress.{name}": ["*.toml"] for name in DATA},
        EXAMPLES: ["*/*.py", "*/*.toml"],
    },
)
