"""Our reader on the 416 files of MCAP's conformance suite: it finds what the suite describes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from recorder.formats.mcap.reader import McapReader
from tests.formats.mcap.variants import RECORDINGS, SUITE_SHA256, Recording, Variant, variants


@pytest.fixture(scope="module")
def files() -> list[Variant]:
    return list(variants())


def test_the_files_are_those_of_the_suite(files: list[Variant]) -> None:
    digests = {each.name: hashlib.sha256(each.data).hexdigest() for each in files}
    assert len(digests) == len(files) == 416
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    assert hashlib.sha256(lines.encode()).hexdigest() == SUITE_SHA256


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_every_variant_reads_as_described(
    tmp_path: Path, files: list[Variant], recording: Recording
) -> None:
    path = tmp_path / "a.mcap"
    chosen = [each for each in files if each.recording is recording]
    assert chosen
    for variant in chosen:
        path.write_bytes(variant.data)
        with McapReader(path) as mcap:
            check(mcap, variant)


def check(mcap: McapReader, variant: Variant) -> None:
    recording, name = variant.recording, variant.name
    assert (mcap.damage, mcap.is_cut, mcap.conflicts) == ("", False, []), name
    messages = [(m.sequence, m.log_ns, m.publish_ns, m.data) for m in mcap.messages()]
    assert messages == sorted(recording.messages, key=lambda message: message[1]), name
    times = [log_ns for _, log_ns, _, _ in messages]
    assert (mcap.start_ns, mcap.end_ns) == ((times[0], times[-1]) if times else (None, None)), name
    topics = {
        t.topic: (
            (t.schema_name, t.schema_encoding, t.schema_data),
            (t.topic, t.message_encoding, dict(t.metadata)),
            t.count,
        )
        for t in mcap.topics.values()
    }
    if recording.channel is None:
        assert topics == {}, name
    else:
        schema = recording.schema or ("", "", b"")
        assert topics == {recording.channel[0]: (schema, recording.channel, len(messages))}, name
    attached = [(a.name, a.media_type, a.log_ns, a.create_ns, a.data) for a in mcap.attachments()]
    assert attached == [tuple(vars(each).values()) for each in recording.attachments], name
    assert list(mcap.metadata()) == list(recording.metadata), name
