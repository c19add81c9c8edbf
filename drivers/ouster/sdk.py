"""Loading of ouster-sdk, and reading of metadata files and captures.

ouster-sdk is heavy, so it is only imported when a source is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from drivers.ouster.headless import provide_library
from drivers.ouster.packets import SensorPackets
from recorder.common.errors import FormatError, SourceError

SDK_ERRORS = (RuntimeError, ValueError, IndexError, TypeError)
"""Exceptions that ouster-sdk raises for invalid data."""


def load_sdk() -> Any:
    """Load ouster-sdk's core without its console messages, which would mix with other output."""
    provide_library("libGL.so.1")  # needed by the SDK's viewer; missing without a desktop
    from ouster.sdk import core

    core.init_logger("off")
    return core


def one_line(error: Exception) -> str:
    """Return an error's text, shortened to one line."""
    return " ".join(str(error).split())[:200]


def load_info(core: Any, path: Path) -> tuple[Any, str]:
    """Return the SensorInfo and the text of a metadata file.

    Raises:
        SourceError: the file cannot be read, or is not metadata.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SourceError(f"{path}: cannot read the sensor's metadata: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: is not Ouster sensor metadata: {one_line(error)}") from None
    return parse_info(core, text, str(path)), text


def parse_info(core: Any, text: str, where: str) -> Any:
    """Parse a sensor's metadata; a SourceError names `where`."""
    try:
        return core.SensorInfo(text)
    except SDK_ERRORS as error:
        raise SourceError(f"{where}: is not Ouster sensor metadata: {one_line(error)}") from None


def open_capture(
    core: Any, info: Any, options: Mapping[str, Any], path: Path
) -> tuple[BinaryIO, SensorPackets]:
    """Open a capture and find the sensor in it; return the file, at its start, and the packets.

    Args:
        core: the module ouster.sdk.core.
        info: the sensor's SensorInfo; gives the UDP ports that the options do not set.
        options: ``lidar_port`` and ``imu_port``.
        path: of the capture.

    Raises:
        SourceError: the file cannot be read, or does not contain the sensor.
    """
    lidar_port = options["lidar_port"] or info.config.udp_port_lidar or 7502
    imu_port = options["imu_port"] or info.config.udp_port_imu or 7503
    packets = SensorPackets(core, info, lidar_port, imu_port)
    try:
        file = path.open("rb", buffering=1 << 18)
        try:
            packets.find(file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
    except FormatError as error:
        raise SourceError(f"{path}: {error}") from None
    return file, packets
