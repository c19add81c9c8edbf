"""What the report of a session costs: its time, its memory, its size.

``python -m benchmarks.session_report [--minutes 20,60] [--folder DIR]``.

A session of each length is made by the session's own writer (`tests.report.hour`), and a report of
it in a process of its own.  Memory that grows with a session shows in the row of lengths.  See
docs/report.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recorder.contract.texts import human_bytes
from recorder.session.summary import folder_bytes
from tests.report.hour import long_session

# What the kernel tells of a child's memory begins with its parent's: the child has to say.
_MEASURED = """
import sys, time
begin = time.time()
from pathlib import Path
from recorder.report import write_report
write_report(Path(sys.argv[1]))
status = Path("/proc/self/status").read_text()
peak_kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
print(f"{time.time() - begin:.2f} {time.process_time():.2f} {int(peak_kb) / 1e3:.0f}")
"""
_HEADS = ("minutes", "session", "made in", "wall s", "CPU s", "MB", "report")


def main() -> None:
    """Make the sessions and their reports, and print a row for each."""
    parser = argparse.ArgumentParser(description="Measure what reports of sessions cost.")
    parser.add_argument("--minutes", default="20,60", help="lengths of the sessions")
    parser.add_argument("--folder", type=Path, help="where the sessions go (default: a new folder)")
    args = parser.parse_args()
    print("".join(f"{head:>10}" for head in _HEADS))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for minutes in map(int, args.minutes.split(",")):
            begin = time.monotonic()
            session = long_session(Path(folder) / str(minutes), 60 * minutes)
            made_s = time.monotonic() - begin
            command = [sys.executable, "-c", _MEASURED, str(session)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            wall, cpu, memory = done.stdout.split()
            report = human_bytes((session / "report.html").stat().st_size)
            size = human_bytes(folder_bytes(session))
            row = (minutes, size, f"{made_s:.1f} s", wall, cpu, memory, report)
            print("".join(f"{cell:>10}" for cell in row), flush=True)


if __name__ == "__main__":
    main()
