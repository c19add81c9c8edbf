"""Cameras whose H.264 is recorded as it is: files, RTSP and V4L2, against FFmpeg's demuxers."""

from __future__ import annotations

import re
import struct
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from drivers.camera.pictures import CodedPicture, Missing, Shot
from drivers.camera.rtsp.rtp import (
    Depacketizer,
    NalAssembler,
    SenderClock,
    SenderReport,
    parse_rtcp,
)
from drivers.kit.driver import Item, Lost, Sample
from recorder.codecs.h264 import (
    SPS,
    START_CODE,
    H264Decoder,
    is_key,
    nal_units,
    parameter_sets,
    read_nal_type,
    rgb_pixels,
)
from recorder.common.errors import DeviceError, SourceError, StreamChangedError
from tests.drivers.camera.http_rig import lost
from tests.drivers.camera.rig import driver, play, stamps
from tests.drivers.camera.rtp_packets import encode as packed
from tests.drivers.camera.rtp_packets import packets, rtp
from tests.drivers.camera.rtsp_script import (
    SDP,
    Script,
    answers,
    interleaved,
    pieces,
    record,
    watch,
)
from tests.drivers.camera.v4l2_kernel import FakeDevice, Frame, camera
from tests.drivers.camera.v4l2_kernel import record as record_device
from tests.drivers.camera.v4l2_kernel import watch as watch_device
from tests.h264 import GROUP, SIZE, demuxed, encode, number_of, write_file
from tests.support.devices import device_times, opened, play_out


def units_of(items: list[Item]) -> list[bytes]:
    found = []
    for item in items:
        assert isinstance(item, Sample)
        found += list(item.data["video.h264"])
    return found


def coded(shots: list[Any]) -> list[bytes]:
    return [shot.picture.data for shot in shots if isinstance(shot.picture, CodedPicture)]


def numbers(units: list[bytes]) -> list[int]:
    decoder = H264Decoder()
    return [number_of(rgb_pixels(decoder.decode(unit, "here"))) for unit in units]


class TestFiles:
    @pytest.mark.parametrize("ending", ["mp4", "mkv", "avi", "ts", "h264", "mov"])
    def test_access_units_are_those_that_ffmpeg_demuxes(self, tmp_path: Path, ending: str) -> None:
        path = write_file(tmp_path / f"v.{ending}", 12)
        spec, items = play(path, codec="copy")
        (channel,) = spec.channels
        assert (channel.name, channel.format) == ("video.h264", "h264")
        assert (channel.shape, spec.finite) == ((SIZE[1], SIZE[0], 3), True)
        units = units_of(items)
        assert units == demuxed(path)
        assert [is_key(unit) for unit in units] == [k % GROUP == 0 for k in range(12)]
        assert numbers(units) == list(range(12))

    def test_stamps_are_the_containers(self, tmp_path: Path) -> None:
        path = tmp_path / "uneven.mkv"
        units = encode(6)
        times = [0, 40, 90, 130, 131, 400]
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream("libx264", rate=20)
            stream.width, stream.height = SIZE
            stream.time_base = Fraction(1, 1000)
            for unit, t_ms in zip(units, times, strict=True):
                packet = av.Packet(unit)
                packet.stream, packet.time_base = stream, Fraction(1, 1000)
                packet.pts = packet.dts = t_ms
                packet.is_keyframe = is_key(unit)
                container.mux(packet)
        _, items = play(path, codec="copy")
        assert stamps(items) == [t * 1_000_000 for t in times]
        spec, items = play(path, codec="copy", fps=10)
        assert (spec.rate_hz, stamps(items)) == (10, [100_000_000 * k for k in range(6)])

    def test_it_begins_with_a_keyframe(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.h264"
        path.write_bytes(b"".join(encode(12)[3:]))
        _, items = play(path, codec="copy")
        assert numbers(units_of(items)) == list(range(5, 12))
        path.write_bytes(b"".join(encode(5)[1:]))
        with pytest.raises(SourceError, match=r"cut.h264: has no keyframe|is no video"):
            play(path, codec="copy")

    def test_b_frames_are_refused(self, tmp_path: Path) -> None:
        path = write_file(tmp_path / "b.mp4", 12, b_frames=2)
        with pytest.raises(SourceError, match=r"camera: file:.*b.mp4: .*B-frames.*codec: jpeg"):
            play(path, codec="copy")
        spec, items = play(path)
        assert (spec.channels[0].name, len(items)) == ("video.avi", 12)

    def test_other_codecs_and_other_files_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "v.mp4"
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream("mpeg4", rate=20)
            stream.width, stream.height = 64, 48
            frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="bgr24")
            container.mux([*stream.encode(frame), *stream.encode(None)])
        with pytest.raises(SourceError, match=r"has mpeg4: codec: copy records H.264 only"):
            play(path, codec="copy")
        path.write_bytes(b"no video")
        with pytest.raises(SourceError, match=r"v.mp4: is no video"):
            play(path, codec="copy")

    def test_a_file_that_was_cut_says_so_after_its_last_picture(self, tmp_path: Path) -> None:
        whole = write_file(tmp_path / "v.mp4", 12)
        data = whole.read_bytes()
        assert data.find(b"moov") < data.find(b"mdat")
        cut = tmp_path / "cut.mp4"
        cut.write_bytes(data[: data.find(b"mdat") + 4 + (len(data) - data.find(b"mdat")) // 2])
        items, end = play_out(driver(cut, codec="copy"))
        assert re.search(r"cut.mp4: (ends after|cannot be read after)", str(end))
        units = units_of(items)
        assert 0 < len(units) < 12
        assert units == demuxed(whole)[: len(units)]

    def test_pictures_of_another_size_are_counted(self, tmp_path: Path) -> None:
        """Also those that depend on a keyframe of another size; FFmpeg's demuxer gives them all."""
        path = tmp_path / "two.h264"
        path.write_bytes(b"".join([*encode(7), *encode(3, (64, 48)), *encode(4)]))
        _, items = play(path, codec="copy")
        missing = [item for item in items if isinstance(item, Lost)]
        assert [(item.cause, item.count) for item in missing] == [("changed", 1)] * 3
        assert "64 x 48 pixels, not the declared 96 x 64" in missing[2].detail["reason"]
        assert [isinstance(item, Lost) for item in items] == [False] * 7 + [True] * 3 + [False] * 4
        units = units_of([item for item in items if isinstance(item, Sample)])
        assert numbers(units) == [*range(7), *range(4)]


def packed_units(units: list[bytes], timestamps: list[int]) -> list[bytes]:
    """RTP packets of a NAL unit each."""
    made: list[bytes] = []
    for unit, timestamp in zip(units, timestamps, strict=True):
        nals = list(nal_units(unit))
        for k, nal in enumerate(nals):
            made.append(rtp(len(made), timestamp, nal, marker=k == len(nals) - 1))
    return made


def sender_report(seconds: int, fraction: int, timestamp: int, ssrc: int = 5) -> bytes:
    words = (ssrc, seconds, fraction, timestamp, 1, 2)
    return b"\x80\xc8\x00\x06" + b"".join(word.to_bytes(4, "big") for word in words)


class TestRtsp:
    def test_access_units_are_those_of_the_encoder_and_of_ffmpeg(self, tmp_path: Path) -> None:
        encoded = packed("h264", 25)
        script = Script(*pieces(packets(encoded)))
        with opened(script.camera(copying=True)) as front:
            assert (front.size, front.fps, front.device_clock) == ((160, 120), 20.0, True)
            shots, end = watch(front)
        assert "closed the connection" in str(end)
        path = tmp_path / "v.h264"
        path.write_bytes(b"".join(coded(shots)))
        nals = [list(nal_units(unit)) for unit in coded(shots)]
        assert nals == [list(nal_units(unit.data)) for unit in encoded.units]
        assert nals == [list(nal_units(unit)) for unit in demuxed(path)]
        assert lost(shots, "corrupt") == 0

    @pytest.mark.parametrize(
        "seed", [0, 1, *(pytest.param(k, marks=pytest.mark.campaign) for k in range(2, 6))]
    )
    def test_dropped_packets_are_counted_and_the_rest_decodes(self, seed: int) -> None:
        """Through the driver and the kit's gate: what is recorded decodes, the rest is counted."""
        from drivers.kit.session_seam import KeyframeGate
        from tests.drivers.kit.test_keyframe_gate import session

        encoded = packed("h264", 60)
        rng = np.random.default_rng(seed)
        sent = packets(encoded)
        dropped = {int(k) for k in rng.choice(np.arange(12, len(sent)), 5, replace=False)}
        script = Script(*pieces([data for k, data in enumerate(sent) if k not in dropped]))
        front = driver("//cam/live", "rtsp", codec="copy")
        front._camera.make = lambda: script.camera(copying=True)  # type: ignore[attr-defined]
        (spec,) = front.open()
        gate, kept, losses = KeyframeGate(spec), [], 0
        try:
            while True:
                item = front.read()
                if item is not None:
                    item, where = gate.admit(item, session("a"))
                    assert where is not None
                    if isinstance(item, Sample):
                        kept.append(item.data["video.h264"][0])
                    elif isinstance(item, Lost):
                        losses += item.count or 0
        except DeviceError as error:
            assert "closed the connection" in str(error)
        front.close()
        whole = [list(nal_units(unit.data)) for unit in encoded.units]
        places = [whole.index(list(nal_units(unit))) for unit in kept]
        assert places == sorted(set(places))
        assert len(kept) + losses in (60, 59)  # nothing tells of a loss after the last picture
        assert losses > 0
        decoder = H264Decoder()
        for unit in kept:
            decoder.decode(unit, "here")
        jumps = [b for a, b in pairwise(places) if b != a + 1]
        assert jumps and all(is_key(encoded.units[k].data) for k in jumps)

    def test_parameter_sets_of_the_description_are_inserted(self) -> None:
        import base64

        units = encode(11)
        found = parameter_sets(units[0])
        texts = [base64.b64encode(nal).decode() for kind in found for nal in found[kind]]
        sdp = SDP.replace("mode=1", f"mode=1; sprop-parameter-sets={','.join(texts)}")
        bare = [
            b"".join(START_CODE + n for n in nal_units(unit) if read_nal_type(n) not in (7, 8))
            for unit in units
        ]
        data = packed_units(bare, [4500 * k for k in range(11)])
        script = Script(*pieces(data), says=answers(sdp))
        shots, _ = record(script.camera(copying=True))
        made = coded(shots)
        assert [bool(parameter_sets(unit)[SPS]) for unit in made] == [k % 5 == 0 for k in range(11)]
        assert numbers(made[5:]) == list(range(5, 11))

    def test_without_parameter_sets_no_picture_is_recorded(self) -> None:
        units = [b"\x65\x88\x80", b"\x41\x9a\x80"]
        data = [rtp(k, 3600 * k, unit, marker=True) for k, unit in enumerate(units)]
        with pytest.raises(DeviceError, match=r"closed the connection|no picture"):
            Script(*pieces(data)).camera(copying=True).open()

    def test_sender_reports_give_the_cameras_time(self) -> None:
        encoded = packets(packed("h264", 25))
        ends = [k for k, data in enumerate(encoded) if data[1] & 0x80]
        first = int.from_bytes(encoded[0][4:8], "big")
        seconds = 2_208_988_800 + 1_700_000_000
        report = sender_report(seconds, 1 << 31, first + 45_000)
        sent = pieces(encoded)
        sent.insert(ends[9] + 1, interleaved(report, channel=1))
        front = driver("//cam/live", "rtsp", codec="copy")
        script = Script(*sent)
        front._camera.make = lambda: script.camera(copying=True)  # type: ignore[attr-defined]
        items, end = play_out(front)
        assert isinstance(end, DeviceError)
        device = device_times(items).tolist()
        assert device[:10] == [0] * 10
        # The report is of the moment 0.5 s after the first picture: 20 pictures a second.
        assert device[10:] == [1_700_000_000_500_000_000 + 50_000_000 * (k - 10) for k in
                               range(10, 25)]  # fmt: skip

    def test_b_frames_and_other_codecs_are_refused(self) -> None:
        data = packed_units(encode(4), [0, 9000, 4500, 13_500])
        _, end = record(Script(*pieces(data)).camera(copying=True))
        assert isinstance(end, SourceError)
        assert "front: rtsp://cam/live: " in str(end) and "B-frames" in str(end)
        sdp = SDP.replace("H264", "H265")
        with pytest.raises(SourceError, match="codec: copy: sends h265, only h264"):
            Script(says=answers(sdp)).camera(copying=True).open()

    def test_a_new_size_ends_the_stream(self) -> None:
        units = encode(2) + encode(1, (64, 48))
        data = packed_units(units, [0, 4500, 9000])
        _, end = record(Script(*pieces(data)).camera(copying=True))
        assert isinstance(end, StreamChangedError)
        assert "64 x 48 pixels, not the declared 96 x 64" in str(end)


class TestRtcp:
    def test_reports_are_parsed_and_a_bye_ends(self) -> None:
        data = sender_report(2_208_988_800 + 10, 1 << 30, 77)
        assert parse_rtcp(data) == ([SenderReport(5, 10_250_000_000, 77)], False)
        bye = b"\x81\xcb\x00\x01" + bytes(4)
        assert parse_rtcp(data + bye) == ([SenderReport(5, 10_250_000_000, 77)], True)
        assert parse_rtcp(sender_report(12, 0, 1))[0][0].time_ns == 12_000_000_000
        assert parse_rtcp(sender_report(0, 0, 1)) == ([], False)
        for cut in range(len(data)):
            reports, ends = parse_rtcp(data[:cut])
            assert (len(reports) <= 1, ends) == (True, False)

    def test_ffmpegs_own_reports(self) -> None:
        """FFmpeg's muxer sends reports; its clock is this machine's."""
        found = [
            report
            for data in packed("h264", 25).written
            if 192 <= data[1] <= 223
            for report in parse_rtcp(data)[0]
        ]
        assert found
        assert all(report.time_ns > 1_600_000_000_000_000_000 for report in found)

    def test_a_report_of_another_source_says_nothing(self) -> None:
        """A camera that restarts its encoder has another SSRC, and other timestamps."""
        found = Depacketizer(NalAssembler("h264"), 96, 90_000)
        report = SenderReport(1, 10**18, 0)
        times = []
        for number, ssrc in enumerate((1, 1, 2, 2, 2)):
            # The receiver hands on its latest report at each turn.
            found.clock.report = SenderReport(2, 10**15, 9000) if number == 4 else report
            head = struct.pack(">BBHII", 0x80, 0x80 | 96, number, 9000 * number, ssrc)
            times += [unit.t_device_ns for unit in found.feed(head + b"\x65\x80\x00", number)]
        assert times == [10**18, 10**18 + 10**8, 0, 0, 10**15 + 3 * 10**8]

    def test_timestamps_wrap(self) -> None:
        clock = SenderClock(90_000)
        assert clock.time_ns(5) == 0
        clock.report = SenderReport(1, 10**18, 0xFFFFFFF0)
        assert clock.time_ns((0xFFFFFFF0 + 90_000) % (1 << 32)) == 10**18 + 10**9
        assert clock.time_ns(0xFFFFFFF0 - 45_000) == 10**18 - 500_000_000
        clock.report = SenderReport(1, 5, 90_000)
        assert clock.time_ns(0) == 0  # never negative: t_dev is u8


class TestV4l2:
    def device(self, datas: list[bytes]) -> FakeDevice:
        made = FakeDevice(*(Frame(data) for data in datas))
        made.formats = {"MJPG": [SIZE], "H264": [SIZE]}
        return made

    def test_the_devices_access_units_are_recorded(self) -> None:
        units = encode(12)
        device = self.device(units)
        with opened(camera(device, copying=True)) as front:
            assert (front.size, front.jpegs, front.settings["pixel_format"]) == (
                SIZE,
                False,
                "H264",
            )
            events = watch_device(front)
        assert coded([e for e in events if isinstance(e, Shot)]) == units

    def test_parameter_sets_in_a_buffer_of_their_own(self) -> None:
        units = encode(6)
        sets = parameter_sets(units[0])
        head = b"".join(START_CODE + nal for kind in sets for nal in sets[kind])
        bare = [
            b"".join(START_CODE + n for n in nal_units(unit) if read_nal_type(n) not in (7, 8))
            for unit in units
        ]
        events = record_device(self.device([bare[1], head, *bare]), copying=True)
        made = coded([e for e in events if isinstance(e, Shot)])
        assert made[0] == head + bare[0]
        assert made[1:5] == bare[1:5]
        assert list(parameter_sets(made[5])) == list(sets) and numbers(made) == list(range(6))

    def test_a_damaged_parameter_set_is_a_loss(self) -> None:
        units = encode(6)
        broken = START_CODE + parameter_sets(units[0])[SPS][0][:5] + START_CODE + b"\x65\x88\x80"
        events = record_device(self.device([*units, broken, units[5]]), copying=True)
        kinds = [type(e.picture) for e in events if isinstance(e, Shot)]
        assert kinds == [CodedPicture] * 6 + [Missing, CodedPicture]
