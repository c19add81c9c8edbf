"""``make sizes``: what is needed by whom, and what it takes on disk."""

from __future__ import annotations

from importlib.metadata import Distribution
from importlib.util import cache_from_source
from pathlib import Path

from docs.list_sizes import ROOT, needed, rows, size


def test_a_package_counts_with_those_that_ask_for_it_and_an_extra_adds() -> None:
    core = needed(ROOT, "", {})
    assert core["ouster-sdk"] == {ROOT}
    assert core["flask"] == {"ouster-sdk"}
    assert "cantools" not in core
    assert needed(ROOT, "can", {})["cantools"] == {ROOT}
    assert {"bitstruct"} <= set(needed(ROOT, "can", {})) - set(core)


def test_the_size_has_the_modules_and_their_bytecode(tmp_path: Path) -> None:
    info = tmp_path / "small-1.0.dist-info"
    info.mkdir()
    (tmp_path / "small.py").write_bytes(b"#" * 1000)
    record = b"small.py,,\nmissing.py,,\nsmall-1.0.dist-info/RECORD,,\n"
    (info / "RECORD").write_bytes(record)
    assert size(Distribution.at(info)) == 1000 + len(record)
    bytecode = Path(cache_from_source(str(tmp_path / "small.py")))
    bytecode.parent.mkdir()
    bytecode.write_bytes(b"#" * 200)
    assert size(Distribution.at(info)) == 1200 + len(record)


def test_small_packages_are_one_row() -> None:
    table = rows({"a": {"b"}, "b": {"d"}, "c": {"a", "b"}}, {"a": 0.5, "b": 30.0, "c": 1.0})
    assert table == ["| b | 30 | d |", "| 2 others, each below 2 MB | 2 | |"]
