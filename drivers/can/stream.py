"""The streams of a CAN bus: the frames, and the chosen signals of each message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from drivers.can.errors import BusErrors
from drivers.can.frames import CLASSIC_BYTES, Frame, Frames
from drivers.can.signals import MessageDecoder, SignalTable, format_signals
from drivers.kit.driver import Item, Lost, Sample, SensorConfig, State
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ConfigError, FormatError, ProtocolError, SourceError

SIGNALS_FILE: Final = "signals.json"


def frame_stream(
    sensor: SensorConfig, width: int, rate_hz: float | None, settings: Mapping[str, Any]
) -> StreamSpec:
    """Return the declaration of the stream of frames.

    Args:
        sensor: the sensor's entry.
        width: bytes of the data: 8, or 64 where frames of CAN FD come.
        rate_hz: frames per second; None where it is not known.
        settings: of the source.
    """
    most = "8" if width == CLASSIC_BYTES else "64"
    return StreamSpec(
        sensor.name,
        (
            ChannelSpec(
                "id", "raw", "u4", (), "identifier; 0x80000000: of 29 bits, 0x40000000: remote "
                "request, 0x20000000: error message of the interface (linux/can.h)",
            ),
            ChannelSpec("len", "raw", "u1", (), f"bytes of data, or requested: 0 to {most}"),
            ChannelSpec(
                "flags", "raw", "u1", (), "1: second bit rate, 2: sender is error-passive, "
                "4: CAN FD (linux/can.h), 128: sent by this machine",
            ),
            ChannelSpec("data", "raw", "u1", (width,), "data, zeros behind its bytes"),
        ),
        rate_hz=rate_hz,
        finite=sensor.scheme == "file",
        description="CAN frames",
        settings=settings,
    )  # fmt: skip


class Decoding:
    """Decoder of the chosen signals of frames.

    Args:
        sensor: the sensor's entry.
        database: file of the database; None: no signal is decoded.
        chosen: the signals; see `SignalTable`.

    Attributes:
        settings: the database's properties, for the declaration of the stream of frames.

    Raises:
        ConfigError: the database cannot be read, or a signal is not in it; names the key.
    """

    def __init__(self, sensor: SensorConfig, database: Path | None, chosen: list[str]) -> None:
        self._name = sensor.name
        self._finite = sensor.scheme == "file"
        self._table: SignalTable | None = None
        self.settings: dict[str, Any] = {}
        self._short: dict[str, int] = {}
        if database is None:
            if chosen:
                raise ConfigError("needs dbc, the database", key=f"{sensor.name}.signals")
            return
        if not chosen:
            raise ConfigError(
                "names no signal to decode: signals: [MESSAGE.SIGNAL, ...]; ['*'] decodes all",
                key=f"{sensor.name}.signals",
            )
        try:
            self._table = SignalTable(database, chosen)
        except SourceError as error:
            raise ConfigError(str(error), key=f"{sensor.name}.dbc") from None
        except FormatError as error:
            raise ConfigError(f"{database}: {error}", key=f"{sensor.name}.signals") from None
        self.settings = {"dbc": database.name, "dbc_sha256": self._table.sha256}

    @property
    def active(self) -> bool:
        """True if signals are decoded."""
        return self._table is not None

    def streams(self) -> list[StreamSpec]:
        """Return the declarations of the streams of signals.

        Raises:
            ConfigError: a stream's name is too long.
        """
        if self._table is None:
            return []
        try:
            return [self._stream(message) for message in self._table.messages]
        except ProtocolError as error:
            raise ConfigError(str(error), key=f"{self._name}.signals") from None

    def _stream(self, message: MessageDecoder) -> StreamSpec:
        return StreamSpec(
            self._stream_name(message),
            tuple(
                ChannelSpec(
                    signal.channel,
                    "raw",
                    "f8",
                    (),
                    str(signal.about["signal"]),
                    str(signal.about["unit"]),
                )
                for signal in message.signals
            ),
            finite=self._finite,
            description=f"signals of the CAN message {message.name}",
            files={SIGNALS_FILE: format_signals(message)},
            settings={"message": message.name, "id": message.frame_id, "cycle_s": message.period_s},
            sporadic=True,
        )

    def _stream_name(self, message: MessageDecoder) -> str:
        return f"{self._name}_{message.suffix}"

    def samples(self, frames: Frames) -> Iterator[Sample]:
        """Yield the decoded signals of frames, one sample for each message among them."""
        if self._table is None:
            return
        for message, part in self._table.split(frames):
            some, columns, short = message.decode(part)
            if short:
                self._short[message.name] = self._short.get(message.name, 0) + short
            if len(next(iter(columns.values()))):
                yield Sample(self._stream_name(message), part.t_ns[some], columns)

    def report(self, t_ns: int) -> State | None:
        """Return how many frames were too short for a chosen signal since the last report."""
        if not self._short:
            return None
        counts, self._short = self._short, {}
        return State(self._name, t_ns, {"frames_too_short": counts})


def frame_sample(stream: str, frames: Frames) -> Sample:
    """Convert frames to a sample."""
    return Sample(stream, frames.t_ns, frames.channels())


def error_items(errors: BusErrors, stream: str, frame: Frame) -> Iterator[Item]:
    """Yield the items of a frame with the flag ERROR: a loss, and a change of the bus's state."""
    if errors.feed(frame.id, frame.data):
        detail = {"reason": "the controller's receive buffer was full"}
        yield Lost(stream, frame.t_ns, "device", None, detail=detail)
    if (state := errors.take_changed_state()) is not None:
        yield State(stream, frame.t_ns, state, lasting=True)
