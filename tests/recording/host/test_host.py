"""The machine around the daemon, as its files and answers say it is."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from recorder.recording import preflight
from recorder.recording.daemon.daemon import SystemdNotify
from recorder.recording.host.clocks import (
    ClockRecord,
    clock_state,
    is_synchronized,
    kernel_clock,
    ptp_clocks,
    pulses,
    summary,
    time_daemon,
)
from recorder.recording.host.disk import file_system, measure

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 8:17 / /media/stick rw,relatime shared:9 - exfat /dev/sdb1 rw,uid=1000
31 22 0:40 / /mnt/with\\040blank rw shared:7 - nfs4 server:/export rw
32 22 0:41 / /media/stick rw shared:9 - ext4 /dev/sdc1 rw
"""
CHRONY = (
    "C0A80001,192.168.0.1,2,1700000000.123,-0.000012345,0.000003,0.000021,-7.25,0.001,0.02,"
    "0.0005,0.00011,64.2,Normal\n"
)
NTPD = "associd=0 status=0615 leap_none,\nrefid=10.0.0.1, stratum=3, offset=-0.25, " + (
    "rootdelay=1.5, rootdisp=2.25\n"
)


@pytest.fixture
def manager(tmp_path: Path) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(60)
        yield end


def test_the_service_manager_hears_everything(manager: Any, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
    notify = SystemdNotify(environment)
    assert notify.watchdog_s == 30
    notify.ready()
    notify.status("recording\nx")
    notify.watchdog()
    notify.stopping()
    heard = [manager.recv(1000).decode() for _ in range(4)]
    assert heard == ["READY=1", "STATUS=recording x", "WATCHDOG=1", "STOPPING=1"]


def test_a_watchdog_of_another_process_is_not_fed(manager: Any, tmp_path: Path) -> None:
    notify = SystemdNotify(
        {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "1000000",
            "WATCHDOG_PID": str(os.getpid() + 1),
        }
    )
    notify.watchdog()
    notify.ready()
    assert notify.watchdog_s is None and manager.recv(1000) == b"READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_without_a_service_manager_nothing_happens(environment: dict[str, str]) -> None:
    notify = SystemdNotify(environment)
    notify.ready()
    notify.stopping()
    assert notify.watchdog_s is None


def test_an_abstract_address() -> None:
    name = f"recorder-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind("\0" + name)
        end.settimeout(60)
        SystemdNotify({"NOTIFY_SOCKET": "@" + name}).ready()
        assert end.recv(100) == b"READY=1"


def test_the_file_system_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setattr(Path, "resolve", lambda self: self)

    def kind(path: str) -> str:
        found = file_system(Path(path), mounts)
        assert found is not None
        return found.kind

    assert kind("/data/sessions") == "ext4"
    assert kind("/media/stick/sessions") == "ext4", "the later mount lies over the earlier one"
    network = file_system(Path("/mnt/with blank/x"), mounts)
    assert network is not None and network.warning is not None and "network" in network.warning
    mounts.write_text(MOUNTS.rpartition("32 22")[0])
    stick = file_system(Path("/media/stick"), mounts)
    assert stick is not None and stick.mount_point == Path("/media/stick")
    assert stick.warning is not None and "no journal" in stick.warning
    assert file_system(Path("/media/stick2"), mounts).warning is None  # type: ignore[union-attr]


def test_the_real_mounts_hold_this_folder(tmp_path: Path) -> None:
    found = file_system(tmp_path / "not" / "there" / "yet")
    assert found is not None and found.mount_point in [tmp_path, *tmp_path.parents]


def test_a_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    speed = measure(tmp_path, seconds=0.01, most_bytes=8 << 20)
    assert speed.bytes_per_second > 0 and 1 <= speed.syncs <= 2 and speed.sync_p99_s > 0
    assert list(tmp_path.iterdir()) == []


def test_a_receive_buffer_that_the_kernel_caps(tmp_path: Path) -> None:
    limit = tmp_path / "rmem_max"
    limit.write_text("212992\n")
    warning = preflight.receive_buffer_warning({"udp", "sim"}, limit=limit)
    assert warning is not None and "net.core.rmem_max is 212992" in warning
    assert preflight.receive_buffer_warning({"sim", "serial"}, limit=limit) is None
    limit.write_text("67108864\n")
    assert preflight.receive_buffer_warning({"ouster"}, limit=limit) is None


def test_rights_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    problem = preflight.device_problem("serial", "/dev/null")
    assert problem is not None and "/dev/null may not be opened" in problem
    assert preflight.device_problem("serial", "/dev/not-there") is None
    assert preflight.device_problem("sim", "/dev/null") is None


def answers(**known: str) -> Any:
    return lambda command: known.get(command[0])


def test_what_time_daemons_say() -> None:
    chrony = time_daemon(answers(chronyc=CHRONY))
    assert chrony is not None
    assert (chrony["name"], chrony["reference"], chrony["stratum"]) == ("chrony", "192.168.0.1", 2)
    assert (chrony["offset_ns"], chrony["root_dispersion_ns"]) == (-12345, 110000)
    ntpd = time_daemon(answers(chronyc="nonsense", ntpq=NTPD))
    assert ntpd is not None and (ntpd["name"], ntpd["offset_ns"]) == ("ntpd", -250000)
    assert (ntpd["stratum"], ntpd["reference"]) == (3, "10.0.0.1")
    assert (ntpd["root_delay_ns"], ntpd["root_dispersion_ns"]) == (1_500_000, 2_250_000)
    assert (chrony["last_offset_ns"], chrony["rms_offset_ns"]) == (3000, 21_000)
    assert (chrony["root_delay_ns"], chrony["leap"]) == (500_000, "Normal")
    assert time_daemon(answers(chronyc=CHRONY.rpartition(",")[0])) is None
    shown = "NTP=yes\nNTPSynchronized=no\n"
    assert time_daemon(answers(timedatectl=shown)) == {
        "name": "systemd-timesyncd",
        "synchronized": False,
    }
    assert time_daemon(answers(timedatectl="NTP=no\n")) is None
    assert time_daemon(answers()) is None


def test_the_kernels_clock() -> None:
    clock = kernel_clock()
    assert clock is not None
    assert isinstance(clock["synchronized"], bool) and clock["max_error_ns"] >= 0


class Kernel:
    """adjtimex(2) of a kernel, which fills ``struct timex`` as its header lays it out on 64 bits.

    Held against the layout by its own: a field that is missing moves all behind it.
    """

    LAYOUT = struct.Struct("<I4x 4q i4x 3q 2q 3q i4x 5q i 11i")

    def __init__(self, state: int = 0, status: int = 0, tai: int = 37) -> None:
        self._state, self._status, self._tai = state, status, tai

    def adjtimex(self, buffer: Any) -> int:
        fields = [0, -1234, 12 << 16, 5678, 91, self._status, 2, 1, 32_768_000]
        fields += [1_700_000_000, 999_999, 10_000, 7, 8, 9, 10, 11, 12, 13, 14, self._tai]
        packed = self.LAYOUT.pack(*fields, *[0] * 11)
        target = buffer._obj
        assert len(packed) == 208 == ctypes.sizeof(target)
        ctypes.memmove(ctypes.addressof(target), packed, len(packed))
        return self._state


@pytest.mark.parametrize(("status", "offset_ns"), [(0, -1_234_000), (0x2000, -1234)])
def test_the_kernels_clock_in_its_units(
    monkeypatch: pytest.MonkeyPatch, status: int, offset_ns: int
) -> None:
    """adjtimex(2): the offset is in microseconds, or in nanoseconds where STA_NANO is set; errors
    always are in microseconds, the frequency in 2**-16 ppm."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Kernel(status=status))
    assert kernel_clock() == {
        "synchronized": True,
        "offset_ns": offset_ns,
        "max_error_ns": 5_678_000,
        "estimated_error_ns": 91_000,
        "frequency_ppm": 12.0,
        "tai_offset_s": 37,
    }


@pytest.mark.parametrize(
    ("state", "status", "synchronized"),
    [(0, 0, True), (5, 0, False), (0, 0x40, False), (5, 0x2040, False), (1, 0x2001, True)],
)
def test_whether_the_kernels_clock_is_synchronized(
    monkeypatch: pytest.MonkeyPatch, state: int, status: int, synchronized: bool
) -> None:
    """TIME_ERROR or STA_UNSYNC says that it is not; a leap second to come says nothing."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Kernel(state, status))
    clock = kernel_clock()
    assert clock is not None and clock["synchronized"] is synchronized
    assert is_synchronized() is synchronized


def test_a_kernel_that_may_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Kernel(-1))
    assert kernel_clock() is None and not is_synchronized()


def test_ptp_clocks_are_listed_even_where_they_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "ptp97").mkdir()
    (tmp_path / "ptp97" / "clock_name").write_text("mlx5_p2p\n")
    (clock,) = ptp_clocks(tmp_path)
    assert (clock["device"], clock["clock_name"]) == ("ptp97", "mlx5_p2p")
    assert clock["offset_ns"] is None and clock["problem"]


def test_a_clock_state_in_one_line() -> None:
    kernel_state = {"synchronized": True, "max_error_ns": 3_500_000}
    state = {"kernel": kernel_state, "daemon": {"name": "chrony", "reference": "GPS"}}
    assert summary(state) == "synchronized by chrony (GPS), within 3.5 ms at the most"
    assert summary({"kernel": {"synchronized": False}, "daemon": None}) == "not synchronized"
    known = {"kernel", "realtime_minus_monotonic_ns", "daemon", "ptp", "pps"}
    assert set(clock_state(answers())) == known


def test_every_state_of_the_clocks_is_recorded_and_each_change_is_reported() -> None:
    recorded: list[tuple[Any, ...]] = []
    reported: list[tuple[Any, ...]] = []
    state: dict[str, Any] = {"kernel": {"synchronized": False}, "daemon": None}
    record = ClockRecord(ask=lambda: state, every_s=60)

    def tick(session: str | None, at_s: float) -> None:
        def put(*event: Any, **values: Any) -> None:
            recorded.append((*event, values["detail"]))

        def report(level: str, *event: Any, **values: Any) -> None:
            reported.append((level, *event, values["detail"]))

        record.tick(session, round(at_s * 1e9), put, report)
        record.close()  # waits for the answer

    tick(None, 0)
    tick(None, 1)
    assert recorded == [] and record.last == state, "known, and in no session"
    for at_s in (1, 2, 30, 62, 63, 64):
        tick("a", at_s)
    assert recorded == [("clock", "", "state", "not synchronized")] * 2
    tick("b", 65)
    tick("b", 66)
    assert len(recorded) == 3 and reported == []
    good = "synchronized by chrony, within 2 ms at the most"
    kernel = {"synchronized": True, "max_error_ns": 2_000_000}
    for now, at_s in (
        ({"kernel": kernel, "daemon": {"name": "chrony"}}, 130),
        ({"kernel": {**kernel, "max_error_ns": 3_000_000}, "daemon": {"name": "chrony"}}, 200),
        ({"kernel": None, "daemon": None}, 270),
    ):
        state = now
        tick("b", at_s)
        tick("b", at_s + 1)
    assert reported == [
        ("info", "clock", "", "state", good),
        ("warning", "clock", "", "state", "the kernel's clock state is not known"),
    ]
    assert [text for *_, text in recorded[3:]] == [good.replace("2 ms", "3 ms")]


@pytest.mark.parametrize(
    ("text", "offset_ns", "pulse"),
    [
        ("1700000000.000012345#42\n", 12_345, 42),
        ("1699999999.999990000#41\n", -10_000, 41),
        ("1699999990.000000001#32\n", None, 32),  # ten seconds ago
        ("0.000000000#0\n", None, 0),  # no pulse yet
        ("1700000000.5#1\n", None, None),
        ("x\n", None, None),
        (None, None, None),
    ],
)
def test_pulses_are_the_hosts_clock_against_gps(
    tmp_path: Path, text: str | None, offset_ns: int | None, pulse: int | None
) -> None:
    (tmp_path / "pps0").mkdir()
    (tmp_path / "pps0" / "name").write_text("serial0\n")
    if text is not None:
        (tmp_path / "pps0" / "assert").write_text(text)
    found = pulses(tmp_path, lambda: 1_700_000_000_500_000_000)
    source = {"device": "pps0", "name": "serial0"}
    assert found == [{**source, "pulse": pulse, "offset_ns": offset_ns}]
    assert pulses(tmp_path / "none") == []
