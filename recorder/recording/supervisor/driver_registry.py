"""Queries to drivers in processes of their own: the recorder imports no driver.

`driver_schema` returns the options that a config may set for a driver; `check_source` opens a
sensor's source and returns its streams.  A plain name is a module of the package ``drivers``; a
dotted name is any importable module.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ConfigError, ProtocolError, SourceError
from recorder.common.module_launcher import driver_module_command, module_command
from recorder.common.secret_masking import mask_passwords
from recorder.config.driver_schema import DriverSchema
from recorder.config.loading import Config, load_config
from recorder.config.options import suggest
from recorder.config.settings import SensorEntry

SCHEMA_TIMEOUT_S = 20.0
CHECK_TIMEOUT_S = 60.0
"""Time limit of a check: a source may import a large SDK and index a long recording, s."""
_PARALLEL = 8
_START_S = 20.0  # of the process that queries several drivers
_MESSAGE_LENGTH = 500
_MOST_ANSWER = 64 << 20
"""Size limit of an answer, which may contain files of intrinsics, bytes."""
_MOST_ERRORS = 1 << 16


def driver_module(driver: str) -> str:
    """Return the module of a driver."""
    return driver if "." in driver else f"drivers.{driver}"


def driver_command(driver: str, verb: str) -> list[str]:
    """Return the command that runs a driver's process.

    Args:
        driver: the driver's name in the config.
        verb: ``schema``, ``check`` or ``run``.
    """
    return driver_module_command(driver_module(driver), verb)


def available_drivers() -> list[str]:
    """Return the names of the drivers in the package ``drivers``, without importing them."""
    spec = importlib.util.find_spec("drivers")
    names: set[str] = set()
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).glob("[!_]*"):
            if path.suffix == ".py":
                names.add(path.stem)
            elif (path / "__main__.py").is_file() and path.name != "sim":
                names.add(path.name)
    return sorted(names)


def driver_schema(name: str) -> DriverSchema:
    """Return the schema of a driver.

    The answer is cached for the life of this process, even if it is an error.

    Raises:
        ConfigError: there is no such driver, or its answer is no schema.
    """
    prefetch([name])
    answer = _schemas[name]
    if isinstance(answer, str):
        raise ConfigError(answer)
    return answer


def prefetch(names: Iterable[str]) -> None:
    """Query drivers that were not queried, together; keep the answers for `driver_schema`."""
    known = available_drivers()
    wanted = []
    for name in dict.fromkeys(names):
        if name in _schemas:
            continue
        if "." in name or name in known:
            wanted.append(name)
        else:
            text = f"no driver {name!r}{suggest(name, known)}; known drivers: {', '.join(known)}"
            _schemas[name] = text
    answers = _query("schema", [(name, "") for name in wanted], SCHEMA_TIMEOUT_S)
    for name, answer in zip(wanted, answers, strict=True):
        _schemas[name] = _read_schema(name, answer)


def load(path: Path) -> Config:
    """Load a config with the drivers of this installation; see `load_config`."""
    return load_config(path, driver_schema, prefetch)


_schemas: dict[str, DriverSchema | str] = {}
"""Schemas that drivers answered, or descriptions of the drivers' problems, by driver."""


def _read_schema(name: str, result: _Result) -> DriverSchema | str:
    """Return a driver's schema, or a description of the driver's problem."""
    where = f"driver {name!r}"
    if result.code is None:
        return f"{where}: printed no schema within {SCHEMA_TIMEOUT_S:g} s"
    if result.code != 0:
        return f"{where}: {result.problem.removeprefix(f'{where}: ')}"
    try:
        return DriverSchema.from_wire(_answer(result.stdout))
    except (ValueError, RecursionError):
        return f"{where}: printed {result.stdout[:40]!r} for a schema, which is not JSON"
    except ProtocolError as error:
        return f"{where}: {str(error).removeprefix(f'{where}: ')}"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of opening a sensor's source.

    Attributes:
        sensor: the sensor's name.
        streams: the declared streams; empty if there is a problem.
        problem: description of the problem, one line; None without one.
        exit_code: 0; 2 if the source or its options are wrong; 1 for other problems.
        seconds: duration of the check.
        receives: addresses and UDP ports that the driver alone may use; the address "" means all.
        warnings: conditions that may lose data although the source opens.
    """

    sensor: str
    streams: tuple[StreamSpec, ...] = ()
    problem: str | None = None
    exit_code: int = 0
    seconds: float = 0.0
    receives: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()


def check_source(entry: SensorEntry, timeout_s: float = CHECK_TIMEOUT_S) -> CheckResult:
    """Let a sensor's driver open its source, declare its streams and close the source."""
    (result,) = check_sources([entry], timeout_s)
    return result


def check_sources(
    entries: Sequence[SensorEntry], timeout_s: float = CHECK_TIMEOUT_S
) -> list[CheckResult]:
    """Check several sensors in parallel; return the results in the order of `entries`."""
    queries = [(entry.driver, json.dumps(entry.for_driver())) for entry in entries]
    answers = _query("check", queries, timeout_s)
    return [
        _read_check(entry, answer, timeout_s)
        for entry, answer in zip(entries, answers, strict=True)
    ]


def _read_check(entry: SensorEntry, result: _Result, timeout_s: float) -> CheckResult:
    def problem(message: str, code: int = 1) -> CheckResult:
        text = message.removeprefix(f"{entry.name}: ")  # the key names the sensor
        return CheckResult(entry.name, (), mask_passwords(text), code, result.seconds)

    if result.code is None:
        return problem(f"driver {entry.driver!r} did not open its source within {timeout_s:g} s")
    if result.code != 0:
        return problem(result.problem, SourceError.exit_code if result.code == 2 else 1)
    try:
        answer = _answer(result.stdout)
        streams = tuple(map(StreamSpec.from_wire, answer["streams"]))
        receives = tuple((str(address), int(port)) for address, port in answer.get("receives", ()))
        warnings = tuple(mask_passwords(str(text)) for text in answer.get("warnings", ()))
    except (ValueError, KeyError, TypeError, RecursionError, ProtocolError) as error:
        return problem(f"driver {entry.driver!r} answered with no list of streams: {error!r:.200}")
    if not streams:
        return problem(f"driver {entry.driver!r} declares no stream")
    return CheckResult(
        entry.name, streams, seconds=result.seconds, receives=receives, warnings=warnings
    )


@dataclass(frozen=True, slots=True)
class _Result:
    """How a process ended.

    Attributes:
        code: its exit code, or minus its signal; None: it did not end in time.
        stdout: the end of its output.
        stderr: the end of its errors.
        seconds: duration.
    """

    code: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def problem(self) -> str:
        """The last line on standard error, which is the error even after a traceback."""
        lines = self.stderr.strip().splitlines()
        if not lines and self.code is not None and self.code < 0:
            known = {number.value: number.name for number in signal.Signals}
            return f"was ended by {known.get(-self.code, f'signal {-self.code}')}"
        text = lines[-1] if lines else f"exited with {self.code} and no message"
        return text.removeprefix(f"{sys.executable}: ")[:_MESSAGE_LENGTH]


def _answer(stdout: str) -> Any:
    """Parse the JSON that a driver printed, if need be after lines that a library printed."""
    try:
        return json.loads(stdout)
    except ValueError:
        lines = stdout.splitlines()
        return json.loads(lines[-1] if lines else "")


def _query(verb: str, queries: Sequence[tuple[str, str]], timeout_s: float) -> list[_Result]:
    """Query drivers in parallel.

    Args:
        verb: ``schema`` or ``check``.
        queries: name and standard input of each driver.
        timeout_s: time limit of each.

    Returns:
        What each driver answered.
    """
    if len(queries) < 2:
        return [_run(driver_command(name, verb), text, timeout_s) for name, text in queries]
    request = {
        "verb": verb,
        "queries": [(driver_module(name), text) for name, text in queries],
        "parallel": _PARALLEL,
        "timeout_s": timeout_s,
        "most": (_MOST_ANSWER, _MOST_ERRORS),
    }
    result = _run(
        module_command("drivers.kit.queries"),
        json.dumps(request),
        timeout_s * math.ceil(len(queries) / _PARALLEL) + _START_S,
        _MOST_ANSWER * len(queries),
    )
    try:
        return [_Result(**answer) for answer in _answer(result.stdout)]
    except (ValueError, TypeError):
        return [result] * len(queries)  # the kit is damaged, or the machine has no memory


def _run(command: Sequence[str], stdin: str, timeout_s: float, most: int = _MOST_ANSWER) -> _Result:
    """Run a command to its end; at the time limit, kill it with all its descendants.

    Only the last `most` bytes of its output and `_MOST_ERRORS` of its errors are kept.
    """
    started_s = time.monotonic()
    ends_s = started_s + timeout_s
    with tempfile.TemporaryFile() as request:
        request.write(stdin.encode())
        request.seek(0)
        process = subprocess.Popen(
            command,
            stdin=request,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    assert process.stdout is not None and process.stderr is not None
    stdout, stderr, ended = bytearray(), bytearray(), False
    with process, selectors.DefaultSelector() as pipes:
        try:
            pipes.register(process.stdout, selectors.EVENT_READ, (stdout, most))
            pipes.register(process.stderr, selectors.EVENT_READ, (stderr, _MOST_ERRORS))
            # Descendants of the command may hold its pipes after its end.
            while pipes.get_map() and (left_s := ends_s - time.monotonic()) > 0:
                for key, _ in pipes.select(left_s):
                    data, limit = key.data
                    if chunk := os.read(key.fd, 1 << 16):
                        data += chunk
                        del data[:-limit]
                    else:
                        pipes.unregister(key.fileobj)
            process.wait(max(0.0, ends_s - time.monotonic()))
            ended = not pipes.get_map()
        except subprocess.TimeoutExpired:
            pass
        finally:
            if not ended:
                _kill_group(process)
    return _Result(
        process.returncode if ended else None,
        stdout.decode(errors="replace"),
        stderr.decode(errors="replace"),
        time.monotonic() - started_s,
    )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # The command has its own session, hence its own group, which includes its descendants.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def find_stream_clashes(results: Iterable[CheckResult]) -> list[tuple[str, str]]:
    """Return the streams that two sensors both declare: (later sensor, description)."""
    owners: dict[str, Any] = {}
    clashes = []
    for result in results:
        for spec in result.streams:
            owner = owners.setdefault(spec.name, result.sensor)
            if owner != result.sensor:
                text = f"its stream {spec.name!r} is also one of the sensor {owner!r}"
                clashes.append((result.sensor, text))
    return clashes


def find_port_clashes(results: Iterable[CheckResult]) -> list[tuple[str, str]]:
    """Return the UDP ports that two sensors' drivers both need: (later sensor, description)."""
    owners: dict[int, list[tuple[str, str]]] = {}
    clashes = []
    for result in results:
        for address, port in result.receives:
            for owner, taken in owners.setdefault(port, []):
                if owner != result.sensor and (address == taken or {"", "::"} & {address, taken}):
                    text = f"it receives at UDP port {port}, as does the sensor {owner!r}"
                    clashes.append((result.sensor, f"{text}; give one of them other ports"))
            owners[port].append((result.sensor, address))
    return clashes
