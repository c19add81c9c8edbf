"""Configuration of an Ouster: changed settings, reinitialization, refused settings.

After a reinitialization is requested, the sensor answers RUNNING with its old settings for a while.
Only its new initialization id shows that it has restarted.
"""

from __future__ import annotations

import ipaddress
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Final

from drivers.kit.udp_socket import is_multicast
from drivers.ouster.http_api import OusterHttp
from recorder.common.errors import DeviceError

_STARTING: Final = ("INITIALIZING", "WARMUP", "UPDATING", "RESTARTING")
_POLL_S: Final = 0.2
_POLLING_S: Final = 2.5  # longest time that one call of `bring_up` polls a starting sensor
_RESTART_S: Final = 60.0  # a reinitialization takes half a minute
_LINGER_S: Final = 10.0  # longer than from its request to its start
_SETTLE_S: Final = 3.0  # after a restart, answers may be old for this time
_TRIES: Final = 2  # reinitializations with a setting until the setting counts as refused
_AUTO: Final = "@auto"
_ADDRESSES: Final = ("udp_dest", "udp_dest_zm", "udp_ip")
_NEVER: Final = object()


@dataclass(slots=True)
class Wanted:
    """The wanted settings of a sensor, and the state of their configuration.

    Attributes:
        settings: by Ouster's names; other settings are not changed.
        udp_dest: destination of the packets; None or ``@auto``: this machine, unless the present
            destination is a multicast group.
        persist: store the settings in the sensor after they were changed.
        refused: settings that the sensor did not accept since its last restart, with the sensor's
            own values.
        stored: whether changed settings are stored in the sensor; None: nothing was changed.
    """

    settings: Mapping[str, Any]
    udp_dest: str | None = None
    persist: bool = False
    refused: dict[str, Any] = field(default_factory=dict)
    stored: bool | None = None
    _init_id: Any = None
    _asked_id: Any = None  # initialization id at the last request to reinitialize
    _asked_s: float = 0.0
    _until_s: float | None = None  # end of the wait for that request's effect; None: no request
    _restarted: bool = False  # since that request
    _tries: int = 0

    def changes(self, active: Mapping[str, Any], here: str) -> dict[str, Any]:
        """Return the settings that differ, except refused ones; `here` is this machine's address.

        A link-local address of IPv6 is valid on one link only, whose name (``%eth0``) is another on
        the sensor: the sensor itself inserts the address (``@auto``).
        """
        wanted = dict(self.settings)
        destination = str(active.get("udp_dest") or "")
        if self.udp_dest not in (None, _AUTO):
            wanted["udp_dest"] = self.udp_dest
        elif not is_same_address(destination, here) and not is_multicast(destination):
            wanted["udp_dest"] = _AUTO if "%" in here else here
        if "operating_mode" in active:
            wanted.setdefault("operating_mode", "NORMAL")
        if "auto_start_flag" in active:
            wanted.setdefault("auto_start_flag", 1)
        if "udp_ip" in active and "udp_dest" in wanted:  # the name in older firmware
            wanted["udp_ip"] = wanted["udp_dest"]
        if active.get("udp_dest_zm") and "udp_dest" in wanted:
            wanted.setdefault("udp_dest_zm", wanted["udp_dest"])
        return {
            name: value
            for name, value in wanted.items()
            if not _is_equal(name, value, has := active.get(name))
            and self.refused.get(name, _NEVER) != has
        }

    def next_changes(
        self, init_id: Any, active: Mapping[str, Any], here: str, now_s: float
    ) -> dict[str, Any] | None:
        """Return the settings to set now, {} if none is left, None to ask the sensor again later.

        A setting is refused after `_TRIES` reinitializations with it.  A restart of the sensor
        forgets refusals.

        Args:
            init_id: the sensor's initialization id; None where the firmware has none.
            active: its settings.
            here: this machine's address in the sensor's network.
            now_s: of a monotonic clock.
        """
        if init_id != self._init_id:
            self._init_id, self.refused = init_id, {}
        left = self.changes(active, here)
        if self._until_s is not None:
            if init_id != self._asked_id and not self._restarted:
                self._restarted, self._until_s = True, now_s + _SETTLE_S
            known = self._restarted or init_id is None or now_s >= self._asked_s + _LINGER_S
            in_effect = not left and known
            if not in_effect and now_s < self._until_s:
                return None
            self._until_s = None
            if left and self._tries >= _TRIES:
                self.refused.update({name: active.get(name) for name in left})
                left = {}
        if not left:
            self._tries = 0
        return left

    def record_request(self, now_s: float) -> None:
        """Record that the sensor accepted the request to reinitialize with the changes."""
        self._asked_id, self._asked_s, self._restarted = self._init_id, now_s, False
        self._until_s = now_s + _RESTART_S
        self._tries += 1
        self.stored = False


def _is_equal(name: str, value: Any, has: Any) -> bool:
    if name in _ADDRESSES and isinstance(value, str) and isinstance(has, str):
        return is_same_address(value, has)
    return bool(value == has)


def is_same_address(one: str, other: str) -> bool:
    """Return whether two addresses are equal; the names of a link on two machines may differ."""
    return bool(_strip_scope(one) == _strip_scope(other))


def _strip_scope(address: str) -> Any:
    text = address.partition("%")[0]
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return text


def bring_up(
    sensor: OusterHttp, wanted: Wanted, deadline_s: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configure the sensor and wait until it runs; return its settings and sensor_info.

    The sensor is reinitialized only where its settings differ.  A call continues where the call
    before stopped, by the state in `wanted`.

    Args:
        deadline_s: time.monotonic() until which to wait for the sensor to run.

    Raises:
        DeviceError: the sensor does not answer, rejects the settings, or is not running yet; it
            continues to start.
    """
    while True:
        info = _await_running(sensor, deadline_s)
        active = sensor.settings()
        init_id, here = info.get("initialization_id"), sensor.local_address
        changes = wanted.next_changes(init_id, active, here, time.monotonic())
        if changes:
            sensor.configure({**active, **changes})
            wanted.record_request(time.monotonic())
        elif changes is not None:
            break
        _wait(deadline_s, "the sensor has not restarted with its new settings yet")
    if info.get("status") != "RUNNING":
        raise DeviceError(f"the sensor reports the status {info.get('status')!r}")
    if wanted.persist and wanted.stored is False:
        try:
            sensor.save()
            wanted.stored = True
        except DeviceError as error:  # the sensor runs: record; the next call tries again
            text = f"the sensor's settings are not stored, a power cycle loses them: {error}"
            print(text, file=sys.stderr, flush=True)
    return active, info


def _await_running(sensor: OusterHttp, deadline_s: float) -> dict[str, Any]:
    """Return sensor_info once the sensor runs, stands by or is unconfigured."""
    while True:
        info = sensor.sensor_info()
        status = str(info.get("status"))
        if status in ("RUNNING", "STANDBY", "UNCONFIGURED"):
            return info
        if status not in _STARTING:
            raise DeviceError(f"the sensor reports the status {status!r}")
        _wait(deadline_s, f"the sensor is starting ({status})")


def _wait(deadline_s: float, reason: str) -> None:
    if time.monotonic() + _POLL_S > deadline_s:
        raise DeviceError(reason)
    time.sleep(_POLL_S)


class Setup:
    """Threads that query a sensor, since an answer may take longer than `open` may wait.

    >>> setup = Setup("192.168.1.20", Wanted({"lidar_mode": "1024x10"}))
    >>> settings, info = setup.bring_up(3.5)     # DeviceError until the sensor runs; call again
    >>> text = setup.metadata(1.0)

    A call that has not ended when its caller stops waiting continues, and the next call of the same
    kind returns its result.
    """

    def __init__(self, host: str, wanted: Wanted) -> None:
        self.http, self.wanted = OusterHttp(host), wanted
        self._pending: dict[str, Future[Any]] = {}

    def bring_up(self, wait_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return `bring_up`'s settings and sensor_info; DeviceError after `wait_s`."""
        return self._result("settings", self._bring_up, wait_s)  # type: ignore[no-any-return]

    def metadata(self, wait_s: float) -> str:
        """Return the sensor's metadata as JSON; DeviceError after `wait_s`."""
        return str(self._result("metadata", self.http.metadata, wait_s))

    def _bring_up(self) -> Any:
        return bring_up(self.http, self.wanted, time.monotonic() + _POLLING_S)

    def _result(self, kind: str, call: Callable[[], Any], wait_s: float) -> Any:
        if (future := self._pending.get(kind)) is None:
            self._pending[kind] = future = _start(call)
        wait([future], wait_s)
        if not future.done():
            raise DeviceError(f"HTTP API: the sensor has not answered yet ({kind})")
        del self._pending[kind]
        return future.result()


def _start(call: Callable[[], Any]) -> Future[Any]:
    """Start a call in a thread that does not keep the process from ending."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised where the result is requested
            future.set_exception(error)

    threading.Thread(target=run, name="ouster-setup", daemon=True).start()
    return future
