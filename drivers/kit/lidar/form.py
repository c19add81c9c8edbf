"""Watch for a device that changes the form of its packets: another model, return mode or unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drivers.kit.lidar.decoder import PacketDecoder
from recorder.common.errors import FormatError

_ENOUGH: Final = 16
"""Packets of another form in a row: the device has changed, these are no damaged ones."""


class FormChangedError(FormatError):
    """The device has changed the form of its packets; all before that is given."""


class FormWatch:
    """Watch of a device's packets that its decoder cannot decode.

    Args:
        decoder: of the packets at first.
        make_decoder: returns the decoder of a packet; FormatError if no decoder fits it.
    """

    def __init__(
        self, decoder: PacketDecoder, make_decoder: Callable[[bytes], PacketDecoder]
    ) -> None:
        self._own, self._make = describe_form(decoder), make_decoder
        self._found, self._count = "", 0

    def see_own(self) -> None:
        """Note that a packet of the own form came."""
        self._count = 0

    def see_other(self, packet: bytes) -> str:
        """Note a packet that cannot be decoded; return the change once it is sure, else ``""``."""
        try:
            found = describe_form(self._make(packet))
        except FormatError:
            found = ""
        self._count = self._count + 1 if found == self._found else 1
        self._found = found
        if not found or found == self._own or self._count < _ENOUGH:
            return ""
        return f"the device sends packets of {found} from here on, before of {self._own}"


def describe_form(decoder: PacketDecoder) -> str:
    """Return what the form of a stream depends on, in words."""
    returns = " and ".join(decoder.returns)
    return (
        f"a {decoder.model} in {decoder.unit_mm:g} mm with the returns {returns}, "
        f"{decoder.packet_bytes} bytes each"
    )
