"""The command ``recorder`` in a process of its own, and sessions read without our own code."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import yaml

from recorder.cli import main, run
from recorder.cli.post_session import Completion
from recorder.common import syscalls

PROJECT = Path(__file__).resolve().parents[2]
RECORDER = Path(sys.executable).with_name("recorder")
DEADLINE_S = 500.0  # what gives way to everything hardly runs on a busy machine
TWO_IMUS = """
version: 1
session: {root: sessions}
storage: {min_free_gb: 0}
sensors:
  imu: {driver: xsens, source: "sim:", rate: 100}
  second: {driver: xsens, source: "sim:", rate: 100}
"""

_PROGRESS = re.compile(r"[\d.]+ (ms|s|min)\b.*: \w+ \d+ \(.* lost ")
_PACE = re.compile(
    r"\w+: \S+ Hz is (below|again above) half of what is expected"
    r"|disk: (nothing was committed for|commits again)"
)
_SLOW = re.compile("waiting for .* to open|writing the (checksums|simulation's labels) of ")
"""What takes longer than a second is said."""


@dataclass(frozen=True)
class Ran:
    """How a command ended.

    Attributes:
        code: its exit code.
        out: its results.
        err: its lines for people.
    """

    code: int
    out: str
    err: list[str]

    @property
    def complaints(self) -> list[str]:
        """What it said beyond where it records, how far it is, and how fast the machine is."""
        usual = (_PROGRESS, _PACE, _SLOW, re.compile("recording "))
        return [s for s in self.err if not any(pattern.match(s) for pattern in usual)]

    @property
    def result(self) -> Any:
        return json.loads(self.out)


def recorder(
    *args: object, env: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> Ran:
    """Run ``recorder ARGS``, behind the words of another command if there are any."""
    done = subprocess.run(
        [*before, str(RECORDER), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr.splitlines())


def here(*args: object, labels: bool = False) -> Ran:
    """Run ``recorder ARGS`` in this process, where a process of its own is not the point.

    Drivers and the writer are processes all the same; only what reads and starts them is not.
    The priority of this process stays as it is: other tests run in it.

    Args:
        args: the command's arguments.
        labels: whether ``run`` writes the labels of simulated sensors, which takes a process more.
    """

    def complete(session: Path, *, simulated: bool) -> Completion:
        return Completion(session, simulated=simulated and labels)

    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(mock.patch.object(syscalls, "be_idle"))
        stack.enter_context(mock.patch.object(run, "Completion", complete))
        code = main([str(arg) for arg in args])
    return Ran(code, out.getvalue(), err.getvalue().splitlines())


@cache
def namespace() -> tuple[str, ...] | None:
    """Command that gives what follows it mounts of its own; None where none works."""
    if shutil.which("unshare") is None:
        return None
    for command in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        probe = ["sh", "-c", 'd=$(mktemp -d) && mount -t tmpfs none "$d" && umount "$d"; c=$?']
        probe[-1] += '; rmdir "$d"; exit $c'
        done = subprocess.run([*command, *probe], capture_output=True, check=False)
        if done.returncode == 0:
            return command
    return None


def write_config(path: Path, text: str) -> Path:
    """A config file from its sensors' lines; the disk of the test machine may be nearly full."""
    lines = [line.strip() for line in text.strip().splitlines()]
    head = "version: 1\nstorage: {min_free_gb: 0}\nsensors:\n"
    path.write_text(head + "".join(f"  {line}\n" for line in lines))
    return path


def replay(session: Path, drivers: Mapping[str, str], root: Path) -> Ran:
    """Play sensors of a session into the session ``again`` below a root."""
    sensors = {
        name: {"driver": driver, "source": f"session:{session}", "pace": "max"}
        for name, driver in drivers.items()
    }
    config = {"version": 1, "storage": {"min_free_gb": 0}, "sensors": sensors}
    (root / "replay.yaml").write_text(yaml.safe_dump(config))
    return here("run", root / "replay.yaml", "--root", root, "--name", "again", "--format", "json")


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its path, as a digest of what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def meta(session: Path, stream: str) -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = json.loads((session / stream / "meta.json").read_bytes())
    return values


def column(session: Path, stream: str, channel: str) -> npt.NDArray[Any]:
    """All values of a channel, decoded from its files as FORMATS describes them.

    Independent of the recorder's own readers: ``raw`` as it lies, ``lzmaf`` cut by its index.
    """
    entry = meta(session, stream)[channel]
    path = session / stream / channel
    dtype, shape = np.dtype(entry["type"]).newbyteorder("<"), entry["shape"]
    if entry["format"] == "raw":
        return np.fromfile(path, dtype).reshape(-1, *shape)
    assert entry["format"] == "lzmaf", entry["format"]
    data, ends = path.read_bytes(), np.fromfile(f"{path}_i", "<u8").tolist()
    assert ends[0] == 0 and ends[-1] == len(data)
    frames = [lzma.decompress(data[a:b]) for a, b in pairwise(ends)]
    return np.frombuffer(b"".join(frames), dtype).reshape(len(frames), *shape)


def header(session: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((session / "_recorder/session.json").read_bytes())
    return values


def relative_ns(session: Path, stream: str) -> npt.NDArray[np.int64]:
    """Ends of a stream's measurements in ns after the session's start."""
    mono = column(session, stream, "t_mono").astype(np.int64)
    return np.asarray(mono - header(session)["start_mono_ns"])


def streams_of(session: Path) -> list[str]:
    return sorted(path.parent.name for path in session.glob("*/meta.json"))


def assert_nothing_lost(session: Path) -> None:
    """The session is closed, and its own account knows of no loss."""
    info = here("info", session, "--format", "json")
    assert info.code == 0, info.err
    assert info.result["state"] == "clean"
    for name, stream in info.result["streams"].items():
        assert stream["lost"] == {}, name
        assert stream["lost_intervals"] == [], name
        seq = column(session, name, "seq")
        np.testing.assert_array_equal(seq, np.arange(stream["samples"]), name)


def assert_sound(session: Path) -> None:
    """``recorder validate --deep`` decodes every sample and finds nothing."""
    report = here("validate", session, "--deep", "--format", "json")
    assert (report.code, report.result["problems"]) == (0, []), report.out
