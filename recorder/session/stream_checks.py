"""Rules of one stream's files, one method each; see `recorder.session.validation`."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs import CHANNEL_FORMATS, Framing
from recorder.codecs.beams import BEAMS, Beams
from recorder.codecs.storage import ChannelReader, open_channel
from recorder.codecs.streams import TIME_CHANNELS
from recorder.common.errors import FormatError, RecorderError
from recorder.session.loss_accounts import Run, balance, epoch_ids, gaps, scan
from recorder.session.stream import Stream
from recorder.session.validation_report import Report

PER_RULE = 10
"""Problems of one rule and channel that are reported one by one; the rest are counted."""
SPOT_CHECKS = 10
"""Samples of a channel that are decoded without ``deep``: first, last, and evenly between."""
_WINDOW = 65536
_BLOCK_BYTES = 4 << 20

LEGAL_KEYS = frozenset({"format", "type", "shape", "desc", "description", "args"})
"""Keys of an entry of ``meta.json``; roverd's readers crash on any other."""

TYPED: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "iq": {"iq": ("i2", 4), "valid": ("u1", 0)},
    "rng": {"rng": ("u2", 2), "rfl": ("u1", 2), "nir": ("u2", 2)},
    "video.avi": {"video.avi": ("u1", 3)},
    "acc": {"acc": ("f4", 1), "avel": ("f4", 1), "rot": ("f4", 1)},
}
"""dtype and rank that roverd's typed readers need, by the channel that identifies the sensor."""


class StreamCheck:
    """The check of all rules of one stream; violations go to the report.

    Args:
        stream: the stream.
        report: receives the problems.
        closed: the session was closed: all channels have the same length and end with a sample.
        lost: the stream's ``lost`` events; None if losses are not checked.
    """

    def __init__(
        self,
        stream: Stream,
        report: Report,
        *,
        closed: bool,
        lost: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        self.stream = stream
        self.name = stream.name
        self._report = report
        self._closed = closed
        self._lost = lost
        self._virtual = stream.name.startswith("_")
        self._readers: dict[str, ChannelReader] = {}
        self._lengths: dict[str, int] = {}
        self._reported: dict[tuple[str, str], int] = {}
        self._opened = False

    def to_decode(self) -> int:
        """Return the number of samples that a deep check decodes, over all data channels."""
        self._open()
        return sum(self._lengths.get(name, 0) for name in self.stream.data_channels)

    def run(self, deep: bool, advance: Callable[[int], None]) -> None:
        """Check all rules; `advance` is called with the number of decoded samples."""
        self._check_declarations()
        self._open()
        length = self._check_lengths()
        self._check_times(length)
        self._check_numbers(length)
        self._check_intrinsics()
        for name in self.stream.data_channels:
            if name in self._readers:
                self._check_payload(name, self._lengths[name], deep, advance)
        for reader in self._readers.values():
            reader.close()
        kind = "every sample" if deep else f"up to {SPOT_CHECKS} samples of each channel"
        self._report.checked.append(
            f"{self.name}: {length} samples, {len(self._readers)} channels; {kind} decoded"
        )

    def _report_error(
        self, rule: str, message: str, channel: str, sample: int | None = None
    ) -> None:
        reported = self._reported[(rule, channel)] = self._reported.get((rule, channel), 0) + 1
        if reported <= PER_RULE:
            self._report.error(message, self.name, channel=channel, sample=sample)

    def _report_rest(self, rule: str, channel: str) -> None:
        more = self._reported.pop((rule, channel), 0) - PER_RULE
        if more > 0:
            text = f"{self.stream.path / channel}: {more} more of this kind"
            self._report.error(text, self.name, channel=channel)

    # Declarations: meta.json, session.json

    def _check_declarations(self) -> None:
        meta, path = self.stream.meta, self.stream.path / "meta.json"
        for name, keys in meta.items():
            legal = LEGAL_KEYS | ({"columns"} if keys["format"] == "points" else set())
            for key in sorted(keys.keys() - legal):  # the entry of points is not in meta.json
                self._report_error(
                    "keys", f"{path}: {name}: key {key!r} crashes roverd's readers", name
                )
        if "ts" not in meta and not self._virtual:
            self._report_error("ts", f"{path}: has no channel 'ts'", "ts")
        for name, dtype in TIME_CHANNELS.items():
            entry = meta.get(name)
            if entry is not None and not _matches(entry, "raw", dtype, ()):
                self._report_error(
                    "times", f"{path}: {name}: is not raw {dtype}, one per sample", name
                )
        for tell, channels in TYPED.items():
            for name, (dtype, rank) in channels.items():
                entry = meta.get(name)
                if tell not in meta or entry is None or self._virtual:
                    continue
                if np.dtype(entry["type"]) != np.dtype(dtype) or len(entry["shape"]) != rank:
                    text = f"{entry['type']} {entry['shape']}; roverd wants {dtype} of rank {rank}"
                    self._report_error("typed", f"{path}: {name}: {text}", name)
        spec = self.stream.spec
        for channel in spec.channels if spec is not None else ():
            entry = meta.get(channel.name)
            if (
                entry is None
                or not _matches(entry, channel.format, channel.dtype, channel.shape)
                or entry.get("columns") != channel.meta().get("columns")
            ):
                text = f"{path}: {channel.name}: is not as its driver declared"
                self._report_error("declared", text, channel.name)

    # Files: lengths, formats

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        for name, entry in self.stream.meta.items():
            path = self.stream.path / name
            try:
                reader = open_channel(self.stream.path, name, entry, partial=not self._closed)
                self._lengths[name] = len(reader)
            except FormatError as error:
                self._report_error("open", str(error), name)
            except OSError as error:
                self._report_error("open", f"{path}: cannot be read: {error.strerror}", name)
            else:
                self._readers[name] = reader

    def _check_lengths(self) -> int:
        """Check that lengths agree; return the whole samples of the channels that can be read."""
        lengths = self._lengths
        whole = min(lengths.values(), default=0)
        if not self._closed:
            return whole
        reported = "ts" if "ts" in lengths else next(iter(lengths), "")
        for name, length in lengths.items():
            if length != (other := lengths[reported]):
                text = f"{self.stream.path / name}: {length} samples, where {reported} has {other}"
                self._report_error("length", text, name, min(length, other))
        if self.stream.spec is not None:
            for name, reader in self._readers.items():
                try:
                    reader.check_finished()
                except FormatError as error:
                    self._report_error("finished", str(error), name)
        return whole

    # Times and numbers

    def _read_windows(self, name: str, length: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield start and values of windows; each begins with the last value of the one before."""
        reader = self._readers[name]
        for at in range(0, length, _WINDOW):
            start = max(0, at - 1)
            yield start, reader.read(start, min(at + _WINDOW, length))

    def _check_times(self, length: int) -> None:
        for name, unit in (("ts", "s"), ("t_mono", "ns")):
            if name not in self._readers:
                continue
            path = self.stream.path / name
            for start, values in self._read_windows(name, length):
                for i in np.flatnonzero(~np.isfinite(values.astype(np.float64))).tolist():
                    text = f"{path}: sample {start + i}: {values[i]} is no time"
                    self._report_error("stamp", text, name, start + i)
                for i in (np.flatnonzero(values[1:] <= values[:-1]) + 1).tolist():
                    text = f"{values[i]} {unit} is not after {values[i - 1]} {unit}"
                    self._report_error(
                        "order", f"{path}: sample {start + i}: {text}", name, start + i
                    )
            self._report_rest("stamp", name)
            self._report_rest("order", name)
        offset_ns = self.stream.offset_ns
        if offset_ns is None or not {"ts", "t_mono"} <= self._readers.keys():
            return
        for start, mono in self._read_windows("t_mono", length):
            ts = self._readers["ts"].read(start, start + len(mono))
            exact = (mono.astype(np.int64) + offset_ns) / 1e9
            for i in np.flatnonzero(~(np.abs(ts - exact) < 2e-6)).tolist():
                text = f"{ts[i]:.6f} s, where t_mono says {exact[i]:.6f} s"
                text = f"{self.stream.path / 'ts'}: sample {start + i}: {text}"
                self._report_error("agree", text, "ts", start + i)
        self._report_rest("agree", "ts")

    def _check_numbers(self, length: int) -> None:
        if "seq" not in self._readers:
            return
        path = self.stream.path / "seq"
        reported = self.stream.epochs is not None
        starts = {int(e.get("first_sample", 0)) for e in self.stream.epochs or ()}
        for start, seq in self._read_windows("seq", length):
            falls = seq[1:] <= seq[:-1] if reported else seq[1:] == seq[:-1]
            for i in (np.flatnonzero(falls) + 1).tolist():
                if start + i not in starts:
                    text = f"{path}: sample {start + i}: number {seq[i]} after {seq[i - 1]}"
                    self._report_error("seq", text, "seq", start + i)
        self._report_rest("seq", "seq")
        # Accounts need valid numbers, and len() needs every channel.
        if self._lost is None or self._readers.keys() != self.stream.meta.keys():
            return
        if len(set(self._lengths.values())) > 1:  # reported above
            return
        self._check_account(self._lost)

    def _check_account(self, lost: Sequence[Mapping[str, Any]]) -> None:
        """Check that lost events have all missing numbers, and that every epoch's sum is right."""
        runs = [item for item in scan(self.stream) if isinstance(item, Run)]
        ids = epoch_ids(self.stream, runs)
        keyed = None not in ids.values()
        spans = {i: _join_spans(lost, i if keyed else None) for i in {*ids.values()}}
        path = self.stream.path / "seq"
        for gap in gaps(self.stream):
            reported = spans[ids[gap.epoch]]
            k = bisect_right(reported, gap.first_seq, key=itemgetter(0)) - 1
            if k < 0 or reported[k][1] < gap.last_seq:
                numbers = f"number {gap.first_seq} is"
                if gap.count > 1:
                    numbers = f"numbers {gap.first_seq} to {gap.last_seq} are"
                text = f"before sample {gap.index}: {numbers} missing and no event accounts for it"
                self._report_error("gap", f"{path}: {text}", "seq", gap.index)
        self._report_rest("gap", "seq")
        epochs, known = self.stream.epochs or (), set()
        for account in balance(self.name, epochs, len(self.stream), runs, lost):
            known.add(account.epoch)
            self._report.accounts.append(account)
            if account.fault is not None:
                where = f"epoch {account.position} of {account.of}"
                self._report_error("account", f"{path}: {where}: {account.fault}", "seq")
        for event in lost:
            # An uncounted loss may be before a stream's first epoch.
            before_all = event.get("epoch") == 0 and event.get("count") is None
            if event.get("epoch") not in known and not before_all:
                text = f"a loss of epoch {event.get('epoch')}, which the session does not know"
                self._report_error("account", f"{path}: {text}: {event.get('cause')}", "seq")
        self._report_rest("account", "seq")

    # Intrinsics and payloads

    def _check_intrinsics(self) -> None:
        stream = self.stream
        files = set() if stream.spec is None else set(stream.spec.files)
        if not self._virtual:
            files |= _find_needed_files(stream.meta)
        for name in sorted(files):
            path = stream.path / name
            try:
                values = json.loads(path.read_bytes()) if path.suffix == ".json" else {}
            except OSError as error:
                self._report_error("files", f"{path}: cannot be read: {error.strerror}", name)
                continue
            except ValueError as error:
                self._report_error("files", f"{path}: not JSON: {error}", name)
                continue
            for fault in _find_intrinsics_faults(path, values, stream.meta):
                self._report_error("files", fault, name)

    def _check_payload(
        self, name: str, length: int, deep: bool, advance: Callable[[int], None]
    ) -> None:
        reader = self._readers[name]
        if not deep and length > SPOT_CHECKS:
            spots = np.linspace(0, length - 1, SPOT_CHECKS).astype(int).tolist()
            blocks = [(i, i + 1) for i in spots]
        else:
            # Samples without a frame of their own are read in blocks.
            joint = CHANNEL_FORMATS[reader.format].framing in (Framing.PLAIN, Framing.JOINT)
            step = max(1, _BLOCK_BYTES // reader.sample_bytes) if joint else 1
            blocks = [(i, min(i + step, length)) for i in range(0, length, step)]
        for start, stop in blocks:
            if not self._check_block(reader, start, stop):
                break
            advance(stop - start)
        self._report_rest("payload", name)

    def _check_block(self, reader: ChannelReader, start: int, stop: int) -> bool:
        """Check samples [start, stop); return False if the rest cannot be read either."""
        if stop - start > 1:
            try:
                reader.read(start, stop)
                return True
            except (RecorderError, OSError):
                pass  # sample by sample, to find the damaged one
        for index in range(start, stop):
            try:
                self._check_sample(reader, index)
            except RecorderError as error:
                self._report_error("payload", str(error), reader.name, index)
            except OSError as error:
                text = f"{reader.path}: sample {index}: {error.strerror}"
                self._report_error("payload", text, reader.name, index)
            else:
                continue
            if CHANNEL_FORMATS[reader.format].framing is Framing.JOINT:
                return False  # the rest of the damaged frame is lost too
        return True

    def _check_sample(self, reader: ChannelReader, index: int) -> None:
        value = reader.check(index)
        entry = self.stream.meta[reader.name]
        if list(value.shape) != entry["shape"] or value.dtype != np.dtype(entry["type"]):
            raise FormatError(
                f"{reader.path}: sample {index}: {value.dtype} {list(value.shape)}, where "
                f"meta.json says {entry['type']} {entry['shape']}"
            )


def _find_needed_files(meta: Mapping[str, Any]) -> set[str]:
    """Return the files that tell the geometry of a sensor, by its channels."""
    if "iq" in meta:
        return {"radar.json"}
    return {BEAMS if "azimuth" in meta else "lidar.json"} if "rng" in meta else set()


def _matches(entry: Mapping[str, Any], format_: str, dtype: str, shape: tuple[int, ...]) -> bool:
    return (
        entry["format"] == format_
        and np.dtype(entry["type"]) == np.dtype("<" + dtype)
        and tuple(entry["shape"]) == shape
    )


def _join_spans(lost: Sequence[Mapping[str, Any]], epoch: int | None) -> list[tuple[int, int]]:
    """Return numbers of lost events, as joined intervals; of one epoch if given."""
    found = sorted(
        (e["first_seq"], e["last_seq"])
        for e in lost
        if isinstance(e.get("first_seq"), int)
        and isinstance(e.get("last_seq"), int)
        and (epoch is None or e.get("epoch") in (epoch, None))
    )
    joined: list[tuple[int, int]] = []
    for first, last in found:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def _find_intrinsics_faults(path: Path, values: Any, meta: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(values, dict):
        yield f"{path}: a {type(values).__name__}, not a mapping"
        return
    if path.name == "radar.json":
        for key in ("range_resolution", "doppler_resolution"):
            value = values.get(key)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
                yield f"{path}: {key}: needs a number above 0, not {value!r}"
    elif path.name == BEAMS and "rng" in meta:
        try:
            beams = Beams.of_text(json.dumps(values), str(path))
        except FormatError as error:
            yield str(error)
            return
        if fault := beams.find_fault({name: entry["shape"] for name, entry in meta.items()}):
            yield f"{path}: {fault}"
    elif path.name == "lidar.json" and "rng" in meta:
        beams, columns = meta["rng"]["shape"]
        # Firmware before 3.0 wrote the same values flat.
        angles = _get_nested(values, "beam_intrinsics", "beam_altitude_angles")
        angles = values.get("beam_altitude_angles") if angles is None else angles
        width = _get_nested(values, "lidar_data_format", "columns_per_frame")
        width = _get_nested(values, "data_format", "columns_per_frame") if width is None else width
        if not isinstance(angles, list) or not angles:
            yield f"{path}: is no Ouster metadata: it has no beam_altitude_angles"
        elif len(angles) != beams:
            yield f"{path}: {len(angles)} beams, where rng has {beams}"
        if width is not None and width != columns:
            yield f"{path}: {width} columns per frame, where rng has {columns}"


def _get_nested(values: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        values = values.get(key, {}) if isinstance(values, dict) else {}
    return values if values != {} else None
