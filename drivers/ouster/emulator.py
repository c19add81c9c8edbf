"""An emulated Ouster: its HTTP API, and its packets over UDP, on loopback."""

from __future__ import annotations

import json
import math
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from drivers.kit.emulator import EmulatedSource, Emulator, free_ports
from drivers.kit.emulator_faults import Fault
from drivers.ouster.emulator_http import OusterApi
from drivers.ouster.model import DEFAULT_MODE, START_NS, default_info, make_lidar_scene
from drivers.ouster.model_packets import LidarPackets, SentPacket
from drivers.ouster.sdk import SDK_ERRORS, load_info, load_sdk, open_capture
from recorder.common.errors import ConfigError, FormatError, SourceError
from recorder.config.settings import SensorEntry

_FIRMWARE: Final = "ousteros-image-prod-aries-v3.1.0+emulated"
_START_NS: Final = 300_000_000  # from a reinitialization to the first packets
_LINGER_NS: Final = 200_000_000  # from its request to its start
_GRAIN_NS: Final = 2_000_000  # shortest interval between sends; each sends all due packets
_IDLE_NS: Final = 10_000_000
_FIXED: Final = (
    "lidar_mode",
    "udp_profile_lidar",
    "udp_profile_imu",
    "columns_per_packet",
    "azimuth_window",
)
_KEPT_OPTIONS: Final = ("compression", "packing", "imu", "extra")


class OusterEmulator(Emulator):
    """A lidar and its built-in IMU: HTTP API on a free TCP port of 127.0.0.1, packets over UDP.

    The sensor sends no packet before its destination is set, like a factory-new sensor.  The
    simulated sensor (``sim:``) turns with the world's time, which begins with the first step.  Its
    clock shows that time, also after a reinitialization, while its frame ids restart at 0.  A
    capture (``pcap:``) begins when the metadata are fetched, and keeps its own stamps and ids; only
    before the first reinitialization, the emulator's API names another initialization id.

    After the request to reinitialize, the sensor answers and sends as before for `linger_ns`, as a
    real sensor.  The fault ``reboot`` is a power cycle: settings that are not stored are lost.

    The faults' time begins with the first packet after the metadata were fetched, because a
    receiver exists from then on.  The faults ``loss``, ``stall`` and ``unplug`` are counted in
    packets of lidar and IMU together, ``reboot`` and ``clock_jump`` once each.

    Raises:
        ConfigError: a source of another kind, or a clock jump of a capture.
    """

    def __init__(self, sensor: SensorEntry, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        super().__init__(sensor, faults, seed)
        if sensor.scheme not in ("sim", "pcap"):
            raise ConfigError(
                f"a lidar is emulated from sim: or pcap:, not from {sensor.scheme}:",
                key=f"{sensor.name}.source",
            )
        if sensor.scheme == "pcap" and any(fault.kind == "clock_jump" for fault in faults):
            raise ConfigError("the clock of a capture cannot jump", key=sensor.name)
        self._done: set[Fault] = set()
        self._start_ns: int | None = None  # of the first step
        self._first_ns: int | None = None  # of the first packet with a receiver
        self._ready_ns: int | None = None  # end of the present start
        self._back_ns: int | None = None  # when an absent device comes back
        self._begin_ns: int | None = None  # of the reinitialization that was requested
        self._reinitialized = False  # since the emulator's start
        self.linger_ns = _LINGER_NS
        self._init_id = 1000 + seed
        self._served = 0
        self._running = False
        self._api: OusterApi | None = None
        self._socket: socket.socket | None = None
        self._feed: _SceneFeed | _CaptureFeed | None = None

    def start(self) -> EmulatedSource:
        try:
            self._core = core = load_sdk()
        except ImportError as error:  # the SDK's viewer requires libGL.so.1
            raise SourceError(f"ouster-sdk cannot be loaded: {error}") from None
        self._feed = feed = self._make_feed(None)
        ports = free_ports(2)
        profiles = feed.info.format
        settings = {
            "udp_dest": "",
            "udp_port_lidar": ports[0],
            "udp_port_imu": ports[1],
            "lidar_mode": _mode(feed.info),
            "udp_profile_lidar": profiles.udp_profile_lidar.name,
            "udp_profile_imu": profiles.udp_profile_imu.name,
            "columns_per_packet": int(profiles.columns_per_packet),
            "azimuth_window": [0, 360000],
            "operating_mode": "NORMAL",
            "timestamp_mode": "TIME_FROM_INTERNAL_OSC",
            "multipurpose_io_mode": "OFF",
            "phase_lock_enable": False,
            "phase_lock_offset": 0,
            "signal_multiplier": 1,
            "sync_pulse_in_polarity": "ACTIVE_HIGH",
            "nmea_in_polarity": "ACTIVE_HIGH",
            "nmea_baud_rate": "BAUD_9600",
            "nmea_leap_seconds": 0,
        }
        self._api = OusterApi(self._metadata(), settings, self._find_fault)
        self._api.start()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        self._layout = core.PacketFormat(feed.info)
        kept = {n: self.sensor.options[n] for n in _KEPT_OPTIONS if n in self.sensor.options}
        kept["persist"] = True  # so that it comes back from a reboot with its settings
        return EmulatedSource(f"ouster://127.0.0.1:{self._api.port}", kept)

    def step(self, now_ns: int) -> int:
        api = self._api
        assert api is not None
        if self._start_ns is None:
            self._start_ns, self._ready_ns = now_ns, now_ns
        self._break_down(now_ns)
        if self._back_ns is not None and now_ns >= self._back_ns:
            self._back_ns = None
            api.start()
        if self._is_restart_due(now_ns):
            with api.lock:
                assert api.reinitialize is not None
                api.settings, api.reinitialize = api.reinitialize, None
                api.status = "INITIALIZING"
            self._running, self._ready_ns, self._reinitialized = False, now_ns + _START_NS, True
            self._change(api.settings)
        if self._ready_ns is not None and now_ns >= self._ready_ns:
            self._ready_ns, self._running = None, True
            self._init_id += self.sensor.scheme == "sim"
            assert self._feed is not None
            self._feed.begin(now_ns - self._start_ns, self._init_id)
            api.run(self._identity(), self._metadata())
        return self._send(now_ns)

    def _is_restart_due(self, now_ns: int) -> bool:
        """Return whether a reinitialization was requested long enough ago to start."""
        assert self._api is not None
        if self._api.reinitialize is None:
            self._begin_ns = None
        elif self._begin_ns is None:
            self._begin_ns = now_ns + self.linger_ns
        return self._begin_ns is not None and now_ns >= self._begin_ns

    def stop(self) -> None:
        if self._api is not None:
            self._api.stop()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _send(self, now_ns: int) -> int:
        """Send the packets that are due; return when the next packet is due."""
        api, feed = self._api, self._feed
        assert api is not None and feed is not None and self._start_ns is not None
        with api.lock:
            if isinstance(feed, _SceneFeed):
                feed.alert_flags = len(api.alerts)
            destination = str(api.settings["udp_dest"])
            ports = int(api.settings["udp_port_lidar"]), int(api.settings["udp_port_imu"])
            served = api.served
        if not self._running or not destination:
            return now_ns + _IDLE_NS
        if isinstance(feed, _CaptureFeed):
            # A receiver that fetches the metadata exists from then on: the capture begins.
            if served > self._served and not feed.playing:
                feed.play(now_ns - self._start_ns)
                self.finished = False
            self._served = served
        while (due_ns := feed.due_ns()) is not None:
            at_ns = self._start_ns + due_ns
            if at_ns > now_ns:
                return max(at_ns, now_ns + _GRAIN_NS)
            packet = feed.take()
            self.late_ns = now_ns - at_ns
            if self._first_ns is None and served:
                self._first_ns = at_ns
            if (fault := self._find_silence(at_ns)) is not None:
                self.injected[fault] += 1
                continue
            t_s = -1.0 if self._first_ns is None else (at_ns - self._first_ns) / 1e9
            for data in self._packet_faults.apply(t_s, packet.data):
                self._emit(data, destination, ports)
        if isinstance(feed, _CaptureFeed) and feed.ended and not self.finished:
            for data in self._packet_faults.flush():
                self._emit(data, destination, ports)
            if self.sensor.loop:
                feed.play(now_ns - self._start_ns)
            else:
                self.finished = True
        return now_ns + _IDLE_NS

    def _emit(self, data: bytes, destination: str, ports: tuple[int, int]) -> None:
        assert self._socket is not None
        imu = len(data) == self._layout.imu_packet_size
        try:
            self._socket.sendto(data, (destination, ports[imu]))
        except OSError:
            self.injected["unsent"] += 1  # no receiver, or no valid address in the settings

    def _find_silence(self, at_ns: int) -> str | None:
        """Return the fault that suppresses packets of this time."""
        if self._back_ns is not None:
            return "unplug"
        if self._first_ns is None:
            return None
        t_s = (at_ns - self._first_ns) / 1e9
        return next((f.kind for f in self.faults if f.kind == "stall" and f.is_active(t_s)), None)

    def _break_down(self, now_ns: int) -> None:
        """Reboot the device, or unplug it from the network, if a fault is due."""
        api = self._api
        assert api is not None
        for fault in self.faults:
            if fault in self._done or fault.kind not in ("reboot", "unplug", "clock_jump"):
                continue
            if self._first_ns is None or now_ns < self._first_ns + round(fault.at_s * 1e9):
                continue
            self._done.add(fault)
            end_ns = self._first_ns + round((fault.at_s + fault.duration_s) * 1e9)
            if fault.kind == "clock_jump":
                self.injected[fault.kind] += 1
                if isinstance(self._feed, _SceneFeed):
                    self._feed.shift_ns += round(fault.value * 1e9)
                continue
            self._back_ns = end_ns
            api.stop()
            if fault.kind == "reboot":
                self.injected[fault.kind] += 1
                self._running, self._ready_ns = False, end_ns + _START_NS
                api.power_cycle()
                self._change(api.settings)

    def _identity(self) -> int:
        if self.sensor.scheme == "sim":
            return self._init_id
        assert self._feed is not None
        return int(self._feed.info.init_id) + (not self._reinitialized)

    def _metadata(self) -> dict[str, Any]:
        """Return the feed's metadata, completed with a real device's own values."""
        assert self._feed is not None
        metadata: dict[str, Any] = json.loads(self._feed.info.to_json_string())
        for name in ("ouster-sdk", "user_data"):  # not written by a sensor
            metadata.pop(name, None)
        info = metadata["sensor_info"]
        info["image_rev"] = info.get("image_rev") or _FIRMWARE
        return metadata

    def _find_fault(self, settings: Mapping[str, Any]) -> str | None:
        """Return the fault of staged settings, or None."""
        assert self._api is not None
        for name in ("udp_port_lidar", "udp_port_imu"):
            if not isinstance(settings[name], int) or not 0 < settings[name] < 65536:
                return f"{name} is no port"
        if not isinstance(settings["udp_dest"], str):
            return "udp_dest is no address"
        free = self.sensor.scheme == "sim" and not self.sensor.options.get("metadata")
        free_names = ("lidar_mode", "udp_profile_lidar") if free else ()
        for name in _FIXED:
            if settings[name] != self._api.settings[name] and name not in free_names:
                return f"{name} of this emulated sensor cannot be changed"
        if free:
            try:
                self._core.LidarMode(settings["lidar_mode"])
            except SDK_ERRORS:
                return "lidar_mode is none"
            profile = self._core.UDPProfileLidar.from_string(str(settings["udp_profile_lidar"]))
            if profile in (self._core.UDPProfileLidar.UNKNOWN, self._core.UDPProfileLidar.OFF):
                return "udp_profile_lidar is none that can be emulated"
        return None

    def _change(self, settings: Mapping[str, Any]) -> None:
        """Replace the feed where its form changes."""
        assert self._feed is not None
        info = self._feed.info
        form = _mode(info), info.format.udp_profile_lidar.name
        if form != (settings["lidar_mode"], settings["udp_profile_lidar"]):
            self._feed.close()
            self._feed = self._make_feed(settings)
            self._layout = self._core.PacketFormat(self._feed.info)

    def _make_feed(self, settings: Mapping[str, Any] | None) -> _SceneFeed | _CaptureFeed:
        options = self.sensor.options
        if self.sensor.scheme == "pcap":
            return _CaptureFeed(self._core, self.sensor)
        if options["metadata"]:
            info, _ = load_info(self._core, Path(options["metadata"]))
        else:
            mode = str(settings["lidar_mode"]) if settings else options["mode"] or DEFAULT_MODE
            info = default_info(self._core, mode, options["beams"])
            if settings:
                name = str(settings["udp_profile_lidar"])
                layout, config = info.format, info.config
                layout.udp_profile_lidar = self._core.UDPProfileLidar.from_string(name)
                config.udp_profile_lidar = layout.udp_profile_lidar
                info.format, info.config = layout, config
        try:
            scene = make_lidar_scene(self._core, info, self.sensor.name, options)
            return _SceneFeed(LidarPackets(self._core, info, scene), info, scene.period_ns)
        except SDK_ERRORS as error:
            raise SourceError(f"{options['metadata']}: unusable metadata: {error}") from None


class _SceneFeed:
    """The simulated world's packets; each sweep is made while the previous sweep is sent."""

    def __init__(self, packets: LidarPackets, info: Any, period_ns: int) -> None:
        self.info = info
        self.shift_ns = self.alert_flags = 0
        self._packets, self._period_ns = packets, period_ns
        self._worker = ThreadPoolExecutor(1, "emulated-lidar")
        self._next: Future[list[SentPacket]] | None = None
        self._queue: deque[SentPacket] = deque()
        self._index = self._first = self._init_id = 0

    def begin(self, from_ns: int, init_id: int) -> None:
        """Start the device, `from_ns` after the emulator's start."""
        self._index = self._first = math.ceil(from_ns / self._period_ns)
        self._init_id = init_id
        self._queue.clear()
        self._next = self._make()

    def _make(self) -> Future[list[SentPacket]]:
        index = self._index
        self._index += 1
        frame_id = index - self._first
        state = self._init_id, self.shift_ns, self.alert_flags
        return self._worker.submit(self._packets.sweep, index, frame_id, *state)

    def due_ns(self) -> int:
        """Return when the next packet is due, in ns of the feed's own time."""
        if not self._queue:
            assert self._next is not None
            self._queue.extend(self._next.result())
            self._next = self._make()
        return self._queue[0].t_ns - START_NS

    def take(self) -> SentPacket:
        return self._queue.popleft()

    def close(self) -> None:
        self._worker.shutdown(cancel_futures=True)


class _CaptureFeed:
    """A capture's packets of one sensor, in the capture's timing."""

    def __init__(self, core: Any, sensor: SensorEntry) -> None:
        options, self._path = sensor.options, Path(sensor.address)
        self._core = core
        metadata = Path(options["metadata"] or self._path.with_suffix(".json"))
        self.info, _ = load_info(core, metadata)
        file, self._packets = open_capture(core, self.info, options, self._path)
        file.close()
        self.playing = self.ended = False
        self._next: SentPacket | None = None
        self._sent: Iterator[SentPacket] = iter(())
        self._from_ns = 0

    def begin(self, from_ns: int, init_id: int) -> None:  # noqa: ARG002  the capture keeps its id
        self.playing = False

    def play(self, from_ns: int) -> None:
        """Play from the beginning, `from_ns` after the emulator's start."""
        self.close()
        self.playing, self.ended = True, False
        self._sent = self._read()
        self._next = next(self._sent, None)
        self._from_ns = from_ns - (self._next.t_ns if self._next is not None else 0)

    def _read(self) -> Iterator[SentPacket]:
        with self._path.open("rb", buffering=1 << 18) as file:
            try:
                for packet in self._packets.read(file):
                    if isinstance(packet, self._core.LidarPacket | self._core.ImuPacket):
                        imu = isinstance(packet, self._core.ImuPacket)
                        data = np.asarray(packet.buf).tobytes()
                        yield SentPacket(int(packet.host_timestamp), imu, data)
            except FormatError:
                return  # the capture is truncated here

    def due_ns(self) -> int | None:
        if not self.playing:
            return None
        if self._next is None:
            self.playing, self.ended = False, True
            return None
        return self._next.t_ns + self._from_ns

    def take(self) -> SentPacket:
        packet, self._next = self._next, next(self._sent, None)
        assert packet is not None
        return packet

    def close(self) -> None:
        if hasattr(self._sent, "close"):
            self._sent.close()


def _mode(info: Any) -> str:
    """Return the metadata's columns x Hz; a synthetic sensor's mode may differ from them."""
    layout = info.format
    known = json.loads(info.to_json_string()).get("config_params", {}).get("lidar_mode")
    return str(known or f"{layout.columns_per_frame}x{round(layout.fps or 10)}")
