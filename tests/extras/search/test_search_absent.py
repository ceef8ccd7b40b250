"""A package without the folder of the search: the core goes on, and tells in one line what to install."""

from __future__ import annotations

import pytest

import edgecompress
from edgecompress.cli.main import main
from edgecompress.core import extras
from edgecompress.core.errors import MissingDependency

LINE = "the extra 'search' is not here; install edgecompress whole, in its checkout: pip install -e ."
NAMES = {"Advised", "SearchResult", "advise", "search", "train"}


@pytest.fixture(autouse=True)
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_here", lambda name: name != "search")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_for_python_says_what_to_install_and_is_not_listed(name: str) -> None:
    with pytest.raises(MissingDependency) as caught:
        getattr(edgecompress, name)
    assert str(caught.value) == LINE
    assert not NAMES & {*edgecompress.__all__, *dir(edgecompress)}


@pytest.mark.parametrize("words", ["--train 1m", "--from-search x"])
def test_an_option_of_deploy_ends_with_bad_input(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", *words.split()]) == 2
    assert capsys.readouterr().err == f"edgecompress: error: {words.split()[0]}: {LINE}\n"
