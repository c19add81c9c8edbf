"""A V4L2 device's controls: exposure, gain, white balance and others."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drivers.camera.v4l2 import abi
from recorder.common.errors import SourceError
from recorder.config.options import suggest

Ioctl = Callable[[int, Any], None]
"""Calls (request, argument) on the open device; raises the kernel's OSError."""

_VALUED = (abi.TYPE_INTEGER, abi.TYPE_BOOLEAN, abi.TYPE_MENU, abi.TYPE_INTEGER_MENU)
_MOST = 1000  # limit for a kernel driver whose list never ends
_EXPOSURE_UNIT_US = 100  # of V4L2_CID_EXPOSURE_ABSOLUTE
_LOST = (errno.ENODEV, errno.ENXIO)
_REFUSED = (errno.EBUSY, errno.EACCES, errno.EINVAL, errno.ERANGE, errno.EPERM)


@dataclass(frozen=True, slots=True)
class DeviceControl:
    """One control.

    Attributes:
        number: its id.
        name: as ``v4l2-ctl --list-ctrls`` shows it.
        kind: one of `v4l2_abi.TYPE_...`.
        minimum, maximum: of the value.
        flags: the kernel's flags.
        menu: texts (of integer menus: numbers as text) by value.
    """

    number: int
    name: str
    kind: int
    minimum: int
    maximum: int
    flags: int
    menu: Mapping[int, str] = field(default_factory=dict)

    def shown(self, value: int) -> Any:
        """Return a value in the form of the config: a number, true or false, or a menu's text."""
        if self.kind == abi.TYPE_BOOLEAN:
            return bool(value)
        return self.menu.get(value, value)

    def wanted(self, where: str, value: Any) -> int:
        """Convert a config's value to the device's value.

        Raises:
            SourceError: the value has the wrong type or is out of range.
        """
        if isinstance(value, bool):
            if self.kind not in (abi.TYPE_BOOLEAN, abi.TYPE_MENU, abi.TYPE_INTEGER):
                raise SourceError(f"{where}: true or false is not one of its values")
            value = int(value)
        if isinstance(value, str):
            for number, text in self.menu.items():
                if control_name(text) == control_name(value):
                    return number
            known = ", ".join(repr(text) for text in self.menu.values())
            raise SourceError(f"{where}: {value!r} is not one of its values ({known or 'numbers'})")
        if not isinstance(value, int):
            raise SourceError(f"{where}: needs a whole number, not {value!r}")
        if self.menu and value not in self.menu:
            known = ", ".join(f"{number} {text!r}" for number, text in self.menu.items())
            raise SourceError(f"{where}: {value} is not one of its values ({known})")
        if not self.minimum <= value <= self.maximum:
            raise SourceError(f"{where}: {value} is outside of {self.minimum} .. {self.maximum}")
        return value


def control_name(text: str) -> str:
    """Return a control's or menu item's name in ``v4l2-ctl``'s form: ``exposure_time_absolute``."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def list_controls(ioctl: Ioctl) -> dict[str, DeviceControl]:
    """Return the device's controls that have a value, by name."""
    found: dict[str, DeviceControl] = {}
    number = 0
    for _ in range(_MOST):
        query = abi.QueryControl(id=number | abi.CTRL_NEXT)
        try:
            ioctl(abi.QUERYCTRL, query)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOTTY):  # end of the list, or no controls
                return found
            raise
        if query.id <= number:
            return found
        number = query.id
        if query.type in _VALUED and not query.flags & abi.CTRL_DISABLED:
            name = control_name(query.name.decode("latin-1"))
            found[name] = DeviceControl(
                number, name, query.type, query.minimum, query.maximum, query.flags,
                _menu(ioctl, query),
            )  # fmt: skip
    return found


def _menu(ioctl: Ioctl, query: abi.QueryControl) -> dict[int, str]:
    items: dict[int, str] = {}
    if query.type not in (abi.TYPE_MENU, abi.TYPE_INTEGER_MENU):
        return items
    for index in range(query.minimum, min(query.maximum, query.minimum + _MOST) + 1):
        item = abi.QueryMenu(id=query.id, index=index)
        try:
            ioctl(abi.QUERYMENU, item)
        except OSError as error:
            if error.errno == errno.EINVAL:  # a menu may lack some numbers
                continue
            raise
        integer = query.type == abi.TYPE_INTEGER_MENU
        items[index] = str(item.item.value) if integer else item.item.name.decode("latin-1")
    return items


class ExposureTime:
    """The exposure time that a device reports by its controls.

    Attributes:
        us: the last reported time in us; None if the device reports none.
        automatic: the device chooses the time, so that it changes from picture to picture.
    """

    def __init__(self, ioctl: Ioctl, known: Mapping[str, DeviceControl]) -> None:
        self._ioctl = ioctl
        self._numbers = {c.number for c in known.values() if not c.flags & abi.CTRL_WRITE_ONLY}
        mode = self._read(abi.EXPOSURE_AUTO)
        self.automatic = mode in (abi.EXPOSURE_AUTOMATIC, abi.EXPOSURE_APERTURE_PRIORITY)
        self.us: int | None = None
        self.update()

    def update(self) -> None:
        """Read the time again; the last time stays if the device does not answer."""
        value = self._read(abi.EXPOSURE_ABSOLUTE)
        if value is not None and value > 0:
            self.us = value * _EXPOSURE_UNIT_US

    def _read(self, number: int) -> int | None:
        if number not in self._numbers:
            return None
        argument = abi.Control(id=number)
        try:
            self._ioctl(abi.G_CTRL, argument)
        except OSError as error:
            if error.errno in _LOST:
                raise
            return None
        return int(argument.value)


def set_controls(
    ioctl: Ioctl, known: Mapping[str, DeviceControl], wanted: Mapping[str, Any], where: str
) -> None:
    """Set controls, automatic controls first, because these lock the controls that they adjust.

    Raises:
        SourceError: the device has no such control, or rejects the value.
        OSError: the device fails.
    """
    values: dict[str, int] = {}
    for name, value in wanted.items():
        place = f"{where}: controls.{name}"
        control = known.get(name)
        if control is None:
            near = suggest(name, known)
            raise SourceError(
                f"{place}: the device has no such control{near}; its controls are "
                f"{', '.join(known) or 'none'}"
            )
        if control.flags & abi.CTRL_READ_ONLY:
            raise SourceError(f"{place}: is read-only")
        values[name] = control.wanted(place, value)
    for name in sorted(values, key=lambda name: "auto" not in name):
        try:
            ioctl(abi.S_CTRL, abi.Control(id=known[name].number, value=values[name]))
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            raise SourceError(
                f"{where}: controls.{name}: the device rejects {wanted[name]!r} "
                f"({error.strerror}); perhaps an automatic control adjusts it"
            ) from None


def read_controls(ioctl: Ioctl, known: Mapping[str, DeviceControl]) -> dict[str, Any]:
    """Return the present values of the readable controls, by name."""
    values: dict[str, Any] = {}
    for name, control in known.items():
        if control.flags & abi.CTRL_WRITE_ONLY:
            continue
        argument = abi.Control(id=control.number)
        try:
            ioctl(abi.G_CTRL, argument)
        except OSError as error:
            if error.errno in _LOST:
                raise
            continue  # some cameras list controls that they do not have
        values[name] = control.shown(argument.value)
    return values
