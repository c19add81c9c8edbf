"""`make install` takes a Python that the service can read; `uninstall` disables every unit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
MAKEFILE = (PROJECT / "Makefile").read_text()


def python_in(prefix: str, folder: Path) -> Path:
    """A Python that says that it is installed in `prefix`."""
    script = folder / "python3"
    code = f"import sys; sys.base_prefix = {prefix!r}; exec(sys.argv[1])"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$2"\n')
    script.chmod(0o755)
    return script


def choose(python: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "-s", "service-python", f"PYTHON={python}"]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_a_python_of_all_users_is_taken(tmp_path: Path) -> None:
    python = python_in("/usr", tmp_path)
    assert choose(python).stdout == f"{python}\n"


def test_a_python_in_a_home_is_not(tmp_path: Path) -> None:
    """systemd.exec(5): ProtectHome= hides /home, /root and /run/user."""
    for prefix in ("/home/me/.pyenv/versions/3.12", "/root/miniconda3", "/run/user/1000/py"):
        python = python_in(prefix, tmp_path)
        done = choose(python)
        if done.returncode:  # no other Python is here
            assert f"{python} lies in a home" in done.stderr and done.stdout == ""
        else:
            assert done.stdout.startswith(("/usr/bin/", "/usr/local/bin/"))


def test_every_unit_that_can_be_enabled_is_disabled() -> None:
    (listed,) = re.findall(r"^ENABLED := (.*)$", MAKEFILE, re.MULTILINE)
    units = [p for p in (PROJECT / "systemd").iterdir() if "[Install]" in p.read_text()]
    assert set(listed.split()) == {unit.name for unit in units}
    assert "systemctl disable --now $(ENABLED)" in MAKEFILE
