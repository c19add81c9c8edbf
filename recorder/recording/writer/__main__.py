"""Entry point of the writer: the supervisor runs ``python -m recorder.recording.writer``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from recorder.common.clock import SystemClock
from recorder.common.errors import RecorderError
from recorder.common.files import PosixDisk
from recorder.common.process_setup import die_with_parent, end_visibly, freeze_gc
from recorder.recording.writer.service import WriterService


def _end_with_thread(args: threading.ExceptHookArgs) -> None:
    """End the process if a bug ends a thread; the supervisor then starts another writer."""
    traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)
    sys.stderr.flush()
    os._exit(70)  # EX_SOFTWARE


def main() -> int:
    """Serve one run until the supervisor asks to quit or the parent process dies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bus", type=Path, required=True, help="the run's folder")
    parser.add_argument("--parent", type=int, required=True, help="process that it dies with")
    parser.add_argument("--buffer-mb", type=float, required=True, help="sum of the drivers' rings")
    parser.add_argument("--resume", type=Path, help="session to resume")
    args = parser.parse_args()
    die_with_parent(args.parent)
    end_visibly()
    threading.excepthook = _end_with_thread
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignore Ctrl-C: the supervisor handles it
    try:
        service = WriterService(
            args.bus, round(args.buffer_mb * 1e6), SystemClock(), PosixDisk(), args.resume
        )
        signal.signal(signal.SIGTERM, lambda *_: service.quit())
        freeze_gc()
        service.run()
    except RecorderError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
