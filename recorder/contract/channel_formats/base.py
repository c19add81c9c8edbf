"""What every channel format is to drivers and recorder: a description and a codec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from recorder.contract.streams import ChannelSpec, StreamSpec

Buffer = bytes | bytearray | memoryview
Encode = Callable[[npt.NDArray[Any]], Sequence[Buffer]]
"""From samples, [n, *shape], to frames: n of them, or one, as the format's framing has it."""
Decode = Callable[[Buffer, npt.NDArray[Any], str], None]
"""From a frame to the array that it fills; the text names the frame in errors."""

_PIXELS = {"u1": "GREY8", "u2": "GREY16"}


class Framing(Enum):
    """How a data message carries samples of a channel."""

    PLAIN = "values"
    """One frame: the samples' values, one after another."""
    JOINT = "all"
    """One frame: all samples encoded together; the frame cannot be cut."""
    EACH = "each"
    """One frame, joined from an encoded sample each; the header has their sizes."""
    NONE = "none"
    """Not at all: each sample is a file of its own."""


@dataclass(frozen=True, slots=True)
class ContentBlock:
    """A sample as one content block of a VRS record.

    Attributes:
        kind: ``image`` or ``custom``.
        format: the image's format, such as ``jpg``, or the name of a custom format.
        size: bytes of a custom block; None where samples differ in length.
        width, height: pixels of an image.
        pixel_format: name of VRS's pixel format; empty where the image's own bytes have it.
    """

    kind: str
    format: str
    size: int | None = None
    width: int = 0
    height: int = 0
    pixel_format: str = ""


class ChannelFormat(ABC):
    """The description and the codec of one format.

    ::

        encode = found.encoder(stream, channel)          # stateful: one for each channel
        frames = encode(values)                          # [n, *shape] -> frames
        decode = found.decoder()
        decode(frames[0], out, "lidar/rng: sample 7")    # out [*shape], or [n, *shape]

    A frame holds one sample where the framing is `EACH` or `NONE`, else all samples of a message.

    Attributes:
        name: the key in both registries, and the format's name in ``meta.json``.
        recorded_as: the format that a new recording has of such a channel; its own name where
            drivers may declare it.
        framing: how a data message carries its samples.
        holds: dtype and shape that it is limited to, for people; empty where it takes any.
        picture: samples are pictures.
    """

    framing: ClassVar[Framing]
    holds: ClassVar[str] = ""
    picture: ClassVar[bool] = False

    def __init__(self, name: str, recorded_as: str | None = None) -> None:
        self.name = name
        self.recorded_as = recorded_as or name

    @property
    def variable(self) -> bool:
        """Whether encoded samples differ in length, so that a data message has their sizes."""
        return self.framing is Framing.EACH

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:  # noqa: ARG002
        """Whether a channel of that dtype and sample shape can have the format."""
        return True

    def files(self, channel: str) -> tuple[str, ...]:
        """Names of a channel's files (or of its folder); the first is the channel's own."""
        return (channel,)

    def content(self, channel: ChannelSpec) -> ContentBlock:
        """The block of VRS that a sample is, where it is a block of its own."""
        dtype, shape = channel.dtype, channel.shape
        pixel = _PIXELS.get(dtype, "") if len(shape) == 2 else ""
        if dtype == "u1" and len(shape) == 3 and shape[2] == 3:
            pixel = "RGB8"
        if not pixel:
            return ContentBlock("custom", f"{channel.name}.{dtype}", channel.sample_bytes)
        return ContentBlock("image", "raw", None, shape[1], shape[0], pixel)

    @abstractmethod
    def encode(self, values: npt.NDArray[Any]) -> Sequence[Buffer]:
        """Frames of samples [n, *shape], by the format's general way and without settings."""

    def encoder(self, stream: StreamSpec, channel: ChannelSpec) -> Encode:  # noqa: ARG002
        """The codec of a driver, which knows the stream's settings; any reader reads its frames.

        Raises:
            StreamChangedError: when it is called: values cannot be encoded.
        """
        return self.encode

    @abstractmethod
    def decoder(self) -> Decode:
        """A function that fills an array from a frame; several threads may use it.

        Raises:
            FormatError: when it is called: the frame does not hold what the array is to hold.
        """

    def shape_fault(self, frame: bytes, shape: tuple[int, ...]) -> str | None:  # noqa: ARG002
        """Why an encoded sample is not of that shape, where its header says so; else None."""
        return None

    def hidden_fault(self, frame: bytes) -> str | None:  # noqa: ARG002
        """What is wrong with an encoded sample that decodes all the same; else None."""
        return None
