"""Driver modules for tests, written to a folder that their processes find through PYTHONPATH.

They speak the protocol of a driver's process (``schema``, ``check``) and nothing else, so that
the recorder's side is tested alone.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from recorder.recording.supervisor import driver_registry

GOOD = """
    import json, sys
    SCHEMA = {
        "name": "good", "description": "A driver for tests.",
        "options": {"fps": {"type": "float", "default": 10.0, "minimum": 1}},
        "schemes": {"sim": "simulated", "file": "a file", "net": "a device"},
        "live_schemes": ["net"],
    }
    if sys.argv[1] == "schema":
        print(json.dumps(SCHEMA))
    elif sys.argv[1:] == ["check"]:
        entry = json.load(sys.stdin)
        if entry["address"] == "user:pw@broken":
            sys.exit(print("boom", file=sys.stderr) or 1)
        if entry["address"].startswith("code="):
            print(f"cannot open net://user:pw@host ({entry['address']})", file=sys.stderr)
            sys.exit(int(entry["address"][5:]))
        if entry["address"] == "unplugged":
            sys.exit(print(f"{entry['name']}: unplugged", file=sys.stderr) or 1)
        if entry["address"] == "crash":
            raise KeyError("where")
        if entry["address"] == "silent":
            sys.exit(4)
        if entry["address"] == "garbage":
            sys.exit(print("streams: none"))
        if entry["address"] == "none":
            sys.exit(print('{"streams": []}'))
        if entry["address"] == "odd":
            sys.exit(print('{"streams": [{"name": "x"}]}'))
        ports = [["10.0.0.1", 7502], ["", 7503]] if entry["address"] == "ports" else []
        name = entry["name"] if ports else entry["address"] or entry["name"]
        channels = [
            {"name": "rng", "format": "lzmaf", "dtype": "u2", "shape": [128, 1024]},
            {"name": "temperature", "format": "raw", "dtype": "f4", "shape": []},
        ]
        streams = [{"name": name, "channels": channels, "rate_hz": entry["options"]["fps"],
                    "bytes_per_sample": 50_000}]
        print("a library says hello")
        warnings = ["slow at net://user:pw@host"] if name == "slow" else []
        print(json.dumps({"streams": streams, "receives": ports, "warnings": warnings}))
"""

OTHERS = {
    "garbage": "print('I am', 'no JSON')",
    "wrong": "print('[1, 2]')",
    "mistyped": """
        options = '{"a": {"type": "integer"}}'
        print('{"name": "fakes.mistyped", "schemes": {}, "options": ' + options + '}')
    """,
    "repeating": "import sys; sys.exit(\"driver 'fakes.repeating': an odd option\")",
    "extra": """print('{"name": "x", "schemes": {}, "options": {"a": {"type": "int", "b": 1}}}')""",
    "failing": "import sys; print('warming up', file=sys.stderr); sys.exit('no licence')",
    "crashing": "raise RuntimeError('bad import')",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "quiet": "import sys; sys.exit(7)",
    "endless": "while True: pass",
    "stuck": """
        import json, os, pathlib, sys, time
        if sys.argv[1] == "schema":
            sys.exit(print(json.dumps({"name": "stuck", "schemes": {"sim": ""}})))
        (pathlib.Path(__file__).parent / "pid").write_text(f"{os.getpid()}\\n")
        time.sleep(1000)
    """,
    "counting": """
        import json, pathlib
        with (pathlib.Path(__file__).parent / "calls").open("a") as f: f.write("x")
        print(json.dumps({"name": "counting", "schemes": {"sim": ""}}))
    """,
}


@pytest.fixture(scope="session")
def fakes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package ``fakes``, of which each schema is asked for once."""
    folder = tmp_path_factory.mktemp("path") / "fakes"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, code in {"good": GOOD, **OTHERS}.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(code))
    driver_registry._schemas.clear()
    return folder


@pytest.fixture
def fakes(fakes_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package ``fakes``, importable by driver processes."""
    monkeypatch.setenv("PYTHONPATH", str(fakes_folder.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return fakes_folder
