"""Messages of PTC, the protocol that controls Hesai's lidars over TCP: bytes to values and back.

Sources: Hesai's TCP API, as tier4/nebula (nebula_hesai_hw_interfaces) and HesaiLidar_SDK_2.0 have
it.  All integers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from recorder.common.errors import DeviceError

PORT: Final = 9347
HEAD: Final = struct.Struct(">2sBBI")
MARK: Final = b"\x47\x74"

CALIBRATION, PTP_STATE, INVENTORY, CONFIG, STATUS = 0x05, 0x06, 0x07, 0x08, 0x09
SET_RPM, SET_SYNC_ANGLE, SET_STANDBY, SET_RETURN_MODE = 0x17, 0x18, 0x1C, 0x1E
SET_CLOCK_SOURCE, SET_DESTINATION, SET_PTP, PTP = 0x1F, 0x20, 0x24, 0x26
NAMES: Final = {
    CALIBRATION: "calibration",
    PTP_STATE: "PTP state",
    INVENTORY: "inventory",
    CONFIG: "settings",
    STATUS: "status",
    SET_RPM: "rpm",
    SET_SYNC_ANGLE: "sync_angle",
    SET_STANDBY: "standby",
    SET_RETURN_MODE: "return_mode",
    SET_CLOCK_SOURCE: "clock_source",
    SET_DESTINATION: "udp_dest",
    SET_PTP: "ptp",
    PTP: "PTP settings",
}
"""What commands are of; of those that set, the option."""
REFUSALS: Final = {
    1: "invalid parameter",
    2: "connection failed",
    3: "invalid data",
    4: "out of memory",
    5: "unsupported command",
    6: "internal communication failed",
}
"""Return codes."""

MODELS: Final = {
    0: "Pandar40P",
    2: "Pandar64",
    15: "PandarQT64",
    25: "PandarXT32",
    26: "PandarXT16",
    32: "QT128",
    38: "PandarXT32M",
    40: "AT128",
    42: "OT128",
    48: "AT128",
}
"""Models by their number in the inventory."""
RETURN_MODES: Final = ("last", "strongest", "dual", "first", "last_first", "first_strongest")
"""Return modes by their number."""
CLOCK_SOURCES: Final = ("gps", "ptp")
PTP_PROFILES: Final = ("1588v2", "802.1AS", "802.1AS automotive", "802.1AS AUTOSAR")
PTP_TRANSPORTS: Final = ("udp", "l2")
PTP_LOCKS: Final = ("free run", "tracking", "locked", "frozen")

_INVENTORY: Final = struct.Struct(">18s16s6s16s16s16s16s")
_CONFIG: Final = struct.Struct(">4s4s4s4sHHHBHHHBBBBBBBH")
_STATUS: Final = struct.Struct(">IH")
_PTP_STATE: Final = struct.Struct(">qii")
_DESTINATION: Final = struct.Struct(">4sHH")
_MODEL_PLACES: Final = ((184, 170), (162, 106), (144, 108), (120, 106))
"""Shortest length of an inventory, and where it has the model."""


def _at(names: tuple[str, ...], number: int) -> Any:
    """Return the name of a number, or the number where it has none."""
    return names[number] if number < len(names) else number


def _unpack(layout: struct.Struct, data: bytes, command: int) -> tuple[Any, ...]:
    if len(data) < layout.size:
        raise DeviceError(f"PTC, {NAMES[command]}: the answer has {len(data)} bytes only")
    return layout.unpack_from(data)


def _text(data: bytes) -> str:
    return data.split(b"\0")[0].decode("ascii", "replace").strip()


def build_request(command: int, payload: bytes = b"") -> bytes:
    """Return a request."""
    return HEAD.pack(MARK, command, 0, len(payload)) + payload


def parse_inventory(data: bytes) -> dict[str, Any]:
    """Return serial number, model (None if unknown) and versions; raises DeviceError."""
    serial, made, mac, software, hardware, control, sensor = _unpack(_INVENTORY, data, INVENTORY)
    place = next((at for size, at in _MODEL_PLACES if len(data) >= size), len(data))
    number = data[place] if place < len(data) else -1
    return {
        "serial": _text(serial),
        "model": MODELS.get(number),
        "model_number": number,
        "date_of_manufacture": _text(made),
        "mac": mac.hex(":"),
        "software": _text(software),
        "hardware": _text(hardware),
        "control_firmware": _text(control),
        "sensor_firmware": _text(sensor),
    }


def parse_config(data: bytes) -> dict[str, Any]:
    """Return the settings by the options' names; raises DeviceError."""
    found = _unpack(_CONFIG, data, CONFIG)
    address, mask, gateway, destination = (".".join(map(str, each)) for each in found[:4])
    port, gps_port, rpm, sync, sync_angle, start, stop, clock, _, trigger = found[4:14]
    mode, standby, motor, vlan, vlan_id = found[14:19]
    return {
        "address": address,
        "mask": mask,
        "gateway": gateway,
        "udp_dest": destination,
        "lidar_port": port,
        "gps_port": gps_port,
        "rpm": rpm,
        "sync_angle": sync_angle // 100 if sync else None,
        "start_angle_deg": start / 100,
        "stop_angle_deg": stop / 100,
        "clock_source": _at(CLOCK_SOURCES, clock),
        "trigger_method": trigger,
        "return_mode": _at(RETURN_MODES, mode),
        "standby": bool(standby),
        "motor_status": motor,
        "vlan": vlan_id if vlan else None,
    }


def build_config(settings: Mapping[str, Any], address: bytes, gps_port: int) -> bytes:
    """Return the settings as a lidar answers them, the inverse of `parse_config`."""
    angle = settings["sync_angle"]
    return _CONFIG.pack(
        *(address, b"\xff\xff\xff\0", address[:3] + b"\1"),
        bytes(map(int, settings["udp_dest"].split("."))),
        *(settings["lidar_port"], gps_port, settings["rpm"]),
        *(angle is not None, 100 * (angle or 0), 0, 36000),
        *(CLOCK_SOURCES.index(settings["clock_source"]), 1, 1),
        RETURN_MODES.index(settings["return_mode"]),
        *(settings["standby"], 1, 0, 0),
    ) + bytes(9)


def parse_ptp(data: bytes) -> dict[str, Any]:
    """Return PTP's settings by the keys of the option ``ptp``; raises DeviceError."""
    if len(data) < 4:
        raise DeviceError(f"PTC, {NAMES[PTP]}: the answer has {len(data)} bytes only")
    enabled, profile, domain, transport = data[:4]
    found: dict[str, Any] = {
        "enabled": bool(enabled),
        "profile": _at(PTP_PROFILES, profile),
        "domain": domain,
        "transport": _at(PTP_TRANSPORTS, transport),
    }
    if profile == 0 and len(data) >= 7:
        found["log_intervals"] = list(struct.unpack_from("3b", data, 4))
    elif profile > 1 and len(data) >= 5:
        found["tsn"] = data[4] == 1
    return found


def check_ptp(wanted: Mapping[str, Any]) -> str | None:
    """Return what is wrong with PTP's settings of a config; None if nothing is."""
    intervals = wanted.get("log_intervals", [0, 0, 0])
    allowed: dict[str, tuple[bool, str]] = {
        "profile": (wanted.get("profile", "1588v2") in PTP_PROFILES, ", ".join(PTP_PROFILES)),
        "domain": (wanted.get("domain", 0) in range(128), "0 to 127"),
        "transport": (wanted.get("transport", "udp") in PTP_TRANSPORTS, ", ".join(PTP_TRANSPORTS)),
        "log_intervals": (
            isinstance(intervals, list)
            and len(intervals) == 3
            and all(isinstance(each, int) and -128 <= each < 128 for each in intervals),
            "three whole numbers",
        ),
        "tsn": (isinstance(wanted.get("tsn", False), bool), "true or false"),
    }
    for name, value in wanted.items():
        if name not in allowed:
            return f"unknown key {name!r}; the keys are {', '.join(allowed)}"
        if not allowed[name][0]:
            return f"{name}: {value!r} is wrong; allowed: {allowed[name][1]}"
    return None


def build_ptp(wanted: Mapping[str, Any], long: bool) -> bytes:
    """Return the payload of PTP's settings.

    Args:
        wanted: as `parse_ptp` returns them.
        long: of newer models, which want a reserved byte behind the intervals.
    """
    profile = PTP_PROFILES.index(wanted["profile"])
    transport = PTP_TRANSPORTS.index(wanted["transport"])
    payload = bytes((profile, wanted["domain"], transport))
    if profile == 0:
        payload += struct.pack("3b", *wanted.get("log_intervals", (1, 1, 0))) + bytes(long)
    elif profile > 1:
        payload += bytes((bool(wanted.get("tsn", False)),))
    return payload


def build_destination(address: bytes, port: int, gps_port: int) -> bytes:
    """Return the payload of a destination."""
    return _DESTINATION.pack(address, port, gps_port)


def parse_status(data: bytes) -> dict[str, Any]:
    """Return speed, temperatures in deg C, and locks of the clock; raises DeviceError."""
    _, rpm = _unpack(_STATUS, data, STATUS)
    layouts = (struct.Struct(">8iBBiiB"), struct.Struct(">9iBBiiB"))
    # Both layouts have 5 bytes at their end but for the OT128's, which has its humidity there.
    layout = layouts[len(data) >= _STATUS.size + layouts[1].size + 5]
    if len(data) < _STATUS.size + layout.size:
        raise DeviceError(f"PTC, {NAMES[STATUS]}: the answer has {len(data)} bytes only")
    *temperatures, pps, nmea, starts, minutes, ptp = layout.unpack_from(data, _STATUS.size)
    return {
        "motor_rpm_measured": round(rpm / 10) * 10,
        "temperatures_c": [round(value / 100) for value in temperatures],
        "gps_pps_locked": pps == 1,
        "gps_nmea_locked": nmea == 1,
        "starts": starts,
        "operation_hours": minutes // 60,
        "ptp": _at(PTP_LOCKS, ptp),
    }


def build_status(rpm: int, temperature_c: int, ptp: str) -> bytes:
    """Return a status as a lidar answers it, the inverse of `parse_status`."""
    temperatures = [100 * temperature_c] * 8
    locks = (0, 0, 7, 600, PTP_LOCKS.index(ptp))
    return _STATUS.pack(3600, rpm) + struct.pack(">8iBBiiB", *temperatures, *locks) + bytes(5)


def parse_ptp_state(data: bytes) -> dict[str, Any]:
    """Return PTP's offset and port state; raises DeviceError."""
    offset_ns, state, _ = _unpack(_PTP_STATE, data, PTP_STATE)
    return {"ptp_offset_from_master_ns": offset_ns, "ptp_port_state": state}


def build_ptp_state(offset_ns: int, state: int) -> bytes:
    """Return PTP's state as a lidar answers it, the inverse of `parse_ptp_state`."""
    return _PTP_STATE.pack(offset_ns, state, 0)


def build_inventory(serial: str, model: str) -> bytes:
    """Return an inventory as a lidar answers it, the inverse of `parse_inventory`."""
    number = next(number for number, name in MODELS.items() if name == model)
    texts = (serial, "2026-01-01", "", "1.0", "1.0", "1.0", "1.0")
    head = _INVENTORY.pack(*(text.encode() for text in texts))
    size = {"AT128": 184, "OT128": 162, "QT128": 144}.get(model, 120)
    place = dict(_MODEL_PLACES)[size]
    return head + bytes(place - len(head)) + bytes((number,)) + bytes(size - place - 1)
