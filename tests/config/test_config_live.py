"""The section ``live``: who may look, and that its token is shown nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from recorder.config.settings import LiveSettings, plain_settings, read_settings
from tests.config.configs import SMALL, load, refusal, rig

__all__ = ["rig"]

TOKEN = "s3cret-of-16-and-more"


def test_without_the_section_there_is_no_live_process(rig: Path) -> None:
    assert load(rig, SMALL).live is None
    assert load(rig, SMALL + "live: null\n").live is None
    assert load(rig, SMALL + "live: {}\n").live == LiveSettings()


def test_every_key(rig: Path) -> None:
    (rig / "cert.pem").touch()
    (rig / "key.pem").touch()
    text = (
        f'live: {{port: 0, bind: 0.0.0.0, token: "{TOKEN}", clients: 2, certificate: cert.pem,\n'
        "       key: key.pem, origins: ['https://app.foxglove.dev', 'http://[::1]:8080', file://]}\n"
    )
    live = load(rig, SMALL + text).live
    assert live is not None
    assert json.loads(json.dumps(plain_settings(live))) == {
        "port": 0,
        "bind": "0.0.0.0",
        "token": TOKEN,
        "origins": ["https://app.foxglove.dev", "http://[::1]:8080", "file://"],
        "certificate": str(rig / "cert.pem"),
        "key": str(rig / "key.pem"),
        "clients": 2,
    }
    assert TOKEN not in repr(live)


def test_the_defaults_are_of_this_machine_alone() -> None:
    assert json.loads(json.dumps(plain_settings(LiveSettings()))) == {
        "port": 8377,
        "bind": "127.0.0.1",
        "token": None,
        "origins": [],
        "certificate": None,
        "key": None,
        "clients": 8,
    }


def test_settings_survive_their_way_as_json() -> None:
    live = LiveSettings(0, token=TOKEN, origins=("file://",), key=Path("rig/key.pem"))
    assert read_settings(json.loads(json.dumps(plain_settings(live))), LiveSettings) == live


@pytest.mark.parametrize("bind", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_loopback_needs_no_token(rig: Path, bind: str) -> None:
    live = load(rig, SMALL + f'live: {{bind: "{bind}"}}\n').live
    assert live is not None and live.bind == bind


@pytest.mark.parametrize(
    ("section", "key", "problem"),
    [
        ("bind: 0.0.0.0", "live.bind", "live.token"),
        ('bind: "::"', "live.bind", "live.token"),
        ("bind: rig-1.local", "live.bind", "live.token"),
        ("bind: 10.0.0.300", "live.bind", "neither an address nor a host's name"),
        ('bind: ""', "live.bind", "neither an address nor a host's name"),
        ("bind: http://x", "live.bind", "neither an address nor a host's name"),
        ("token: short-s3cret", "live.token", "16 characters or more, this one has 12"),
        (f'token: "{TOKEN} x"', "live.token", "no spaces"),
        (f'token: "{TOKEN}é"', "live.token", "no spaces"),
        ("token: 1234567890123456", "live.token", "needs a text"),
        ("token: [s3cret]", "live.token", "needs a text"),
        ("token: 12345678901234567890123456", "live.token", "whole number of 64 bits"),
        ("certificate: mask.png", "live.certificate", "needs live.key as well"),
        ("key: mask.png", "live.key", "needs live.certificate as well"),
        ("certificate: mask.png, key: no.pem", "live.key", "no such file"),
        ("certificate: keys, key: mask.png", "live.certificate", "is not a file"),
        ("origins: ['*']", "live.origins[0]", "SCHEME://HOST"),
        ("origins: ['https://a', 'https://b/']", "live.origins[1]", "SCHEME://HOST"),
        ("origins: ['https://u:pw@b']", "live.origins[0]", "SCHEME://HOST"),
        ("origins: [7]", "live.origins[0]", "needs a text"),
        ("port: 70000", "live.port", "above the maximum"),
        ("clients: 0", "live.clients", "below the minimum"),
        ("tokn: x", "live.tokn", "did you mean 'token'"),
    ],
)
def test_what_is_wrong_is_one_error_at_its_place(
    rig: Path, section: str, key: str, problem: str
) -> None:
    error = refusal(rig, SMALL + f"live:\n  {{{section}}}\n")
    assert error.key == key and error.line == SMALL.count("\n") + 2
    assert problem in str(error)
    assert "s3cret" not in str(error) and "1234567890" not in str(error)


@pytest.mark.parametrize(
    "written",
    [
        f"live: {{token: {TOKEN}, port: 1}}",
        f"live: {{token: '{TOKEN}', port: 1}}  # token: {TOKEN}-old",
        f'live:\n  token: "{TOKEN.replace("-", chr(92) + "x2d")}"\n  port: 1',
        f"live:\n  token: >-\n    {TOKEN}\n  port: 1",
        f"live:\n  token: &t {TOKEN}\n  port: 1\nsession: {{metadata: {{x: *t}}}}",
        f"session: {{metadata: {{x: &t {TOKEN}}}}}\nlive: {{token: *t, port: 1}}",
        f"session: {{metadata: &m {{token: {TOKEN}}}}}\nlive: {{<<: *m, port: 1}}",
    ],
)
def test_the_copy_of_the_config_shows_no_token(rig: Path, written: str) -> None:
    document = load(rig, SMALL + written + "\n").document
    assert TOKEN[:6] not in document.masked_text
    again = yaml.safe_load(document.masked_text)
    assert again["live"] == {"token": "***", "port": 1}
    assert TOKEN in document.values["live"]["token"]


def test_a_token_that_is_not_set_is_not_masked(rig: Path) -> None:
    text = SMALL + "live: {token: null, port: 1}\n"
    assert load(rig, text).document.masked_text == text


def test_the_rig_of_make_live_is_that_of_make_demo() -> None:
    folder = Path(__file__).parents[2] / "configs"
    live, demo = (
        yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in ("live", "demo")
    )
    assert live["sensors"] == demo["sensors"] and live["calibration"] == demo["calibration"]
    assert live["live"] is not None and "retention" in live and "live" not in demo
