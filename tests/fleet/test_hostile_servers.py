"""S3 servers that lose, change or never end what they answer.

Each lie costs one error that names the store and the object; nothing counts as uploaded, and
nothing here is deleted or changed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from botocore.response import StreamingBody

from recorder.common.errors import FormatError, StorageError
from recorder.fleet.fetching import download_session
from recorder.fleet.store import base, open_store, s3
from recorder.fleet.store.base import Store, StoreUnreachableError
from recorder.fleet.stored_catalog import catalog_store
from recorder.fleet.uploading import upload_session
from recorder.session.outputs import is_safe_at, read_uploaded
from tests.fleet.hostile_server import Hostile, Lie, Request, hostile_server
from tests.fleet.sessions import content_of, make_session
from tests.manual_clock import ManualClock

MANIFEST = "fleet/v/_manifests/drive.json"
OBJECT = "fleet/v/drive/imu/acc"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hostile]:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # of botocore, between its attempts
    with hostile_server(monkeypatch, tmp_path) as made:
        yield made


@pytest.fixture
def store(server: Hostile) -> Store:
    return open_store("s3://fleet/v")


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return make_session(tmp_path / "root/drive")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A session that was uploaded, and the objects that the server has of it."""
    folder = tmp_path_factory.mktemp("stored")
    session = make_session(folder / "root/drive")
    with pytest.MonkeyPatch.context() as patch, hostile_server(patch, folder) as server:
        upload_session(session, open_store("s3://fleet/v"))
        return session, dict(server.objects)


@pytest.fixture
def uploaded(server: Hostile, stored: tuple[Path, dict[str, bytes]], tmp_path: Path) -> Path:
    """The session that the server has."""
    server.objects.update(stored[1])
    return shutil.copytree(stored[0], tmp_path / "root/drive")


def on(method: str, key: str, answer: Callable[[Request], object]) -> Lie:
    """A lie about one object."""

    def lie(request: Request) -> bool:
        if (request.command, request.key) != (method, key):
            return False
        answer(request)
        return True

    return lie


def lose(request: Request) -> None:
    """Acknowledge, and keep nothing."""
    request.reply()


def alter(request: Request) -> None:
    """Acknowledge, and keep something else of the same size."""
    request.server.objects[request.key] = bytes(len(request.body))
    request.reply()


def cut(request: Request) -> None:
    """Acknowledge, and keep half."""
    request.server.objects[request.key] = request.body[: len(request.body) // 2]
    request.reply()


@pytest.mark.parametrize(
    ("lie", "read_back"), [(lose, False), (cut, False), (alter, False), (alter, True)]
)
def test_a_manifest_counts_when_it_was_read_back(
    lie: Callable[[Request], object], read_back: bool, server: Hostile, store: Store, session: Path
) -> None:
    before = content_of(session)
    server.lies.append(on("PUT", MANIFEST, lie))
    with pytest.raises(StorageError, match=r"s3://fleet/v/_manifests/drive\.json: ") as error:
        upload_session(session, store, read_back=read_back)
    assert "acknowledged" in str(error.value)
    assert read_uploaded(session) is None and not is_safe_at(session, store.url)
    after = content_of(session)
    assert {path: after[path] for path in before} == before
    server.lies.clear()
    server.objects.pop(MANIFEST, None)
    assert upload_session(session, store, read_back=True).read_back
    assert is_safe_at(session, store.url)


@pytest.mark.parametrize(
    ("lie", "read_back", "text"),
    [
        (lose, False, ".*acknowledged"),
        (cut, False, ".*acknowledged"),
        (alter, True, "is missing, or is not what was sent"),
    ],
)
def test_an_object_that_was_acknowledged_and_lost_is_found(
    lie: Callable[[Request], object], read_back: bool, text: str, server: Hostile, store: Store,
    session: Path,
) -> None:  # fmt: skip
    server.lies.append(on("PUT", OBJECT, lie))
    with pytest.raises(StorageError, match=f"s3://fleet/v/drive/imu/acc: {text}"):
        upload_session(session, store, read_back=read_back)
    assert (MANIFEST in server.objects) is read_back and read_uploaded(session) is None


def test_what_was_read_back_before_a_store_lost_it_is_read_again(
    server: Hostile, store: Store, session: Path
) -> None:
    assert upload_session(session, store, read_back=True).read_back
    server.objects.clear()
    assert not upload_session(session, store).read_back
    assert not is_safe_at(session, store.url)


def stream(request: Request, head: dict[str, str], pieces: Iterator[bytes]) -> None:
    """Answer with what never ends; the client has to end it."""
    request.send_response(200)
    request.send_header("ETag", '"x"')
    for name, value in head.items():
        request.send_header(name, value)
    request.end_headers()
    for piece in pieces:
        try:
            request.wfile.write(piece)
        except OSError:
            return


def endless(request: Request) -> None:
    stream(request, {"Content-Length": str(1 << 40)}, (b" " * 65536 for _ in count()))


def endless_chunks(request: Request) -> None:
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    stream(request, {"Transfer-Encoding": "chunked"}, (piece for _ in count()))


def truncated(request: Request) -> None:
    data = request.server.objects[request.key]
    request.reply(data[: len(data) // 2], Content_Length=str(len(data)))
    request.close_connection = True


def page(request: Request) -> None:
    request.reply(b"<html>Accept the terms</html>")


def error_body(request: Request) -> None:
    request.reply(b"<Error><Code>InternalError</Code><Message>x</Message></Error>")


def compressed(request: Request) -> None:
    request.reply(b"\x1f\x8b" + bytes(20), Content_Encoding="gzip")


def nothing(request: Request) -> None:
    request.reply(b"")


BODIES = [endless, endless_chunks, truncated, page, error_body, compressed, nothing]


@pytest.mark.parametrize(
    ("lie", "key"), [*zip(BODIES, cycle((MANIFEST, OBJECT))), (truncated, OBJECT), (page, OBJECT)]
)
def test_an_answer_that_is_not_the_object_is_an_error_of_it(
    lie: Callable[[Request], object],
    key: str,
    server: Hostile,
    store: Store,
    uploaded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "MOST_BYTES", 1 << 20)
    server.lies.append(on("GET", key, lie))
    name = key.removeprefix("fleet/v/")
    with pytest.raises((StorageError, FormatError)) as error:
        download_session(store, "drive", tmp_path / "back")
    assert f"s3://fleet/v/{name}: " in str(error.value)
    assert not (tmp_path / "back/drive").exists()
    assert sum(len(data) for data in content_of(tmp_path / "back").values()) < 2 << 20
    if key == MANIFEST:
        update = catalog_store(store, tmp_path / "catalog.parquet")
        assert [f"s3://fleet/v/{name}" in str(row.problem) for row in update.rows] == [True]
    with pytest.raises((StorageError, FormatError), match=f"s3://fleet/v/{name}: "):
        upload_session(uploaded, store, read_back=True)
    assert not is_safe_at(uploaded, store.url)
    server.lies.clear()
    assert download_session(store, "drive", tmp_path / "back").files


def test_an_object_without_a_length_is_read(server: Hostile, store: Store, tmp_path: Path) -> None:
    """RFC 9112, 7.1: a proxy may send it in chunks."""
    store.put_new("x", b"content")
    lie = on(
        "GET",
        "fleet/v/x",
        lambda request: stream(
            request, {"Transfer-Encoding": "chunked"}, iter([b"7\r\ncontent\r\n0\r\n\r\n"])
        ),
    )
    server.lies.append(lie)
    assert store.read("x") == b"content"
    server.lies = [on("HEAD", "fleet/v/x", lambda r: r.reply(b"", Content_Length=""))]
    with pytest.raises(StorageError, match=r"s3://fleet/v/x: the server does not give the size"):
        store.stat("x")
    server.lies = [on("HEAD", "fleet/v/x", lambda r: r.reply(b"", Content_Length="many"))]
    with pytest.raises(StorageError, match=r"s3://fleet/v/x: the answer of the server cannot be"):
        store.stat("x")


def test_an_answer_that_drips_is_given_up(
    server: Hostile, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes within the time limit of the socket; all of them would take days."""
    data = bytes(range(256)) * 512
    store.put_new("x", data)
    clock, pace, read = ManualClock(), [0.0], StreamingBody.read

    def read_slowly(body: StreamingBody, amt: int) -> Any:
        clock.advance(pace[0] * amt)
        return read(body, amt)

    monkeypatch.setattr(StreamingBody, "read", read_slowly)
    monkeypatch.setattr(s3, "now_s", lambda: clock.monotonic_ns() / 1e9)
    for pace[0] in (0.0, 0.008):  # a link of 1 kbit/s is slow, and is used
        assert store.read("x") == data
    pace[0] = 5.0  # seconds a byte
    with pytest.raises(StoreUnreachableError, match=r"s3://fleet/v/x: .* it sent \d+ bytes in 6"):
        store.read("x")
    assert clock.monotonic_ns() < 1e9 * (1300 + 0.008 * 3 * len(data))


def repeated(request: Request) -> None:
    request.listing(request.listed(), more="again")


def counted(request: Request) -> None:
    """A new token every time, and the same keys."""
    token = int(request.query.get("continuation-token", ["0"])[0]) + 1
    request.listing(request.listed(), more=str(token))


def empty_pages(request: Request) -> None:
    token = int(request.query.get("continuation-token", ["0"])[0]) + 1
    request.listing([], more=str(token))


def endless_keys(request: Request) -> None:
    token = int(request.query.get("continuation-token", ["0"])[0]) + 1
    request.listing([(f"v/_manifests/drive-{token}.json", 5)], more=str(token))


def outside(request: Request) -> None:
    request.listing([*request.listed(), ("w/_manifests/drive.json", 5)])


def twice(request: Request) -> None:
    request.listing([*request.listed(), *((key, size + 1) for key, size in request.listed())])


def without_sizes(request: Request) -> None:
    request.reply(
        b"<ListBucketResult><IsTruncated>false</IsTruncated>"
        b"<Contents><Key>v/_manifests/drive.json</Key></Contents></ListBucketResult>"
    )


def odd_sizes(request: Request) -> None:
    request.reply(
        b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>"
        b"<Key>v/_manifests/drive.json</Key><Size>many</Size></Contents></ListBucketResult>"
    )


def bomb(request: Request) -> None:
    entities = "".join(
        f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' if i else '<!ENTITY a0 "aaaaaaaaaa">'
        for i in range(12)
    )
    request.reply(f"<!DOCTYPE x [{entities}]><ListBucketResult>&a11;</ListBucketResult>".encode())


LISTINGS = [
    repeated, counted, empty_pages, endless_keys, outside, twice, without_sizes, odd_sizes, bomb,
]  # fmt: skip


@pytest.mark.parametrize("lie", LISTINGS)
def test_a_listing_that_cannot_be_true_is_an_error(
    lie: Callable[[Request], object],
    server: Hostile,
    store: Store,
    uploaded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "MOST_PAGES", 10)
    server.lies.append(lambda request: request.is_listing and (lie(request), True)[1])
    server.requests.clear()
    with pytest.raises(StorageError, match="s3://fleet/v"):
        catalog_store(store, tmp_path / "catalog.parquet")
    assert not (tmp_path / "catalog.parquet").exists()
    assert len(server.requests) <= 11


def test_keys_that_climb_out_of_the_store_are_no_sessions(
    server: Hostile, store: Store, uploaded: Path, tmp_path: Path
) -> None:
    for key in ("_manifests/../../x.json", "_manifests/..json", "../../drive/_manifests/x.json"):
        server.objects[f"fleet/v/{key}"] = b"{}"
    update = catalog_store(store, tmp_path / "catalog.parquet")
    assert [row.session for row in update.rows] == ["drive"]
    assert not any("x.json" in request for request in server.requests)


@pytest.mark.parametrize(
    "headers", [{"x_amz_request_id": "1"}, {"x_amz_bucket_region": "no/where"}]
)
@pytest.mark.parametrize(
    ("status", "code"), [(301, "PermanentRedirect"), (307, "TemporaryRedirect")]
)
def test_redirections_without_end_are_named(
    status: int, code: str, headers: dict[str, str], server: Hostile, store: Store, session: Path
) -> None:
    def redirect(request: Request) -> bool:
        text = f"<Error><Code>{code}</Code><Message>Please use it</Message></Error>"
        where = f"{request.headers['Host']}{request.path}"
        request.reply(text.encode(), status, Location=f"http://{where}", **headers)
        return True

    server.lies.append(redirect)
    with pytest.raises(StoreUnreachableError, match=r"s3://fleet/v.*redirects.*AWS_ENDPOINT_URL"):
        upload_session(session, store)
    with pytest.raises(StoreUnreachableError, match=r"s3://fleet/v.*redirects"):
        store.put_new("x", b"x")
    assert len(server.requests) < 20 and read_uploaded(session) is None
