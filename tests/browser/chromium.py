"""The Chromium of the system, which the tests of the dashboard drive.

``python -m tests.browser.chromium`` prints where it is; root of a system with apt installs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = f"no browser is installed ({', '.join(NAMES)}); install the system's package `chromium`"


def find() -> str | None:
    """Path of the browser; None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> None:
    """Install the system's package, if this process may."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in ("update", "install --yes --no-install-recommends chromium"):
        subprocess.run(["apt-get", "--quiet", "--quiet", *words.split()], env=quiet, check=False)


def main() -> None:
    """Find or install the browser; the tests skip where there is none."""
    if find() is None:
        install()
    print(find() or MISSING, file=sys.stdout if find() else sys.stderr)


if __name__ == "__main__":
    main()
