"""Messages of cameras in ROS 2: pictures, and the camera's model."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from recorder.archives.context import PackingContext
from recorder.archives.mcap.ros2_names import Names, ros_topic
from recorder.archives.mcap.ros2_samples import Made, Parts, image_parts, large_feed, sample_time
from recorder.archives.mcap.topics import Feed
from recorder.codecs.raw_pixels import RawPixels
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import CAMERA_INFO, COMPRESSED_IMAGE, IMAGE
from recorder.formats.ros2.messages import CameraInfo, CompressedImage, Header
from recorder.perception.calibration import SensorCalibration
from recorder.perception.camera.camera_pictures import Pictures
from recorder.perception.foxglove.pictures import camera_model
from recorder.session.stream import Stream

_ROS_MODELS: Final = {"kannala_brandt": "equidistant"}


def camera_feed(context: PackingContext, stream: Stream, names: Names) -> Feed:
    """Return the feed of a camera's pictures, and of ``/NAME/camera_info`` at the same stamps.

    Recorded JPEGs are stored unchanged as ``/NAME/image/compressed``.  Video is encoded as such
    JPEGs.  Raw pictures are encoded as such JPEGs, or stored as ``/NAME/image_raw`` with the
    recorded values, which are not scaled to 16 bits.  There is no ``camera_info`` if the
    calibration has no model that ROS 2 knows.
    """
    pictures = Pictures(stream, context.options["jpeg_quality"])
    frame = names.frame(stream.name)
    pixels = pictures.pixels
    if pixels is not None and context.options["raw_pictures"] == "values":
        encoding, channel = raw_encoding(pixels), pixels.channel
        image = ros_topic(names.topic(stream.name, "image_raw"), IMAGE)

        def picture(index: int, header: Header) -> Parts:
            return image_parts(header, stream.sample(index, [channel])[channel], encoding)

    else:
        if remark := pictures.remark():
            context.notes.add(remark, stream.name)
        name = names.topic(stream.name, "image/compressed")
        image = ros_topic(name, COMPRESSED_IMAGE, compress=False)

        def picture(index: int, header: Header) -> Parts:
            message = CompressedImage(header, "jpeg", pictures.jpeg(index))
            return encode_message(COMPRESSED_IMAGE, message)

    info = camera_info(context.calibration.of(stream.name), pictures.size)
    info_name = names.topic(stream.name, "camera_info")
    topics = [image]
    if info is None:
        context.notes.add(
            "no model in the calibration that ROS 2 knows: no camera_info", stream.name
        )
    else:
        topics.append(ros_topic(info_name, CAMERA_INFO))

    def make(index: int) -> Made:
        header = Header(sample_time(stream, index), frame)
        made: list[tuple[str, Parts]] = [(image.name, picture(index, header))]
        if info is not None:
            made.append((info_name, encode_message(CAMERA_INFO, replace(info, header=header))))
        return made

    return large_feed(context, stream, topics, make)


def raw_encoding(pixels: RawPixels) -> str:
    """Return the encoding of raw pictures, as ``sensor_msgs/image_encodings.hpp`` names it."""
    kind = f"bayer_{pixels.pattern.lower()}" if pixels.pattern else "mono"
    return kind + ("8" if pixels.bits == 8 else "16")


def camera_info(calibration: SensorCalibration, size: tuple[int, int]) -> CameraInfo | None:
    """Return a camera's model, without a stamp; None if ROS 2 has no such model.

    ``equidistant`` of ROS 2 is OpenCV's fisheye model (REP-118 and image_geometry name it so).
    """
    model = camera_model(calibration, size)
    if model is None:
        return None
    kind = str(model["distortion_model"])
    return CameraInfo(
        Header(0, ""),
        model["height"],
        model["width"],
        _ROS_MODELS.get(kind, kind),
        tuple(model["D"]),
        tuple(model["K"]),
        tuple(model["R"]),
        tuple(model["P"]),
    )
