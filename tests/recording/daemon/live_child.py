"""Stands in for the live process: does what its standard input says, and reports what it is."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

request = json.load(sys.stdin)
stubborn = request.get("stubborn", False)
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:  # waits below: a handler might run just before the pause, which then never ends
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
oom = int(Path("/proc/self/oom_score_adj").read_text())
facts = {"nice": os.nice(0), "oom": oom, "policy": os.sched_getscheduler(0)}
print(json.dumps(facts | {"socket": request["socket"]}), file=sys.stderr, flush=True)
print(*request.get("lines", ()), sep="\n", file=sys.stderr, flush=True)
if "code" in request:
    sys.exit(request["code"])
print("a line without an end", end="", file=sys.stderr, flush=True)
print(json.dumps({"event": "listening", "url": "http://127.0.0.1:1/"}), flush=True)
if stubborn:
    signal.pause()
signal.sigwait({signal.SIGTERM})
