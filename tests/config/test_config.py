"""The config: every key, every class of error with its exact place, and YAML's oddities."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import ConfigError
from recorder.config.loading import load_config
from recorder.config.options import Option, OptionTable, check_options
from recorder.config.settings import SECTIONS, SENSOR_KEYS, ProcessSettings, RedactSettings
from recorder.config.yaml_lines import MAX_BYTES
from tests.config.configs import SENSOR, SMALL, load, refusal, schema_of

FULL = """\
version: 1
session:
  root: ../sessions
  name: "{metadata.vehicle}_{utc:%Y}"
  metadata: {vehicle: rig-1, operator: no, since: 2024-05-01, code: 007, 5: on, deep: {a: [1.5]}}
  autostart: true
  split: {minutes: 30, gb: 50}
sensors:
  camera: {driver: camera, source: "file:clip.mp4", width: 640, mask: mask.png, pace: max,
           lens: {table: mask.png}, overlays: [mask.png], loop: true}
  lidar: {driver: ouster, source: "sim:seed=3", required: false}
  radar:
    driver: my.radar
    source: "session:old#radar"
    min_rate: 95
    process: {cpus: [1, 0x2], nice: -5}
storage: {sync_interval_ms: 100, min_free_gb: 1, buffer_mb: 64.5, require_mount: true}
retention: {gb: 100, days: null}
record_format: {enabled: true, streams: [lidar_imu, radar]}
calibration: calibration.yaml
finalize: [ncore, {edgefirst: {schema: mission}}, {vrs: }]
redact:
  camera: {command: [python, blur.py, "3"], quality: 80, timeout_s: 2}
  radar_x: keep
  "*": {command: [./blur]}
report: true
control: {socket: run/control.sock, tcp: "tcp://*:5555", curve_keys: keys}
metrics: {port: 9100}
"""


def test_every_key(rig: Path) -> None:
    config = load(rig, FULL)
    session = config.session
    assert session.root == rig.parent / "sessions"
    assert session.metadata == {
        "vehicle": "rig-1",
        "operator": "no",
        "since": "2024-05-01",
        "code": "007",
        "5": "on",
        "deep": {"a": [1.5]},
    }
    assert (session.autostart, session.split.minutes, session.split.gb) == (True, 30.0, 50.0)
    camera, lidar, radar = config.sensors
    assert (camera.scheme, camera.address) == ("file", str(rig / "clip.mp4"))
    assert (camera.pace, camera.loop, camera.live, camera.required) == ("max", True, False, True)
    mask = str(rig / "mask.png")
    assert camera.options == {
        "width": 640,
        "fps": None,
        "mask": mask,
        "lens": {"table": mask, "n": 1},
        "overlays": [mask],
    }
    assert (lidar.source, lidar.required, lidar.min_rate) == ("sim:seed=3", False, None)
    assert (radar.driver, radar.address) == ("my.radar", f"{rig / 'old'}#radar")
    assert radar.min_rate == 95.0
    assert radar.process == ProcessSettings((1, 2), -5)
    storage = config.storage
    assert (storage.sync_interval_ms, storage.require_mount) == (100, True)
    assert (storage.min_free_bytes, storage.buffer_bytes) == (10**9, 64_500_000)
    assert (config.retention.gb, config.retention.days) == (100.0, None)
    assert config.record_format.streams == ("lidar_imu", "radar")
    assert config.calibration == rig / "calibration.yaml"
    steps = [(step.archive, step.options) for step in config.finalize]
    assert steps == [("ncore", {}), ("edgefirst", {"schema": "mission"}), ("vrs", {})]
    front = RedactSettings("camera", rig, ("python", "blur.py", "3"), quality=80, timeout_s=2.0)
    kept, others = RedactSettings("radar_x", rig), RedactSettings("*", rig, ("./blur",))
    assert config.redact == (front, kept, others)
    assert (others.start_timeout_s, others.timeout_s, others.quality) == (300.0, 60.0, None)
    assert config.control.socket == rig / "run/control.sock"
    assert (config.control.tcp, config.control.curve_keys) == ("tcp://*:5555", rig / "keys")
    assert config.metrics.port == 9100 and config.report is True
    assert config.document.text == FULL and config.path == rig / "rig.yaml"
    assert config.sensor("lidar") is lidar
    with pytest.raises(KeyError):
        config.sensor("imu")


def test_defaults(rig: Path) -> None:
    config = load(rig, SMALL)
    assert config.session.root == rig / "sessions"
    assert config.session.name == "{hostname}_{utc:%Y_%m_%d_%H_%M_%S}"
    assert config.session.metadata == {} and not config.session.autostart
    assert (config.session.split.minutes, config.session.split.gb) == (None, None)
    assert config.storage.sync_interval_ms == 200 and not config.storage.require_mount
    assert (config.storage.min_free_gb, config.storage.buffer_mb) == (5.0, 256.0)
    assert config.record_format.enabled and config.record_format.streams == ()
    assert config.calibration is None and config.finalize == () and config.report is False
    assert config.control.socket is None and config.metrics.port is None
    assert config.sensors[0].process == ProcessSettings()
    assert config.find_daemon_settings() == []


def test_a_source_may_be_a_pattern_of_numbered_files(rig: Path) -> None:
    text = 'version: 1\nsensors:\n  cam: {driver: camera, source: "file:img_%04d.jpg"}\n'
    assert f"no such file: {rig}/img_%04d.jpg" in str(refusal(rig, text))
    (rig / "img_0003.jpg").touch()
    assert load(rig, text).sensor("cam").address == f"{rig}/img_%04d.jpg"


@pytest.mark.parametrize("scheme", ["mcap", "bag"])
def test_a_recordings_path_may_name_a_topic(rig: Path, scheme: str) -> None:
    (rig / "a#b.mcap").touch()
    text = 'version: 1\nsensors:\n  cam: {driver: camera, source: "SCHEME:%s"}\n'
    text = text.replace("SCHEME", scheme)
    for source in ("clip.mp4", "clip.mp4#/front/image", "a#b.mcap", "a#b.mcap#/front/image"):
        assert load(rig, text % source).sensor("cam").address == f"{rig}/{source}"
    problem = refusal(rig, text % "none.mcap#/front/image")
    assert f"no such file: {rig}/none.mcap" in str(problem)


def test_an_imus_data_go_into_session_vrs_unless_said_otherwise(rig: Path) -> None:
    imu = SMALL + "  imu: {driver: camera, source: 'sim:'}\n"
    assert load(rig, imu).record_format.streams == ("imu",)
    assert load(rig, imu + "record_format: {enabled: true}\n").record_format.streams == ("imu",)
    assert load(rig, imu + "record_format: {streams: []}\n").record_format.streams == ()


def test_sections_may_be_left_empty(rig: Path) -> None:
    text = (
        SMALL + "session:\n  metadata:\n  split:\nstorage:\nfinalize:\ncalibration:\nmetrics: ~\n"
    )
    config = load(rig, text)
    assert config.session.metadata == {} and config.finalize == ()
    assert config.storage.min_free_gb == 5.0


def test_what_a_driver_is_handed(rig: Path) -> None:
    config = load(rig, FULL)
    handed = config.sensors[0].for_driver()
    assert set(handed) == {"name", "scheme", "address", "options", "pace", "loop"}
    assert json.loads(json.dumps(handed)) == handed


def test_live_sources(rig: Path) -> None:
    config = load(rig, SMALL.replace("sim:", "v4l2:/dev/video99"))
    assert config.sensors[0].live and config.sensors[0].address == "/dev/video99"


def test_what_only_the_daemon_acts_on_is_named(rig: Path) -> None:
    keys = [sentence.partition(":")[0] for sentence in load(rig, FULL).find_daemon_settings()]
    assert keys == [
        "session.autostart",
        "session.split.minutes",
        "session.split.gb",
        "retention.gb",
        "control.tcp",
        "metrics.port",
    ]


def test_how_processes_are_run(rig: Path) -> None:
    text = SMALL.replace('sim:"', 'sim:", process: {policy: fifo, priority: 20, cpus: [1]}')
    config = load(rig, text + "storage: {process: {io_class: realtime, io_level: 0}}\n")
    assert config.sensors[0].process == ProcessSettings((1,), policy="fifo", priority=20)
    assert config.storage.process == ProcessSettings(io_class="realtime", io_level=0)
    with pytest.raises(ConfigError, match=r"storage\.process\.cpus\[0\]"):
        load(rig, SMALL + "storage: {process: {cpus: [-1]}}\n")


def test_all_drivers_are_asked_for_at_once(rig: Path) -> None:
    asked: list[list[str]] = []

    def prefetch(names: Iterable[str]) -> None:
        asked.append(list(names))

    (rig / "rig.yaml").write_text(
        SMALL
        + '  other: {driver: camera, source: "sim:"}\n'
        + '  lidar: {driver: ouster, source: "sim:"}\n'
    )
    load_config(rig / "rig.yaml", schema_of, prefetch)
    assert asked == [["camera", "ouster"]]


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        # the file as a whole
        ("", None, "", "is empty"),
        ("# nothing\n", None, "", "is empty"),
        ("- a\n", 1, "", "needs a mapping of keys to values at its top"),
        ("version: 1\n---\nversion: 1\n", 2, "", "bad YAML: but found another document"),
        ("version: 1\nsensors: {a: [}\n", 2, "", "bad YAML: "),
        ("version: 1\nsensors:\n\tcam: 1\n", 3, "", "bad YAML: found character '\\t'"),
        ("version: 1\nsensors: {cam: {source: sim:}}\n", 2, "", 'needs quotes: "sim:"'),
        ("version: 1\nsource: sim: x\n", 2, "", 'needs quotes: "sim:"'),
        (b"version: 1\nx: \xff\n", 2, "", "is not UTF-8 text: byte 0xff"),
        ("version: 1\n".encode("utf-16"), 1, "", "is not UTF-8 text: byte 0xff"),
        ("version: 1\n\nx: \x07\n", 3, "", "holds the control character U+0007"),
        ('version: "\\U00FFFFFF"\n', None, "", "bad YAML: "),
        ('version: 1\nsession: {name: "\\ud800"}\n', 2, "session.name", "surrogate"),
        ("version: 1\nversion: 2\n", 2, "version", "duplicate key, first at line 1"),
        (
            "version: 1\nsession:\n  root: a\n  root: b\n",
            4,
            "session.root",
            "duplicate key, first at line 3",
        ),
        ("version: 1\n? [a]\n: b\n", 2, "", "a key needs to be one word"),
        ("version: 1\nsession: " + "[" * 100, 2, "", "bad YAML: is nested too deeply"),
        (
            "version: 1\nsession: &a {metadata: *a}\n",
            2,
            "session.metadata",
            "an alias contains itself",
        ),
        ("version: 1\nsession: &a {<<: *a}\n", 2, "session", "an alias contains itself"),
        ("version: 1\nsession: {<<: 3}\n", 2, "session", "<< takes an alias of a mapping"),
        ("version: !!python/object:os.system 1\n", 1, "version", "the YAML tag"),
        ("version: 1\nsession: !mine {}\n", 2, "session", "the YAML tag '!mine'"),
        ("version: 1\nmetrics: {port: !!int x}\n", 2, "metrics.port", "'x' is no whole number"),
        ("version: 1\nmetrics: {port: 99999999999999999999}\n", 2, "metrics.port", "64 bits"),
        ("version: 1\nretention: {gb: 1e999}\n", 2, "retention.gb", "no number, or too large"),
        # keys, types, values
        ("session: {}\n", None, "version", "missing; this key is required"),
        ("version: 2\nnew: 1\n", 1, "version", "2 is not supported; this recorder reads 1"),
        ("version: one\n", 1, "version", "needs a whole number, not str ('one')"),
        ("version: true\n", 1, "version", "needs a whole number, not true or false"),
        ("version: 1\nsensor: {}\n", 2, "sensor", "unknown key (did you mean 'sensors'?)"),
        ("version: 1\n", None, "sensors", "missing; this key is required"),
        ("version: 1\nsensors:\n", 2, "sensors", "needs a mapping, not nothing"),
        ("version: 1\nsensors: {}\n", 2, "sensors", "no sensor is configured"),
        ("version: 1\nsensors: [cam]\n", 2, "sensors", "needs a mapping, not a list"),
        (SMALL + "session:\n  nmae: x\n", 5, "session.nmae", "did you mean 'name'?"),
        (SMALL + "session:\n  split: {minutes: -1}\n", 5, "session.split.minutes", "below the min"),
        (SMALL + "session: {split: {gb: .nan}}\n", 4, "session.split.gb", "not str ('.nan')"),
        (SMALL + "session: {autostart: on}\n", 4, "session.autostart", "not str ('on')"),
        (SMALL + "session: {name: 2024-01-01T00:00:00Z}\n", 4, "session.name", "holds ':'"),
        (SMALL + "session: {name: '{host}'}\n", 4, "session.name", "unknown placeholder {host}"),
        (SMALL + "session: {root: ''}\n", 4, "session.root", "needs a path; it is empty"),
        (SMALL + 'session: {root: "a\\0"}\n', 4, "session.root", "is not a path"),
        (SMALL + "storage:\n  buffer_mb: 010\n", 5, "storage.buffer_mb", "not str ('010')"),
        (SMALL + "storage:\n  buffer_mb:\n", 5, "storage.buffer_mb", "has no value; leave the key"),
        (SMALL + "storage: 5\n", 4, "storage", "needs a mapping, not int (5)"),
        (SMALL + "storage: {sync_interval_ms: 0}\n", 4, "storage.sync_interval_ms", "minimum of 1"),
        (SMALL + "metrics: {port: 70000}\n", 4, "metrics.port", "above the maximum of 65535"),
        (SMALL + "calibration: cal.yaml\n", 4, "calibration", "no such file: {rig}/cal.yaml"),
        (SMALL + "calibration: old\n", 4, "calibration", "is not a file: {rig}/old"),
        (SMALL + "control: {curve_keys: k}\n", 4, "control.curve_keys", "no such file: {rig}/k"),
        (SMALL + "upload: {credentials: k}\n", 4, "upload.credentials", "no such file: {rig}/k"),
        (SMALL + "custody: {key: keys}\n", 4, "custody.key", "is not a file: {rig}/keys"),
        (SMALL + "session: {split: {gb: 1}}\nring: {}\n", 5, "ring", "parts of its own length"),
        (SMALL + "ring: {medium: ram, folder: sessions}\n", 4, "ring.folder", "is session.root"),
        (
            SMALL + "ring: {seconds: 8}\ntriggers: {slow: {when: cam.rate < 1}}\n",
            5,
            "triggers.slow.before",
            "10 s is longer than the ring",
        ),
        ("version: 1\nsensors: {}\nrecord_format: {streams: [a]}\n", 2, "sensors", "no sensor"),
        (
            SMALL + "record_format:\n  streams:\n    - cam\n    - imu\n",
            7,
            "record_format.streams[1]",
            "no sensor records a stream 'imu'",
        ),
        (
            SMALL + "finalize: [ncor]\n",
            4,
            "finalize[0]",
            "no archive 'ncor' (did you mean 'ncore'?); known archives: ncore",
        ),
        (SMALL + "finalize:\n- vrs\n- vrs\n", 6, "finalize[1]", "duplicate archive 'vrs'"),
        (SMALL + "finalize: [{vrs: 3}]\n", 4, "finalize[0].vrs", "needs a mapping of options"),
        (SMALL + "finalize: [3]\n", 4, "finalize[0]", "needs an archive's name"),
        (SMALL + "finalize: [{a: {}, b: {}}]\n", 4, "finalize[0]", "needs an archive's name"),
        (SMALL + "redact: [cam]\n", 4, "redact", "needs a mapping"),
        (SMALL + "redact: {cma: keep}\n", 4, "redact.cma", "no sensor records a stream 'cma'"),
        (SMALL + "redact: {cam: blur}\n", 4, "redact.cam", "needs a mapping with the key"),
        (SMALL + "redact: {cam: {}}\n", 4, "redact.cam.command", "missing"),
        (SMALL + "redact: {cam: {command: []}}\n", 4, "redact.cam.command", "needs a program"),
        (SMALL + "redact: {cam: {command: ['']}}\n", 4, "redact.cam.command", "needs a program"),
        (SMALL + 'redact: {cam: {command: ["\\0"]}}\n', 4, "redact.cam.command", "needs a program"),
        (SMALL + "redact: {cam: {command: blur}}\n", 4, "redact.cam.command", "needs a list"),
        (SMALL + "redact: {cam: {command: [a], fps: 1}}\n", 4, "redact.cam.fps", "unknown key"),
        (SMALL + "redact: {cam: {command: [a], quality: 0}}\n", 4, "redact.cam.quality", "below"),
        (SMALL + "redact: {'*': {comand: [a]}}\n", 4, "redact.*.comand", "did you mean 'command'"),
        # sensors
        (SMALL + "  Cam: {}\n", 4, "sensors.Cam", "not a valid sensor name"),
        (SMALL + "  _x: {}\n", 4, "sensors._x", "not a valid sensor name"),
        (SMALL + "  b:\n", 4, "sensors.b", "needs a mapping with a driver and a source"),
        (SMALL + "  b: {source: 'sim:'}\n", 4, "sensors.b.driver", "missing"),
        (SMALL + "  b: {drvier: camera}\n", 4, "sensors.b.drvier", "did you mean 'driver'?"),
        (SMALL + "  b: {driver: camera}\n", 4, "sensors.b.source", "missing"),
        (SMALL + "  b: {driver: [x]}\n", 4, "sensors.b.driver", "is not a valid driver name"),
        (SMALL + "  b: {driver: ../x}\n", 4, "sensors.b.driver", "is not a valid driver name"),
        (SMALL + "  b: {driver: -c}\n", 4, "sensors.b.driver", "is not a valid driver name"),
        (SMALL + "  b:\n    driver: cam\n", 5, "sensors.b.driver", "no driver 'cam'"),
        (SMALL + "  b: {driver: greedy}\n", 4, "sensors.b.driver", "has an option 'loop'"),
        (SENSOR + '"sim:"\n    fsp: 3\n', 6, "sensors.cam.fsp", "'camera' (did you mean 'fps'?)"),
        (SENSOR + '"sim:"\n    widht: 3\n', 6, "sensors.cam.widht", "did you mean 'width'?"),
        (SENSOR + '"sim:"\n    width: x\n', 6, "sensors.cam.width", "needs a whole number"),
        (
            SENSOR + '"sim:"\n    width:\n',
            6,
            "sensors.cam.width",
            "has no value; leave the key out",
        ),
        (SENSOR + '"sim:"\n    lens: {n: }\n', 6, "sensors.cam.lens.n", "has no value"),
        (SENSOR + '"sim:"\n    pace: fast\n', 6, "sensors.cam.pace", "not one of realtime, max"),
        (SENSOR + '"sim:"\n    pace:\n', 6, "sensors.cam.pace", "has no value"),
        (SENSOR + '"sim:"\n    min_rate: -1\n', 6, "sensors.cam.min_rate", "below the minimum"),
        (
            SENSOR + '"sim:"\n    process:\n      cpus:\n        - 0\n        - x\n',
            9,
            "sensors.cam.process.cpus[1]",
            "needs a CPU's number",
        ),
        (SENSOR + '"sim:"\n    process: {nice: 20}\n', 6, "sensors.cam.process.nice", "maximum"),
        (
            SENSOR + '"sim:"\n    mask: no.png\n',
            6,
            "sensors.cam.mask",
            "no such file: {rig}/no.png",
        ),
        (
            SENSOR + '"sim:"\n    lens:\n      table: t\n',
            7,
            "sensors.cam.lens.table",
            "no such file: {rig}/t",
        ),
        (
            SENSOR + '"sim:"\n    overlays: [mask.png,\n      t]\n',
            7,
            "sensors.cam.overlays[1]",
            "no such file: {rig}/t",
        ),
        # sources
        (SENSOR + "7\n", 5, "sensors.cam.source", "needs a text, not int (7)"),
        (
            SENSOR + "clip.mp4\n",
            5,
            "sensors.cam.source",
            "is not of the form SCHEME:ADDRESS (did you mean 'file:clip.mp4'?); driver",
        ),
        (SENSOR + "flie:clip.mp4\n", 5, "sensors.cam.source", "'flie:' (did you mean 'file'?)"),
        (
            SENSOR + "pcap:x\n",
            5,
            "sensors.cam.source",
            "takes sim:, file:, mcap:, bag:, rtsp:, v4l2:, session:",
        ),
        (SENSOR + '"file:a\\0b"\n', 5, "sensors.cam.source", "is not of the form"),
        (SENSOR + '"file:"\n', 5, "sensors.cam.source", "file: needs a path after the colon"),
        (SENSOR + "file:no.mp4\n", 5, "sensors.cam.source", "no such file: {rig}/no.mp4"),
        (SENSOR + "file:/no/such\n", 5, "sensors.cam.source", "no such file: /no/such"),
        (SENSOR + f"file:{'x' * 300}\n", 5, "sensors.cam.source", "File name too long"),
        (SENSOR + "file:clip.mp4/x\n", 5, "sensors.cam.source", "no such file"),
        (SENSOR + "file:knot\n", 5, "sensors.cam.source", "is not a path"),
        (SENSOR + "session:gone#cam\n", 5, "sensors.cam.source", "no such file: {rig}/gone"),
        (SENSOR + "session:old#\n", 5, "sensors.cam.source", "the part after '#' is not a valid"),
        (
            SMALL
            + '  lidar_imu: {driver: camera, source: "sim:"}\n'
            + '  lidar: {driver: ouster, source: "sim:"}\n',
            4,
            "sensors.lidar_imu",
            "the sensor 'lidar' records a stream of that name beside its own",
        ),
    ],
)
def test_each_error_has_its_place(
    rig: Path, text: str | bytes, line: int | None, key: str, message: str
) -> None:
    (rig / "knot").symlink_to("knot")
    error = refusal(rig, text)
    assert (error.line, error.key) == (line, key), str(error)
    assert message.replace("{rig}", str(rig)) in str(error)
    place = f"{rig / 'rig.yaml'}" + (f":{line}" if line else "") + ": "
    assert str(error).startswith(place + (f"{key}: " if key else ""))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "gone.yaml", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "a\0b", "null byte"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(path, schema_of)
    assert "larger than" in str(refusal(tmp_path, b"#" * (MAX_BYTES + 1)))


def test_a_relative_config_path(rig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(rig, SMALL)
    monkeypatch.chdir(rig.parent)
    config = load_config(Path("config/rig.yaml"), schema_of)
    assert config.path == rig / "rig.yaml" and config.session.root == rig / "sessions"


own = ["cam", "width", "fps", "mask", "lens", "table", "overlays", "ncore", "zz"]
sections = [key for option in SECTIONS.values() for key in option.keys or ()]
names = st.sampled_from([*SECTIONS, *sections, *SENSOR_KEYS, *own])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2**70)
    | st.floats()
    | st.sampled_from(
        ["camera", "sim:", "file:x", "session:.#a", "my.radar", "max", "vrs", "/", ""]
    )
    | st.text(max_size=6)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("section", "value"),
    [
        (section, value)
        for value in (True, 3, "text", [1], {"x": 1})
        for section in SECTIONS
        if (section, value) != ("report", True)
    ],
)
def test_a_section_of_another_kind_is_named(tmp_path: Path, section: str, value: Any) -> None:
    good = {"version": 1, "sensors": {"cam": {"driver": "camera", "source": "sim:"}}}
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(good | {section: value}), encoding="utf-8")
    with pytest.raises(ConfigError, match=section) as failure:
        load_config(path, schema_of)
    assert str(path) in str(failure.value)


@given(st.dictionaries(names, values, max_size=6), values, names)
def test_arbitrary_values_are_a_config_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, top: dict[str, Any], value: Any, name: str
) -> None:
    good: dict[str, Any] = {
        "version": 1,
        "sensors": {"cam": {"driver": "camera", "source": "sim:"}},
    }
    in_sensor = {"cam": {"driver": "camera", "source": "sim:", name: value}}
    path = tmp_path_factory.getbasetemp() / "values.yaml"
    for whole in (top, good | top, good | {name: value}, good | {"sensors": in_sensor}):
        path.write_text(yaml.safe_dump(whole, allow_unicode=True), encoding="utf-8")
        try:
            config = load_config(path, schema_of)
        except ConfigError as error:
            assert str(path) in str(error)
        else:
            for entry in config.sensors:
                json.dumps(entry.for_driver(), allow_nan=False)
            assert all(isinstance(sentence, str) for sentence in config.find_daemon_settings())


def test_every_setting_has_a_description_and_its_default_passes_its_own_check() -> None:
    for table in (SECTIONS, SENSOR_KEYS):
        for name, option in flat(table):
            assert option.description or option.keys, name
            if not option.required and not option.keys and option.default is not None:
                assert check_options({name: option}, {name: option.default})


def flat(table: OptionTable) -> Iterator[tuple[str, Option]]:
    for name, option in table.items():
        yield name, option
        yield from flat(option.keys or {})


def test_processes_run_as_the_kernel_runs_them_by_default() -> None:
    """I/O priority 4 is what ioprio_set(2) calls the default of the best-effort class."""
    asked = ProcessSettings()
    assert (asked.cpus, asked.nice, asked.policy, asked.priority) == ((), 0, None, 1)
    assert (asked.io_class, asked.io_level) == (None, 4)


@pytest.mark.parametrize(
    "text", ["AGE-SECRET-KEY-1QQQQQQQQQ", "age-secret-key-1qqqqqqqqq", "age1X"]
)
def test_what_is_no_public_key_is_refused_and_not_shown(rig: Path, text: str) -> None:
    good = "age1e86j5egld4vt5ynca2xzyq6fz2lnexlc654a22k9macqvh2yxcfsme5a9w"
    assert load(rig, SMALL + f"upload: {{recipients: [{good}]}}\n").upload.recipients == (good,)
    with pytest.raises(ConfigError) as error:
        load(rig, SMALL + f"upload: {{recipients: [{good}, {text}]}}\n")
    assert "upload.recipients[1]: needs a public key of age, such as age1..." in str(error.value)
    assert "qqqq" not in str(error.value).lower()
