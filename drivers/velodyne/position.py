"""A Velodyne's position packets: state of the GPS's pulse and sentence, and temperatures.

Source: manual of the VLP-16, "Position Packet Structure", as velodyne-decoder reads it.  A lidar
sends them to UDP port 8308.
"""

from __future__ import annotations

from typing import Any, Final

_BYTES: Final = 512
_TOP_C, _BOTTOM_C, _PPS, _SHUTDOWN, _NMEA = 0xBB, 0xBC, 0xCA, 0xCB, 0xCE
_NMEA_BYTES: Final = 128
_PPS_STATES: Final = ("Absent", "Synchronizing", "Locked", "Error")


def parse_position(packet: bytes) -> dict[str, Any] | None:
    """Return the state in a position packet, in the values of a `State`; None for others.

    Temperatures are only in packets of newer firmware.
    """
    if len(packet) != _BYTES or packet[_PPS] >= len(_PPS_STATES):
        return None
    sentence = packet[_NMEA : _NMEA + _NMEA_BYTES].split(b"\0")[0].decode("ascii", "replace")
    state: dict[str, Any] = {
        "gps_pps": _PPS_STATES[packet[_PPS]],
        "gps_fix": _has_fix(sentence.split(",")),
        "shut_down_by_temperature": packet[_SHUTDOWN] == 1,
    }
    if packet[_TOP_C] or packet[_BOTTOM_C]:
        state |= {"temperature_top_c": packet[_TOP_C], "temperature_bot_c": packet[_BOTTOM_C]}
    return state


def _has_fix(fields: list[str]) -> bool:
    """Return whether a sentence RMC or GGA has a position."""
    kind = fields[0][3:]
    if kind == "RMC" and len(fields) > 2:
        return fields[2] == "A"
    return kind == "GGA" and len(fields) > 6 and fields[6] not in ("", "0")
