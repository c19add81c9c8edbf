"""The catalog, read by DuckDB: the queries of docs/catalog.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from recorder.fleet.catalog.catalog import update_catalog
from tests.fleet.catalog.test_catalog import root as root

pytestmark = pytest.mark.conformance
duckdb: Any = pytest.importorskip("duckdb", reason="needs duckdb, which is not installed")
DOCUMENT = Path(__file__).parents[2] / "docs/catalog.md"


def test_every_query_of_the_document_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update_catalog(root)
    monkeypatch.chdir(root)
    (block,) = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    queries = [query for query in block.split(";") if query.strip()]
    assert len(queries) == 2
    for query in queries:
        assert duckdb.sql(query).fetchall() == [], "no lidar, no event"


def test_rows_and_nested_columns(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update_catalog(root)
    monkeypatch.chdir(root)
    found = duckdb.sql(
        "SELECT session, vehicle, s.name, s.samples, s.lost, metadata['vehicle'], place.north, "
        "marks[1].text, epoch_us(start) FROM 'catalog.parquet', UNNEST(streams) AS t(s) "
        "WHERE session = 'drive' AND s.name = 'imu'"
    ).fetchall()
    start_us = update_catalog(root).rows[-1].start_ns
    assert start_us is not None
    row = ("drive", "van 7", "imu", 20, 3, "van 7", 48.3, "Pothole", start_us // 1000)
    assert found == [row]
    assert duckdb.sql(
        "SELECT count(*) FROM 'catalog.parquet' WHERE problem IS NOT NULL"
    ).fetchall() == [(1,)]
