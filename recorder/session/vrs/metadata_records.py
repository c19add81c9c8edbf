"""Records of configuration and state, and the tags of a file that holds a session.

``session.vrs`` has live records.  An archive of a session without them derives them from
``session.json`` and the events.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import recorder
from recorder.codecs.streams import StreamSpec
from recorder.common.secret_masking import mask_secrets
from recorder.config.yaml_lines import shareable_text
from recorder.session.vrs.data_records import ConfigurationData, StateData

TIME_DOMAIN = (
    "epoch seconds on the session's host clock: CLOCK_MONOTONIC plus clock_offset_ns, which is "
    "fixed at the session's start; ts of the session's streams"
)


def configuration(
    spec: StreamSpec, driver: str, epoch: int, t_mono_ns: int, offset_ns: int
) -> ConfigurationData:
    """Return the configuration of a stream at the begin of an epoch."""
    wire = spec.to_wire()
    files, settings = wire.pop("files"), wire.pop("settings")
    return ConfigurationData(
        stream=spec.name,
        driver=driver,
        epoch=epoch,
        t_mono_ns=t_mono_ns,
        clock_offset_ns=offset_ns,
        rate_hz=spec.rate_hz or 0.0,
        declaration=as_json(wire),
        settings=as_json(settings),
        files={as_text(name): as_text(text) for name, text in files.items()},
    )


def session_configuration(
    session: Path, values: Mapping[str, Any], t_mono_ns: int, offset_ns: int
) -> ConfigurationData:
    """Return the configuration of a session: ``session.json`` at the start, and its files."""
    files = {}
    for name in ("config.yaml", "calibration.yaml"):
        if (session / name).is_file():
            files[name] = as_text((session / name).read_text("utf-8", "replace"))
    settings = {
        k: v for k, v in values.items() if k not in ("state", "end_ns", "streams", "epochs")
    }
    return ConfigurationData(
        t_mono_ns=t_mono_ns, clock_offset_ns=offset_ns, settings=as_json(settings), files=files
    )


def state(
    t_mono_ns: int,
    kind: str,
    epoch: int,
    seq: int,
    cause: str | None,
    values: Mapping[str, Any],
) -> StateData:
    """Return the record of a state, a loss, an incident, or an epoch's begin or end."""
    return StateData(
        t_mono_ns=t_mono_ns,
        epoch=max(0, epoch),
        seq=max(0, seq),
        kind=as_text(kind),
        cause=as_text(cause or ""),
        numbers=_select_numbers(values),
        values=as_json(values),
    )


def event_state(event: Mapping[str, Any], offset_ns: int) -> StateData:
    """Return the record of an event of the session's log."""
    seq, epoch = event.get("first_seq"), event.get("epoch")
    return state(
        event["t_ns"] - offset_ns,
        str(event["type"]),
        epoch if isinstance(epoch, int) else 0,
        seq if isinstance(seq, int) else 0,
        event.get("cause"),
        event,
    )


def map_drivers(sensors: Mapping[str, Any]) -> dict[str, str]:
    """Return the driver of every stream, from ``sensors`` of ``session.json``."""
    drivers = {}
    for name, sensor in sensors.items():
        for stream in (name, *(sensor.get("streams") or ())):
            drivers[stream] = str(sensor.get("driver") or "")
    return drivers


def file_tags(values: Mapping[str, Any]) -> dict[str, str]:
    """Return tags of the file, from ``session.json``."""
    start_ns, start_mono_ns = int(values["start_ns"]), int(values["start_mono_ns"])
    tags = {
        "capture_time_epoch": str(start_ns // 1_000_000_000),
        "session_id": values["name"],
        "device_id": values.get("hostname") or platform.node(),
        "time_domain": TIME_DOMAIN,
        "start_ns": start_ns,
        "start_mono_ns": start_mono_ns,
        "clock_offset_ns": start_ns - start_mono_ns,
        "recorder_version": values.get("recorder_version") or recorder.__version__,
    }
    more = {f"metadata.{k}": v for k, v in (values.get("metadata") or {}).items()}
    return {
        as_text(str(k)): as_text(v if isinstance(v, str) else as_json(v))
        for k, v in (tags | more).items()
    }


def mask_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags of a file with likely secrets in the session's metadata masked."""
    return {key: _mask_tag(key, value) for key, value in tags.items()}


def _mask_tag(key: str, value: str) -> str:
    name = key.removeprefix("metadata.")
    if name == key:
        return value
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    masked = mask_secrets({name: parsed})[name]
    if masked == parsed:
        return value
    return as_text(masked if isinstance(masked, str) else as_json(masked))


def mask_configuration(data: bytes) -> bytes:
    """Return a session's configuration record with likely secrets masked; else unchanged."""
    record = ConfigurationData.decode(data)
    settings: Any = json.loads(record.settings or "{}")
    masked = settings | {"metadata": mask_secrets(settings.get("metadata"))}
    files = {
        name: shareable_text(text) if name == "config.yaml" else text
        for name, text in record.files.items()
    }
    if files == record.files and masked["metadata"] == settings.get("metadata"):
        return data
    record.files, record.settings = files, as_json(masked)
    return record.encode()


def _select_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for key, value in values.items():
        if isinstance(value, (int, float)):
            with contextlib.suppress(OverflowError):  # an int may exceed a float
                found[as_text(str(key))] = float(value)
    return found


def as_json(value: Any) -> str:
    """Format compact JSON; values that JSON cannot hold become text."""
    return json.dumps(value, separators=(",", ":"), default=str)


def as_text(text: str) -> str:
    """Return the text with characters that UTF-8 cannot encode replaced."""
    return text.encode("utf-8", "replace").decode()
