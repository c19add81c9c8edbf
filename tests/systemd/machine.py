"""A machine that boots: the real systemd as PID 1 of namespaces of its own.

Nothing outside is touched: /etc is a copy, /run, /tmp, /var/tmp, /var/lib, /opt and /dev/shm (where
RemoveIPC= deletes what a service's user has) are fresh, and what is to outlast a reboot lies in a
folder of the test's.  Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorder.common.files import Closeable
from tests.support.waiting import PATIENCE_S, wait_until

PROJECT = Path(__file__).resolve().parents[2]
SYSTEMD = Path("/lib/systemd/systemd")
_UNSHARE = ("unshare", "--fork", "--pid", "--mount-proc", "--mount", "--cgroup")

_BOOT = """\
set -e
mount --make-rprivate /
mkdir -p {work}/boot
echo {boot_id} > {work}/boot/boot_id
mount --bind {work}/boot/boot_id /proc/sys/kernel/random/boot_id
mount -t tmpfs tmpfs /run
mkdir -p /run/project /run/base /run/copy/etc /run/systemd/system /run/udev
mount --bind {project} /run/project
mount --bind {base} /run/base
cp -a /etc/. /run/copy/etc/
rm -f /run/copy/etc/machine-id /run/copy/etc/resolv.conf
cp {work}/machine-id /run/copy/etc/machine-id
mount --bind /run/copy/etc /etc
mkdir -p {work}/state /run/keep
mount --bind {work} /run/keep
mount -t tmpfs tmpfs /var/lib
mkdir -p /var/lib/recorder
mount --bind {work}/state /var/lib/recorder
mount -t tmpfs tmpfs /opt
mount -t tmpfs tmpfs /var/tmp
mkdir -p /opt/recorder/bin /etc/recorder
cat > /opt/recorder/bin/recorder <<'END'
#!/bin/sh
export PYTHONPATH=/run/project:{site}
export LD_LIBRARY_PATH=/run/base/lib  # the unit hides homes, where Python's own may lie
exec /run/base/bin/python3 -m recorder "$@"
END
chmod 755 /opt/recorder/bin/recorder
cp /run/keep/recorder.yaml /etc/recorder/recorder.yaml
cp /run/project/systemd/*.service /run/systemd/system/
mkdir -p /run/systemd/system/recorder.service.d
cp /run/keep/drop-in.conf /run/systemd/system/recorder.service.d/test.conf
printf '[Unit]\\nDescription=test\\n' > /run/systemd/system/test.target
mount -t tmpfs tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
systemd-sysusers /run/project/systemd/recorder.sysusers
systemd-tmpfiles --create /run/project/systemd/recorder.tmpfiles
chgrp recorder /etc/recorder/recorder.yaml
exec {systemd} --system --unit=test.target --log-target=console --show-status=no
"""


def why_not() -> str | None:
    """Why no machine can be booted here; None where one can."""
    if os.geteuid() != 0:
        return "booting systemd needs root"
    for program in ("unshare", "nsenter", "systemd-sysusers", "systemd-tmpfiles"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not SYSTEMD.exists():
        return f"there is no {SYSTEMD}"
    tried = subprocess.run(
        [*_UNSHARE, "true"],
        capture_output=True,
        check=False,
    )
    if tried.returncode:
        return f"no namespaces: {tried.stderr.decode().strip()}"
    return None


class Machine(Closeable):
    """A machine with the recorder's units installed, that can be powered off and booted again.

    Args:
        work: a folder for its state, which outlasts a reboot.
        config: text of /etc/recorder/recorder.yaml.
        drop_in: of recorder.service.
    """

    def __init__(self, work: Path, config: str, drop_in: str = "") -> None:
        self.work = work
        (work / "recorder.yaml").write_text(config)
        (work / "drop-in.conf").write_text(drop_in)
        (work / "machine-id").write_text(uuid.uuid4().hex + "\n")
        (work / "state").mkdir()
        work.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._boots = 0

    def boot(self) -> None:
        """Power on; returns when systemd answers."""
        self._boots += 1
        site = Path(sysconfig.get_paths()["purelib"])
        site = Path("/run/project") / site.relative_to(PROJECT) if PROJECT in site.parents else site
        script = _BOOT.format(
            work=self.work,
            boot_id=uuid.uuid4(),
            project=PROJECT,
            base=sys.base_prefix,
            site=site,
            systemd=SYSTEMD,
        )
        console = (self.work / f"console-{self._boots}").open("wb")
        self._process = subprocess.Popen(
            [*_UNSHARE, "--kill-child", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
        )
        console.close()
        self.until(self._is_up, "systemd answers")

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            text = (self.work / f"console-{self._boots}").read_text(errors="replace")
            raise AssertionError(f"the machine did not boot: {text[-2000:]}")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        pids = children.read_text().split()
        if not pids or Path(f"/proc/{pids[0]}/comm").read_text() != "systemd\n":
            return False
        self._pid = int(pids[0])
        return self.try_run("systemctl", "is-system-running").stdout.strip() in (
            "running",
            "degraded",
        )

    def power_off(self) -> None:
        """Cut the power: every process is gone at once, nothing is told."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid or self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
            self._process = None

    close = power_off

    def try_run(self, *command: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine."""
        enter = ["nsenter", "-t", str(self._pid), "-a"]
        if user is not None:
            enter += ["runuser", "-u", user, "--"]
        return subprocess.run(
            [*enter, *command], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    def run(self, *command: str, user: str | None = None, code: int = 0) -> str:
        """Run a command on the machine that has to end with an exit code; its output."""
        done = self.try_run(*command, user=user)
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}\n{self.journal()}"
        return done.stdout

    def recorder(self, *arguments: str, user: str | None = None, code: int = 0) -> dict[str, Any]:
        """The answer of the command line, as JSON."""
        command = ("/opt/recorder/bin/recorder", *arguments, "--format", "json")
        text = self.run(*command, user=user, code=code)
        answer: dict[str, Any] = json.loads(text)
        return answer

    def show(self, name: str) -> str:
        """A property of recorder.service."""
        return self.run("systemctl", "show", "recorder", f"--property={name}", "--value").strip()

    def journal(self) -> str:
        """What the service has said."""
        return self.try_run("journalctl", "-u", "recorder", "--no-pager", "-o", "cat").stdout

    def processes(self) -> dict[str, int]:
        """The service's processes by what they are (``daemon``, ``writer``, names of drivers).

        Process ids are those of the machine around this one.
        """
        found: dict[str, int] = {}
        groups = Path(f"/proc/{self._pid}/root/sys/fs/cgroup")
        for path in groups.glob("**/recorder.service/cgroup.procs"):
            for pid in map(int, path.read_text().split()):
                with contextlib.suppress(OSError):  # it may just have ended
                    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                    module = command[command.index("-m") + 1] if "-m" in command else ""
                    name = module.rpartition(".")[2]
                    found["daemon" if name == "recorder" else name] = pid
        return found

    def until(self, condition: Callable[[], Any], what: str) -> None:
        wait_until(lambda: f"{what}\n{self.journal() if self._pid else ''}", condition)
