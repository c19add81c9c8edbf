"""Channels over a real socket: schemas, stamps, and values equal to the samples."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Sample
from recorder.codecs.jpeg import decode_jpeg
from recorder.codecs.points import pack_points
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.perception.camera.camera_pictures import picture_maker
from recorder.perception.foxglove.channels import SampleChannel
from recorder.perception.foxglove.radar import LEAST_DB, STEP_DB
from recorder.perception.lidar.lidar import OusterOptics
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.maps import RadarMaps
from recorder.perception.radar.radar import RadarProcessor
from tests.session import clouds
from tests.session.build import HEIGHT, WIDTH, raw_camera_spec
from tests.viewers.live.foxglove.client import decode_schema, stamp_ns
from tests.viewers.live.foxglove.rig import OFFSET_NS, serving
from tests.viewers.live.views.sensors import encoded, first, message_of, play


async def test_pictures_are_passed_on_unchanged_with_their_stamps() -> None:
    spec, _, message = first("camera")
    async with serving(specs=(spec,)) as rig:
        client = await rig.viewing("/camera/image", 7)
        rig.put(spec, message)
        received = await client.data(7)
        channel = client.channels["/camera/image"]
        image = decode_schema(channel, received.payload)
        assert channel["schemaName"] == "foxglove.CompressedImage"
        t_ns = int(np.atleast_1d(message.t_mono_ns)[-1]) + OFFSET_NS
        assert received.t_ns == stamp_ns(image.timestamp) == t_ns
        assert image.data == bytes(message.frames[0])
        assert (image.format, image.frame_id) == ("jpeg", "camera")


async def test_raw_pictures_are_shown_between_their_levels() -> None:
    spec = raw_camera_spec()
    (channel,) = spec.channels
    values = np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(1, HEIGHT, WIDTH) % 256
    message = message_of(spec, {channel.name: values}, [9])
    async with serving(specs=(spec,)) as rig:
        client = await rig.viewing("/camera/image", 1)
        assert set(client.channels) == {"/camera/image", "/log"}
        rig.put(spec, message)
        received = await client.data(1)
        image = decode_schema(client.channels["/camera/image"], received.payload)
        assert (received.t_ns, image.format) == (OFFSET_NS + 9, "jpeg")
        wanted = picture_maker(channel.name, channel.meta(), spec.settings)(values.tobytes())
        found = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        decode_jpeg(image.data, found, "the picture")  # RGB
        assert np.abs(found[..., ::-1].astype(int) - wanted).mean() < 16


async def test_a_camera_with_a_model_has_a_calibration_channel(tmp_path: Path) -> None:
    spec, _, _ = first("camera")
    height, width, _ = spec.channels[0].shape
    path = tmp_path / "calibration.yaml"
    path.write_text(
        f"sensors: {{camera: {{model: opencv-pinhole, resolution: [{width}, {height}], "
        "parameters: {fx: 200.0, fy: 201.0, cx: 160.0, k1: -0.1}}}"
    )
    async with serving(specs=(spec,), calibration=path) as rig:
        client = await (await rig.client()).greeted("/camera/calibration")
        await client.subscribe("/camera/calibration", 1)
        received = await client.data(1)
        found = decode_schema(client.channels["/camera/calibration"], received.payload)
        assert stamp_ns(found.timestamp) == received.t_ns
        assert (found.width, found.height) == (width, height)
        assert found.distortion_model == "plumb_bob"
        assert list(found.D) == [-0.1, 0.0, 0.0, 0.0, 0.0]
        assert list(found.K) == [200.0, 0.0, 160.0, 0.0, 201.0, 0.0, 0.0, 0.0, 1.0]


async def test_a_wrong_calibration_is_reported_and_harms_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "calibration.yaml"
    path.write_text("sensors: {camera: {model: none}}")
    spec, _, _ = first("camera")
    async with serving(specs=(spec,), calibration=path) as rig:
        client = await (await rig.client()).greeted("/camera/image")
        assert set(client.channels) == {"/camera/image", "/log"}
        status = await client.op("status")
        assert status["message"].startswith("calibration: ")
        assert str(tmp_path) not in status["message"]


async def test_points_are_the_sweeps_returns_in_the_sensors_frame() -> None:
    spec, data, message = first("lidar")
    async with serving(specs=(spec,)) as rig:
        client = await (await rig.client("foxglove.sdk.v1")).greeted("/lidar/points")
        await client.subscribe("/lidar/points", 0)
        await rig.wait_until_watched("lidar")
        rig.put(spec, message)
        received = await client.data(0)
        cloud = decode_schema(client.channels["/lidar/points"], received.payload)
        t_ns = int(np.atleast_1d(message.t_mono_ns)[-1]) + OFFSET_NS
        assert received.t_ns == t_ns
        columns = data["t_col"][0].astype(np.int64)
        assert stamp_ns(cloud.timestamp) == t_ns - (columns[-1] - columns[0])
        layout = {field.name: field.offset for field in cloud.fields}
        assert layout == {
            "x": 0, "y": 4, "z": 8, "intensity": 12, "return": 13, "ring": 14, "t": 16,
        }  # fmt: skip
        types = [field.type for field in cloud.fields]
        assert types == [7, 7, 7, 1, 1, 3, 5]  # FLOAT32, UINT8, UINT16, UINT32
        assert cloud.point_stride == 20
        raw = np.frombuffer(cloud.data, np.uint8).reshape(-1, 20)
        xyz = raw[:, :12].copy().view("<f4")
        optics = OusterOptics.of_metadata(spec.files["lidar.json"], "lidar.json")
        range_mm = data["rng"][0].astype(np.uint32) + data["rng_far"][0]
        rays = optics.rays([range_mm], [data["rfl"][0]])
        hit = np.isfinite(rays.distance_m[0])
        assert hit.any()
        wanted = (rays.direction * rays.distance_m[0][:, None])[hit]
        np.testing.assert_allclose(xyz, wanted, atol=1e-4)
        np.testing.assert_array_equal(raw[:, 12], data["rfl"][0].reshape(-1)[hit])
        rows = np.repeat(np.arange(range_mm.shape[0]), range_mm.shape[1])[hit]
        np.testing.assert_array_equal(raw[:, 14:16].copy().view("<u2")[:, 0], rows)
        since = np.tile(columns - columns[0], len(range_mm))[hit]
        np.testing.assert_array_equal(raw[:, 16:].copy().view("<u4")[:, 0], since)


async def test_recorded_points_have_all_columns() -> None:
    spec, sweep = clouds.cloud_spec(), clouds.make_sweep()
    data = {"points.bin": [pack_points(sweep)]}
    message = encoded(spec, Sample("lidar", np.array([1_000_000_000]), data))
    async with serving(specs=(spec,)) as rig:
        client = await (await rig.client("foxglove.sdk.v1")).greeted("/lidar/points")
        await client.subscribe("/lidar/points", 0)
        await rig.wait_until_watched("lidar")
        rig.put(spec, message)
        received = await client.data(0)
        cloud = decode_schema(client.channels["/lidar/points"], received.payload)
        assert received.t_ns == 1_000_000_000 + OFFSET_NS
        assert stamp_ns(cloud.timestamp) == clouds.begin_ns(received.t_ns, sweep)
        layout = {field.name: (field.offset, field.type) for field in cloud.fields}
        assert layout == {
            "x": (0, 7), "y": (4, 7), "z": (8, 7), "intensity": (12, 7), "ring": (16, 3),
            "t": (18, 5), "tag_0": (22, 1), "tag_1": (23, 1),
        }  # fmt: skip
        assert (cloud.point_stride, cloud.data) == (24, sweep.tobytes())


async def test_detections_and_maps_of_a_radar() -> None:
    spec, data, message = first("radar")
    geometry = RadarGeometry.of_metadata(spec.files["radar.json"], "radar.json")
    processor, maps = RadarProcessor(geometry), RadarMaps(geometry)
    spectra = processor.spectra(data["iq"][0])
    topics = ("/radar/detections", "/radar/range_doppler", "/radar/range_azimuth")
    async with serving(specs=(spec,)) as rig:
        client = await (await rig.client()).greeted(*topics)
        for number, topic in enumerate(topics):
            await client.subscribe(topic, number)
        await client.answered()
        await rig.wait_until_watched("radar")
        rig.put(spec, message)
        found: dict[int, Any] = {}
        while len(found) < len(topics):
            received = await client.until(lambda m: hasattr(m, "payload"))
            found[received.subscription] = received
        assert len({received.t_ns for received in found.values()}) == 1
        cloud = decode_schema(client.channels[topics[0]], found[0].payload)
        wanted = processor.find(spectra)
        assert len(wanted) > 0
        assert [field.name for field in cloud.fields] == [
            "x", "y", "z", "velocity", "power", "snr", "method",
        ]  # fmt: skip
        raw = np.frombuffer(cloud.data, np.uint8).reshape(len(wanted), cloud.point_stride)
        values = raw[:, :24].copy().view("<f4")
        np.testing.assert_array_equal(values[:, :3], wanted.direction * wanted.range_m[:, None])
        np.testing.assert_array_equal(values[:, 3], wanted.velocity_m_s)
        np.testing.assert_array_equal(values[:, 4], wanted.power_db)
        np.testing.assert_array_equal(values[:, 5], wanted.snr_db)
        np.testing.assert_array_equal(raw[:, 24], wanted.method)
        for number, (level_db, _) in (
            (1, maps.range_doppler(spectra)),
            (2, maps.range_azimuth(spectra)),
        ):
            image = decode_schema(client.channels[topics[number]], found[number].payload)
            assert (image.height, image.width) == level_db.shape
            assert (image.encoding, image.step) == ("mono8", image.width)
            pixels = np.frombuffer(image.data, np.uint8).reshape(level_db.shape)
            most = LEAST_DB + 255 * STEP_DB
            shown = np.clip(level_db, LEAST_DB, most)
            np.testing.assert_allclose(LEAST_DB + STEP_DB * pixels, shown, atol=STEP_DB)


async def test_every_sample_of_an_imu_is_a_json_message() -> None:
    parts = [
        (spec, sample, message) for spec, sample, message in play("imu", 6) if spec.name == "imu"
    ]
    spec = parts[0][0]
    async with serving(specs=(spec,)) as rig:
        client = await rig.viewing("/imu", 3)
        rig.put(spec, *(message for _, _, message in parts))
        for _, sample, _ in parts:
            for index, t_mono in enumerate(sample.t_ns):
                received = await client.data(3)
                values = decode_schema(client.channels["/imu"], received.payload)
                assert received.t_ns == stamp_ns(values["timestamp"]) == t_mono + OFFSET_NS
                for name in ("acc", "avel", "rot"):
                    wanted = np.asarray(sample.data[name])[index]
                    np.testing.assert_array_equal(np.float32(values[name]), wanted)


async def test_positions_are_location_fixes_and_a_sample_without_a_position_is_none() -> None:
    channels = (
        ChannelSpec("pos", "raw", "f8", (3,), "latitude, longitude, height", "deg, m"),
        ChannelSpec("vel", "raw", "f4", (3,), "velocity north, east, down", "m/s"),
        ChannelSpec("cov", "raw", "f4", (3, 3), "covariance north, east, down", "m^2"),
        ChannelSpec("fix", "raw", "u1"),
    )
    spec = StreamSpec("gnss", channels)
    nan = math.nan
    data = {
        "pos": np.array([[nan, nan, nan], [48.1, 11.5, 520.0]]),
        "vel": np.array([[nan] * 3, [1.0, 2.0, 3.0]], np.float32),
        "cov": np.stack([np.full((3, 3), nan), np.diag([1.0, 4.0, 9.0])]).astype(np.float32),
        "fix": np.array([0, 3], np.uint8),
    }
    message = message_of(spec, data, [5, 6])

    async with serving(specs=(spec,)) as rig:
        client = await (await rig.client()).greeted("/gnss/fix", "/gnss")
        await client.subscribe("/gnss/fix", 1)
        await client.subscribe("/gnss", 2)
        await client.answered()
        rig.put(spec, message)
        received = await client.data(1)
        fix = decode_schema(client.channels["/gnss/fix"], received.payload)
        assert received.t_ns == stamp_ns(fix.timestamp) == OFFSET_NS + 6
        assert (fix.latitude, fix.longitude, fix.altitude) == (48.1, 11.5, 520.0)
        assert list(fix.position_covariance) == [4, 0, 0, 0, 1, 0, 0, 0, 9]
        assert fix.position_covariance_type == 3  # KNOWN
        assert (fix.velocity.x, fix.velocity.y, fix.velocity.z) == (2.0, 1.0, -3.0)

    async with serving(specs=(spec,)) as rig:
        client = await rig.viewing("/gnss", 2)
        rig.put(spec, message)
        sample = json.loads((await client.data(2)).payload)
        assert sample["pos"] == [None, None, None]
        assert sample["fix"] == 0
        assert json.loads((await client.data(2)).payload)["cov"] == [1, 0, 0, 0, 4, 0, 0, 0, 9]


async def test_a_viewer_of_the_newest_gets_no_backlog_and_unsubscribing_ends_the_stream() -> None:
    spec, _, message = first("camera")
    async with serving(specs=(spec,)) as rig:
        client = await rig.viewing("/camera/image", 1)
        rig.put(spec, *[message] * 100)
        await client.data(1)
        await client.send(op="unsubscribe", subscriptionIds=[1])
        await rig.unwatched("camera")
        await client.answered()
        pictures = [m for m in client.log if hasattr(m, "payload")]
        assert len(pictures) == 1
        rig.put(spec, message)
        await client.answered()
        assert len([m for m in client.log if hasattr(m, "payload")]) == 1


async def test_streams_that_come_and_go_are_advertised_and_keep_their_numbers() -> None:
    spec, _, message = first("camera")
    async with serving() as rig:
        client = await (await rig.client()).greeted("/log")
        assert set(client.channels) == {"/log"}
        rig.hub.declare(spec)
        await client.greeted("/camera/image")
        number = client.channels["/camera/image"]["id"]
        await client.subscribe("/camera/image", 1)
        await rig.wait_until_watched("camera")
        rig.hub.remove("camera")
        gone = await client.op("unadvertise")
        assert number in gone["channelIds"]
        await rig.unwatched("camera")
        rig.put(spec, message)
        await client.greeted("/camera/image")
        assert client.channels["/camera/image"]["id"] == number


async def test_a_stream_with_wrong_metadata_is_not_offered_and_harms_no_other() -> None:
    spec, _, _message = first("lidar")
    damaged = StreamSpec("lidar", spec.channels, device_clock=True, files={"lidar.json": "{"})
    camera, _, picture = first("camera")
    async with serving(specs=(damaged, camera)) as rig:
        client = await rig.viewing("/camera/image", 1)
        assert "/lidar/points" not in client.channels
        assert "lidar.json" in rig.foxglove.problems["lidar"]
        rig.put(camera, picture)
        await client.data(1)


async def test_a_damaged_sample_is_reported_once_and_the_next_one_is_shown() -> None:
    spec, _, message = first("lidar")
    cut = replace(message, frames=[b"\0" * len(bytes(frame)) for frame in message.frames])
    async with serving(specs=(spec,)) as rig:
        client = await rig.viewing("/lidar/points", 1)
        rig.put(spec, cut)
        status = await client.op("status")
        assert status["level"] == 1
        assert "/lidar/points" in status["message"]
        rig.put(spec, message)
        await client.data(1)


async def test_a_sample_of_the_wrong_shape_ends_no_viewer() -> None:
    spec, _, message = first("camera")
    strange = [
        replace(message, frames=[]),
        replace(message, sizes=()),
        replace(message, frames=[b"no picture"], sizes=(np.array([10], np.uint32),)),
    ]
    async with serving(specs=(spec,)) as rig:
        client = await rig.viewing("/camera/image", 1)
        for wrong in strange:
            rig.put(spec, wrong)
            assert "cannot be shown" in (await client.op("status"))["message"]
            rig.put(spec, message)
            await client.data(1)


@pytest.mark.parametrize("count", [1, 3])
async def test_viewers_share_the_work(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, _, message = first("lidar")
    calls: list[int] = []
    async with serving(specs=(spec,)) as rig:
        clients = [await (await rig.client()).greeted("/lidar/points") for _ in range(count)]
        offered = await rig.foxglove.channels()
        _, channel = next(pair for pair in offered.values() if pair[1].topic.endswith("points"))
        assert isinstance(channel, SampleChannel)
        encode = channel.encode

        def counted(message: object, offset_ns: int) -> object:
            calls.append(1)
            return encode(message, offset_ns)  # type: ignore[arg-type]

        object.__setattr__(channel, "encode", counted)
        for client in clients:
            await client.subscribe("/lidar/points", 1)
            await client.answered()
        rig.put(spec, message)
        received = [await client.data(1) for client in clients]
        assert len({each.payload for each in received}) == 1
        assert sum(calls) == 1
