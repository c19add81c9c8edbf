"""The parts of the baseline: what each keeps of a run's outputs."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tests.baseline.recordings import LIVE_SENSORS, Run, first_samples, stream_files

VARYING = {"packed_ns", "seconds", "boot_id", "hostname", "statement", "proof", "head"}
"""Keys of JSON answers that depend on the clock or the machine (head: the file system's order)."""

WRONG_CONFIGS = {
    "empty": "",
    "no_mapping": "- version: 1",
    "syntax": "version: 1\nsensors: {camera: [}",
    "version": "version: 2\nsensors: {camera: {driver: camera, source: 'sim:'}}",
    "no_driver": "version: 1\nsensors: {camera: {source: 'sim:'}}",
    "unknown_driver": "version: 1\nsensors: {camera: {driver: kamera, source: 'sim:'}}",
    "unknown_keys": """\
version: 1
sesion: {}
sensors: {camera: {driver: camera, source: 'sim:', widht: 3}}
""",
    "twice": """\
version: 1
sensors:
  a: {driver: xsens, source: 'sim:'}
  a: {driver: xsens}
""",
    "types": """\
version: 1
session: {root: 3, metadata: 4}
storage: {sync_interval_ms: fast, min_free_gb: -1}
sensors:
  camera: {driver: camera, source: 'sim:', width: 3.5, fps: yes, quality: 101}
  radar: {driver: mmwave, source: 'sim:', iq_order: iqiq, capture: 3}
""",
    "kinds_of_source": """\
version: 1
sensors:
  a: {driver: xsens, source: 'tcp://x'}
  'b c': {driver: can}
""",
    "archives": """\
version: 1
sensors: {a: {driver: xsens, source: 'sim:'}}
finalize: [ncore, edgfirst]
""",
    "sections": """\
version: 1
sensors: {a: {driver: xsens, source: 'sim:'}}
live: {port: 99999}
triggers: {t: {when: 'a.acc >', before_s: -1}}
upload: {to: 'ftp://x'}
redact: {programs: 1}
""",
    "files": """\
version: 1
sensors:
  a: {driver: camera, source: 'file:none.mp4', scene: drive}
  b: {driver: ouster, source: 'pcap:none.pcap'}
""",
    "sources": """\
version: 1
sensors:
  a: {driver: camera, source: 'sim:', controls: {gain: 1}}
  b: {driver: camera, source: 'sim:', latency_ms: 3}
  c: {driver: camera, source: 'sim:', pixel_format: H264}
  d: {driver: camera, source: 'sim:', pixel_format: Y16, codec: copy}
  e: {driver: camera, source: 'http://127.0.0.1:9/x', codec: copy}
  f: {driver: camera, source: 'v4l2:/dev/null', pixel_format: Y16, width: 100, scene: drive}
  g: {driver: camera, source: 'rtsp://127.0.0.1:9/x', transport: udp, fps: 3, pixel_format: YUYV}
  h: {driver: mmwave, source: 'file:empty.yaml'}
""",
}


def keep_help(run: Run) -> None:
    """Keep the help of the command and of every verb."""
    overview = run.recorder("--help")
    run.keep("help/recorder", overview)
    for verb in re.findall(r"^    ([a-z][a-z-]+)  ", overview, re.MULTILINE):
        run.keep(f"help/{verb}", run.recorder(verb, "--help"))


def keep_drivers(run: Run) -> None:
    """Keep the list of drivers, and the options of each."""
    for driver in json.loads(run.recorder("drivers", "--format", "json")):
        run.keep(f"drivers/{driver}", run.recorder("drivers", driver))


def keep_errors(run: Run) -> None:
    """Keep what is said of wrong configs."""
    for name, text in WRONG_CONFIGS.items():
        (run.work / f"{name}.yaml").write_text(text)
        run.keep(f"errors/{name}", run.recorder("check", f"{name}.yaml", codes=(2,)))
    pack = ("finalize", run.make_fixture("errors"), "--to", "mcap")
    for option in ("mcap.profile=ros3", "mcap.iqq=1", "mcap.radar_limit=many"):
        refused = run.recorder(*pack, "--option", option, codes=(1, 2))
        run.keep(f"errors/{option.split('=')[0]}", refused)


def keep_archives(run: Run) -> None:
    """Keep all archives of the fixture, and what is answered and recorded about them."""
    session = run.make_fixture("archives")
    pack = ("finalize", session, "--format", "json", "--out")
    for name in ("ncore", "edgefirst", "l5kit", "vrs", "mcap"):
        _keep_json(run, f"archives/{name}.answer", run.recorder(*pack, "packed", "--to", name))
    ros2 = (*pack, "bag", "--to", "mcap", "--option", "mcap.profile=ros2")
    _keep_json(run, "archives/ros2.answer", run.recorder(*ros2))
    for place in ("packed", "bag"):
        run.keep_tree(f"archives/{place}", place)
        for record in (run.work / place).glob("*.json"):
            _keep_json(run, f"archives/{place}/{record.name}", record.read_text())
    _keep_json(run, "archives/validate", run.recorder("validate", "packed", "--format", "json"))


def keep_report(run: Run) -> None:
    """Keep the report of the fixture."""
    run.recorder("report", run.make_fixture("report"), "--out", "report.html")
    run.keep_tree("report", "report.html")


def keep_exports(run: Run) -> None:
    """Keep exports of every kind."""
    session = run.make_fixture("exports")
    kinds = {"camera": ("jpg", "png"), "lidar": ("png", "pcd", "npz"), "radar": ("png", "pcd")}
    for stream, formats in {**kinds, "imu": ("csv", "npz")}.items():
        for kind in formats:
            out = f"exported/{stream}_{kind}" + (
                "" if kind in ("jpg", "png", "pcd") else f".{kind}"
            )
            few = () if stream == "imu" else ("--every", "5")
            run.recorder("export", session, stream, "--to", kind, "--out", out, *few)
            run.keep_tree(f"exports/{stream}_{kind}", out)


def keep_answers(run: Run) -> None:
    """Keep the JSON answers about the fixture."""
    session = run.make_fixture("answers")
    for verb, where in (
        ("info", session),
        ("list", "answers"),
        ("events", "answers"),
        ("validate", session),
    ):
        _keep_json(run, f"answers/{verb}", run.recorder(verb, where, "--format", "json"))


def keep_clip(run: Run) -> None:
    """Keep a clip of the fixture."""
    session = run.make_fixture("clip")
    run.recorder("clip", session, "--from", "0.2", "--until", "0.7", "--name", "cut")
    _keep_session(run, "clip", run.work / "clip/cut")
    _keep_json(run, "clip/session.json", (run.work / "clip/cut/_recorder/session.json").read_text())


def keep_import(run: Run) -> None:
    """Keep the session that a ROS 2 bag becomes."""
    session = run.make_fixture("import")
    options = ("--to", "mcap", "--option", "mcap.profile=ros2", "--option", 'mcap.lidar="packets"')
    run.recorder("finalize", session, *options[:4], "--out", "import_bag")
    run.recorder("import", "import_bag/mcap/sim", "--root", "imported", codes=(0, 3))
    _keep_session(run, "import", run.work / "imported/sim")


def keep_played(run: Run) -> None:
    """Keep what is recorded of the real recordings."""
    if sensors := run.played():
        _keep_session(run, "played", run.record("played", sensors))


def keep_live(run: Run) -> None:
    """Keep the first samples of live simulated sensors."""
    session = run.record("live", LIVE_SENSORS, "--duration", "1")
    for stream in LIVE_SENSORS:
        run.recorder("export", str(session), stream, "--to", "npz", "--out", f"{stream}.npz")
        with np.load(run.work / f"{stream}.npz") as arrays:
            for name, content in first_samples(arrays, 3):
                run.keep(f"live/{stream}/{name}", content)


def _keep_session(run: Run, part: str, session: Path) -> None:
    for name, content in stream_files(session):
        run.keep(f"{part}/{name}", content)


def _keep_json(run: Run, item: str, text: str) -> None:
    run.keep(item, json.dumps(_drop_varying(json.loads(text)), indent=1, sort_keys=True) + "\n")


def _drop_varying(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _drop_varying(v) for k, v in value.items() if k not in VARYING}
    return [_drop_varying(one) for one in value] if isinstance(value, list) else value


PARTS: dict[str, Callable[[Run], None]] = {
    "help": keep_help,
    "drivers": keep_drivers,
    "errors": keep_errors,
    "answers": keep_answers,
    "archives": keep_archives,
    "report": keep_report,
    "exports": keep_exports,
    "clip": keep_clip,
    "import": keep_import,
    "played": keep_played,
    "live": keep_live,
}
GOLDEN = ("answers", "archives", "report", "exports", "clip")
"""Parts whose digests are committed; their bytes depend on `made_with`."""


def made_with() -> dict[str, str]:
    """The libraries and the processor that decide the bytes of encoded and computed values."""
    config: Any = np.show_config(mode="dicts")
    libraries = ("numpy", "opencv-python-headless", "ouster-sdk", "pyarrow", "numcodecs", "zlib-ng")
    return {
        **{name: version(name) for name in (*libraries, "lz4", "zstandard")},
        "processor": " ".join([platform.machine(), *config["SIMD Extensions"]["found"]]),
    }


def digests(kept: Path) -> dict[str, str]:
    """The SHA-256 of each item."""
    paths = sorted(path for path in kept.rglob("*") if path.is_file())
    return {str(p.relative_to(kept)): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}
