"""Reports as they should be, element by element: what is written down was looked at.

``python -m tests.viewers.report.golden`` writes them anew; read the difference before it is
committed.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.session.events import make_event
from recorder.viewers.report import write_report
from tests.session.build import (
    START_NS,
    Builder,
    camera_spec,
    imu_session,
    imu_spec,
    raw_camera_spec,
)
from tests.viewers.live.views.sensors import play

S = 1_000_000_000
GNSS = StreamSpec(
    "imu_gnss",
    (
        ChannelSpec("pos", "raw", "f8", (3,), "latitude, longitude, height", "deg, deg, m"),
        ChannelSpec("fix", "raw", "u1", (), "kind of fix"),
    ),
    rate_hz=4.0,
)
FOLDER = Path(__file__).with_name("golden")


def whole(path: Path) -> Path:
    """Three seconds of simulated sensors: one sweep and one frame again and again."""
    builder = Builder(path)
    for name, count in (("lidar", 30), ("radar", 60)):
        spec, sample, _ = next(play(name, 1, **({"imu": False} if name == "lidar" else {})))
        data = {k: np.repeat(np.asarray(v)[:1], count, axis=0) for k, v in sample.data.items()}
        builder.add(spec, count=count, data=data)
    builder.add(camera_spec(), 3.0)
    builder.add(raw_camera_spec("rear"), 3.0)
    builder.add(imu_spec(), 3.0)
    north = np.linspace(48.0, 48.001, 12)
    pos = np.stack([north, np.full(12, 11.0), np.full(12, 500.0)], axis=1)
    pos[5] = np.nan
    builder.add(GNSS, count=12, data={"pos": pos, "fix": np.ones(12, np.uint8)}, sensor="imu")
    for k in range(4):
        about: dict[str, Any] = {"detail": f"state {k}", "kernel": {"offset_ns": 1000 * k}}
        about["pps"] = [{"device": "pps0", "offset_ns": 100 * k}]
        builder.events.append(make_event("clock", START_NS + k * S, cause="state", **about))
    return builder.close()


def faulty(path: Path) -> Path:
    """Faults of every kind."""
    builder = imu_session(path, seq=[*range(50), *range(60, 150), *range(152, 200)])
    builder.add(camera_spec(), 1.0)
    builder.sensors["radar"] = {"driver": "mmwave", "streams": []}
    at = START_NS + S // 2
    builder.lose("imu", 50, 59, "refused", t_ns=at)
    builder.lose("imu", 150, 151, "time", t_ns=at)
    builder.lose("camera", 30, None, "hung", count=None, t_ns=at, duration_ns=S, estimate=30)
    builder.events += [
        make_event("mark", at, text="a bridge"),
        make_event("fault", at, "camera", "hung", detail="read() did not return"),
        make_event("clock", at, cause="step", step_ns=2 * S),
        make_event("disk", at, cause="floor", detail="0.9 GB free"),
        make_event("device", at, "radar", cause="absent", detail="no answer"),
    ]
    return builder.close("recovered")


SESSIONS: Mapping[str, Callable[[Path], Path]] = {"whole": whole, "faulty": faulty}


def outline(report: Path) -> str:
    """A report with a line for each element.

    It has no pictures, since another version of the encoder gives other bytes, and no style sheet,
    which is the same in all reports.  A long path of a drawing is given by its digest.
    """
    text = re.sub(r"<style>.*?</style>", "<style></style>", report.read_text(), flags=re.DOTALL)
    text = re.sub(r"'sha256-[^']*'", "'sha256'", text)
    text = re.sub(r"data:image/webp;base64,[A-Za-z0-9+/=]*", "picture", text)
    text = re.sub(r'(?<= d=")[^"]{200,}', _digest, text).replace(str(report.parent), "SESSION")
    return text.replace("><", ">\n<") + "\n"


def _digest(found: re.Match[str]) -> str:
    return hashlib.sha256(found[0].encode()).hexdigest()[:16]


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, build in SESSIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            made = write_report(build(Path(folder) / "rig"))
            (FOLDER / f"{name}.html").write_text(outline(made))


if __name__ == "__main__":
    main()
