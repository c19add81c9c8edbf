"""A simulated driver of the data plane, and what it publishes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from drivers.kit.writer_link import WriterLink
from recorder.bus.messages import AnnouncedSession as Session
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec

if TYPE_CHECKING:
    from tests.drivers.kit.simulation import Plane


@dataclass
class Offer:
    """One message that a driver's main thread published."""

    epoch: int
    kind: Kind
    ids: list[int] = field(default_factory=list)
    taken: bool = True
    count: int = 0


def stream_spec(name: str, rate_hz: float, blob: bool = True) -> StreamSpec:
    """A stream that numbers its samples, and may carry bytes of any length beside that."""
    channels = [ChannelSpec("id", "raw", "u8"), ChannelSpec("blob", "lzmaf", "u1", (1,))]
    return StreamSpec(name, tuple(channels[: 1 + blob]), rate_hz=rate_hz, bytes_per_sample=600)


CAMERA = stream_spec("cam", 30.0)
LIDAR = stream_spec("lid", 10.0)
LIDAR_IMU = stream_spec("lid_imu", 100.0)
LATE = stream_spec("late", 200.0)
IMU = stream_spec("imu", 100.0, blob=False)  # small samples, which share messages


class SimDriver:
    """A driver's process: a link, and a main thread that the test plays."""

    def __init__(self, plane: Plane, sensor: str, specs: tuple[StreamSpec, ...]) -> None:
        self.plane = plane
        self.sensor = sensor
        self.specs = specs
        self.reports: list[str] = []
        plane.starting = plane.pipe()
        self.pipe = plane.starting
        self.link = WriterLink(
            sensor,
            specs,
            Path("run"),
            plane.clock,
            lambda event, **_: self.reports.append(event),
        )
        self.unfound = [stream_spec(f"{sensor}_{n}", 20.0, blob=n > 1) for n in (1, 2)]
        self.actor = plane.spawn(f"link {sensor}", self.link._run, f"driver {sensor}")
        self.most_held = 0

    def session(self) -> Session | None:
        return self.link.wait_for_session(0)

    @property
    def epoch(self) -> int:
        assert self.link.seam.ring is not None
        return self.link.seam.ring.epoch

    def find(self) -> StreamSpec:
        """Declare a further stream, as a driver does that finds one."""
        spec = self.unfound.pop(0)
        self.link.declare(spec)
        self.specs += (spec,)
        return spec

    def data(self, spec: StreamSpec, sizes: Sequence[int]) -> bool | None:
        """Publish one data message with a sample per size; None where no session is open."""
        session = self.session()
        if session is None:
            return None
        plane = self.plane
        ids = [plane.next_id() for _ in sizes]
        frames = [np.array(ids, "<u8").tobytes(), b"x" * sum(sizes)]
        times = np.array([plane.now_ns + 1000 * (i + 1) for i in range(len(ids))], np.int64)
        message = Message(
            Kind.DATA,
            stream=spec.name,
            count=len(ids),
            t_mono_ns=times,
            sizes=(np.array(sizes, np.uint32),)[: len(spec.channels) - 1],
            frames=frames[: len(spec.channels)],
        )
        plane.now_ns += 1000 * len(ids)
        taken = self.link.publish(message, session)
        self._log(spec, Offer(self.epoch, Kind.DATA, ids, taken, len(ids)))
        return taken

    def other(self, spec: StreamSpec, kind: Kind, count: int | None = 0) -> None:
        """Publish a state or a device's own loss."""
        session = self.session()
        if session is None:
            return
        values: dict[str, Any] = {"cause": "device"} if kind is Kind.LOST else {"temperature": 40}
        message = Message(
            kind, stream=spec.name, count=count, t_mono_ns=self.plane.now_ns, values=values
        )
        self.link.publish(message, session)
        self._log(spec, Offer(self.epoch, kind, count=count or 0))

    def _log(self, spec: StreamSpec, offer: Offer) -> None:
        self.plane.offers.setdefault(spec.name, []).append(offer)
