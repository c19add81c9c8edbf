"""A radar behind a DCA1000EVM capture card."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers.mmwave.connection import RadarCapture
from drivers.mmwave.frames import AssembledFrame, FrameAssembler, FrameClock, MissedFrames
from drivers.mmwave.options import RadarSetup
from drivers.mmwave.stream import frame_data, incomplete_state, shape_frame
from recorder.common.errors import ConfigError, DeviceError, ProtocolError

_TELL_NS = 1_000_000_000  # shortest interval between two reports of packet counts


class LiveFrames:
    """Converter of a device's packets to items for the kit.

    Args:
        sensor: its address is the capture card's, ``//ADDRESS``, or empty.
        setup: how the radar is configured.
        warnings: about the configuration; those of radar, card and kernel are added.

    Raises:
        ConfigError: the radar or xwr does not support the configuration.
        DeviceError: the radar or the card does not answer.
    """

    def __init__(self, sensor: SensorConfig, setup: RadarSetup, warnings: list[str]) -> None:
        options, self._name, chirp = sensor.options, sensor.name, setup.chirp
        if setup.cfg is None and chirp.antennas.complex_samples and setup.iq_order != "qqii":
            raise ConfigError(
                f"{setup.iq_order!r}; xwr sets a radar to qqii", key=f"{sensor.name}.iq_order"
            )
        address = sensor.address.strip("/")
        card = {**options["capture"], **({"fpga_ip": address} if address else {})}
        self._where = f"{sensor.name}: dca1000://{card['fpga_ip']}"
        self._chirp = chirp
        self._capture = RadarCapture(
            self._where, chirp, options["radar"]["port"], card, options["boot_s"], setup.cfg
        )
        warnings += self._capture.warnings
        for warning in self._capture.warnings:
            print(f"{self._name}: {warning}", file=sys.stderr, flush=True)
        period_ns = round(chirp.frame_period * 1e6)
        self._patience_ns = max(round(card["timeout"] * 1e9), 3 * period_ns)
        self._assembler = FrameAssembler(chirp.frame_bytes)
        self._clock = FrameClock(period_ns)
        self._items: deque[Item] = deque()
        self._failure: DeviceError | None = None
        self._heard_ns = self._reported_ns = time.monotonic_ns()
        self._last_ns = 0
        self._reported: dict[str, int] = {}
        opened: dict[str, Any] = {"capture": "started", "fpga_version": self._capture.version}
        if warnings:
            opened["warnings"] = list(warnings)
        self._items.append(State(self._name, self._heard_ns, opened, lasting=True))

    def read(self) -> Item | None:
        """Return the next item; None after 0.2 s without one.

        Raises:
            DeviceError: no data for `capture.timeout`, or the data are not a capture.
        """
        if not self._items:
            if self._failure is not None:
                raise self._failure
            self._receive()
        return self._items.popleft() if self._items else None

    def close(self) -> None:
        """Stop the radar and the card."""
        self._capture.close()

    def _receive(self) -> None:
        batch = self._capture.receive(0.2)
        now_ns = time.monotonic_ns()
        if len(batch):
            self._heard_ns = now_ns
            try:
                self._take(self._assembler.take(batch.data, batch.sizes, batch.t_ns))
            except ProtocolError as error:
                self._fail(now_ns, str(error))
        elif now_ns - self._heard_ns > self._patience_ns:
            self._fail(now_ns, f"no data for {self._patience_ns / 1e9:.1f} s")
        if now_ns - self._reported_ns > _TELL_NS:
            self._report_changes(now_ns)

    def _fail(self, now_ns: int, reason: str) -> None:
        """Flush the assembler, then fail: the kit reopens the device, which resets the radar."""
        self._take(self._assembler.flush())
        self._report_changes(now_ns)
        self._failure = DeviceError(f"{self._where}: {reason}")

    def _take(self, frames: Sequence[AssembledFrame | MissedFrames]) -> None:
        for frame in frames:
            packets = {"packets_lost": frame.packets_lost, "packets_corrupt": frame.packets_corrupt}
            if isinstance(frame, MissedFrames):
                detail = {"first_frame": frame.index, **packets}
                lost = Lost(self._name, frame.t_ns, "network", frame.count, detail=detail)
                self._items.append(lost)
                continue
            t_ns = self._last_ns = max(frame.t_ns, self._last_ns + 1)
            if left_out := self._clock.see(frame.index, frame.t_ns):
                self._items.append(Lost(self._name, t_ns, "device", left_out))
            data = frame_data(shape_frame(frame, self._chirp), not frame.bytes_missing)
            self._items.append(Sample(self._name, np.array([t_ns], np.int64), data))
            if frame.bytes_missing:
                self._items.append(incomplete_state(self._name, t_ns, frame))

    def _report_changes(self, now_ns: int) -> None:
        """Report the changes of the counts and the card's unsolicited messages."""
        self._reported_ns = now_ns
        assembler = self._assembler
        counts = {
            "packets_duplicate": assembler.duplicates,
            "packets_reordered": assembler.reordered,
            "packets_late": assembler.late,
            "packets_damaged": assembler.corrupt,
            "socket_overflow": self._capture.overflow,
        }
        values: dict[str, Any] = {
            key: count - self._reported.get(key, 0)
            for key, count in counts.items()
            if count != self._reported.get(key, 0)
        }
        self._reported = counts
        if notices := self._capture.notices():
            values["capture_card"] = notices
        if values:
            self._items.append(State(self._name, now_ns, values))
