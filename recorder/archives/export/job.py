"""Export of one stream; see `recorder.archives.export`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from recorder.archives.export.chosen import Damage, chosen_part, lengths_agree, with_channels
from recorder.archives.export.files import check_place, new_file, new_folder, write_new
from recorder.archives.export.sample_files import (
    CameraPictures,
    DetectionClouds,
    Made,
    RangeDopplerPictures,
    SampleFiles,
    SweepClouds,
    SweepPictures,
    sweep_pictures,
)
from recorder.archives.export.whole_files import (
    MOST_VALUES,
    array_bytes,
    table_channels,
    write_arrays,
    write_capture,
    write_table,
)
from recorder.archives.sample_workers import read_ahead
from recorder.codecs.rays import DURATION
from recorder.codecs.streams import TIME_CHANNELS
from recorder.common.errors import FormatError, RecorderError, UsageError
from recorder.perception.calibration import Calibration, read_calibration
from recorder.perception.frames import cloud_channel, image_channel, kind_of
from recorder.perception.sensor_files import radar_geometry
from recorder.perception.stream_contents import CHANNELS, holds_datagrams
from recorder.session.layout import CLEAN, RECOVERED
from recorder.session.part import Moment
from recorder.session.reader import Session
from recorder.session.stream import Stream

Progress = Callable[[float, float], None]
"""A callback that receives the number of samples done and of all samples."""

FORMATS: Final = ("csv", "npz", "png", "jpg", "pcd", "pcap")
MOST_BYTES: Final = 4 * 10**9
"""Largest size of arrays: they are loaded into memory as a whole."""
_WHOLE: Final = ("csv", "npz", "pcap")
_ANY: Final = ("csv", "npz")
_FITTING: Final = {
    "camera": ("png", "jpg"),
    "lidar": ("png", "pcd"),
    "radar": ("png", "pcd"),
}
_SWEEPS: Final = (
    *("rng", "rng_far", "rfl", "rng2", "rng2_far", "rfl2", "rng3", "rfl3"),
    *("state", "azimuth", "t_col"),
)


@dataclass(frozen=True)
class Wanted:
    """The request for an export.

    Attributes:
        stream: name of the stream.
        format: one of `FORMATS`.
        begin, end: the half-open interval of stamps; None: from the first or to the last sample.
        every: step between the exported samples of the interval: every Nth sample.
        channels: names of channels, for tables, arrays and a lidar's pictures; None: all of few
            values, all, the ranges.
        most_bytes: largest size of arrays.
    """

    stream: str
    format: str
    begin: Moment | None = None
    end: Moment | None = None
    every: int = 1
    channels: Sequence[str] | None = None
    most_bytes: int = MOST_BYTES


@dataclass
class Exported:
    """The result of an export.

    Attributes:
        session, stream, format: source and format of the export.
        place: the file, or the folder of several files.
        samples: number of exported samples.
        damaged: number of samples that were left out because they cannot be read.
        files: all files, in order of time.
        bytes: size of all files.
        notes: remarks for readers of the files, one sentence each.
        problems: why samples were left out, one sentence each; at most `chosen.MOST_PROBLEMS`.
    """

    session: Path
    stream: str
    format: str
    place: Path
    samples: int = 0
    damaged: int = 0
    files: list[Path] = field(default_factory=list)
    bytes: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def export(
    session: Session,
    wanted: Wanted,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Export a stream.

    Args:
        session: opened with ``virtual`` and ``partial``.
        wanted: what to export.
        out: the new file or folder; an existing folder, for what is one file; None: a name made of
            the session's and the stream's in the working directory.
        progress: called with the number of samples done and of all samples.

    Raises:
        UsageError: the stream does not fit the format, a channel does not fit, `out` is taken, or
            the arrays are too large.
        SessionError: there is no such stream, or no sample in the interval.
        FormatError: no sample can be read, or a file beside the samples cannot.
        OSError: a file cannot be written.
    """
    whole = session.stream(wanted.stream)
    fitting = [*_ANY, *_FITTING.get(kind_of(whole), ())]
    if cloud_channel(whole) is not None:
        fitting = ["csv", "pcd"]  # no arrays: each sweep has a number of points of its own
    if holds_datagrams(whole) and whole.has_times:
        fitting.append("pcap")
    if wanted.format not in fitting:
        fits = ", ".join(each for each in FORMATS if each in fitting)
        raise UsageError(f"{whole.name}: cannot be exported as {wanted.format}; fits: {fits}")
    channels = _choose_channels(whole, wanted)
    reduced = with_channels(whole, {*channels, *TIME_CHANNELS})
    stream = chosen_part(session, reduced, wanted.begin, wanted.end)
    damage = Damage(stream)
    if session.state in (CLEAN, RECOVERED) and stream.first + len(stream) == len(reduced):
        lengths_agree(reduced, damage)
    task = _Task(session, stream, wanted, channels, damage, progress)
    made = task.one_file(out) if wanted.format in _WHOLE else task.sample_files(out)
    made.damaged, made.problems = damage.count, damage.problems
    made.bytes = sum(path.stat().st_size for path in made.files)
    left_out = [name for name in whole.data_channels if name not in channels]
    if wanted.format == "csv" and wanted.channels is None and left_out:
        made.notes.append(f"left out: {', '.join(left_out)}: more than {MOST_VALUES} values each")
    return made


def _choose_channels(stream: Stream, wanted: Wanted) -> list[str]:
    """Return the channels besides the times that the export needs."""
    for name in wanted.channels or ():
        if name not in stream.meta:
            known = ", ".join(stream.data_channels)
            raise UsageError(f"{stream.name}: has no channel {name!r}; its channels: {known}")
    if wanted.format == "csv":
        return table_channels(stream, wanted.channels)
    if wanted.format == "npz":
        return list(wanted.channels or stream.data_channels)
    if wanted.format == "pcap" and wanted.channels is None:
        return list(CHANNELS)
    kind = kind_of(stream)
    if wanted.channels is not None and (kind, wanted.format) != ("lidar", "png"):
        raise UsageError(
            f"--channels: is for csv, npz and pictures of a lidar, not for {wanted.format} of "
            f"{stream.name}"
        )
    if kind == "camera":
        return [name for name in (image_channel(stream),) if name]
    if kind == "radar":
        return ["iq"]
    if (cloud := cloud_channel(stream)) is not None:
        return [name for name in (cloud, DURATION) if name in stream.meta]
    for name in wanted.channels or ():
        if name not in (pictures := sweep_pictures(stream)):
            fits = ", ".join(pictures)
            raise UsageError(f"{stream.name}: {name} is no picture; pictures: {fits}")
    needed = _SWEEPS if wanted.format == "pcd" else ("rng", "rng_far", "rng2_far", "azimuth")
    return [name for name in stream.meta if name in {*needed, *(wanted.channels or ())}]


@dataclass
class _Task:
    """One export with its inputs."""

    session: Session
    stream: Stream
    wanted: Wanted
    channels: Sequence[str]
    damage: Damage
    progress: Progress | None
    done: float = 0.0

    def __post_init__(self) -> None:
        self._indices = range(0, len(self.stream), self.wanted.every)
        self._name = f"{self.session.name}_{self.stream.name}"

    def one_file(self, out: Path | None) -> Exported:
        """Write a table, a file of arrays, or a network capture."""
        stream, indices, damage, wanted = self.stream, self._indices, self.damage, self.wanted
        if wanted.format == "npz":
            self._check_size()
        path = self._resolve_path(out, f"{self._name}.{wanted.format}")
        with new_file(path) as temporary:
            if wanted.format == "pcap":
                count = write_capture(temporary, stream, indices, damage, self._advance)
            elif wanted.format == "csv":
                count = write_table(
                    temporary, stream, indices, self.channels, damage, self._advance
                )
            else:
                names = list(stream.meta)
                count = write_arrays(temporary, stream, indices, names, damage, self._advance)
            self._check_any(count)
        return self._create_result(path, [path], count)

    def sample_files(self, out: Path | None) -> Exported:
        """Write one file or several for each sample."""
        maker = self._create_encoder()
        ending = f".{self.wanted.format}"
        with read_ahead(lambda k: maker.make(self._indices[k]), len(self._indices)) as ahead:
            if len(self._indices) * maker.files == 1:
                path = self._resolve_path(out, self._format_name(0) + ending)
                with new_file(path) as temporary:
                    for one in self._take_files(next(ahead), 0):
                        temporary.write_bytes(one.data)
                    self._check_any(1 - self.damage.count)
                return self._create_result(path, [path], 1, maker)
            folder = Path(f"{self._name}_{self.wanted.format}") if out is None else out
            if folder.suffix == ending:
                count = len(self._indices) * maker.files
                raise UsageError(f"{folder}: names one file; the {count} files need a folder")
            check_place(folder, self.session.path, folder=True)
            names: list[str] = []
            count = 0
            with new_folder(folder) as temporary:
                for number in range(len(self._indices)):
                    made = self._take_files(next(ahead), number)
                    count += bool(made)
                    for one in made:
                        name = f"{self._format_name(number)}{one.suffix}{ending}"
                        if (temporary / name).exists():  # a stamp that is not new
                            name = f"{self._format_name(number)}_{number}{one.suffix}{ending}"
                        write_new(temporary / name, one.data)
                        names.append(name)
                    self._advance(1)
                self._check_any(count)
        return self._create_result(folder, [folder / name for name in names], count, maker)

    def _create_encoder(self) -> SampleFiles:
        stream, wanted = self.stream, self.wanted
        match kind_of(stream), wanted.format:
            case "camera", ending:
                return CameraPictures(stream, ending)
            case "lidar", "png":
                return SweepPictures(stream, wanted.channels or ["rng"])
            case "lidar", _:
                return SweepClouds(stream)
        geometry = radar_geometry(stream, self._read_calibration())
        if wanted.format == "png":
            return RangeDopplerPictures(stream, geometry)
        return DetectionClouds(stream, geometry)

    def _read_calibration(self) -> Calibration:
        path = self.session.path / "calibration.yaml"
        return read_calibration(path) if path.is_file() else Calibration()

    def _take_files(self, pending: Future[list[Made]], number: int) -> list[Made]:
        """Return the files of a sample; none of a damaged one."""
        try:
            return pending.result()
        except (RecorderError, OSError) as error:
            self.damage.add(self._indices[number], error)
            return []

    def _resolve_path(self, out: Path | None, name: str) -> Path:
        """Return the path of an export of one file."""
        path = Path(name) if out is None else out
        if path.is_dir():
            path /= name
        check_place(path, self.session.path, folder=False)
        return path

    def _format_name(self, number: int) -> str:
        """Return the name of a sample's file without its suffix: the stream and the stamp, UTC."""
        stream, index = self.stream, self._indices[number]
        if not stream.has_times:
            return f"{stream.name}_{stream.first + index:06d}"
        seconds, rest = divmod(int(stream.times(index, index + 1)[0]), 1_000_000_000)
        return f"{stream.name}_{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d_%H-%M-%S}.{rest:09d}"

    def _check_size(self) -> None:
        """Check the size of the arrays; UsageError if they are too large."""
        names, most = list(self.stream.meta), self.wanted.most_bytes
        if (size := array_bytes(self.stream, names, len(self._indices))) > most:
            raise UsageError(
                f"{self.stream.name}: arrays of {len(self._indices)} samples have "
                f"{size / 1e9:.3g} GB, and may have {most / 1e9:g} GB; choose fewer samples "
                "(--from, --until, --every) or channels (--channels), or allow more (--max-gb)"
            )

    def _check_any(self, count: int) -> None:
        """Check that a sample was read; FormatError if none was."""
        if count < 1:
            raise FormatError(f"no sample can be read: {self.damage.problems[0]}")

    def _advance(self, samples: float) -> None:
        self.done += samples
        if self.progress is not None:
            self.progress(self.done, len(self._indices))

    def _create_result(
        self, place: Path, files: list[Path], samples: int, maker: SampleFiles | None = None
    ) -> Exported:
        wanted, notes = self.wanted, [] if maker is None else maker.remarks()
        return Exported(
            self.session.path, wanted.stream, wanted.format, place, samples, files=files,
            notes=notes,
        )  # fmt: skip
