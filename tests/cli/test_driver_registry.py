"""Asking drivers through their processes, good and bad ones."""

from __future__ import annotations

import os
import select
import selectors
import shutil
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import drivers
from recorder.common.errors import ConfigError
from recorder.config.loading import load_config
from recorder.config.options import Option
from recorder.config.settings import SensorEntry
from recorder.recording.supervisor import driver_registry
from recorder.recording.supervisor.driver_registry import (
    CheckResult,
    available_drivers,
    check_source,
    check_sources,
    driver_command,
    driver_schema,
    find_port_clashes,
    find_stream_clashes,
    prefetch,
)
from tests.cli.fakes import OTHERS
from tests.support.waiting import wait_until

LAUNCHER = "recorder.common.module_launcher"


def entry(address: str = "", name: str = "cam", driver: str = "fakes.good") -> SensorEntry:
    return SensorEntry(name, driver, "sim", address, {"fps": 5.0})


def test_the_schema_of_a_driver(fakes: Path) -> None:
    schema = driver_schema("fakes.good")
    assert schema.options == {"fps": Option("float", 10.0, minimum=1)}
    assert list(schema.schemes) == ["sim", "file", "net", "session", "ncore", "edgefirst"]
    assert schema.live_schemes == {"net"}
    assert type(schema).from_wire(schema.to_wire()) == schema


def test_a_plain_name_is_a_module_of_drivers() -> None:
    assert driver_command("camera", "run")[-2:] == ["drivers.camera", "run"]
    assert driver_command("my.cam", "run")[-2:] == ["my.cam", "run"]


def test_an_unknown_driver_is_answered_with_those_there_are(
    fakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "elsewhere" / "drivers"
    package.mkdir(parents=True)
    for name in ("__init__", "camera", "xsens", "_kit"):
        (package / f"{name}.py").touch()
    (package / "sim").mkdir()

    class Spec:
        submodule_search_locations = (str(package),)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    assert available_drivers() == ["camera", "xsens"]
    with pytest.raises(ConfigError) as caught:
        driver_schema("camrea")
    assert str(caught.value) == (
        "no driver 'camrea' (did you mean 'camera'?); known drivers: camera, xsens"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("garbage", "printed 'I am no JSON\\n' for a schema, which is not JSON"),
        ("wrong", "not a driver's schema: Expected `object`, got `array`"),
        ("repeating", "an odd option"),
        ("mistyped", "option 'a': its type needs to be one of int, float"),
        ("extra", "not a driver's schema: options[...].b: there is no such field"),
        ("failing", "no licence"),
        ("crashing", "RuntimeError: bad import"),
        ("killed", "was ended by SIGKILL"),
        ("quiet", "exited with 7 and no message"),
        ("missing", "No module named fakes.missing"),
    ],
)
def test_a_driver_that_is_none_is_a_config_error(fakes: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        driver_schema(f"fakes.{name}")
    assert str(caught.value).startswith(f"driver 'fakes.{name}': ")
    assert str(caught.value).count(f"driver 'fakes.{name}'") == 1  # no doubled prefix
    assert message in str(caught.value)


def test_a_driver_that_does_not_end_is_ended(fakes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_registry, "SCHEMA_TIMEOUT_S", 0.3)
    with pytest.raises(ConfigError, match=r"'fakes.endless': printed no schema within 0.3 s"):
        driver_schema("fakes.endless")
    result = check_source(entry(driver="fakes.endless"), timeout_s=0.3)
    assert result.exit_code == 1
    assert result.problem == "driver 'fakes.endless' did not open its source within 0.3 s"


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize("then", ["wait", "exit"])
def test_what_a_driver_started_ends_with_it(tmp_path: Path, then: str) -> None:
    note = tmp_path / "pid"
    result = driver_registry._run(["sh", "-c", f"sleep 1000 & echo $! > {note}; {then}"], "", 1.0)
    assert result.code is None
    try:
        ended = os.pidfd_open(int(note.read_text()))
    except ProcessLookupError:
        return
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    gone = poller.poll(60_000)  # SIGKILL was sent: the kernel says when it has ended it
    os.close(ended)
    assert gone, "the grandchild still runs"


SLEEP = "import time; time.sleep(3600)"


def test_an_interrupt_ends_a_driver_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(selectors.DefaultSelector, "select", interrupt)
    with pytest.raises(KeyboardInterrupt):
        driver_registry._run([sys.executable, "-c", SLEEP], "", 60.0)
    left = [child.cmdline() for child in psutil.Process().children()]
    assert not any(SLEEP in command for command in left)


def test_a_flood_of_what_a_driver_prints_is_not_kept() -> None:
    flood = "import sys\nfor _ in range(2000): sys.stderr.write('x' * 99_999 + '\\n')\n"
    tracemalloc.start()
    try:
        result = driver_registry._run(
            [sys.executable, "-c", flood + "sys.exit('no device')"], "", 60.0
        )
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.code == 1 and result.problem == "no device"
    assert most < 10_000_000


def test_a_driver_is_asked_once(fakes: Path) -> None:
    prefetch(["fakes.counting", "fakes.failing", "fakes.counting"])
    assert driver_schema("fakes.counting") is driver_schema("fakes.counting")
    assert (fakes / "calls").read_text() == "x"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The modules, with their arguments, that a registry without answers runs."""
    run, ran = driver_registry._run, []

    def note(command: Sequence[str], *request: Any) -> driver_registry._Result:
        ran.append(list(command[command.index("-m") + 1 :]))
        return run(command, *request)

    monkeypatch.setattr(driver_registry, "_run", note)
    monkeypatch.setattr(driver_registry, "_schemas", {})
    return ran


TOGETHER = ["drivers.kit.queries"]


def test_drivers_are_asked_in_one_process(fakes: Path, commands: list[list[str]]) -> None:
    names = ["can", "fakes.good"]
    prefetch(names)
    together = [driver_schema(name) for name in names]
    prefetch(names)
    assert commands == [TOGETHER]
    driver_registry._schemas.clear()
    assert [driver_schema(name) for name in names] == together
    assert commands[1:] == [["drivers.can", "schema"], [LAUNCHER, "fakes.good", "schema"]]


def test_drivers_that_are_not_there_need_no_process(commands: list[list[str]]) -> None:
    prefetch(["no", "none"])
    with pytest.raises(ConfigError, match="no driver 'none'"):
        driver_schema("none")
    assert commands == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise OSError('no')", "OSError: no"),
        ("import os; os._exit(3)", "exited with 3 and no message"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("print('no JSON')", "printed 'no JSON"),
    ],
)
def test_a_driver_that_fails_costs_the_others_nothing(
    commands: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    message: str,
) -> None:
    package = tmp_path / "drivers"
    package.mkdir()
    ours = [str(Path(drivers.__file__).parent)]
    (package / "__init__.py").write_text(f"__path__ += {ours}")
    (package / "bad.py").write_text(fault)
    monkeypatch.setattr(drivers.__spec__, "submodule_search_locations", [str(package), *ours])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    prefetch(["bad", "can", "udp"])
    assert set(driver_schema("can").schemes) > {"can"} and driver_schema("udp")
    with pytest.raises(ConfigError, match=f"driver 'bad': {message}"):
        driver_schema("bad")
    assert commands == [TOGETHER]


def test_together_drivers_answer_as_they_do_alone(fakes: Path, commands: list[list[str]]) -> None:
    names = [f"fakes.{each}" for each in OTHERS if each not in ("counting", "endless")]
    names += ["fakes.missing", "fakes.good"]

    def answers() -> list[str]:
        said = []
        for name in names:
            try:
                said.append(str(driver_schema(name)))
            except ConfigError as error:
                said.append(str(error))
        return said

    prefetch(names)
    together = answers()
    assert commands == [TOGETHER]
    driver_registry._schemas.clear()
    assert answers() == together


@pytest.mark.campaign
def test_a_source_that_does_not_open_in_time_holds_up_no_other(fakes: Path) -> None:
    entries = [entry(name="a", driver="fakes.stuck"), entry(name="b")]
    for limit_s in (1.0, 5.0, 25.0, 125.0):  # a busy machine is slow
        stuck, good = check_sources(entries, limit_s)
        if good.problem is None:
            break
    assert stuck.problem == f"driver 'fakes.stuck' did not open its source within {limit_s:g} s"
    assert len(good.streams) == 1
    wait_until("it is ended", lambda: not psutil.pid_exists(int((fakes / "pid").read_text())))


def test_more_drivers_than_are_asked_at_a_time(
    fakes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_registry, "_PARALLEL", 2)
    results = check_sources([entry(name=name) for name in "abcde"])
    assert [(each.sensor, each.problem) for each in results] == [(name, None) for name in "abcde"]


def test_a_damaged_kit_is_the_problem_of_all(
    fakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = tmp_path / "drivers" / "kit"
    kit.mkdir(parents=True)
    for folder in (kit.parent, kit):
        (folder / "__init__.py").touch()
    (kit / "queries.py").write_text("raise OSError('unreadable')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    results = check_sources([entry(name="a"), entry(name="b")])
    assert [each.problem for each in results] == ["OSError: unreadable"] * 2


def test_a_bad_driver_is_named_with_its_line(fakes: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("version: 1\nsensors:\n  a:\n    driver: fakes.failing\n    source: 'sim:'\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, driver_schema, prefetch)
    assert str(caught.value) == (f"{path}:4: sensors.a.driver: driver 'fakes.failing': no licence")


def test_checking_a_source(fakes: Path) -> None:
    result = check_source(entry())
    assert (result.problem, result.exit_code) == (None, 0)
    [stream] = result.streams
    assert (stream.name, stream.rate_hz, stream.bytes_per_second) == ("cam", 5.0, 250_000.0)


def test_the_warnings_of_a_source(fakes: Path) -> None:
    assert check_source(entry()).warnings == ()
    assert check_source(entry(address="slow")).warnings == ("slow at net://user:***@host",)


def test_a_problem_does_not_repeat_the_name_that_is_in_its_key(fakes: Path) -> None:
    assert check_source(entry(address="unplugged")).problem == "unplugged"


@pytest.mark.parametrize(
    ("address", "exit_code", "message"),
    [
        ("code=2", 2, "cannot open net://user:***@host (code=2)"),
        ("code=1", 1, "cannot open net://user:***@host (code=1)"),
        ("code=3", 1, "cannot open"),
        ("crash", 1, "KeyError: 'where'"),
        ("silent", 1, "exited with 4 and no message"),
        ("garbage", 1, "answered with no list of streams"),
        ("none", 1, "declares no stream"),
        ("odd", 1, "answered with no list of streams"),
    ],
)
def test_a_source_that_does_not_open(
    fakes: Path, address: str, exit_code: int, message: str
) -> None:
    result = check_source(entry(address))
    assert result.streams == () and result.exit_code == exit_code
    assert result.problem is not None and message in result.problem
    assert "\n" not in result.problem


def test_results_keep_the_order_of_the_sensors(fakes: Path) -> None:
    results = check_sources([entry(name="a"), entry("code=2", "b"), entry(name="c")])
    assert [r.sensor for r in results] == ["a", "b", "c"]
    assert [r.exit_code for r in results] == [0, 2, 0]


def test_two_sensors_with_one_stream(fakes: Path) -> None:
    first, second = check_sources([entry(name="a"), entry("a", "b")])
    assert find_stream_clashes([first, CheckResult("x"), second]) == [
        ("b", "its stream 'a' is also one of the sensor 'a'")
    ]
    assert find_stream_clashes([first]) == []


def test_two_sensors_at_one_port(fakes: Path) -> None:
    first, second = check_sources([entry("ports", "a"), entry("ports", "b")])
    assert first.receives == (("10.0.0.1", 7502), ("", 7503))
    assert find_port_clashes([first, CheckResult("x"), second]) == [
        ("b", f"it receives at UDP port {port}, as does the sensor 'a'; give one of them other "
         "ports")
        for port in (7502, 7503)
    ]  # fmt: skip
    assert find_port_clashes([first]) == []


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (("10.0.0.1", 7502), ("10.0.0.2", 7502), False),
        (("10.0.0.1", 7502), ("10.0.0.1", 7503), False),
        (("10.0.0.1", 7502), ("", 7502), True),
        (("::", 7502), ("10.0.0.1", 7502), True),
        (("fe80::1%eth0", 7502), ("fe80::1%eth1", 7502), False),
    ],
)
def test_ports_that_clash(one: tuple[str, int], other: tuple[str, int], clash: bool) -> None:
    results = [CheckResult("a", receives=(one,)), CheckResult("b", receives=(other,))]
    assert bool(find_port_clashes(results)) is clash
