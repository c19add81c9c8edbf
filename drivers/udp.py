"""Sensors that send datagrams (UDP): recorded as they come, from the network or from captures.

The driver knows no sensor's protocol, so it fits lidars of Hesai, Velodyne and Livox, radars that
send detections, and all else that sends datagrams.  The stream has the sensor's name.  A sample is a
datagram: ``payload`` (its bytes), ``source`` (the sender's IP address, u1[16], IPv4 as
::ffff:a.b.c.d), ``source_port`` and ``port`` (the destination's).
"""

from __future__ import annotations

import ipaddress
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO, ClassVar, Final

import numpy as np
import numpy.typing as npt

from drivers._devices.udp import Batch, UdpReceiver, address_and_port, cap_warning
from drivers._kit.driver import Driver, EndOfSource, Item, Lost, Sample, SensorConfig, State
from drivers._kit.recorded_source import SHORT_BATCH_NS
from drivers._kit.runner import main
from drivers._protocols.capture import Datagram, read_datagrams
from drivers.sim.datagrams import SIM_DATAGRAM_OPTIONS, SimulatedSender
from drivers.sim.deferred_data import DeferredData
from recorder.contract.config.options import Option, OptionTable
from recorder.contract.errors import ConfigError, DeviceError, FormatError, SourceError
from recorder.contract.streams import ChannelSpec, StreamSpec

MOST_BYTES: Final = 65535
"""No datagram is longer (RFC 768; jumbograms are not supported)."""

_USUAL_BYTES: Final = 1500
_BATCH: Final = 256
_GATHER_S: Final = 0.01
_READ_S: Final = 0.2
_FIRST_S: Final = 1.5
_TELL_NS: Final = 1_000_000_000  # shortest interval between two reports of strangers' datagrams
_PORTS_SHOWN: Final = 8


class UdpDriver(Driver):
    """Records datagrams.

    ``udp:HOST:PORT`` receives at an address of this machine, or in a multicast group, which the
    socket joins on the link of `interface`.  The stamp of a datagram is the kernel's stamp of its
    arrival.  Datagrams that the kernel dropped because the socket's buffer was full are `Lost`,
    cause ``overflow``, before the next datagram that arrived.  Datagrams from others than `sender`
    are not recorded; a `State` counts them (``datagrams_of_others``).  Where the kernel limits the
    buffer, a warning names the command that raises the limit.

    ``file:PATH`` plays the datagrams of a capture (pcap, pcapng) with the capture's stamps.  A
    truncated or damaged capture gives its complete datagrams and then raises SourceError.

    >>> options = check_options(UdpDriver.options, {})
    >>> driver = UdpDriver(SensorConfig("lidar", "udp", "192.168.1.100:2368", options))
    >>> (spec,) = driver.open()  # DeviceError: no datagram arrives
    >>> sample = driver.read()
    >>> sample.data["payload"]   # a list of bytes, one for each datagram
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "interface": Option(
            "str",
            "",
            "udp: address of this machine on the link on which it joins a multicast group: IPv4, "
            "or IPv6 with the link (fe80::1%eth0) (default: by the routes)",
        ),
        "sender": Option(
            "str", None, "udp, file: record only the datagrams from this IP address (default: all)"
        ),
        "port": Option(
            "int",
            None,
            "file: record only the datagrams to this port (default: to all)",
            minimum=1,
            maximum=65535,
        ),
        "socket_buffer_mb": Option(
            "float", 32.0, "udp: receive buffer of the socket [MB]", minimum=0.1, maximum=2000
        ),
        "timeout_s": Option(
            "float",
            5.0,
            "udp: silence after which the sensor is lost [s]; 0: a sensor that sends nothing is "
            "not lost",
            minimum=0,
            maximum=86400,
        ),
        "rate": Option(
            "float",
            None,
            "datagrams per second: of sim (default: 1000); of other sources, what the sensor "
            "nominally sends",
            minimum=0.001,
            maximum=100_000,
        ),
        "to": Option(
            "str",
            None,
            "emulate: HOST:PORT to which `recorder emulate` sends the datagrams (default: a free "
            "port of this machine)",
        ),
        **SIM_DATAGRAM_OPTIONS,
    }
    schemes: ClassVar[dict[str, str]] = {
        "udp": "HOST:PORT of this machine, or of a multicast group",
        "file": "a network capture, pcap or pcapng",
        "sim": "a sender of numbered datagrams with the simulated vehicle's position, endless",
    }
    live_schemes: ClassVar[frozenset[str]] = frozenset({"udp"})

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._sender = _address(sensor)
        self._items: Iterator[Item | None] = iter(())
        self._live: _Live | None = None
        self._file: BinaryIO | None = None
        self._warned = False

    @property
    def origin_ns(self) -> int | None:
        """Start of the simulated sender; None for other sources."""
        return 0 if self.sensor.scheme == "sim" else None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source.

        Raises:
            SourceError: the address has a wrong form; the file is missing, is no capture, or has no
                datagram to record.
            DeviceError: the address cannot be bound, or no datagram arrives.
        """
        self.close()
        match self.sensor.scheme:
            case "sim":
                return [self._open_sim()]
            case "udp":
                return [self._open_live()]
            case _:
                return [self._open_capture()]

    def read(self) -> Item | None:
        """Return the next item; None after 0.2 s without one.

        Raises:
            EndOfSource: the capture has ended.
            SourceError: the rest of the capture cannot be read.
            DeviceError: no datagram has arrived for `timeout_s`.
        """
        try:
            return next(self._items)
        except StopIteration:
            raise EndOfSource from None

    def close(self) -> None:
        self._items = iter(())
        for opened in (self._live, self._file):
            if opened is not None:
                opened.close()
        self._live = self._file = None

    def _spec(self, settings: dict[str, object], rate_hz: float | None) -> StreamSpec:
        return StreamSpec(
            self.sensor.name,
            (
                ChannelSpec("payload", "bytes", "u1", (MOST_BYTES,), "data of the datagram"),
                ChannelSpec(
                    "source", "raw", "u1", (16,), "IP address of the sender, IPv4 as ::ffff:a.b.c.d"
                ),
                ChannelSpec("source_port", "raw", "u2", (), "UDP port of the sender"),
                ChannelSpec("port", "raw", "u2", (), "UDP port of the destination"),
            ),
            rate_hz=rate_hz,
            bytes_per_sample=_USUAL_BYTES,
            finite=self.sensor.scheme == "file",
            description="UDP datagrams",
            settings=settings,
        )

    # A device

    def _open_live(self) -> StreamSpec:
        self._live = live = _Live(self.sensor, self._sender)
        try:
            live.wait(_FIRST_S)
        except BaseException:
            self.close()
            raise
        receiver = live.receiver
        multicast = receiver.address and _parsed(receiver.address).is_multicast
        self.receives = () if multicast else ((receiver.address, receiver.port),)
        self.warnings = []
        if (warning := cap_warning(receiver, self.sensor.name)) is not None:
            self.warnings = [warning]
            if not self._warned:
                print(warning, file=sys.stderr, flush=True)
            self._warned = True
        self._items = live.items()
        settings: dict[str, object] = {"address": receiver.address, "port": receiver.port}
        return self._spec(settings, self.sensor.options["rate"])

    # A capture

    def _open_capture(self) -> StreamSpec:
        path = self.sensor.path
        try:
            self._file = path.open("rb")
            first = self._first()
            self._file.seek(0)
        except OSError as error:
            self.close()
            raise self.sensor.fault(error) from None
        except SourceError:
            self.close()
            raise
        self._items = self._played()
        settings: dict[str, object] = {
            "address": str(ipaddress.ip_address(first.destination)),
            "port": first.port,
        }
        return self._spec(settings, self.sensor.options["rate"])

    def _first(self) -> Datagram:
        """Return the first datagram to record; the rest of a capture may be damaged."""
        assert self._file is not None
        ports: set[int] = set()
        try:
            for datagram in read_datagrams(self._file):
                if self._wanted(datagram):
                    return datagram
                ports.add(datagram.port)
        except FormatError as error:
            raise self.sensor.fault(error) from None
        if not ports:
            raise self.sensor.fault("has no UDP datagram")
        shown = ", ".join(map(str, sorted(ports)[:_PORTS_SHOWN]))
        shown += ", ..." if len(ports) > _PORTS_SHOWN else ""
        wanted = [
            f"{text} {value}"
            for text, value in (
                ("to port", self.sensor.options["port"]),
                ("from", self.sensor.options["sender"]),
            )
            if value is not None
        ]
        raise self.sensor.fault(
            f"has no UDP datagram {' '.join(wanted)}; its datagrams go to the ports {shown}"
        )

    def _wanted(self, datagram: Datagram) -> bool:
        port = self.sensor.options["port"]
        if port is not None and datagram.port != port:
            return False
        return self._sender is None or _mapped(datagram.source) == self._sender

    def _played(self) -> Iterator[Item]:
        assert self._file is not None
        batch: list[Datagram] = []
        longest_ns = SHORT_BATCH_NS if self.sensor.pace == "realtime" else 1 << 62
        fault: FormatError | None = None
        found = read_datagrams(self._file)
        while True:
            try:
                datagram = next(found, None)
            except FormatError as error:
                datagram, fault = None, error
            ends = datagram is None or len(batch) == _BATCH
            if batch and (ends or not 0 <= datagram.t_ns - batch[0].t_ns <= longest_ns):  # type: ignore[union-attr]
                yield self._sample_of(batch)
                batch = []
            if datagram is None:
                break
            if self._wanted(datagram):
                batch.append(datagram)
        if fault is not None:
            raise self.sensor.fault(fault)

    def _sample_of(self, batch: Sequence[Datagram]) -> Sample:
        sources = b"".join(_mapped(datagram.source) for datagram in batch)
        return Sample(
            self.sensor.name,
            np.array([datagram.t_ns for datagram in batch], np.int64),
            {
                "payload": [datagram.payload for datagram in batch],
                "source": np.frombuffer(sources, np.uint8).reshape(-1, 16),
                "source_port": np.array([datagram.source_port for datagram in batch], "<u2"),
                "port": np.array([datagram.port for datagram in batch], "<u2"),
            },
        )

    # The simulation

    def _open_sim(self) -> StreamSpec:
        sender = SimulatedSender(self.sensor.options)
        self._items = self._simulated(sender)
        return self._spec({"address": "127.0.0.1", "port": SIM_PORT}, sender.rate_hz)

    def _simulated(self, sender: SimulatedSender) -> Iterator[Item]:
        count = max(1, min(_BATCH, int(sender.rate_hz * _GATHER_S)))
        start = 0
        while True:
            stop = start + count
            data = DeferredData(partial(self._sent, sender, start, stop))
            yield Sample(self.sensor.name, sender.times_ns(start, stop), data)
            start = stop

    def _sent(
        self, sender: SimulatedSender, start: int, stop: int
    ) -> dict[str, npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | list[bytes]]:
        count = stop - start
        here = np.frombuffer(_mapped(bytes((127, 0, 0, 1))), np.uint8)
        return {
            "payload": sender.datagrams(start, stop),
            "source": np.tile(here, (count, 1)),
            "source_port": np.full(count, SIM_PORT, "<u2"),
            "port": np.full(count, SIM_PORT, "<u2"),
        }


SIM_PORT: Final = 2368
"""Port of the simulated datagrams: a Velodyne's."""


class _Live:
    """Datagrams from the network."""

    def __init__(self, sensor: SensorConfig, sender: bytes | None) -> None:
        options = sensor.options
        self._sensor, self._only = sensor, sender
        self._where = f"{sensor.name}: udp:{sensor.address}"
        text = sensor.address.removeprefix("//").rstrip("/")
        try:
            address, port = address_and_port(text, "udp:HOST:PORT")
            asked = round(options["socket_buffer_mb"] * 1e6)
            self.receiver = UdpReceiver(
                address, port, asked, _READ_S, batch=_BATCH, interface=options["interface"]
            )
        except (DeviceError, SourceError) as error:
            raise type(error)(f"{self._where}: {error}") from None
        self._timeout_ns = round(options["timeout_s"] * 1e9)
        self._queue: deque[Item] = deque()
        self._dropped = self._others = 0
        self._last_ns = 0
        self._told_ns = self._heard_ns = time.monotonic_ns()
        self._gather = False

    def wait(self, longest_s: float) -> None:
        """Wait for a first datagram; DeviceError if none arrives."""
        deadline_ns = time.monotonic_ns() + round(longest_s * 1e9)
        while self._timeout_ns and not self._queue:
            if time.monotonic_ns() > deadline_ns:
                raise DeviceError(f"{self._where}: {self._nothing()}")
            self._receive()

    def items(self) -> Iterator[Item | None]:
        """Yield items, or None while there are none."""
        receiver, name = self.receiver, self._sensor.name
        opened = {
            "address": receiver.address,
            "port": receiver.port,
            "socket_buffer_bytes": receiver.granted_bytes,
            "socket_buffer_bytes_asked": receiver.asked_bytes,
        }
        yield State(name, time.monotonic_ns(), opened, lasting=True)
        while True:
            if not self._queue:
                self._receive()
            while self._queue:
                yield self._queue.popleft()
            now_ns = time.monotonic_ns()
            if self._timeout_ns and now_ns - self._heard_ns > self._timeout_ns:
                raise DeviceError(f"{self._where}: {self._nothing()}")
            if self._others and now_ns - self._told_ns > _TELL_NS:
                yield State(name, now_ns, {"datagrams_of_others": self._others})
                self._others, self._told_ns = 0, now_ns
            yield None

    def close(self) -> None:
        self.receiver.close()

    def _receive(self) -> None:
        if self._gather:
            # The kernel stores and stamps datagrams meanwhile; a call for many costs less.
            time.sleep(_GATHER_S)
        batch = self.receiver.receive()
        self._gather = 0 < len(batch) < _BATCH
        if not len(batch):
            return
        sources, ports = batch.sources()
        times = np.maximum(np.maximum.accumulate(batch.t_ns), self._last_ns)
        self._last_ns = int(times[-1])
        kept = np.ones(len(batch), bool)
        if self._only is not None:
            kept = (sources == np.frombuffer(self._only, np.uint8)).all(axis=1)
            self._others += int(np.count_nonzero(~kept))
        if kept.any():
            self._heard_ns = time.monotonic_ns()
        # A loss belongs before the first datagram whose count has it.
        steps = np.flatnonzero(np.diff(batch.dropped, prepend=self._dropped))
        begin = 0
        for at in [*steps.tolist(), len(batch)]:
            chosen = np.flatnonzero(kept[begin:at]) + begin
            if len(chosen):
                self._queue.append(self._sample(batch, chosen, times, sources, ports))
            if at < len(batch):
                count = int(batch.dropped[at]) - self._dropped
                self._dropped += count
                lost = Lost(self._sensor.name, int(times[at]), "overflow", count)
                self._queue.append(lost)
            begin = at

    def _sample(
        self,
        batch: Batch,
        chosen: npt.NDArray[np.intp],
        times: npt.NDArray[np.int64],
        sources: npt.NDArray[np.uint8],
        ports: npt.NDArray[np.uint16],
    ) -> Sample:
        rows, sizes = batch.data, batch.sizes.tolist()
        return Sample(
            self._sensor.name,
            times[chosen],
            {
                "payload": [rows[k, : sizes[k]].tobytes() for k in chosen.tolist()],
                "source": sources[chosen],
                "source_port": ports[chosen].astype("<u2"),
                "port": np.full(len(chosen), self.receiver.port, "<u2"),
            },
        )

    def _nothing(self) -> str:
        port = self.receiver.port
        if self._only is None:
            return f"no datagram arrives at UDP port {port}"
        sender = self._sensor.options["sender"]
        return f"no datagram from {sender} arrives at UDP port {port}" + (
            f", {self._others} from others do" if self._others else ""
        )


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ipaddress.IPv4Address(0)  # a name of this machine


def _address(sensor: SensorConfig) -> bytes | None:
    """Return the sender's address, 16 bytes."""
    text = sensor.options["sender"]
    if text is None:
        return None
    try:
        return _mapped(ipaddress.ip_address(text).packed)
    except ValueError:
        raise ConfigError(f"{text!r} is not an IP address", key=f"{sensor.name}.sender") from None


def _mapped(address: bytes) -> bytes:
    """Return an address as 16 bytes."""
    return address if len(address) == 16 else bytes(10) + b"\xff\xff" + address


if __name__ == "__main__":
    main(UdpDriver)
