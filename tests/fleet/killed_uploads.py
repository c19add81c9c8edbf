"""Encrypted uploads that are killed at their durable steps.

Arguments: SESSION URL RECIPIENT SEED.  Each try is a process that kills itself before or after one
of its syncs.  Prints as JSON how many were killed, and bytes that all of them sent.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from recorder.fleet import sealed_upload
from recorder.fleet.encryption import Recipients
from recorder.fleet.store import open_store
from recorder.fleet.uploading import upload_session

SEGMENT = 20_000


def attempt(session: Path, url: str, recipient: str, sent: Path, kill_at: float) -> None:
    sealed_upload.SEGMENT_BYTES = SEGMENT  # type: ignore[misc]
    done = 0.0

    def counted(real: Any) -> Any:
        def sync(fd: int) -> None:
            nonlocal done
            for step in (lambda: None, lambda: real(fd)):
                step()
                done += 0.5
                if done >= kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        return sync

    os.fsync, os.fdatasync = counted(os.fsync), counted(os.fdatasync)

    def pace(size: int) -> None:
        with sent.open("a") as file:
            file.write(f"{size}\n")

    upload_session(session, open_store(url), recipients=Recipients([recipient]), pace=pace)


def main(session: str, url: str, recipient: str, seed: str) -> None:
    dice, kills = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        sent = Path(folder) / "sent"
        while True:
            kill_at = dice.randrange(1, 60) / 2 if kills < 12 else 1e9
            if (pid := os.fork()) == 0:
                attempt(Path(session), url, recipient, sent, kill_at)
                os._exit(0)
            status = os.waitpid(pid, 0)[1]
            if status == 0:
                break
            assert os.WTERMSIG(status) == signal.SIGKILL, status
            kills += 1
        print(json.dumps({"kills": kills, "sent": sum(map(int, sent.read_text().split()))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
