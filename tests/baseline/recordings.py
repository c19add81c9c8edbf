"""A checkout's commands, run from outside, and the sessions that they make."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

SHARED = Path("../shared/data")
"""Beside the checkout of this package."""

FIXTURE = """
from pathlib import Path
for place in ("tests.support.recordings", "tests.support.sessions", "tests.session.simulated"):
    try:
        module = __import__(place, fromlist=["simulated_session"])
        module.simulated_session(Path("fixture/sim"), 1.0).close()
        break
    except (ImportError, AttributeError):
        continue
"""
FIXTURE_SENSORS = {
    "camera": {"driver": "camera", "source": "sim:", "width": 64, "height": 48, "fps": 10},
    "lidar": {"driver": "ouster", "source": "sim:"},
    "radar": {"driver": "mmwave", "source": "sim:"},
    "imu": {"driver": "xsens", "source": "sim:"},
}
LIVE_SENSORS = {
    "camera": {"driver": "camera", "source": "sim:", "width": 160, "height": 96, "noise": 2.0},
    "video": {
        "driver": "camera",
        "source": "sim:",
        "width": 64,
        "height": 48,
        "pixel_format": "Y16",
    },
    "lidar": {"driver": "ouster", "source": "sim:"},
    "radar": {"driver": "mmwave", "source": "sim:", "iq_order": "qqii"},
    "imu": {"driver": "xsens", "source": "sim:"},
    "gnss": {"driver": "gnss", "source": "sim:"},
    "can": {"driver": "can", "source": "sim:"},
    "packets": {"driver": "udp", "source": "sim:"},
}


@dataclass
class Run:
    """A run of one checkout's commands in an empty folder, which is their working directory.

    ::

        run = Run(checkout, folder)
        run.recorder("list", "root", "--format", "json")
        run.keep("json/list", text)           # folder/kept/json/list
    """

    checkout: Path
    work: Path
    shared: Path | None = None

    def command(self, *argv: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run Python with the checkout's packages; its output, or of a failure its messages.

        Raises:
            RuntimeError: another exit code than `codes`.
        """
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.checkout),
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": str(self.work / ".cache"),
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "TZ": "UTC",
        }
        done = subprocess.run(
            [sys.executable, "-P", *argv], cwd=self.work, env=environment, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode not in codes:
            raise RuntimeError(f"{argv} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stderr if done.returncode else done.stdout

    def recorder(self, *argv: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a verb of the command."""
        return self.command("-m", "recorder", *argv, codes=codes)

    def keep(self, item: str, content: str | bytes) -> None:
        """Keep an output for the comparison."""
        path = self.work / "kept" / item
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def keep_tree(self, item: str, folder: str) -> None:
        """Keep every file below a folder of the run, or one file."""
        source = self.work / folder
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file():
                self.keep(f"{item}/{path.relative_to(source)}", path.read_bytes())

    @cached_property
    def _fixture(self) -> Path:
        self.command("-c", FIXTURE)
        self.write_config("fixture/sim/config.yaml", FIXTURE_SENSORS)
        package = "sim" if (self.checkout / "drivers/sim").is_dir() else "world"
        self.command("-m", f"drivers.{package}", "annotate", "fixture/sim")
        return self.work / "fixture/sim"

    def make_fixture(self, root: str) -> str:
        """Copy the fixture: a second of simulated sensors with labels, of the same bytes."""
        shutil.copytree(self._fixture, self.work / root / "sim")
        return f"{root}/sim"

    def write_config(self, path: str, sensors: Mapping[str, Any]) -> str:
        """Write a config of these sensors."""
        config = {
            "version": 1,
            "session": {"root": "root"},
            "sensors": dict(sensors),
            "storage": {"min_free_gb": 0},
        }
        (self.work / path).parent.mkdir(parents=True, exist_ok=True)
        (self.work / path).write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def record(self, name: str, sensors: Mapping[str, Any], *options: str) -> Path:
        """Record a session; its folder."""
        config = self.write_config(f"{name}.yaml", sensors)
        self.recorder("run", config, "--name", name, "--no-finalize", *options, codes=(0, 3))
        return self.work / "root" / name

    def played(self) -> dict[str, dict[str, Any]]:
        """Sensors that play the real recordings, as fast as they go."""
        if self.shared is None:
            return {}
        data = self.shared.absolute()
        sources: dict[str, dict[str, Any]] = {
            "camera": {"driver": "camera", "source": f"file:{data}/camera/solidWhiteRight.mp4"},
            "imu": {"driver": "xsens", "source": f"file:{data}/imu/xsens_mti_g700_47s.bin"},
            "imu_g710": {"driver": "xsens", "source": f"file:{data}/imu/mti_g710_1/output.bin"},
            "aria": {"driver": "xsens", "source": f"vrs:{data}/vrs/aria_recording.vrs#1202-1"},
        }  # fmt: skip
        sources["copied"] = {**sources["camera"], "codec": "copy"}
        sources["camera"]["width"] = 320
        captures = {
            "lidar": ("OS-1-128_v2.3.0_1024x10_lb_n3", "OS-1-128_v2.3.0_1024x10"),
            "dual": ("OS-0-32-U1_v2.2.0_1024x10", "OS-0-32-U1_v2.2.0_1024x10"),
        }
        for name, (capture, metadata) in captures.items():
            sources[name] = {
                "driver": "ouster",
                "source": f"pcap:{data}/ouster/{capture}.pcap",
                "metadata": f"{data}/ouster/{metadata}.json",
            }
        sources["packets"] = {
            "driver": "udp",
            "source": f"file:{data}/ouster/{captures['dual'][0]}.pcap",
        }
        return {k: {**v, "pace": "max", "loop": False} for k, v in sources.items()}


def stream_files(session: Path) -> Iterator[tuple[str, bytes]]:
    """Each stream's files, with stamps from the stream's first on."""
    for path in sorted(session.glob("[!_]*/*")):
        content = path.read_bytes()
        if path.name == "t_mono":
            stamps = np.frombuffer(content, "<u8")
            content = (stamps - stamps[:1]).tobytes()
        if path.name != "ts":  # the same stamps, rounded
            yield f"{path.parent.name}/{path.name}", content


def first_samples(arrays: Mapping[str, Any], count: int) -> Iterator[tuple[str, bytes]]:
    """The arrays of a stream's first samples, without times."""
    rows = arrays["seq"] < count
    for name, array in sorted(arrays.items()):
        if not name.startswith("t_") and name not in ("ts", "utc"):
            yield name, f"{array.dtype} {array[rows].shape}\n".encode() + array[rows].tobytes()
