"""Encrypted uploads: what the store has, who can read it, and what a kill may cost."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyrage
import pytest

from recorder.archives.finalize import ArchiveRequest
from recorder.cli import main
from recorder.common.errors import FormatError, StorageError, UsageError
from recorder.fleet import sealed_upload
from recorder.fleet.catalog.rows import Row
from recorder.fleet.encryption import Identity, Recipients
from recorder.fleet.fetching import download_session
from recorder.fleet.packing_jobs import plan_jobs
from recorder.fleet.packing_worker import pack_job
from recorder.fleet.store import open_store
from recorder.fleet.store.base import ObjectExistsError, Store
from recorder.fleet.store.manifest import Manifest
from recorder.fleet.uploading import list_files, upload_session
from recorder.fleet.verified import verify_store
from recorder.integrity.proof import Trust
from recorder.session.outputs import is_safe_at
from recorder.session.validation import validate
from tests.campaigns import seeded
from tests.fleet.conftest import CAMPAIGN
from tests.fleet.killed_uploads import SEGMENT
from tests.fleet.sessions import content_of, make_session
from tests.integrity.vehicle import Vehicle

OVERHEAD = 400  # bytes that age adds to a segment of one chunk, for one recipient


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_upload, "SEGMENT_BYTES", SEGMENT)


@pytest.fixture
def identity_file(tmp_path: Path) -> Path:
    return make_identity(tmp_path / "identity.txt")


def make_identity(path: Path) -> Path:
    """A file as age-keygen writes it."""
    key = pyrage.x25519.Identity.generate()
    path.touch(0o600)
    path.write_text(f"# created: 2026-01-01\n# public key: {key.to_public()}\n{key}\n")
    return path


def recipient_of(path: Path) -> str:
    return path.read_text().split("public key: ")[1].split()[0]


def secret_of(path: Path) -> str:
    return path.read_text().splitlines()[-1]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    session = make_session(tmp_path / "root/drive", large=2 * SEGMENT + 777)
    (session / "_archives/l5kit/exact").write_bytes(b"x" * SEGMENT)
    (session / "_archives/l5kit/empty").touch()
    return session


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}/store")


def seal(session: Path, store: Store, identity: Path, **more: Any) -> Manifest:
    upload_session(session, store, recipients=Recipients([recipient_of(identity)]), **more)
    return manifest_of(store)


def manifest_of(store: Store, name: str = "drive") -> Manifest:
    return Manifest.decode(store.read(f"_manifests/{name}.json"), name)


def data_of(session: Path) -> dict[str, bytes]:
    return {path: (session / path).read_bytes() for path in list_files(session)}


@pytest.mark.parametrize("server", CAMPAIGN, indirect=True)
def test_a_session_goes_and_comes_back(
    url: str, session: Path, identity_file: Path, tmp_path: Path
) -> None:
    store = open_store(url)
    manifest = seal(session, store, identity_file, read_back=True)
    assert is_safe_at(session, url)
    assert {e.path: (e.size, e.sha256) for e in manifest.files} == {
        path: (len(data), hashlib.sha256(data).hexdigest())
        for path, data in data_of(session).items()
    }
    counts = {e.path.rpartition("/")[2]: len(e.segments) for e in manifest.files}
    assert (counts["large"], counts["exact"], counts["empty"]) == (3, 1, 1)
    there = {found.key: store.read(found.key) for found in store.list()}
    del there["_manifests/drive.json"]
    assert {o.path: (o.size, o.sha256) for o in manifest.objects()} == {
        key: (len(data), hashlib.sha256(data).hexdigest()) for key, data in there.items()
    }
    assert all(data.startswith(b"age-encryption.org/v1\n") for data in there.values())
    done = download_session(store, "drive", tmp_path / "back", identity=Identity(identity_file))
    assert content_of(done.session) == data_of(session)
    assert not validate(done.session).problems
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["drive"]
    assert not (session / "_recorder/upload").exists()
    assert upload_session(session, store).sent == 0  # what is there is complete


def join_by_hand(store: Store, manifest: Manifest, decrypt: Any) -> Iterator[tuple[str, bytes]]:
    """As docs/security.md describes it."""
    for entry in manifest.files:
        cipher = [store.read(f"{manifest.folder}/{each.path}") for each in entry.segments]
        yield entry.path, b"".join(map(decrypt, cipher))


def test_pyrage_alone_decrypts_what_the_document_describes(
    session: Path, store: Store, identity_file: Path
) -> None:
    manifest = seal(session, store, identity_file)
    key = pyrage.x25519.Identity.from_str(secret_of(identity_file))
    joined = dict(join_by_hand(store, manifest, lambda data: pyrage.decrypt(data, [key])))
    assert joined == data_of(session)
    row = json.loads(pyrage.decrypt(manifest.sealed, [key]))
    assert row["session"] == "drive" and row["host"]


@pytest.mark.conformance
def test_the_program_age_decrypts(session: Path, store: Store, tmp_path: Path) -> None:
    """Keys of age-keygen, and one of ssh-keygen; age's own program decrypts each segment."""
    if shutil.which("age") is None:
        pytest.skip("NOT TESTED: the program age is not installed (Debian: age)")
    identity = tmp_path / "of-age.txt"
    subprocess.run(["age-keygen", "-o", str(identity)], check=True, capture_output=True)
    keys, names = [identity], [recipient_of(identity)]
    if shutil.which("ssh-keygen") is not None:
        ssh = tmp_path / "ssh"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh)]
        subprocess.run(command, check=True)
        keys, names = [*keys, ssh], [*names, ssh.with_suffix(".pub").read_text()]
    upload_session(session, store, recipients=Recipients(names))
    manifest = manifest_of(store)
    for key in keys:
        command = ["age", "--decrypt", "--identity", str(key)]

        def decrypt(data: bytes, command: list[str] = command) -> bytes:
            return subprocess.run(command, input=data, check=True, capture_output=True).stdout

        assert dict(join_by_hand(store, manifest, decrypt)) == data_of(session)
        done = download_session(
            store, "drive", tmp_path / f"back-{key.name}", identity=Identity(key)
        )
        assert content_of(done.session) == data_of(session)


@seeded(1, weight=20, least=6)
def test_kills_cost_at_most_a_segment_and_leave_no_orphan(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / str(seed)
    session = make_session(folder / "root/drive", large=4 * SEGMENT + 777, seed=seed)
    identity, store = make_identity(folder / "identity.txt"), open_store(f"file://{folder}/store")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fleet.killed_uploads", str(session), store.url,
         recipient_of(identity), str(seed)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told, manifest = json.loads(done.stdout), manifest_of(store)
    assert 3 <= told["kills"] <= 12  # a try may come to the end before its kill
    objects = {each.path: each for each in manifest.objects()}
    assert {found.key for found in store.list()} == {*objects, "_manifests/drive.json"}
    total = sum(each.size for each in objects.values())
    assert total <= told["sent"] <= total + told["kills"] * (SEGMENT + OVERHEAD)
    assert upload_session(session, store, read_back=True).read_back
    copy = download_session(store, "drive", folder / "back", identity=Identity(identity))
    assert content_of(copy.session) == data_of(session)
    assert not (session / "_recorder/upload").exists()


class CutError(Exception):
    """The upload is cut off."""


def cut_at(number: int) -> Any:
    """A pace that cuts the upload off before so many puts were begun."""
    left = [number]

    def pace(_: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise CutError

    return pace


def test_what_was_acknowledged_is_not_sent_again(
    session: Path, store: Store, identity_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CutError):
        seal(session, store, identity_file, pace=cut_at(5))
    before = {found.key for found in store.list()}
    assert len(before) == 5
    sent, chunks = list[int](), store.chunks

    def manifest_only(key: str) -> Any:
        assert key == "_manifests/drive.json", f"{key} is fetched"
        return chunks(key)

    monkeypatch.setattr(store, "chunks", manifest_only)
    upload_session(
        session, store, recipients=Recipients([recipient_of(identity_file)]), pace=sent.append
    )
    monkeypatch.undo()
    manifest = manifest_of(store)
    keys = {each.path for each in manifest.objects()}
    assert before < keys and len(sent) == len(keys) - len(before)


@pytest.mark.parametrize("arrived", [False, True])
def test_a_segment_whose_bytes_are_lost(
    session: Path, store: Store, identity_file: Path, arrived: bool, monkeypatch: Any
) -> None:
    """It is encrypted anew under another key, unless the store has it as it was recorded."""
    if arrived:
        real = store.upload_new
        calls = iter(range(99))

        def late(*args: Any, **more: Any) -> str:
            sha256 = real(*args, **more)
            if next(calls) == 3:
                raise CutError
            return sha256

        monkeypatch.setattr(store, "upload_new", late)
    with pytest.raises(CutError):
        seal(session, store, identity_file, pace=None if arrived else cut_at(3))
    monkeypatch.undo()
    monkeypatch.setattr(sealed_upload, "SEGMENT_BYTES", SEGMENT)
    (cipher,) = (session / "_recorder/upload").glob("*.age")
    cipher.write_bytes(cipher.read_bytes()[:-1])
    (record,) = (session / "_recorder/upload").glob("*.jsonl")
    pending = json.loads(record.read_text().splitlines()[-1])
    assert pending["done"] is False
    manifest = seal(session, store, identity_file, read_back=True)
    keys = {each.path for each in manifest.objects()}
    assert (f"drive/{pending['segment']['path']}" in keys) is arrived
    assert {found.key for found in store.list()} == {*keys, "_manifests/drive.json"}


def test_an_object_of_somebody_else_is_neither_overwritten_nor_accepted(
    session: Path, store: Store, identity_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = list_files(session)[0]
    monkeypatch.setattr("recorder.fleet.sealed_upload.secrets.token_hex", lambda _: "f" * 32)
    key = f"drive/{first}.00000-{'f' * 32}.age"
    store.put_new(key, b"of somebody else")
    with pytest.raises(ObjectExistsError, match="is there already, with other content"):
        seal(session, store, identity_file)
    assert store.read(key) == b"of somebody else"
    assert [found.key for found in store.list()] == [key]
    monkeypatch.undo()
    monkeypatch.setattr(sealed_upload, "SEGMENT_BYTES", SEGMENT)
    manifest = seal(session, store, identity_file)  # under a key of its own
    assert key not in {each.path for each in manifest.objects()}
    proof = verify_store(store, Trust())
    text = "belongs to no manifest; an upload that was cut off can have left it"
    assert proof.unproven == [f"{store.url}/{key}: {text}"]


def test_an_age_file_that_changes_before_it_is_sent_is_never_acknowledged(
    session: Path, store: Store, identity_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store.upload_new

    def spoil(key: str, source: Path, **more: Any) -> str:
        source.write_bytes(source.read_bytes() + b"x")
        return real(key, source, **more)

    monkeypatch.setattr(store, "upload_new", spoil)
    with pytest.raises(StorageError, match=r"\.age: was changed while it was uploaded; try again"):
        seal(session, store, identity_file)
    monkeypatch.setattr(store, "upload_new", real)
    (spoiled,) = [found.key for found in store.list()]
    manifest = seal(session, store, identity_file, read_back=True)
    assert spoiled not in {each.path for each in manifest.objects()}


def test_a_file_that_changed_between_two_attempts_is_sent_as_it_is_now(
    session: Path, store: Store, identity_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(CutError):
        seal(session, store, identity_file, pace=cut_at(len(list_files(session)) - 1))
    (session / "report.html").write_text("<html>another one</html>")
    seal(session, store, identity_file, read_back=True)
    done = download_session(store, "drive", tmp_path / "b", identity=Identity(identity_file))
    assert content_of(done.session) == data_of(session)


def test_a_file_that_changes_meanwhile_is_an_error(
    session: Path, store: Store, identity_file: Path
) -> None:
    report = session / "report.html"

    def change(_: int) -> None:
        for path in (session / "_archives/l5kit/large", report):
            path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(StorageError, match="was changed while it was uploaded; try again"):
        seal(session, store, identity_file, pace=change)
    assert not list(store.list("_manifests/"))


@pytest.mark.parametrize("tail", [b'{"path":"x', b"\0" * 100, b"{}\n"])
def test_a_record_that_lost_its_end_is_read_up_to_there(
    session: Path, store: Store, identity_file: Path, tail: bytes
) -> None:
    with pytest.raises(CutError):
        seal(session, store, identity_file, pace=cut_at(5))
    before = {found.key for found in store.list()}
    (record,) = (session / "_recorder/upload").glob("*.jsonl")
    record.write_bytes(record.read_bytes() + tail)
    manifest = seal(session, store, identity_file, read_back=True)
    assert before < {each.path for each in manifest.objects()}


def test_other_recipients_get_segments_of_their_own(
    session: Path, store: Store, identity_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(CutError):
        seal(session, store, identity_file, pace=cut_at(5))
    other = make_identity(tmp_path / "other.txt")
    manifest = seal(session, store, other)
    assert manifest.recipients == (recipient_of(other),)
    done = download_session(store, "drive", tmp_path / "b", identity=Identity(other))
    assert content_of(done.session) == data_of(session)
    with pytest.raises(StorageError, match=r"store/drive/.*: cannot be decrypted with .*identity"):
        download_session(store, "drive", tmp_path / "c", identity=Identity(identity_file))
    assert not (tmp_path / "c/drive").exists()


def test_several_recipients_can_each_decrypt(
    session: Path, store: Store, identity_file: Path, tmp_path: Path
) -> None:
    keys = [identity_file, make_identity(tmp_path / "other.txt")]
    upload_session(session, store, recipients=Recipients(map(recipient_of, keys)))
    for key in keys:
        download_session(store, "drive", tmp_path / f"back-{key.name}", identity=Identity(key))


def test_a_plain_upload_is_not_taken_for_an_encrypted_one(
    session: Path, store: Store, identity_file: Path
) -> None:
    upload_session(session, store)
    with pytest.raises(ObjectExistsError, match="was uploaded before, and is not encrypted"):
        seal(session, store, identity_file)


def test_two_uploads_of_a_session_at_a_time_are_refused(
    session: Path, store: Store, identity_file: Path
) -> None:
    with pytest.raises(CutError):
        seal(session, store, identity_file, pace=cut_at(2))
    (record,) = (session / "_recorder/upload").glob("*.jsonl")
    with record.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="is being uploaded by another process"):
            seal(session, store, identity_file)
    seal(session, store, identity_file)


def object_path(store: Store, key: str) -> Path:
    return Path(store.url.removeprefix("file://")) / key


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[len(data) // 2] ^= 1
    elif how == "cut":
        del data[-1]
    path.unlink()
    if how != "remove":
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_a_damaged_segment_is_found_by_everybody(
    store: Store, session: Path, identity_file: Path, tmp_path: Path, how: str
) -> None:
    manifest = seal(session, store, identity_file)
    large = next(e for e in manifest.files if e.path.endswith("large"))
    key = f"drive/{large.segments[1].path}"
    damage(object_path(store, key), how)
    for identity in (None, Identity(identity_file)):
        proof = verify_store(store, Trust(), identity=identity)
        assert not proof.sound and key in str(proof.first_fault)
    with pytest.raises(StorageError, match=r"large\.00001-"):
        download_session(store, "drive", tmp_path / "b", identity=Identity(identity_file))
    assert not (tmp_path / "b/drive").exists()
    with pytest.raises(StorageError, match=r"large\.00001-"):
        upload_session(session, store, read_back=True)


def test_segments_that_were_replaced_with_a_fitting_manifest_are_found(
    store: Store, session: Path, identity_file: Path, tmp_path: Path
) -> None:
    """Everybody can encrypt for a recipient; the digest of the plain file tells."""
    manifest = seal(session, store, identity_file)
    path = object_path(store, "_manifests/drive.json")
    values = json.loads(path.read_text())
    entry = next(e for e in values["files"] if e["path"] == "report.html")
    forged = Recipients(manifest.recipients).encrypt_bytes(b"<html>forged</html>")
    object_path(store, f"drive/{entry['segments'][0]['path']}").write_bytes(forged)
    entry["segments"][0] |= {
        "size": len(forged), "sha256": hashlib.sha256(forged).hexdigest(),
    }  # fmt: skip
    fitting = msgspec.convert(values, Manifest, strict=False).with_digest()
    path.write_bytes(fitting.encode())
    proof = verify_store(store, Trust(), identity=Identity(identity_file))
    assert proof.faults == [] and not proof.sound
    assert proof.first_fault == f"{store.url}/drive/report.html: is not what was uploaded"
    # Another encryption of the genuine file: age's random extra stanza may change its size.
    genuine = Recipients(manifest.recipients).encrypt_bytes((session / "report.html").read_bytes())
    object_path(store, f"drive/{entry['segments'][0]['path']}").write_bytes(genuine)
    entry["segments"][0]["size"] = len(genuine)
    path.write_bytes(msgspec.convert(values, Manifest, strict=False).with_digest().encode())
    proof = verify_store(store, Trust(), identity=Identity(identity_file))
    assert f"{entry['segments'][0]['path']}: is not what was uploaded" in str(proof.first_fault)
    entry["segments"] = []
    path.write_text(json.dumps(values))
    with pytest.raises(FormatError, match="some of its files are encrypted, not all"):
        manifest_of(store)


def test_the_chain_goes_through_the_encryption(tmp_path: Path, identity_file: Path) -> None:
    """From the vehicle's signature to an archive that a worker packed."""
    url = f"file://{tmp_path}/store"
    vehicle, store = Vehicle.make(tmp_path), open_store(url)
    recipients = Recipients([recipient_of(identity_file)])
    upload_session(vehicle.record("a", 1), store, recipients=recipients)
    out = f"file://{tmp_path}/packed"
    plan = plan_jobs([url], [ArchiveRequest("l5kit")], out)
    assert plan.jobs == () and plan.refused == {f"{url}/a": "is encrypted; give --identity"}
    plan = plan_jobs([url], [ArchiveRequest("l5kit")], out, identity_file=str(identity_file))
    (job,) = plan.jobs
    assert secret_of(identity_file) not in repr(job)
    assert (
        job.identity
        == plan_jobs([url], [ArchiveRequest("l5kit")], out, None, "elsewhere").jobs[0].identity
    )
    pack_job(job, str(tmp_path / "scratch"))
    assert manifest_of(open_store(out), "a/l5kit").name == "a"
    assert list((tmp_path / "scratch").iterdir()) == []
    sealed = verify_store(store, Trust([vehicle.public]))
    assert sealed.sound and "encrypted objects" in sealed.parts[0].proven[0]
    assert "the content is encrypted; give --identity" in sealed.parts[0].unproven[0]
    proof = verify_store(store, Trust([vehicle.public]), identity=Identity(identity_file))
    assert proof.sound and "by the trusted key" in proof.parts[0].proven[1]
    command = ["verify", url, "--public-key", vehicle.public, "--identity", str(identity_file)]
    assert main(command) == 0
    stranger = Vehicle.make(tmp_path / "other")
    identity = Identity(identity_file)
    assert not verify_store(store, Trust([stranger.public]), identity=identity).sound
    identity_file.chmod(0o644)
    second = plan_jobs([url], [ArchiveRequest("vrs")], out, identity_file=str(identity_file)).jobs[
        0
    ]
    with pytest.raises(UsageError, match=r"worker .*: .*identity.txt: others can read it"):
        pack_job(second, str(tmp_path / "scratch"))


def test_the_catalog_shows_who_may_read_it(
    tmp_path: Path, session: Path, store: Store, identity_file: Path
) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    manifest = seal(session, store, identity_file)
    public = set(Row.__struct_fields__) - {
        "vehicle", "host", "metadata", "marks", "events", "place", "problem",
    }  # fmt: skip
    shown = {key for key, value in manifest.about.items() if value not in (None, [], {}, "")}
    assert shown <= public and manifest.about["streams"][0]["samples"] == 20
    out = tmp_path / "catalog.parquet"
    hosts = []
    for more in ([], ["--identity", str(identity_file)], []):
        assert main(["catalog", store.url, "--out", str(out), *more]) == 0
        hosts.append(pyarrow.parquet.read_table(out).to_pylist()[0]["host"])
    assert hosts[0] is None and hosts[1] and hosts[2] is None


def test_the_commands(
    session: Path, store: Store, identity_file: Path, tmp_path: Path, capsys: Any
) -> None:
    command = ["upload", str(session), store.url, "--recipient", recipient_of(identity_file)]
    assert main(command) == 0
    target = tmp_path / "back"
    get = ["download", f"{store.url}/drive", str(target)]
    assert main(get) == 2
    assert "is encrypted; --identity FILE decrypts it" in capsys.readouterr().err
    own = ["--identity", str(identity_file)]
    assert main([*get, *own]) == 0
    assert content_of(target / "drive") == data_of(session)
    assert main([*get, *own]) == 2
    assert "is there already; nothing was changed" in capsys.readouterr().err
    assert main(["verify", store.url]) == 0
    for url in ("file:///drive", "drive", store.url + "/none"):
        assert main(["download", url, str(target), *own]) == 2
    identity_file.chmod(0o640)
    capsys.readouterr()
    assert main([*get, *own]) == 2
    said = capsys.readouterr()
    assert "others can read it; run `chmod 600" in said.err
    there = b"".join(store.read(found.key) for found in store.list())
    everything = there + b"".join(content_of(session).values()) + (said.out + said.err).encode()
    assert secret_of(identity_file).encode() not in everything


def test_a_download_goes_on_where_it_was_cut_off(
    session: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_session(session, store)
    real, left = store.chunks, [6]

    def cut(key: str) -> Iterator[bytes]:
        left[0] -= 1
        yield from real(key)
        if left[0] < 0:
            raise CutError

    monkeypatch.setattr(store, "chunks", cut)
    with pytest.raises(CutError):
        download_session(store, "drive", tmp_path / "b")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "b").iterdir()] == [".drive.part"]
    (tmp_path / "b/.drive.part/more").write_text("of an earlier call")
    part, whole = tmp_path / "b/.drive.part", data_of(session)
    here = next(p for p, data in whole.items() if data and (part / p).is_file())
    assert (part / here).read_bytes() == whole[here]
    (part / here).write_bytes(bytes(len(whole[here])))
    done = download_session(store, "drive", tmp_path / "b")
    assert 0 < done.fetched < done.bytes
    assert content_of(done.session) == data_of(session)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age1x", "'age1x' is no recipient of age"),
        ("ssh-ed25519 AAAA", "is no recipient of age"),
        ("", "'' is no recipient of age"),
    ],
)
def test_what_is_no_recipient(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Recipients([text])
    with pytest.raises(UsageError, match="there is no recipient"):
        Recipients([])


def test_a_secret_key_as_recipient_is_shown_nowhere(identity_file: Path) -> None:
    secret = secret_of(identity_file)
    for text in (secret, secret.lower()):
        with pytest.raises(UsageError, match="a recipient is a secret key") as error:
            Recipients([text])
        assert secret[20:].lower() not in str(error.value).lower()


@pytest.mark.parametrize(
    "change",
    [lambda key: key[:-1], lambda key: key + "X", lambda _: "", lambda key: key[::-1]],
)
def test_a_file_that_holds_no_identity(identity_file: Path, change: Any) -> None:
    secret = secret_of(identity_file)
    identity_file.write_text(change(secret))
    with pytest.raises(UsageError, match=r"identity.txt: holds no secret keys of age") as error:
        Identity(identity_file)
    assert secret[20:40] not in str(error.value)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Identity(identity_file.with_name("none"))
