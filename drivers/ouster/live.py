"""Ouster sensors on the network."""

from __future__ import annotations

import hashlib
import select
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from drivers.kit.driver import Item, Lost, SensorConfig, State
from drivers.kit.udp_socket import UdpReceiver, is_multicast, make_cap_warning, parse_address
from drivers.ouster.frames import SILENCE_NS
from drivers.ouster.http_api import News, Watch
from drivers.ouster.intake import AssemblingSource
from drivers.ouster.packets import Sorter
from drivers.ouster.sdk import SDK_ERRORS, load_info, load_sdk, one_line
from drivers.ouster.setup import Setup, Wanted, is_same_address
from drivers.ouster.stream import last_ns
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError, SourceError

_HTTP_S: Final = 3.5  # longest wait for answers; other sensors wait for this one to open or fail
_FIRST_PACKET_S: Final = 1.5
_READ_S: Final = 0.1
_GATHER_S: Final = 0.01
_BATCH: Final = 64

_SETTINGS: Final = {
    "mode": "lidar_mode",
    "profile": "udp_profile_lidar",
    "timestamp_mode": "timestamp_mode",
    "multipurpose_io_mode": "multipurpose_io_mode",
    "lidar_port": "udp_port_lidar",
    "imu_port": "udp_port_imu",
}
"""The driver's options and their names in the sensor's settings."""


def make_setup(config: SensorConfig) -> Setup | None:
    """Return the setup that a config requests; None if the driver only receives packets."""
    options = config.options
    if config.scheme != "ouster":
        return None
    chosen = {to: options[name] for name, to in _SETTINGS.items() if options[name] is not None}
    settings = {**options["settings"], **chosen}
    wanted = Wanted(settings, options["udp_dest"], options["persist"])
    return Setup(config.address.removeprefix("//").rstrip("/"), wanted)


def read_ports(settings: Mapping[str, Any]) -> tuple[int, int]:
    """Return the UDP ports of lidar and IMU in a sensor's settings, or else the default ports.

    Raises:
        DeviceError: a value is not a port.
    """
    lidar, imu = (
        settings.get(name) or usual
        for name, usual in (("udp_port_lidar", 7502), ("udp_port_imu", 7503))
    )
    for port in (lidar, imu):
        if not isinstance(port, int) or not 0 < port < 65536:
            raise DeviceError(f"the sensor's settings name {port!r:.40} as a UDP port")
    return lidar, imu


class LiveSource(AssemblingSource):
    """Packets from the network, parsed and assembled in the same way as a capture's packets.

    Args:
        config: the sensor's entry, of scheme ``ouster`` or ``udp``.
        setup: the sensor's, kept from one `open` to the next; None for ``udp``.
    """

    def __init__(self, config: SensorConfig, setup: Setup | None) -> None:
        self._config, self._setup = config, setup
        self._place = f"{config.name}: {config.scheme}:{config.address}"
        self._receivers: list[UdpReceiver] = []
        self._watch: Watch | None = None

    def open(self) -> Sequence[StreamSpec]:
        core = self._core = load_sdk()
        try:
            info, text = self._connect()
        except (DeviceError, SourceError) as error:
            raise type(error)(f"{self._place}: {error}") from None
        specs = self._declare(core, info, text, self._place, live=True)
        self._opening["metadata_sha256"] = _digest(text)
        deadline_s = time.monotonic() + _FIRST_PACKET_S
        while not self._queue:
            if (left_s := deadline_s - time.monotonic()) <= 0:
                raise DeviceError(f"{self._place}: {self._explain_silence()}")
            self._receive(left_s)
        self._heard_ns = time.monotonic_ns()
        return specs

    def _connect(self) -> tuple[Any, str]:
        """Bind the sockets; return the sensor's SensorInfo and metadata."""
        options, setup = self._config.options, self._setup
        self._queue: list[tuple[int, Any]] = []
        self._held: list[tuple[int, Any]] = []
        self._last_ns = self._overflow = 0
        self._misfit = 0  # size of the last packet that does not fit the metadata
        self._misfit_reported = False
        self._opening: dict[str, Any] = {}
        if setup is None:
            text = self._config.address.removeprefix("//").rstrip("/")
            bind, port = parse_address(text, "udp://ADDRESS:PORT")
            if not options["metadata"]:
                raise SourceError("needs the sensor's metadata (option `metadata`)")
            info, text = load_info(self._core, Path(options["metadata"]))
            ports = port, options["imu_port"] or info.config.udp_port_imu or port + 1
            self._bind(bind, ports)
            self._know(info, ports, bind)
            return info, text
        deadline_s = time.monotonic() + _HTTP_S
        active, sensor = setup.bring_up(_HTTP_S)
        init_id = sensor.get("initialization_id")
        self._opening |= {"settings": active, "init_id": init_id}
        if setup.wanted.refused:
            self._opening["settings_refused"] = sorted(setup.wanted.refused)
            names = ", ".join(f"{n} (has {v!r})" for n, v in setup.wanted.refused.items())
            _warn(f"{self._place}: the sensor does not accept the settings {names}")
        if setup.wanted.persist and setup.wanted.stored is not None:
            self._opening["settings_stored"] = setup.wanted.stored
        ports, here = read_ports(active), setup.http.local_address
        address = _bind_address(str(active.get("udp_dest") or ""), here)
        self._bind(address, ports, here)
        text = setup.metadata(max(0.0, deadline_s - time.monotonic()))
        try:
            info = self._core.SensorInfo(text)
        except SDK_ERRORS as error:
            raise DeviceError(f"unusable metadata: {one_line(error)}") from None
        if info.init_id and init_id is not None and info.init_id != init_id:
            raise DeviceError("the sensor has been reinitialized meanwhile")
        self._know(info, ports, address)
        self._watch = Watch(setup.http, active)
        return info, text

    @property
    def receives(self) -> list[tuple[str, int]]:
        """Addresses and UDP ports at which no other program can receive; "": all addresses."""
        return [(r.address, r.port) for r in self._receivers if not is_multicast(r.address)]

    def _know(self, info: Any, ports: tuple[int, int], address: str) -> None:
        self._info = info
        self._sorter = Sorter(self._core, info, *ports)
        if info.format.zone_monitoring_enabled:  # a sweep needs its zone packet to be complete
            self._bind(address, (int(info.config.udp_port_zm or 7504),))

    def _bind(self, address: str, ports: Sequence[int], interface: str = "") -> None:
        asked = round(self._config.options["socket_buffer_mb"] * 1e6)
        for port in sorted(set(ports) - {receiver.port for receiver in self._receivers}):
            self._receivers.append(
                UdpReceiver(address, port, asked, 0.0, batch=_BATCH, interface=interface)
            )
        lidar = next(r for r in self._receivers if r.port == ports[0])
        if (warning := make_cap_warning(lidar, self._config.name)) is not None:
            _warn(warning)
            self._opening["socket_buffer_bytes"] = lidar.granted_bytes
            self._opening["socket_buffer_bytes_asked"] = asked
        self._poll = select.poll()
        for receiver in self._receivers:
            self._poll.register(receiver.fileno(), select.POLLIN)

    def items(self) -> Iterator[Item | None]:
        """Yield items, or None while there are none; DeviceError after a long silence."""
        timeout_ns = round(self._config.options["timeout_s"] * 1e9)
        first_ns = self._queue[0][0]
        yield from self._hold(State(self._config.name, first_ns, self._opening, lasting=True))
        quiet = False
        while True:
            if not self._queue:
                self._receive(_READ_S)
            if self._queue:
                self._heard_ns, quiet = time.monotonic_ns(), False
                queue, self._queue = self._queue, []
                for t_ns, packet in queue:
                    yield from self._take(t_ns, packet)
                yield from self._counts()
            else:
                silence_ns = time.monotonic_ns() - self._heard_ns
                if silence_ns > SILENCE_NS and not quiet:
                    quiet = True
                    yield from self._assembly.finish()
                if silence_ns > timeout_ns:
                    yield from self._sensor.finish()
                    raise DeviceError(f"{self._place}: {self._explain_silence()}")
                yield None
            if self._watch is not None:
                for news in self._watch.news():
                    yield from self._report(news)

    def _receive(self, wait_s: float) -> None:
        """Wait for packets and append them to the queue in the order of their arrival."""
        found, self._held = self._held, []
        if not found and self._poll.poll(wait_s * 1e3):
            # The kernel stores and stamps packets meanwhile; receiving many at a time costs less.
            time.sleep(_GATHER_S)
        horizon: int | None = None
        sorter, lidar_port = self._sorter, self._sorter.ports[0]
        for receiver in self._receivers:
            batch = receiver.receive(0.0)
            port = receiver.port
            for k, (t_ns, size) in enumerate(
                zip(batch.t_ns.tolist(), batch.sizes.tolist(), strict=True)
            ):
                packet = sorter.packet(port, batch.data[k, :size])
                if packet is None:
                    self._misfit = size if port == lidar_port else self._misfit
                    continue
                source = batch.source(k)
                if sorter.is_ours(packet, source if sorter.address else None):
                    found.append((t_ns, packet))
                    if not sorter.address and isinstance(packet, self._core.LidarPacket):
                        sorter.address = source  # for packets without a serial number
            if batch.more:
                last = int(batch.t_ns[-1])
                horizon = last if horizon is None else min(last, horizon)
        found.sort(key=itemgetter(0))
        if horizon is not None:  # a socket may hold packets older than other sockets' latest ones
            self._held = [one for one in found if one[0] > horizon]
            found = [one for one in found if one[0] <= horizon]
        self._queue += found

    def _take(self, t_ns: int, packet: Any) -> Iterator[Item]:
        if self._intake.is_usable(packet):
            self._last_ns = max(self._last_ns, t_ns)
            packet.host_timestamp = self._last_ns
            yield from self._intake.take(packet)

    def _hold(self, item: Item) -> Iterator[Item]:
        yield from self._assembly.hold(item, last_ns(item))

    def _counts(self) -> Iterator[Item]:
        """Report packets that the kernel dropped, and packets of a wrong size."""
        overflow, name = sum(receiver.overflow for receiver in self._receivers), self._config.name
        if overflow > self._overflow:
            values = {"packets_dropped_by_kernel": overflow - self._overflow}
            self._overflow = overflow
            yield from self._hold(State(name, self._last_ns, values))
        if self._misfit and not self._misfit_reported:
            self._misfit_reported = True
            expected = int(self._sorter.layout.lidar_packet_size)
            detail = {"packet_bytes": self._misfit, "expected_bytes": expected}
            yield from self._hold(Lost(name, self._last_ns, "corrupt", None, detail=detail))
            if self._watch is not None:
                self._watch.ask("metadata")

    def _sweep(self, frame: Any, t_ns: int) -> Iterator[Item]:
        for item in super()._sweep(frame, t_ns):
            yield item
            alerts = isinstance(item, State) and item.values.get("alert_flags")
            if alerts and self._watch is not None:
                self._watch.ask("alerts")

    def _restarted(self, t_ns: int, init_id: int) -> Iterator[Item]:
        yield from super()._restarted(t_ns, init_id)
        if self._watch is not None:
            self._watch.ask("metadata")

    def _report(self, news: News) -> Iterator[Item]:
        values: dict[str, Any] = {news.kind: news.value}
        lasting = True
        if news.kind == "clock":
            values = {"time_sync": news.value}
        elif news.kind == "clock_offset":
            values, lasting = news.value, False
        elif news.kind == "settings":
            values |= self._check_settings(news.value)
        elif news.kind == "metadata":
            try:
                info = self._core.SensorInfo(news.value)
            except SDK_ERRORS:
                return
            if _form(info) != _form(self._info):
                yield from self._assembly.finish()
                yield from self._sensor.finish()
                raise DeviceError(f"{self._place}: the sensor's settings have changed")
            values |= {"metadata_sha256": _digest(news.value), "init_id": int(info.init_id)}
        yield from self._hold(State(self._config.name, self._last_ns, values, lasting=lasting))

    def _check_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the refused ones of changed settings; DeviceError if they must be set again."""
        assert self._setup is not None
        wanted = self._setup.wanted
        if lost := wanted.changes(settings, self._setup.http.local_address):
            names = ", ".join(sorted(lost))
            raise DeviceError(f"{self._place}: the sensor has lost its settings {names}")
        refused = sorted(n for n, value in wanted.refused.items() if settings.get(n) == value)
        return {"settings_refused": refused} if wanted.refused else {}

    def _explain_silence(self) -> str:
        """Return the reason why no packet arrives."""
        ports = " and ".join(str(receiver.port) for receiver in self._receivers)
        if self._misfit:
            expected = self._sorter.layout.lidar_packet_size
            return (
                f"packets of {self._misfit} bytes arrive, the metadata requires {expected}: they "
                "are from another sensor, or the sensor's settings have changed"
            )
        return f"no packets of the sensor arrive at UDP ports {ports}"

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        for receiver in self._receivers:
            receiver.close()
        self._receivers.clear()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _form(info: Any) -> tuple[Any, ...]:
    """Return the parts of the metadata that determine packets, channels and rates."""
    layout = info.format
    return (
        info.h, info.w, layout.fps, layout.udp_profile_lidar, layout.udp_profile_imu,
        layout.header_type, layout.columns_per_packet, tuple(layout.column_window),
        layout.imu_measurements_per_packet, layout.imu_packets_per_frame,
        layout.zone_monitoring_enabled, info.sn,
    )  # fmt: skip


def _bind_address(destination: str, here: str) -> str:
    """Return the address at which this machine receives packets to a destination."""
    if is_same_address(destination, here):
        return here
    if is_multicast(destination):
        return destination
    return "::" if ":" in destination else ""


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
