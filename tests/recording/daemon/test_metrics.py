"""Metrics: what is served, in the format that Prometheus reads."""

from __future__ import annotations

import http.client
import re
import socket
import time
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from recorder.common.errors import StorageError
from recorder.recording.daemon.daemon import Sidecars
from recorder.recording.daemon.metrics import _MOST_CLIENTS, MetricsServer, render

LINE = re.compile(
    r'recorder_[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? '
    r"-?[0-9.]+(e[-+][0-9]+)?"
)


def status(**more: Any) -> dict[str, Any]:
    stream = {
        "rate_hz": 9.98,
        "expected_hz": 10.0,
        "samples": 120,
        "bytes": 1e9,
        "lost": {"network": 3, "refused": 1},
        "unknown_losses": 1,
    }
    return {
        "version": "0.1",
        "uptime_s": 12.5,
        "state": "recording",
        "healthy": False,
        "faults": [{"about": "imu", "kind": "absent", "message": "x"}],
        "session": {"elapsed_s": 12.0, "bytes": 5},
        "sensors": {
            "lidar": {
                "state": "armed",
                "starts": 2,
                "ring_held_bytes": 7,
                "ring_size_bytes": 100,
                "streams": {"lidar": stream},
            },
            "imu": {
                "state": "absent",
                "starts": 1,
                "ring_held_bytes": 0,
                "ring_size_bytes": 0,
                "streams": {},
            },
        },
        "writer": {"restarts": 1, "oldest_uncommitted_s": 0.25, "commits": 60, "commit_s": 1.5},
        "disk": {"free_bytes": None, "floor_bytes": 5_000_000_000},
        **more,
    }


def values(text: str) -> dict[str, float]:
    pairs = (line.rpartition(" ") for line in text.splitlines() if line[0] != "#")
    return {name: float(value) for name, _, value in pairs}


def test_every_line_is_of_the_format() -> None:
    text = render(status())
    for line in text.splitlines():
        assert line.startswith(("# HELP recorder_", "# TYPE recorder_")) or LINE.fullmatch(line)
    kinds = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds)), "each metric is described once"
    for line in text.splitlines():
        if line.startswith("# TYPE"):  # as Prometheus names them
            _, _, name, kind = line.split()
            assert kind == ("counter" if name[-6:] == "_total" else "gauge")


def test_what_is_told() -> None:
    found = values(render(status()))
    at = '{sensor="lidar",stream="lidar"}'
    assert found[f"recorder_stream_rate_hertz{at}"] == 9.98
    assert found[f"recorder_stream_samples_total{at}"] == 120
    assert found['recorder_stream_lost_total{sensor="lidar",stream="lidar",cause="network"}'] == 3
    assert found[f"recorder_stream_uncounted_losses_total{at}"] == 1
    assert found['recorder_state{state="recording"}'] == 1
    assert found['recorder_state{state="idle"}'] == 0
    assert found['recorder_sensor_up{sensor="imu"}'] == 0
    assert found["recorder_uncommitted_seconds"] == 0.25
    assert (
        found["recorder_commits_total"],
        found["recorder_commit_seconds_total"],
    ) == (
        60,
        1.5,
    )
    assert found["recorder_disk_floor_bytes"] == 5e9 and "recorder_disk_free_bytes" not in found


def test_incomplete_samples_and_outages_that_go_on_count_now() -> None:
    shown = status()
    lidar, imu = shown["sensors"]["lidar"], shown["sensors"]["imu"]
    lidar["streams"]["lidar"]["incomplete"] = {"network": {"samples": 22, "parts": 353}}
    since_ns = time.time_ns() - 12 * 10**9
    outage = {"cause": "device", "since_ns": since_ns, "estimated": 120}
    lidar["streams"]["lidar"]["outage"] = outage
    imu["outage"] = {"cause": "absent", "since_ns": since_ns, "estimated": None}
    found = values(render(shown))
    at = '{sensor="lidar",stream="lidar"}'
    cause = '{sensor="lidar",stream="lidar",cause="network"}'
    assert found[f"recorder_stream_incomplete_total{cause}"] == 22
    assert found[f"recorder_stream_missing_parts_total{cause}"] == 353
    assert found[f"recorder_stream_uncounted_losses_total{at}"] == 2, "one more than is counted"
    assert found[f"recorder_stream_outage_samples{at}"] == 120
    assert found[f"recorder_stream_outage_seconds{at}"] >= 12
    absent = '{sensor="imu",stream="imu"}'
    assert found[f"recorder_stream_uncounted_losses_total{absent}"] == 1
    assert f"recorder_stream_outage_samples{absent}" not in found


def test_an_idle_daemon_has_metrics_too() -> None:
    found = values(render(status(session=None, state="idle", sensors={}, healthy=True)))
    assert found["recorder_healthy"] == 1 and "recorder_session_bytes" not in found


def test_names_cannot_break_the_format() -> None:
    text = render(status(version='a"b\\c\nd'))
    assert 'recorder_info{version="a\\"b\\\\c\\nd"} 1' in text.splitlines()


def get(port: int, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_it_is_served_on_this_machine_alone() -> None:
    with MetricsServer(0, lambda: render(status())) as server:
        assert get(server.port, "/metrics") == (200, render(status()))
        assert get(server.port, "/")[0] == 404
        assert server._server.server_address[0] == "127.0.0.1"
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.send(b"GET")  # one that does not go on holds nobody up
            assert get(server.port, "/metrics?x=1")[0] == 200
        with pytest.raises(StorageError, match=f"metrics.port: {server.port}: "):
            MetricsServer(server.port, str)


def test_who_was_served_leaves_room_for_the_next() -> None:
    with MetricsServer(0, lambda: "x 1\n") as server:
        for _ in range(3 * _MOST_CLIENTS):
            assert get(server.port, "/metrics") == (200, "x 1\n")


def test_the_daemons_surroundings_serve_its_status_until_they_are_closed() -> None:
    session = SimpleNamespace(machine=SimpleNamespace(session=None))
    daemon: Any = SimpleNamespace(
        config=SimpleNamespace(metrics=SimpleNamespace(port=0)),
        on_tick=[],
        sessions=session,
        status=status,
        supervisor=SimpleNamespace(put=None, report=None),
    )
    log: Any = SimpleNamespace(follow=lambda session: None)
    surroundings = Sidecars(daemon, log)
    assert surroundings.metrics is not None
    (tick,) = daemon.on_tick
    tick(daemon, 0)
    assert get(surroundings.metrics.port, "/metrics") == (200, render(status()))
    surroundings.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", surroundings.metrics.port), timeout=60.0)
