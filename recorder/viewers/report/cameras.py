"""Section with a filmstrip of each camera."""

from __future__ import annotations

import cv2

from recorder.perception.camera.camera_pictures import Pictures
from recorder.session.stream import Stream
from recorder.viewers.report.drawing import moment_text
from recorder.viewers.report.markup import Content, Html, element
from recorder.viewers.report.rasters import shrink_picture
from recorder.viewers.report.report_context import SENSOR_MOMENTS, ReportContext
from recorder.viewers.report.session_scan import READ_ERRORS

_LONGEST = 320  # pixels


def cameras_section(material: ReportContext) -> Content:
    """Make the section with pictures of each camera, evenly spaced over the session."""
    made = [_make_strip(material, stream) for stream in material.of_kind("camera")]
    return made or None


def _make_strip(material: ReportContext, stream: Stream) -> Html:
    shown: list[Content] = []
    about = ""
    try:
        pictures = Pictures(stream)
        about = f"{pictures.size[0]} × {pictures.size[1]} pixels"
        if pictures.pixels is not None:
            about += f", raw {pictures.pixels.name}, {pictures.pixels.bits} bits"
        for index in material.moments(stream, SENSOR_MOMENTS["camera"]):
            shown.append(_make_frame(material, stream, pictures, index))
        if not shown:
            shown.append(element("p", "has no picture", class_="muted"))
    except (*READ_ERRORS, cv2.error) as error:
        shown.append(material.fail(stream.name, error))
    return element("div", element("h3", stream.name, " ", element("small", about)),
                   element("div", shown, class_="film"))  # fmt: skip


def _make_frame(material: ReportContext, stream: Stream, pictures: Pictures, index: int) -> Html:
    try:
        picture = shrink_picture(pictures.picture(index), _LONGEST)
        time = moment_text(material.since_start_s(stream, index))
        address = material.picture(picture)
    except (*READ_ERRORS, cv2.error) as error:
        return material.fail(f"{stream.name}, picture {index}", error)
    height, width = picture.shape[:2]
    shown = element("img", src=address, alt=f"{stream.name} at {time}", width=width, height=height)
    return element("figure", shown, element("figcaption", time))
