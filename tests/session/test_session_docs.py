"""The examples of docs/reading.md work as they are printed, and its notebook is made from it."""

from __future__ import annotations

import ast
import doctest
import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from docs.make_notebook import GUIDE, NOTEBOOK, notebook
from tests.api.rig import drive
from tests.session.build import full_session
from tests.session.simulated import Sizes

PICTURES = GUIDE.parent / "pictures"


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Path:
    """A folder with the sessions of the guide, the working directory of its examples."""
    pytest.importorskip("matplotlib", reason="needs matplotlib, which is not installed")
    full_session(tmp_path / "sessions" / "rig-1", 1.0)
    drive(tmp_path / "sessions" / "drive", 1.2, Sizes())
    monkeypatch.setenv("MPLBACKEND", "agg")
    if (cache := pytestconfig.cache) is not None:  # of matplotlib's list of fonts
        monkeypatch.setenv("MPLCONFIGDIR", str(cache.mkdir("matplotlib")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_examples_of_the_reading_guide(sessions: Path, pytestconfig: pytest.Config) -> None:
    """With ``--pictures FOLDER``, the plots are kept."""
    # A fence ends an example's output, where doctest wants an empty line.
    text = GUIDE.read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, GUIDE.name, str(GUIDE), 0)
    assert len(test.examples) > 50
    said: list[str] = []
    result = doctest.DocTestRunner().run(test, out=said.append, clear_globs=False)
    test.globs["plt"].close("all")
    assert result.failed == 0, "".join(said)
    made = sorted(sessions.glob("reading-*.png"))
    assert [path.name for path in made] == [p.name for p in sorted(PICTURES.glob("reading-*"))]
    if folder := pytestconfig.getoption("--pictures"):
        for path in made:
            (pytestconfig.invocation_params.dir / folder / path.name).write_bytes(path.read_bytes())
    for path in made:
        picture = cv2.imread(str(path))
        assert picture is not None and np.std(np.asarray(picture)) > 5, path.name  # is not empty


def test_the_notebook_is_made_from_the_guide() -> None:
    assert NOTEBOOK.read_text() == notebook(GUIDE.read_text()), "run `make notebook`"


def test_the_notebook_has_the_keys_of_its_format() -> None:
    """By the schema of nbformat 4.5."""
    values = json.loads(NOTEBOOK.read_text())
    assert (values["nbformat"], values["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in values["cells"]]
    assert len(set(ids)) == len(ids) > 40
    code = []
    for cell in values["cells"]:
        common = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert cell.keys() == common | {"execution_count", "outputs"}
            assert cell["execution_count"] is None and cell["outputs"] == []
            code.append("".join(cell["source"]))
        else:
            assert cell["cell_type"] == "markdown" and cell.keys() == common
    # The code is that of the examples, which run above.
    examples = doctest.DocTestParser().get_examples(GUIDE.read_text().replace("```", ""))
    assert code == [e for e in code if e] and len(code) > 15
    statements = ast.dump(ast.parse("\n".join(code)))
    assert statements == ast.dump(ast.parse("".join(e.source for e in examples)))
