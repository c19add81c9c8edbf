"""Control of a lidar over the network: its settings are set and read back, its state is watched.

::

    control = HesaiControl(sensor)
    device = control.bring_up()          # DeviceError names the setting that it refuses
    watch = ControlWatch(control)
    for values in watch.news(): ...      # what has changed since
    watch.close()
"""

from __future__ import annotations

import ipaddress
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drivers.kit.udp_socket import is_multicast
from recorder.common.errors import DeviceError, SourceError

_POLL_S: Final = 10.0
_BROADCAST: Final = "255.255.255.255"


@dataclass(frozen=True, slots=True)
class Device:
    """A lidar that has the wanted settings.

    Attributes:
        address: its own.
        here: this machine's address in its network.
        destination: where it sends its packets.
        port: UDP port of the packets.
        identity: serial number, model, firmware; JSON types.
        settings: all that it tells, JSON types.
        angles: its file of angles; None: it tells none.
    """

    address: str
    here: str
    destination: str
    port: int
    identity: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    angles: bytes | None = None

    @property
    def packed(self) -> bytes:
        """The lidar's address, 4 or 16 bytes."""
        return ipaddress.ip_address(self.address).packed

    @property
    def receiving_address(self) -> str:
        """Address at which this machine receives the packets; "": all its addresses."""
        if self.destination == self.here:
            return self.here
        return self.destination if is_multicast(self.destination) else ""


class Control(ABC):
    """Control of one lidar."""

    @abstractmethod
    def bring_up(self) -> Device:
        """Set the wanted settings where they differ, and read all of them back.

        A call takes at most about 4 s; the next call continues.

        Raises:
            DeviceError: the lidar does not answer, or refuses a setting, which the error names.
            SourceError: the configured model is another one, or the address is wrong.
        """

    @abstractmethod
    def poll(self) -> dict[str, Any]:
        """Return the lidar's present state, in the values of a `State`; raises DeviceError."""


class ControlWatch:
    """Thread that asks a lidar for its state every ten seconds, so that no packet waits for it.

    Args:
        control: of the lidar; only the thread uses it.
        poll_s: time between two requests.
    """

    def __init__(self, control: Control, poll_s: float = _POLL_S) -> None:
        self._control, self._poll_s = control, poll_s
        self._news: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._known: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, name="lidar-control", daemon=True)
        self._thread.start()

    def news(self) -> list[dict[str, Any]]:
        """Return the values that have changed since the last call, oldest first."""
        found = []
        while not self._news.empty():
            found.append(self._news.get())
        return found

    def close(self) -> None:
        """End the thread; a request that hangs ends at its timeout."""
        self._stop.set()
        self._thread.join(0.1)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                state = self._control.poll()
            except (DeviceError, SourceError) as error:
                state = {"control": str(error)}
            else:
                state["control"] = "answers"
            changed = {k: v for k, v in state.items() if self._known.get(k) != v}
            if changed:
                self._known |= changed
                self._news.put(changed)
            self._stop.wait(self._poll_s)


def choose_destination(wanted: str | None, present: str, here: str) -> str:
    """Return where a lidar is to send its packets.

    Args:
        wanted: as configured; None: this machine, unless this machine receives them already, as
            one of a group, or of all in the network.
        present: as the lidar has it.
        here: this machine's address in the lidar's network.
    """
    if wanted is not None:
        return wanted
    return present if present == _BROADCAST or is_multicast(present) else here


def parse_ipv4(text: str, name: str) -> bytes:
    """Return the bytes of an IPv4 address.

    Raises:
        DeviceError: the text is no address; begins with `name`.
    """
    try:
        return ipaddress.IPv4Address(text).packed
    except ValueError:
        raise DeviceError(f"{name}: {text!r} is no IPv4 address") from None
