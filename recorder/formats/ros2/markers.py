"""``visualization_msgs/msg/MarkerArray``: shapes that viewers of ROS 2 draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recorder.contract.wire import Buffer
from recorder.formats.ros2.cdr import CdrReader, CdrWriter
from recorder.formats.ros2.messages import (
    CompressedImage,
    Floats,
    Header,
    put_header,
    put_stamp,
    take_header,
    take_stamp,
)

CUBE: Final = 1
ADD: Final = 0
_NO_TEXTURE: Final = CompressedImage(Header(0, ""), "", b"")
DELETE_ALL: Final = 3


@dataclass(frozen=True, slots=True)
class Marker:
    """``visualization_msgs/msg/Marker``.

    Attributes:
        type: `CUBE` and others of the definition.
        action: `ADD` or `DELETE_ALL`.
        position: x, y, z in m.
        orientation: quaternion x, y, z, w.
        scale: size in m.
        color: red, green, blue, alpha, 0 to 1.
        lifetime_ns: 0: until it is deleted.
        points: each x, y, z in m.
        colors: each red, green, blue, alpha.
        uv_coordinates: each u, v.
        mesh_file: name and content.
    """

    header: Header
    ns: str = ""
    id: int = 0
    type: int = 0
    action: int = ADD
    position: Floats = (0.0, 0.0, 0.0)
    orientation: Floats = (0.0, 0.0, 0.0, 1.0)
    scale: Floats = (0.0, 0.0, 0.0)
    color: Floats = (0.0, 0.0, 0.0, 0.0)
    lifetime_ns: int = 0
    frame_locked: bool = False
    points: tuple[Floats, ...] = ()
    colors: tuple[Floats, ...] = ()
    texture_resource: str = ""
    texture: CompressedImage = _NO_TEXTURE
    uv_coordinates: tuple[Floats, ...] = ()
    text: str = ""
    mesh_resource: str = ""
    mesh_file: tuple[str, Buffer] = ("", b"")
    mesh_use_embedded_materials: bool = False


def encode_markers(markers: tuple[Marker, ...]) -> list[Buffer]:
    """A ``visualization_msgs/msg/MarkerArray`` in CDR.

    Raises:
        FormatError: a value is outside of its type.
    """
    writer = CdrWriter()
    writer.put("I", len(markers))
    for marker in markers:
        _put(writer, marker)
    return writer.finish()


def decode_markers(data: Buffer) -> tuple[Marker, ...]:
    """A ``visualization_msgs/msg/MarkerArray`` from CDR.

    Raises:
        FormatError: the bytes are not such a message.
    """
    reader = CdrReader(data, "visualization_msgs/msg/MarkerArray")
    markers = tuple(_take(reader) for _ in range(reader.count(193)))
    reader.finish()
    return markers


def _put(writer: CdrWriter, marker: Marker) -> None:
    put_header(writer, marker.header)
    writer.string(marker.ns)
    writer.put("iii3d4d3d4f", marker.id, marker.type, marker.action, *marker.position,
               *marker.orientation, *marker.scale, *marker.color)  # fmt: skip
    put_stamp(writer, marker.lifetime_ns)
    writer.put("?", marker.frame_locked)
    _put_rows(writer, "3d", marker.points)
    _put_rows(writer, "4f", marker.colors)
    writer.string(marker.texture_resource)
    put_header(writer, marker.texture.header)
    writer.string(marker.texture.format)
    writer.blob(marker.texture.data)
    _put_rows(writer, "2f", marker.uv_coordinates)
    writer.string(marker.text)
    writer.string(marker.mesh_resource)
    writer.string(marker.mesh_file[0])
    writer.blob(marker.mesh_file[1])
    writer.put("?", marker.mesh_use_embedded_materials)


def _take(reader: CdrReader) -> Marker:
    header, ns, v = take_header(reader), reader.string(), reader.take("iii3d4d3d4f")
    lifetime_ns, (locked,) = take_stamp(reader), reader.take("?")
    points, colors = _take_rows(reader, "3d", 24), _take_rows(reader, "4f", 16)
    resource = reader.string()
    texture = CompressedImage(take_header(reader), reader.string(), reader.blob())
    uv = _take_rows(reader, "2f", 8)
    text, mesh, mesh_file = reader.string(), reader.string(), (reader.string(), reader.blob())
    (embedded,) = reader.take("?")
    return Marker(
        header,
        ns,
        id=v[0],
        type=v[1],
        action=v[2],
        position=v[3:6],
        orientation=v[6:10],
        scale=v[10:13],
        color=v[13:17],
        lifetime_ns=lifetime_ns,
        frame_locked=locked,
        points=points,
        colors=colors,
        texture_resource=resource,
        texture=texture,
        uv_coordinates=uv,
        text=text,
        mesh_resource=mesh,
        mesh_file=mesh_file,
        mesh_use_embedded_materials=embedded,
    )


def _put_rows(writer: CdrWriter, codes: str, rows: tuple[Floats, ...]) -> None:
    writer.put("I", len(rows))
    for row in rows:
        writer.put(codes, *row)


def _take_rows(reader: CdrReader, codes: str, size: int) -> tuple[Floats, ...]:
    return tuple(reader.take(codes) for _ in range(reader.count(size)))
