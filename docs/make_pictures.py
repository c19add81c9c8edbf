"""Makes docs/pictures/ from a simulated recording: ``make pictures``.

`recorder run` records ``configs/demo.yaml`` for some seconds in a pseudo-terminal.  The pictures of
the sensors are made from samples of that session, the picture of the live table from what the
terminal showed.  Nothing in the pictures is drawn by hand.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import cv2
import numpy as np
import numpy.typing as npt
import yaml
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from recorder.perception.lidar.lidar import OusterOptics
from recorder.perception.radar.radar import RadarGeometry, RadarProcessor
from recorder.perception.radar.spectra import mean_power
from recorder.session.reader import Session, lidar_range_mm

Picture = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

PROJECT = Path(__file__).resolve().parents[1]
FOLDER = PROJECT / "docs" / "pictures"
SIZE_LIMIT = 150_000  # bytes of a picture
DURATION_S = 8
TABLE_S = 6.0  # the live table is shown as it was at about this time
SCENE_S = 1.5  # the time in the session of the sensors' pictures
WIDTH, HEIGHT = 800, 450
SCALE = 2  # pictures are drawn larger and reduced, which smooths lines and text
COLUMNS, ROWS = 66, 24  # of the terminal
BACKGROUND = (24, 18, 16)  # BGR, as all colours here
GRID = (70, 60, 56)
LABEL = (190, 185, 180)
BOX = (90, 220, 255)

# Corners of a box in units of half its size, in the order in which an outline seen from above has
# them.
OUTLINE = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) / 2


def main() -> int:
    """Record, and make every picture."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        shown = record(Path(folder))
        (FOLDER / "live-table.svg").write_text(live_table(shown))
        with Session(Path(folder) / "drive") as session:
            t_ns = (session.start_ns or 0) + int(SCENE_S * 1e9)
            for name, make in (("camera", camera), ("lidar", lidar), ("radar", radar)):
                picture = make(session, t_ns)
                cv2.imwrite(str(FOLDER / f"{name}.jpg"), picture, [cv2.IMWRITE_JPEG_QUALITY, 88])
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.relative_to(PROJECT)}: {path.stat().st_size} bytes")
        if path.stat().st_size > SIZE_LIMIT:
            print(f"{path}: larger than {SIZE_LIMIT} bytes", file=sys.stderr)
            return 1
    return 0


# --- the terminal -----------------------------------------------------------------------------


def record(root: Path) -> str:
    """Record a session ``drive`` below a folder; what the terminal showed after `TABLE_S`."""
    command = [sys.executable, "-m", "recorder", "run", "configs/demo.yaml", "--no-finalize"]
    command += ["--root", str(root), "--name", "drive", "--duration", str(DURATION_S)]
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        command, cwd=PROJECT, stdin=slave, stdout=subprocess.DEVNULL, stderr=slave
    )
    os.close(slave)
    output = b""
    while True:
        try:
            output += os.read(master, 65536)
        except OSError:  # the last process with the terminal has ended
            break
    os.close(master)
    if process.wait() != 0:
        raise SystemExit(f"recording failed:\n{output.decode()}")
    screens = screens_of(output.decode())
    at = [screen for screen in screens if seconds_shown(screen) <= TABLE_S]
    if not at:
        raise SystemExit(f"no table of the session in what the terminal showed:\n{output.decode()}")
    if late := behind("\n".join(at[-1])):
        raise SystemExit(f"this machine does not keep up with {', '.join(late)}: try it when idle")
    first = next(number for number, line in enumerate(at[-1]) if line.startswith("drive"))
    return "\n".join(["$ recorder run configs/demo.yaml", *at[-1][first:]])


def behind(table: str) -> list[str]:
    """Name the streams whose rate is more than a tenth below the expected one."""
    rates = re.findall(r"(\w+) +([\d.]+) Hz +([\d.]+) Hz", re.sub(r"\x1b\[[\d;]*m", "", table))
    if not rates:
        raise SystemExit(f"the table shows no rates:\n{table}")
    return [name for name, rate, expected in rates if float(rate) < 0.9 * float(expected)]


def seconds_shown(screen: list[str]) -> float:
    """Return the time in the table's first line; infinite where there is no table."""
    found = [re.search(r"\b([\d.]+) s\b", line) for line in screen if line.startswith("drive")]
    return float(found[-1][1]) if found and found[-1] else float("inf")


def screens_of(output: str) -> list[list[str]]:
    """Return the lines on the screen after each update of the table.

    Understands what the recorder writes: lines, "cursor up" and "erase".  Colours stay.
    """
    lines, row, shown = [""], 0, True
    screens: list[list[str]] = []
    for text, up, erase, end in re.findall(
        r"((?:[^\x1b\r\n]|\x1b\[[\d;]*m)+)"
        r"|\x1b\[(\d*)A|\x1b\[([02]?[JK])|(\r?\n|\r)|\x1b\[\?\d+[hl]",
        output,
    ):
        if (up or end == "\r") and not shown:  # the next update begins
            screens.append([line for line in lines if line])
            shown = True
        if up:
            row = max(0, row - int(up))
        elif erase.endswith("J"):
            del lines[row + 1 :]
            lines[row] = ""
        elif erase:
            lines[row] = ""
        elif "\n" in end:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text:
            lines[row] += text
            shown = False
    return [*screens, [line for line in lines if line]]


def live_table(shown: str) -> str:
    """Return an SVG of the terminal, in the viewer's own monospaced font."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for line in shown.splitlines():
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop")
    svg = console.export_svg(title="recorder", theme=MONOKAI, unique_id="live-table")
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


# --- the sensors ------------------------------------------------------------------------------


def camera(session: Session, t_ns: int) -> Picture:
    """Return the camera's frame, reduced."""
    stream = session.streams["camera"]
    jpeg = stream.channels["video.avi"].encoded(stream.at(t_ns))
    frame = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(cv2.resize(frame, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA))


def lidar(session: Session, t_ns: int) -> Picture:
    """Draw a sweep from above, forward to the right; the boxes are the simulation's own."""
    stream = session.streams["lidar"]
    index = stream.at(t_ns)
    metadata = session.path / "lidar" / "lidar.json"
    optics = OusterOptics.of_metadata(metadata.read_text(), str(metadata))
    rays = optics.rays([lidar_range_mm(stream, index)], [stream.sample(index)["rfl"]])
    points = (rays.direction * rays.distance_m[0][:, None])[np.isfinite(rays.distance_m[0])]
    mount = yaml.safe_load((session.path / "calibration.yaml").read_text())
    shift = np.array(mount["sensors"]["lidar"]["T_sensor_rig"]["translation_m"])
    points = points + shift
    picture = canvas()
    metre = 9.0 * SCALE
    origin = np.array([WIDTH * SCALE * 0.38, HEIGHT * SCALE * 0.5])

    def place(x_m: Floats | float, y_m: Floats | float) -> npt.NDArray[np.int32]:
        across = np.stack(np.broadcast_arrays(np.asarray(x_m), -np.asarray(y_m)), axis=-1)
        return np.asarray(np.rint(origin + across * metre), np.int32)

    for radius in range(10, 70, 10):
        cv2.circle(picture, place(0, 0).tolist(), int(radius * metre), GRID, SCALE, cv2.LINE_AA)
        beside = 0.6 * radius  # to the right, off the road
        write(picture, f"{radius} m", place(0.8 * radius, -beside).tolist())
    height = np.clip((points[:, 2] + 0.3) / 4.3 * 255, 0, 255).astype(np.uint8)
    colours = cv2.applyColorMap(height[:, None], cv2.COLORMAP_TURBO)[:, 0]
    at = place(points[:, 0], points[:, 1])
    inside = (at >= 0).all(axis=1) & (at < (WIDTH * SCALE - 1, HEIGHT * SCALE - 1)).all(axis=1)
    for step in ((0, 0), (0, 1), (1, 0), (1, 1)):
        column, line = (at[inside] + step).T
        picture[line, column] = colours[inside]
    for corners, name in boxes(session, int(stream.t_ns[index])):
        outline = place(corners[:, 0], corners[:, 1])
        cv2.polylines(picture, [outline], True, BOX, SCALE, cv2.LINE_AA)
        left, top = outline.min(axis=0).tolist()
        write(picture, name, (left, top - 8), BOX)
    return reduced(picture)


def boxes(session: Session, t_ns: int) -> list[tuple[Floats, str]]:
    """Corners [4, 2] in the rig and class of the objects labelled at a time."""
    found = []
    for line in (session.path / "_cuboids" / "truth.jsonl").read_text().splitlines()[1:]:
        label = json.loads(line)
        if abs(label["t_ns"] - t_ns) < 1_000_000 and label["class"] not in ("building", "pole"):
            _, _, z, w = label["quaternion_xyzw"]
            yaw = 2 * np.arctan2(z, w)
            turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
            corners = OUTLINE * label["size_m"][:2] @ turn + label["center_m"][:2]
            found.append((corners, label["class"]))
    return found


def radar(session: Session, t_ns: int) -> Picture:
    """Power over range and radial speed, summed over the antennas."""
    stream = session.streams["radar"]
    metadata = session.path / "radar" / "radar.json"
    iq = stream.sample(stream.at(t_ns))["iq"]
    geometry = RadarGeometry.of_metadata(metadata.read_text(), str(metadata), iq.shape)
    power = mean_power(RadarProcessor(geometry).spectra(iq))  # [doppler, range]
    level = np.fft.fftshift(10 * np.log10(power + 1e-12), axes=0)
    floor = float(np.median(level))
    grey = np.clip((level - floor - 1) / 38 * 255, 0, 255).astype(np.uint8)
    left, top = 60 * SCALE, 36 * SCALE
    width, height = WIDTH * SCALE - left - 20 * SCALE, HEIGHT * SCALE - top - 55 * SCALE
    plot = cv2.resize(grey[::-1], (width, height), interpolation=cv2.INTER_CUBIC)
    picture = canvas()
    picture[top : top + height, left : left + width] = cv2.applyColorMap(plot, cv2.COLORMAP_MAGMA)
    far = geometry.ranges * geometry.range_resolution
    fast = geometry.max_velocity
    for metres in range(0, int(far) + 1, 5):
        x = left + int(metres / far * width)
        cv2.line(picture, (x, top + height), (x, top + height + 5 * SCALE), LABEL, SCALE)
        write(picture, str(metres), (x - 8 * SCALE, top + height + 22 * SCALE))
    for speed in range(-int(fast) // 2 * 2, int(fast) + 1, 2):
        y = top + int((fast - speed) / (2 * fast) * height)
        if top < y < top + height:
            cv2.line(picture, (left - 5 * SCALE, y), (left, y), LABEL, SCALE)
            write(picture, f"{speed:+d}", (left - 45 * SCALE, y + 5 * SCALE))
    write(picture, "range, m", (left + width // 2 - 40 * SCALE, top + height + 45 * SCALE))
    write(picture, "radial speed, m/s", (left - 45 * SCALE, top - 14 * SCALE))
    return reduced(picture)


def canvas() -> Picture:
    """Return an empty picture, `SCALE` times as large as it will be."""
    return np.full((HEIGHT * SCALE, WIDTH * SCALE, 3), BACKGROUND, np.uint8)


def write(
    picture: Picture, text: str, at: Sequence[int], colour: tuple[int, int, int] = LABEL
) -> None:
    """Write a text whose lower left corner is at a pixel."""
    font = cv2.FONT_HERSHEY_SIMPLEX
    cv2.putText(picture, text, tuple(at), font, 0.5 * SCALE, colour, SCALE, cv2.LINE_AA)


def reduced(picture: Picture) -> Picture:
    """Return the picture in its final size."""
    return np.asarray(cv2.resize(picture, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA))


if __name__ == "__main__":
    sys.exit(main())
