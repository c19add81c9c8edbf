"""Stores of each kind, on servers that run until the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recorder.fleet.store import open_store
from recorder.fleet.store.base import Store
from tests.fleet.servers import Moto, S3Server, SeaweedFS, running

ALL = [
    "folder",
    "moto",
    pytest.param("seaweedfs", marks=pytest.mark.conformance),
]
CAMPAIGN = ["folder", pytest.param("moto", marks=pytest.mark.campaign(weight=2)), ALL[2]]
"""The same, for tests that take seconds on a server."""
_names = iter(range(1_000_000))


@pytest.fixture(scope="session", autouse=True)
def shared_loader() -> Iterator[None]:
    """Share the texts by which botocore knows S3: every client would read them."""
    session, loaders = (pytest.importorskip(f"botocore.{name}") for name in ("session", "loaders"))
    loader = loaders.create_loader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "create_loader", lambda _: loader)
        yield


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running(Moto, tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running(SeaweedFS, tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture
def server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> S3Server | None:
    """The server whose name is the parameter; its credentials are in the environment."""
    if request.param == "folder":
        return None
    found: S3Server = request.getfixturevalue(request.param)
    return use(found, monkeypatch, tmp_path)


def use(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    """Let the environment name a server, and nothing of this machine."""
    for name in ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def url(server: S3Server | None, tmp_path: Path) -> str:
    """Of a store that is empty."""
    if server is None:
        return f"file://{tmp_path}/a%20store"
    return f"s3://fleet/test-{next(_names)}"


@pytest.fixture
def store(url: str) -> Store:
    return open_store(url)
