"""Ouster lidars and their built-in IMUs: captures (pcap), OSF files, and a simulated one.

ouster-sdk 1.0 does all decoding, of every lidar and IMU profile that it knows; what is recorded
equals its fields to the last value, staggered (as measured).  Around it, this module sees to what
a recording needs: host stamps, order of time, and the accounts of what is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from drivers._kit.driver import Driver, EndOfSource, Item, Lost, Sample, SensorConfig, State
from drivers._kit.headless import provide_library
from drivers._kit.runner import main
from drivers._protocols.capture import ClockStep, Misfit, SensorPackets
from drivers._protocols.ouster_frames import (
    LAYOUT,
    Assembly,
    Fields,
    channel_arrays,
    frame_fields,
    imu_rate_hz,
    packet_fields,
    stream_specs,
)
from drivers.sim.later import LaterData
from drivers.sim.lidar import START_NS, LidarScene, default_info
from drivers.sim.seeds import noise_seed
from drivers.sim.world import SCENE_OPTION, World
from drivers.sim.world.mounts import LIDAR, MOUNT_OPTION, mount_of
from recorder.contract.errors import FormatError, SourceError
from recorder.contract.options import Option
from recorder.contract.streams import StreamSpec

_SDK_ERRORS = (RuntimeError, ValueError, IndexError, TypeError)


class OusterDriver(Driver):
    """An Ouster lidar as the stream NAME and its IMU as NAME_imu, on one time base.

    NAME, one sample a sweep, arrays [beams, columns]: ``rng`` u2 mm (saturates at 65535),
    ``rng_far`` u4 mm (range minus ``rng``), ``rfl`` u1, ``nir`` u2, of dual returns also ``rng2``,
    ``rng2_far``, ``rfl2``; ``t_col`` u8 ns [columns], the device time of each column.  ``t_ns`` is
    the host stamp of the sweep's last packet, ``t_dev`` the device time of its last column.
    Columns that are missing hold zeros, in ``t_col`` too, and are counted in a `State`
    ``{"columns_missing": n, "frame_id": f}``; sweeps that are missing are `Lost`, cause
    ``device``, told by the gap in the frame ids.  A first or last sweep that the capture has
    only in part is kept.

    NAME_imu: ``acc`` f4[3] m/s^2, ``avel`` f4[3] rad/s, in the IMU's axes, with the stamp of its
    packet.  A packet of several measurements is one batch; items come in order of their last
    stamps.  OSF files hold IMU data of the profile ACCEL32_GYRO32_NMEA only.

    A source without host stamps is timed by the device's clock.  Told as `State` are also a
    restart of the sensor (``sensor_restarted``) and a host clock that went back while the capture
    ran (``host_clock_step_ns``); packets of another size than the metadata says are `Lost`, cause
    ``corrupt``, uncounted.

    >>> options = check_options(OusterDriver.options, {"metadata": "a.json"})
    >>> driver = OusterDriver(SensorConfig("lidar", "pcap", "a.pcap", options))
    >>> specs = driver.open()   # SourceError names the file and its fault
    >>> item = driver.read()    # Sample, State or Lost; EndOfSource at the end of a file
    >>> driver.close()          # and open() again, as often as needed

    A file that breaks off, or is damaged, gives what is whole in it and then a SourceError.
    """

    options = {
        "metadata": Option("path", None, "the sensor's JSON; pcap: PATH.json unless given"),
        "compression": Option(
            "str", "lzmaf", "format of the image channels", choices=("lzmaf", "lzma", "raw")
        ),
        "packing": Option(
            "float",
            0.42,
            "xz packs rows that it brings to this share of their size and stores the rest: 1 packs "
            "all, for two thirds of the bytes and twice the CPU time",
            minimum=0.0,
            maximum=1.0,
        ),
        "imu": Option("bool", True, "record the built-in IMU as NAME_imu"),
        "extra": Option(
            "list", [], "more fields of ouster-sdk to record, such as SIGNAL, WINDOW", items="str"
        ),
        "lidar_port": Option("int", None, "pcap: UDP port of the lidar, else from the metadata"),
        "imu_port": Option("int", None, "pcap: UDP port of the IMU, else from the metadata"),
        "serial": Option("int", None, "osf: which sensor, where the file holds several"),
        "mode": Option(
            "str",
            "1024x10",
            "sim without metadata: columns x Hz",
            choices=("512x10", "512x20", "1024x10", "1024x20", "2048x10", "4096x5"),
        ),
        "beams": Option("int", 128, "sim without metadata: number of beams", choices=(32, 64, 128)),
        "seed": Option("int", 0, "sim: of the world and the noise", minimum=0),
        "scene": SCENE_OPTION,
        "noise": Option("float", 1.0, "sim: scale of all noise; 0: none", minimum=0, maximum=100),
        "mount": MOUNT_OPTION,
    }
    stream_suffixes = ("_imu",)
    schemes = {
        "sim": "a drive past houses, vehicles, people and poles",
        "pcap": "a network capture, pcap or pcapng",
        "osf": "a file of ouster-sdk",
    }

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._source: _Source | None = None
        self._items: Iterator[Item] = iter(())

    @property
    def origin_ns(self) -> int | None:
        """Simulated: the start of the world, which is not the end of any sweep."""
        return START_NS if self.sensor.scheme == "sim" else None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source; SourceError names the file and what is wrong with it."""
        kinds: dict[str, Callable[[SensorConfig], _Source]] = {
            "pcap": _PcapSource,
            "osf": _OsfSource,
            "sim": _SimSource,
        }
        self._source = source = kinds[self.sensor.scheme](self.sensor)
        try:
            specs = source.open()
        except BaseException:
            self.close()
            raise
        self._items = source.items()
        return specs

    def read(self) -> Item:
        try:
            return next(self._items)
        except StopIteration:
            raise EndOfSource from None

    def close(self) -> None:
        self._items = iter(())
        if self._source is not None:
            self._source.close()
            self._source = None


class _Source(Protocol):
    def open(self) -> Sequence[StreamSpec]: ...

    def items(self) -> Iterator[Item]: ...

    def close(self) -> None: ...


def _load_sdk() -> Any:
    """ouster-sdk's core; its console messages are off, they would mix with a command's output."""
    provide_library("libGL.so.1")  # of the SDK's viewer: missing where there is no desktop
    from ouster.sdk import core

    core.init_logger("off")
    return core


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _load_info(core: Any, path: Path) -> tuple[Any, str]:
    """SensorInfo and text of a metadata file."""
    try:
        text = path.read_text("utf-8")
        return core.SensorInfo(text), text
    except OSError as error:
        raise SourceError(f"{path}: cannot read the sensor's metadata: {error.strerror}") from None
    except _SDK_ERRORS as error:
        raise SourceError(f"{path}: is no Ouster sensor metadata: {_one_line(error)}") from None


class _Sensor:
    """What is known of the sensor; makes the items of its decoded frames and IMU packets."""

    def __init__(self, core: Any, config: SensorConfig, info: Any, fields: Fields) -> None:
        self.name = config.name
        self.info = info
        self.fields = fields
        self.extra: list[str] = config.options["extra"]
        self.last_id: int | None = None
        self._options = config.options
        self._shape = (int(info.h), int(info.w))
        self._columns_expected = int(info.format.valid_columns_per_frame())
        self._id_span = int(core.PacketFormat(info).max_frame_id) + 1
        if unknown := [n for n in self.extra if n not in fields or n in LAYOUT]:
            known = ", ".join(sorted(set(fields) - set(LAYOUT))) or "none"
            raise SourceError(
                f"{self.name}: extra: {unknown[0]!r} is no further field of this sensor's profile "
                f"{info.format.udp_profile_lidar.name}; there are: {known}"
            )
        self.recorded = [*(n for n in LAYOUT if n in fields), *self.extra] if fields else []

    def specs(self, text: str, with_imu: bool, finite: bool) -> list[StreamSpec]:
        """The streams; SourceError where there would be none."""
        specs = stream_specs(
            self.name,
            self.info,
            text,
            self.fields,
            compression=self._options["compression"],
            extra=self.extra,
            imu=with_imu and self._options["imu"],
            finite=finite,
            packing=self._options["packing"],
        )
        if not specs:
            raise SourceError(f"{self.name}: the sensor sends no lidar data, and no IMU is wanted")
        return specs

    def sweep(self, frame: Any, t_ns: int) -> Iterator[Item]:
        """A decoded frame as a sample, with the accounts of what is missing before and in it."""
        frame_id = int(frame.frame_id)
        if self.last_id is not None:
            ahead = (frame_id - self.last_id) % self._id_span
            if 1 < ahead <= self._id_span // 2:  # beyond: the count has started anew
                detail = {"frame_id": frame_id, "previous_frame_id": self.last_id}
                yield Lost(self.name, t_ns, "device", ahead - 1, detail=detail)
        self.last_id = frame_id
        valid = int(np.count_nonzero(frame.status & 1))
        if not valid:
            detail = {"frame_id": frame_id, "columns_valid": 0}
            yield Lost(self.name, t_ns, "device", 1, detail=detail)
            return
        data = channel_arrays(frame.field, self.fields, self._shape, self.extra)
        data["t_col"] = frame.timestamp[None]
        t_dev_ns = np.array([frame.timestamp.max()], np.int64)
        yield Sample(self.name, np.array([t_ns], np.int64), data, t_dev_ns)
        if valid < self._columns_expected:
            missing = {"columns_missing": self._columns_expected - valid, "frame_id": frame_id}
            yield State(self.name, t_ns, missing)

    def restarted(self, t_ns: int, init_id: int) -> Iterator[Item]:
        """The sensor has started anew, and its frame ids with it."""
        self.last_id = None
        yield State(self.name, t_ns, {"sensor_restarted": True, "init_id": init_id})

    def imu(
        self,
        t_ns: int,
        t_dev_ns: npt.NDArray[np.uint64],
        acc: npt.NDArray[np.float32],
        avel: npt.NDArray[np.float32],
        status: npt.NDArray[np.uint16],
    ) -> Sample | None:
        """An IMU packet's measurements; None where none is wanted, or none is valid.

        `t_ns` belongs to the last measurement, those before it are placed by the device's clock.
        """
        good = np.flatnonzero(status & 1)
        if not self._options["imu"] or not len(good):
            return None
        device = t_dev_ns[good].astype(np.int64)
        data = {
            "acc": np.ascontiguousarray(acc[good], "<f4"),
            "avel": np.ascontiguousarray(avel[good], "<f4"),
        }
        return Sample(self.name + "_imu", device - int(t_dev_ns[-1]) + t_ns, data, device)


class _PcapSource:
    """A capture, packet by packet: neither its length nor what else is in it costs memory."""

    def __init__(self, config: SensorConfig) -> None:
        self._config = config
        self._file: Any = None

    def open(self) -> Sequence[StreamSpec]:
        self._core = core = _load_sdk()
        self._path = path = self._config.path
        options = self._config.options
        metadata = Path(options["metadata"] or path.with_suffix(".json"))
        if not metadata.is_file():
            raise SourceError(
                f"{self._config.name}: pcap:{path} needs the sensor's metadata (option "
                f"`metadata`); {metadata}: no such file"
            )
        self._info, text = _load_info(core, metadata)
        try:
            fields = packet_fields(core, self._info)
            self._sensor = _Sensor(core, self._config, self._info, fields)
            recorded = {name: fields[name] for name in self._sensor.recorded}
            self._assembly: Assembly[Item] = Assembly(
                core, self._info, recorded, self._sensor.sweep, self._sensor.restarted
            )
        except _SDK_ERRORS as error:
            raise SourceError(f"{metadata}: is of no use: {_one_line(error)}") from None
        config = self._info.config
        self._packets = SensorPackets(
            core,
            self._info,
            options["lidar_port"] or config.udp_port_lidar or 7502,
            options["imu_port"] or config.udp_port_imu or 7503,
        )
        specs = self._sensor.specs(text, imu_rate_hz(self._info) is not None, finite=True)
        try:
            self._file = path.open("rb", buffering=1 << 18)
            self._packets.find(self._file)
            self._file.seek(0)
        except OSError as error:
            raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
        except FormatError as error:
            raise SourceError(f"{path}: {error}") from None
        return specs

    def items(self) -> Iterator[Item]:
        fault: Exception | None = None
        batched = self._info.format.udp_profile_lidar.name != "OFF"
        legacy_imu = self._info.format.udp_profile_imu.name == "LEGACY"
        last_imu_ns = -1
        try:
            for packet in self._packets.read(self._file):
                if isinstance(packet, Misfit):
                    detail = {"packet_bytes": packet.size, "expected_bytes": packet.expected}
                    yield Lost(self._sensor.name, packet.t_ns, "corrupt", None, detail=detail)
                    continue
                if isinstance(packet, ClockStep):
                    step = {"host_clock_step_ns": packet.step_ns}
                    yield State(self._sensor.name, packet.t_ns, step)
                    continue
                imu = isinstance(packet, self._core.ImuPacket)
                if batched and not (imu and legacy_imu):
                    yield from self._assembly.take(packet)
                if imu and (t_dev_ns := packet.timestamp())[-1] != last_imu_ns:
                    last_imu_ns = int(t_dev_ns[-1])  # a capture may hold a packet twice
                    values = packet.accel(), packet.gyro(), packet.status()
                    sample = self._sensor.imu(int(packet.host_timestamp), t_dev_ns, *values)
                    if sample is not None:
                        yield from self._assembly.hold(sample, int(sample.t_ns[-1]))
        except (FormatError, OSError, RuntimeError) as error:
            fault = error  # what came before it is whole, and is given out first
        yield from self._assembly.finish()
        if fault is not None:
            raise SourceError(f"{self._path}: {_one_line(fault)}") from None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _OsfSource:
    """A file of ouster-sdk: frames decoded once already, and the metadata with them."""

    def __init__(self, config: SensorConfig) -> None:
        self._config = config
        self._messages: Iterable[Any] = ()
        self._complaints: list[str] = []

    def open(self) -> Sequence[StreamSpec]:
        core = _load_sdk()
        from ouster.sdk import osf

        self._path = path = self._config.path
        self._complaints = complaints = []
        try:
            reader = osf.Reader(str(path), error_handler=lambda _, text: complaints.append(text))
            sensors = reader.meta_store.find(osf.LidarSensor)
            stream_id, info, text = self._choose(
                {
                    int(stream): sensors[meta.sensor_meta_id].info
                    for stream, meta in reader.meta_store.find(osf.LidarFrameStream).items()
                    if meta.sensor_meta_id in sensors
                }
            )
            if self._config.options["metadata"]:
                info, text = _load_info(core, Path(self._config.options["metadata"]))
            first = next((m.decode() for m in reader.messages([stream_id])), None)
            if first is None:
                raise SourceError(f"{path}: holds no sweep; {self._fault()}")
            if (first.h, first.w) != (info.h, info.w):
                raise SourceError(
                    f"{path}: its sweeps have {first.h} x {first.w} points, the sensor's metadata "
                    f"says {info.h} x {info.w}"
                )
            self._sensor = _Sensor(core, self._config, info, frame_fields(core, first))
            self._messages = reader.messages([stream_id])
        except _SDK_ERRORS as error:
            raise SourceError(f"{path}: is no OSF file: {_one_line(error)}") from None
        self._with_imu = first.has_field("IMU_ACC") and first.has_field("IMU_TIMESTAMP")
        return self._sensor.specs(text, self._with_imu, finite=True)

    def items(self) -> Iterator[Item]:
        fields = [*self._sensor.recorded, *(_OSF_IMU if self._with_imu else ())]
        try:
            for message in self._messages:
                frame = message.decode(fields)
                device_ns = int(frame.timestamp.max())
                t_ns = int(frame.packet_timestamp.max()) or int(message.ts) or device_ns
                later = []
                for sample in self._imu(frame, t_ns - device_ns) if self._with_imu else ():
                    if sample.t_ns[-1] <= t_ns:
                        yield sample
                    else:
                        later.append(sample)
                yield from self._sensor.sweep(frame, t_ns)
                yield from later
        except (FormatError, *_SDK_ERRORS) as error:
            raise SourceError(f"{self._path}: {_one_line(error)}") from None
        if self._complaints:
            raise SourceError(f"{self._path}: {self._fault()}")

    def close(self) -> None:
        self._messages = ()

    def _choose(self, streams: Mapping[int, Any]) -> tuple[int, Any, str]:
        serial = self._config.options["serial"]
        if not streams:
            raise SourceError(f"{self._path}: holds no lidar; {self._fault()}")
        fitting = {k: v for k, v in streams.items() if serial is None or v.sn == serial}
        if len(fitting) != 1:
            there = ", ".join(str(info.sn) for info in streams.values())
            asked = "option `serial` must say which" if serial is None else f"none is {serial}"
            raise SourceError(f"{self._path}: holds the sensors {there}; {asked}")
        stream_id, info = fitting.popitem()
        return stream_id, info, ""

    def _fault(self) -> str:
        text = " ".join(self._complaints[0].split()) if self._complaints else "it is empty"
        return f"ouster-sdk says: {text}" if self._complaints else text

    def _imu(self, frame: Any, host_minus_device_ns: int) -> Iterator[Sample]:
        acc, avel, t_dev_ns, status, packets = (frame.field(name) for name in _OSF_IMU)
        size = len(t_dev_ns) // max(1, len(packets))
        for k, t_ns in enumerate(packets):
            part = slice(k * size, (k + 1) * size)
            t_ns = int(t_ns) or int(t_dev_ns[part][-1]) + host_minus_device_ns
            values = t_dev_ns[part], acc[part], avel[part], status[part]
            if (sample := self._sensor.imu(t_ns, *values)) is not None:
                yield sample


_OSF_IMU = ("IMU_ACC", "IMU_GYRO", "IMU_TIMESTAMP", "IMU_STATUS", "IMU_PACKET_TIMESTAMP")


class _SimSource:
    """The simulated lidar, endless; its clock starts one second before the source."""

    def __init__(self, config: SensorConfig) -> None:
        self._config = config

    def open(self) -> Sequence[StreamSpec]:
        core, options = _load_sdk(), self._config.options
        info, text = default_info(core, options["mode"], options["beams"]), ""
        if options["metadata"]:
            info, text = _load_info(core, Path(options["metadata"]))
        mount = mount_of(self._config.name, options["mount"], LIDAR)
        world = World(options["scene"], options["seed"])
        try:
            seed = noise_seed(options["seed"], self._config.name, "lidar")
            self._scene = LidarScene(core, info, world, mount, seed, options["noise"])
            self._imu_hz = imu_rate_hz(info)
        except _SDK_ERRORS as error:
            raise SourceError(f"{options['metadata']}: is of no use: {_one_line(error)}") from None
        fields: Fields = {name: (dtype, ()) for name, dtype in self._scene.fields.items()}
        self._sensor = _Sensor(core, self._config, info, fields)
        return self._sensor.specs(text, with_imu=self._imu_hz is not None, finite=False)

    def items(self) -> Iterator[Item]:
        scene, name = self._scene, self._config.name
        imu_count = 0
        for sweep_index in itertools.count():
            end_ns = scene.end_time(sweep_index)
            if self._config.options["imu"] and self._imu_hz:
                due = scene.imu_count(end_ns, self._imu_hz)
                times = scene.imu_times(imu_count, due - imu_count, self._imu_hz)
                batch = LaterData(partial(scene.imu, imu_count, len(times), self._imu_hz))
                for k, t_ns in enumerate(times.tolist()):
                    stamp = np.array([t_ns], np.int64)
                    yield Sample(name + "_imu", stamp, batch.row(k), stamp.copy())
                imu_count = due
            stamp = np.array([end_ns], np.int64)
            yield Sample(name, stamp, LaterData(partial(self._sweep, sweep_index)), stamp.copy())

    def _sweep(self, index: int) -> Mapping[str, npt.NDArray[Any]]:
        scene = self._scene
        shape = (scene.beams, scene.columns)
        data = channel_arrays(scene.sweep(index).__getitem__, scene.fields, shape)
        data["t_col"] = scene.column_times(index)[None]
        return data

    def close(self) -> None:
        """Nothing is held open."""


if __name__ == "__main__":
    main(OusterDriver)
