"""Feeds of lidars and radars, whose messages the session's workers make.

A worker gets the feeds of the stream from the profile again, and runs `Feed.make` of the feed that
has it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from recorder.archives.context import PackingContext
from recorder.archives.mcap.topics import Entry, Feed, Make, Product, Topic, load_profile
from recorder.archives.sample_workers import SampleEncoder, WorkerContext
from recorder.archives.shared_options import radar_frames
from recorder.perception.calibration import Calibration
from recorder.perception.radar.detections import detection_points
from recorder.perception.radar.frames import step_remarks
from recorder.perception.radar.geometry import RadarGeometry
from recorder.session.stream import Stream


def worker_feed(
    context: PackingContext, stream: Stream, topics: Sequence[Topic], make: Make, *, group: int
) -> Feed:
    """Return the feed of a stream whose messages workers make.

    At its end the feed notes the irregularities of a radar's frames.

    Args:
        context: the session's context.
        stream: a stream with times; a stream has at most one such feed.
        topics: topics of the messages.
        make: makes the messages of samples.
        group: number of samples that one worker makes together.
    """

    def entries() -> Generator[Entry]:
        factory = partial(_make_encoder, stream.name, dict(context.options), context.calibration)
        incomplete, steps = 0, Counter[int]()
        indices = range(len(stream))
        encoded = context.encode_samples(stream.name, factory, indices, group=group)
        with contextlib.closing(encoded) as made:
            product: Product
            for product in made:
                incomplete += product.is_incomplete
                if product.step is not None:
                    steps[product.step] += 1
                yield from product.entries
        remarks = [f"{incomplete} frames lack packets"] if incomplete else []
        for sentence in remarks + step_remarks(steps):
            context.notes.add(sentence, stream.name)

    return Feed(stream.name, topics, entries, make=make)


def _make_encoder(
    stream: str, options: Mapping[str, Any], calibration: Calibration, worker: WorkerContext
) -> SampleEncoder:
    context = PackingContext(worker.session, Path(), options, calibration, worker=worker)
    feeds = load_profile(options["profile"]).stream_feeds(context, worker.session.streams[stream])
    return next(feed.make for feed in feeds if feed.make is not None)


class RadarPoints:
    """Detections of a radar as points, and irregularities of its frames.

    Args:
        context: the session's context.
        stream: stream of the radar.
        geometry: geometry of the radar.

    Attributes:
        frames: finds the detections, and resolves their speeds.
    """

    def __init__(self, context: PackingContext, stream: Stream, geometry: RadarGeometry) -> None:
        self._stream, self._has_valid = stream, "valid" in stream.meta
        self.frames = radar_frames(stream, geometry, context.options, context.worker)

    def detect(self, index: int) -> np.ndarray[Any, Any]:
        """Return a frame's detections, `recorder.perception.radar.detections.DETECTION` [n]."""
        return detection_points(self.frames.resolved(index))

    def product(self, index: int, entries: list[Entry]) -> Product:
        """Return the messages of a frame whose detections have been computed."""
        valid = not self._has_valid or bool(self._stream.sample(index, ["valid"])["valid"])
        return Product(entries, not valid, self.frames.step(index))
