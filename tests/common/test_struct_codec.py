"""Types that threads decode for the first time, at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import recorder
from tests.campaigns import Selector

FOLDER = Path(recorder.__file__).parent
AT_ONCE = """
import sys, threading
from recorder.config.driver_schema import DriverSchema

wire = {"options": {"a": {"type": "int", "default": 1, "description": "x"}}, "schemes": {}}
sys.setswitchinterval(1e-6)
together = threading.Barrier(6)
def work():
    together.wait()
    try:
        DriverSchema.from_wire(wire)
    except Exception:
        pass
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_that_meet_a_type_at_once_do_not_end_the_process(select: Selector) -> None:
    """Without `ready` about a third of these processes ended with SIGSEGV (msgspec 0.22)."""
    for _ in select(range(12), 4):
        ended = subprocess.run([sys.executable, "-c", AT_ONCE], timeout=60, check=False)
        assert ended.returncode == 0


@pytest.mark.parametrize("folder", [FOLDER, FOLDER.parent / "drivers"], ids=lambda path: path.name)
def test_every_type_that_is_decoded_is_made_ready(folder: Path) -> None:
    found, bare = 0, []
    for path in folder.rglob("*.py"):
        text = path.read_text()
        for call in ast.walk(ast.parse(text)) if "msgspec" in text else ():
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            called = ast.unparse(call.func)
            given = [word.value for word in call.keywords if word.arg == "type"]
            if called == "msgspec.convert":
                given += call.args[1:]
            elif not called.startswith("msgspec.") or not called.endswith(".decode"):
                continue
            found += len(given)
            for each in given:
                if not ast.unparse(each).startswith("prepare_type("):
                    bare.append(f"{path}:{call.lineno}")
    assert bare == []
    assert found or folder.name == "drivers"
