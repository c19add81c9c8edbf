"""The units under a real systemd."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.systemd.machine import PROJECT, Machine, why_not

_SECURITY = ("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=25")
UNITS = PROJECT / "systemd"
_UNITS = (
    "recorder.service",
    "recorder-finalize.service",
    "recorder-upload.service",
    "recorder-upload.timer",
    "run-recorder_ring.mount",
)
CONFIG = """\
version: 1
session: {root: /var/lib/recorder/sessions, name: drive, autostart: AUTOSTART}
sensors:
  imu: {driver: xsens, source: "sim:", rate: 100}
  radar: {driver: mmwave, source: "sim:"}
storage: {min_free_gb: 0.01}
finalize: [l5kit]
live: {port: 0}
upload: {url: "file:///var/lib/recorder/store"}
"""

needs_systemd = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Any]:
    machines = []

    def make(autostart: bool = False, drop_in: str = "") -> Machine:
        config = CONFIG.replace("AUTOSTART", str(autostart).lower())
        machines.append(Machine(tmp_path, config, drop_in))
        machines[-1].boot()
        return machines[-1]

    yield make
    for one in machines:
        one.close()


def sessions(machine: Machine) -> dict[str, str]:
    """Sessions by name, with their states."""
    found = {}
    for path in (machine.work / "state/sessions").glob("*/_recorder/session.json"):
        found[path.parents[1].name] = json.loads(path.read_bytes())["state"]
    return found


def state(machine: Machine) -> str | None:
    """The daemon's; None where it does not serve yet."""
    done = machine.try_run("/opt/recorder/bin/recorder", "status", "--format", "json")
    return str(json.loads(done.stdout)["state"]) if done.returncode == 0 else None


def samples(machine: Machine) -> int:
    streams = machine.recorder("status")["sensors"]["imu"]["streams"]
    return int(streams["imu"]["samples"] or 0) if streams else 0


def grows(machine: Machine) -> None:
    before = samples(machine)
    machine.until(lambda: samples(machine) > before + 50, "samples come in")


def journal(machine: Machine, *options: str) -> str:
    """What the service logged, as journalctl selects it."""
    return machine.run("journalctl", "-u", "recorder", "-o", "cat", "--no-pager", *options)


def kill_one(machine: Machine, name: str) -> None:
    """SIGKILL one of the daemon's children, and wait for its successor."""
    pid = machine.processes()[name]
    os.kill(pid, signal.SIGKILL)
    machine.until(lambda: machine.processes().get(name, pid) != pid, f"another {name}")


@pytest.mark.skipif(not Path("/usr/bin/systemd-analyze").exists(), reason="no systemd-analyze")
def test_the_units_are_in_order(tmp_path: Path) -> None:
    """Verified as installed: the command stands where the units expect it."""
    for name in _UNITS:
        text = (UNITS / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/recorder/bin/recorder", "/bin/true"))
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@pytest.mark.skipif(not Path("/usr/bin/systemd-analyze").exists(), reason="no systemd-analyze")
@pytest.mark.parametrize("name", [name for name in _UNITS if name.endswith(".service")])
def test_the_units_are_hardened(name: str) -> None:
    rated = subprocess.run(
        [*_SECURITY, str(UNITS / name)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert rated.returncode == 0, rated.stdout[-300:]


@needs_systemd
@pytest.mark.campaign
def test_a_drive(machine: Any) -> None:
    """Ready, start, kills of each child, stop, archives, a clean end; another user is kept out."""
    m: Machine = machine()
    m.run("systemctl", "start", "recorder")
    assert m.show("ActiveState") == "active" and m.show("User") == "recorder"
    assert m.recorder("status")["state"] == "idle"
    assert (
        m.run("stat", "-c", "%a %U %G", "/run/recorder/control.sock") == "660 recorder recorder\n"
    )
    refused = m.try_run("/opt/recorder/bin/recorder", "status", user="nobody")
    assert refused.returncode == 1 and "ermission" in refused.stderr
    m.until(lambda: m.recorder("status")["live"]["url"], "the live process serves")
    with urllib.request.urlopen(m.recorder("status")["live"]["url"]) as page:
        assert page.status == 200

    reply = m.recorder("start", user="recorder")
    assert reply["state"] == "recording"
    grows(m)
    for name in ("xsens", "mmwave", "writer"):
        kill_one(m, name)
        grows(m)
    assert m.show("NRestarts") == "0"
    logged, warned = journal(m), journal(m, "-p", "warning")
    for text in ("imu: driver ended", "radar: lost", "writer ended with code -9"):
        assert text in warned
    assert "recording /var" in logged and "recording /var" not in warned
    reply = m.recorder("stop", code=3)  # with what the killed drivers lost
    assert reply["state"] == "idle"
    assert sessions(m) == {"drive": "clean"}
    archives = m.work / "state/sessions/drive/_archives"
    m.until(lambda: list(archives.glob("l5kit/*.zarr")), "packed")
    m.run("systemctl", "stop", "recorder")
    assert m.show("Result") == "success" and m.show("ActiveState") == "inactive"
    m.recorder("validate", "/var/lib/recorder/sessions/drive")


@needs_systemd
@pytest.mark.campaign
def test_a_writer_that_hangs_is_a_restart_by_the_watchdog(machine: Any) -> None:
    m: Machine = machine(drop_in="[Service]\nWatchdogSec=5\n")
    m.run("systemctl", "start", "recorder")
    m.recorder("start")
    grows(m)
    os.kill(m.processes()["writer"], signal.SIGSTOP)
    m.until(lambda: m.show("NRestarts") == "1", "the watchdog")
    m.until(lambda: state(m) == "recording", "recording again")
    grows(m)
    m.until(lambda: sessions(m)["drive"] == "recovered", "the first part is recovered")
    assert len(sessions(m)) == 2
    m.run("systemctl", "stop", "recorder")
    assert sorted(sessions(m).values()) == ["clean", "recovered"]


@needs_systemd
@pytest.mark.campaign
def test_after_a_power_cut_it_records_on_and_packs_what_was_left(machine: Any) -> None:
    m: Machine = machine(autostart=True)
    m.run("systemctl", "start", "recorder")
    m.until(lambda: state(m) == "recording", "recording by itself")
    grows(m)
    m.power_off()
    assert sessions(m) == {"drive": "recording"}
    m.boot()
    m.run("systemctl", "start", "recorder")
    m.until(lambda: state(m) == "recording", "recording again")
    grows(m)
    m.until(lambda: sessions(m)["drive"] == "recovered", "recovered")
    archives = m.work / "state/sessions/drive/_archives"
    m.until(lambda: list(archives.glob("l5kit/*.zarr")), "the recovered session is packed")
    m.run("systemctl", "stop", "recorder")
    assert m.show("Result") == "success"
    assert len(sessions(m)) == 2 and "recording" not in sessions(m).values()


@needs_systemd
@pytest.mark.campaign
def test_a_parked_vehicle_packs_what_was_left(machine: Any) -> None:
    """A stop with a driver that hangs, a power cut, and the finalizer's own unit after it."""
    m: Machine = machine()
    m.run("systemctl", "start", "recorder")
    m.recorder("start")
    grows(m)
    os.kill(m.processes()["xsens"], signal.SIGSTOP)
    m.run("systemctl", "stop", "recorder")
    assert m.show("Result") == "success" and sessions(m) == {"drive": "clean"}
    m.run("systemctl", "start", "recorder")  # nobody had said stop
    m.until(lambda: state(m) == "recording", "recording on")
    grows(m)
    refused = m.try_run("systemctl", "start", "recorder-finalize")
    said = m.try_run("journalctl", "-u", "recorder-finalize", "-o", "cat", "--no-pager").stdout
    assert refused.returncode != 0 and "another daemon records there" in said
    m.power_off()
    m.boot()
    m.run("systemctl", "start", "recorder-finalize")
    found = sessions(m)
    assert sorted(found) == ["drive", "drive_p002"]
    assert found["drive_p002"] == "recovered"
    for name in found:
        folder = m.work / "state/sessions" / name
        assert list(folder.glob("_archives/l5kit/*.zarr")), name
        assert (folder / "_recorder/checksums.csv").exists()
    assert m.try_run("systemctl", "is-active", "recorder").stdout.strip() == "inactive"
    m.run("install", "-d", "-o", "recorder", "-g", "recorder", "/var/lib/recorder/store")
    m.run("systemctl", "start", "recorder-upload")
    manifests = m.work / "state/store/_manifests"
    assert sorted(path.name for path in manifests.iterdir()) == ["drive.json", "drive_p002.json"]
    assert "640 root recorder" in m.run("stat", "-c", "%a %U %G", "/etc/recorder/recorder.yaml")


SYSUSERS = shutil.which("systemd-sysusers")
TMPFILES = shutil.which("systemd-tmpfiles")


@pytest.mark.skipif(SYSUSERS is None or TMPFILES is None, reason="no systemd-sysusers, -tmpfiles")
def test_user_and_folders_are_made_in_an_image(tmp_path: Path) -> None:
    """As an image builder does it, with what `make install DESTDIR` puts there."""
    etc = tmp_path / "etc"
    for kind in ("sysusers", "tmpfiles"):
        (etc / f"{kind}.d").mkdir(parents=True)
        shutil.copy(UNITS / f"recorder.{kind}", etc / f"{kind}.d/recorder.conf")
    (etc / "group").write_text("root:x:0:\ndialout:x:20:\nvideo:x:44:\n")
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    for command in ([SYSUSERS], [TMPFILES, "--create"]):
        done = subprocess.run(
            [*map(str, command), f"--root={tmp_path}", "recorder.conf"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and os.geteuid() != 0:
            pytest.skip(f"needs root: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
    groups = dict(line.split(":x:", 1) for line in (etc / "group").read_text().splitlines())
    assert groups["dialout"].endswith(":recorder") and groups["video"].endswith(":recorder")
    assert "recorder:x:" in (etc / "passwd").read_text()
    assert (tmp_path / "var/lib/recorder/sessions").stat().st_mode & 0o777 == 0o750


@pytest.mark.skipif(shutil.which("udevadm") is None, reason="no udevadm")
def test_the_udev_rules_are_in_order() -> None:
    rules = str(UNITS / "60-recorder.rules")
    done = subprocess.run(["udevadm", "verify", rules], capture_output=True, text=True, check=False)
    if "Unknown command" in done.stderr:
        pytest.skip("this udevadm cannot verify")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("subsystem", "attribute", "variable"),
    [("usb", "ATTR", "ID_MM_DEVICE_IGNORE"), ("tty", "ATTRS", "ID_MM_PORT_IGNORE")],
)
def test_modem_manager_leaves_every_serial_port_alone(
    subsystem: str, attribute: str, variable: str
) -> None:
    def usb_ids(line: str) -> set[tuple[str, str]]:
        """The vendors and the product that a rule is for."""
        vendors = re.search(r'idVendor\}=="([^"]*)"', line)
        product = re.search(r'idProduct\}=="([^"]*)"', line)
        found = vendors.group(1).split("|") if vendors else []
        return {(vendor, product.group(1) if product else "") for vendor in found}

    rules = (UNITS / "60-recorder.rules").read_text().splitlines()
    ports = [r for r in rules if r.startswith('SUBSYSTEM=="tty"') and "SYMLINK" in r]
    ignoring = [
        r
        for r in rules
        if r.startswith(f'SUBSYSTEM=="{subsystem}"') and f'ENV{{{variable}}}="1"' in r
    ]
    assert len(ports) >= 4 and all(f"{attribute}{{idVendor}}" in r for r in ignoring)
    ignored = set().union(*map(usb_ids, ignoring))
    assert {usb for rule in ports for usb in usb_ids(rule)} <= ignored


def test_the_kernel_knows_every_setting() -> None:
    """sysctl.d(5) drops what is mistyped in silence."""
    for line in (UNITS / "60-recorder.conf").read_text().splitlines():
        if line and not line.startswith("#"):
            key, value = (part.strip() for part in line.split("="))
            assert value.isdigit() and int(value) > 0
            assert Path("/proc/sys", *key.split(".")).exists() or key.startswith("net."), key
