"""Any streams, layouts and records, compressed or not, by a writer that dies now and then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.files import PosixDisk
from recorder.formats.vrs import (
    Compression,
    Compressor,
    CustomContent,
    DataBlock,
    LayoutBlock,
    LayoutSpec,
    RecordLayout,
    RecordType,
    StreamId,
    StreamSpec,
    VrsReader,
    VrsWriter,
)
from tests.formats.vrs import kit
from tests.formats.vrs.test_layout import pieces, texts

COMPRESSORS = [None, Compressor(Compression.LZ4), Compressor(Compression.ZSTD)]
KINDS = [RecordType.CONFIGURATION, RecordType.STATE, RecordType.DATA]
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "vrs.md"

layouts = st.builds(LayoutSpec, st.lists(pieces(), max_size=4, unique_by=lambda p: p.key))
records = st.builds(RecordLayout, layouts, st.just(CustomContent(format="rest")))
formats = st.dictionaries(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2**32 - 1)), records, min_size=1, max_size=3
)
streams = st.builds(
    StreamSpec, st.integers(200, 202), texts(), formats, st.dictionaries(texts(), texts())
)
timestamps = st.floats(allow_nan=False, allow_infinity=False)


@given(data=st.data())
def test_what_went_in_comes_out(data: st.DataObject, tmp_path_factory: Any) -> None:
    path: Path = tmp_path_factory.mktemp("any") / "a.vrs"
    early = data.draw(st.lists(streams, max_size=2))
    tags = data.draw(st.dictionaries(texts(), texts(), max_size=3))
    writer = VrsWriter.create(path, PosixDisk(), early, tags)
    declared = dict(zip(writer.streams, early, strict=True))
    written: list[tuple[StreamId, RecordType, int, float, list[Any], bytes]] = []
    for _ in range(data.draw(st.integers(0, 12))):
        what = data.draw(st.sampled_from(["record"] * 6 + ["stream", "death"]))
        if what == "death":
            lengths = kit.close(writer)
            committed = data.draw(st.sampled_from([None, lengths[1]]))
            writer = VrsWriter.resume(path, PosixDisk(), lengths[0], index_length=committed)
        elif what == "stream" or not declared:
            spec = data.draw(streams)
            declared[writer.add_stream(spec).id] = spec
        else:
            stream = data.draw(st.sampled_from(sorted(declared)))
            kind, version = data.draw(st.sampled_from(sorted(declared[stream].records)))
            spec_of = declared[stream].records[kind, version].layouts[0]
            assert spec_of is not None
            values = kit.some_values(spec_of, np.random.default_rng(data.draw(st.integers(0, 99))))
            rest = data.draw(st.binary(max_size=30)) * data.draw(st.sampled_from([1, 50]))
            time_s = data.draw(timestamps)
            parts = [spec_of.encode(values), rest]
            compressor = data.draw(st.sampled_from(COMPRESSORS))
            writer.put(stream, kind, version, time_s, parts, compressor)
            written.append((stream, kind, version, time_s, values, rest))
    if data.draw(st.booleans()):
        writer.finish()
    kit.close(writer)
    with VrsReader(path) as reader:
        assert reader.tail is None and reader.tags == tags
        assert reader.streams.keys() == declared.keys()
        for stream, spec in declared.items():
            assert reader.streams[stream].tags == spec.tags
            assert reader.streams[stream].flavor == spec.flavor
        read = list(reader.records(file_order=True))
        for record, (stream, kind, version, time_s, values, rest) in zip(
            read, written, strict=True
        ):
            assert (record.stream, record.record_type) == (stream, kind)
            assert record.timestamp_s == time_s and record.header().version == version
            layout, custom = record.blocks()
            assert isinstance(layout, LayoutBlock) and isinstance(custom, DataBlock)
            assert custom.data == rest
            assert all(kit.same(a, b) for a, b in zip(layout.values, values, strict=True))
        assert [r.timestamp_s for r in reader] == sorted(r[3] for r in written)


def test_the_example_of_the_guide(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    code = GUIDE.read_text().split("```python\n")[1].split("```")[0]
    exec(compile(code, str(GUIDE), "exec"), {"__name__": "guide"})  # noqa: S102
    assert capsys.readouterr().out == "0.033 0.01 [  0   0 640 480] image/size=7/jpg 7\n"
