"""What pyproject.toml cannot say: the folders of TOML files at the root ship inside the package."""

from setuptools import find_namespace_packages, setup

DATA = ("targets", "devices", "profiles")
# All of it stands here: a table [tool.setuptools.package-data] in pyproject.toml would replace this one.
INSIDE = ["py.typed", "demo/*", "**/*.json", "**/*.css", "**/*.c", "plugins/packagers/templates/**/*"]

setup(
    packages=[*find_namespace_packages(include=["edgecompress*"]), *(f"edgecompress.{name}" for name in DATA)],
    package_dir={f"edgecompress.{name}": name for name in DATA},
    package_data={"edgecompress": INSIDE, **{f"edgecompress.{name}": ["*.toml"] for name in DATA}},
)
