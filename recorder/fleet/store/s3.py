"""Bucket of an S3 server as a store, through boto3.

Objects are created with the condition ``If-None-Match: *``, on single puts and on the completion of
multipart uploads, and every part is sent with its SHA-256, which the server checks.  The server
keeps the parts of an interrupted upload; `UploadRecord` keeps the values that the server does not
repeat.

A link may answer in the server's place, as the login page of a public network does.  Every answer
must therefore have the field that the S3 API gives to it (API Reference of Amazon S3, "Actions").
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from recorder.common.errors import StorageError, UsageError, need_extra
from recorder.common.files import check_private
from recorder.fleet.store.base import (
    MOST_PARTS,
    PART_BYTES,
    Pace,
    Source,
    Store,
    StoredObject,
    StoreUnreachableError,
    UploadedPart,
    UploadRecord,
    check_key,
    disk_errors,
    send_parts,
)
from recorder.fleet.store.s3_errors import (
    REASONS,
    REDIRECTS,
    S3Errors,
    make_redirect_error,
    make_stranger_error,
)

_CHUNK: Final = 1 << 20
_EXISTS: Final = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_MISSING: Final = ("NoSuchKey", "404", "NotFound")
_NO_UPLOAD: Final = ("NoSuchUpload",)
_NOT_ALLOWED: Final = ("AccessDenied", "NotImplemented")
_FIELDS: Final = {
    "HeadObject": "ETag",
    "GetObject": "ETag",
    "PutObject": "ETag",
    "UploadPart": "ETag",
    "CompleteMultipartUpload": "ETag",
    "CreateMultipartUpload": "UploadId",
    "ListObjectsV2": "IsTruncated",
    "ListParts": "IsTruncated",
}
_UNTOLD: Final = ("400", "403")  # of a HEAD, whose reply has no body that tells the reason
LEAST_BYTES, LEAST_S = 65536, 600.0
"""Least number of bytes, and time in seconds; a slower answer is given up."""
now_s = time.monotonic
_PLAIN: Final = ("", "identity", "aws-chunked")
"""Content encodings of objects that arrive as they were stored."""
MOST_PAGES = 10_000
"""Largest number of pages in a listing; Amazon's pages have 1000 entries."""
_BREAKS: Final = 5  # of a link, one after the other, without a byte between them


class S3Store(Store):
    """Objects of a bucket whose keys begin with a prefix.

    Args:
        bucket: name of the bucket.
        prefix: without a slash at its ends; may be empty.
        credentials: see `open_store`.
    """

    def __init__(self, bucket: str, prefix: str, credentials: Path | None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._client = _client(self.url, credentials)
        self._client.meta.events.register("before-parse.s3", self._refuse_redirection)
        self._client.meta.events.register("after-call.s3", self._refuse_stranger)

    def _locate(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _name(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _refuse_redirection(self, response_dict: Any, operation_model: Any, **_: Any) -> None:
        """Refuse redirections that botocore would follow forever.

        An S3 server that redirects sends the bucket's region, or an id, in `x-amz-...`.  Botocore
        requests a missing region by HeadBucket, and again if that is redirected.
        """
        if response_dict["status_code"] not in REDIRECTS:
            return
        names = [str(name).lower() for name in response_dict["headers"]]
        if not any(name.startswith("x-amz-") for name in names):
            raise make_stranger_error(self.url)
        if operation_model.name == "HeadBucket" and "x-amz-bucket-region" not in names:
            raise make_redirect_error(self.url)

    def _refuse_stranger(self, http_response: Any, parsed: Any, model: Any, **_: Any) -> None:
        field = _FIELDS.get(model.name)
        if http_response.status_code < 300 and field is not None and field not in parsed:
            raise make_stranger_error(self.url)

    def stat(self, key: str) -> StoredObject | None:
        with self._errors(key, _MISSING + _UNTOLD) as found:
            size = self._client.head_object(**self._locate(key)).get("ContentLength")
            if size is None:
                raise StorageError(
                    f"{self._name(key)}: the server does not give the size of the object (HEAD "
                    "without Content-Length); a proxy on the way may remove it"
                )
            return StoredObject(key, size)
        if found.code in ("404", *_UNTOLD):  # the bucket may be missing, a key or the clock wrong
            with self._errors(""):
                self._client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)
        if found.code in _UNTOLD:
            raise StorageError(f"{self._name(key)}: the server refuses to look ({found.code})")
        return None

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        begin, sizes = self._prefix + prefix, dict[str, int]()
        with self._errors(prefix):
            for page in self._pages("list_objects_v2", Bucket=self._bucket, Prefix=begin):
                known = len(sizes)
                for entry in page.get("Contents", ()):
                    key, size = entry["Key"][len(self._prefix) :], entry["Size"]
                    if not entry["Key"].startswith(begin):
                        raise StorageError(
                            f"{self.url}: the server lists {entry['Key']!r}, which does not begin "
                            f"with {begin!r}"
                        )
                    if sizes.setdefault(key, size) != size:
                        raise StorageError(f"{self._name(key)}: the server lists it with two sizes")
                found = islice(sizes.items(), known, None)
                yield from [StoredObject(key, size) for key, size in found]
                if page["IsTruncated"] and len(sizes) == known:
                    raise StorageError(
                        f"{self._name(prefix)}: the server repeats its listing, or lists nothing, "
                        "and gives no end; not listed"
                    )

    def _pages(self, operation: str, **given: Any) -> Iterator[Any]:
        """Yield the pages of the answer to a request."""
        pages = self._client.get_paginator(operation).paginate(**given)
        for number, page in enumerate(pages, 1):
            if number > MOST_PAGES:
                raise StorageError(
                    f"{self.url}: {operation} has more than {MOST_PAGES} pages; not listed"
                )
            yield page

    def chunks(self, key: str) -> Generator[bytes, None, None]:
        with self._errors(key, _MISSING) as found:
            yield from self._chunks(key)
        if found.code:
            raise StorageError(f"{self._name(key)}: there is no such object")

    def _chunks(self, key: str) -> Generator[bytes, None, None]:
        """Yield an object's bytes; request the rest when the connection breaks."""
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        reply = self._client.get_object(**self._locate(key))
        size, etag, done, breaks = reply.get("ContentLength"), reply["ETag"], 0, 0
        encoding = reply.get("ContentEncoding", "")
        while True:
            with closing(reply["Body"]) as body:
                if encoding not in _PLAIN:
                    raise StorageError(
                        f"{self._name(key)}: the server sends it with Content-Encoding {encoding}, "
                        "not as it was stored; a proxy on the way may do that"
                    )
                if done and reply.get("ContentRange") != f"bytes {done}-{size - 1}/{size}":
                    text = "the server sent other bytes than the rest"
                    raise StorageError(f"{self._name(key)}: {text}")
                try:
                    for chunk in _read_pieces(body, self._name(key)):
                        done, breaks = done + len(chunk), 0
                        yield chunk
                    return
                except (HTTPClientError, IncompleteReadError):
                    breaks += 1
                    if breaks > _BREAKS or size is None or done >= size:
                        raise
            reply = self._client.get_object(
                **self._locate(key), Range=f"bytes={done}-", IfMatch=etag
            )

    def put_new(self, key: str, data: bytes) -> None:
        if not self._put(key, data):
            digest = hashlib.sha256(data).hexdigest()
            self.check_same(key, self._name(key), len(data), digest)

    def _put(self, key: str, data: bytes) -> bool:
        with self._errors(key, _EXISTS) as found:
            self._client.put_object(
                **self._locate(key), Body=data, IfNoneMatch="*", ChecksumSHA256=_sha256(data)
            )
        return not found.code

    def upload_new(
        self, key: str, source: Path, *, record: Path | None = None, pace: Pace | None = None
    ) -> str:
        with Source(source) as given:
            made = False
            if self.stat(key) is not None:
                if record is not None:  # of an upload whose end nobody heard of
                    self.abandon(record)
                digest = given.read_all()
            elif given.size <= PART_BYTES:
                data = given.read(PART_BYTES)
                if pace is not None:
                    pace(len(data))
                digest = given.end()
                made = self._put(key, data)
            else:
                made, digest = self._upload_parts(key, given, record, pace)
            if not made:
                self.check_same(key, self._name(key), given.size, digest)
        if record is not None:
            record.unlink(missing_ok=True)
        return digest

    def abandon(self, record: Path) -> None:
        found = UploadRecord.read(record)
        if found is None or not found.url.startswith(f"{self.url}/"):
            return
        key = found.url.removeprefix(f"{self.url}/")
        if found.upload_id:
            self._abort(key, found)
        else:
            self._abort_empty(key, "")
        record.unlink(missing_ok=True)

    def _upload_parts(
        self, key: str, given: Source, path: Path | None, pace: Pace | None
    ) -> tuple[bool, str]:
        """Upload a file in parts; return True if an object was created, and the file's SHA-256."""
        at = self._locate(key)
        record = self._resume(key, given, path)
        upload = {**at, "UploadId": record.upload_id}

        def send(number: int, _offset: int, data: bytes) -> str:
            with self._errors(key):
                reply = self._client.upload_part(
                    **upload, PartNumber=number, Body=data, ChecksumSHA256=_sha256(data)
                )
            return str(reply["ETag"])

        try:
            send_parts(given, record, path, pace, send)
        except StorageError as error:
            if isinstance(error, StoreUnreachableError) or self.stat(key) is None:
                raise
            return False, given.read_all()  # another worker has ended this upload
        digest = given.end()
        parts = [
            {
                "PartNumber": part.number,
                "ETag": part.etag,
                "ChecksumSHA256": base64.b64encode(bytes.fromhex(part.sha256)).decode(),
            }
            for part in record.parts
        ]
        with self._errors(key, _EXISTS + _NO_UPLOAD) as found:
            self._client.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
            )
        if found.code in _EXISTS:
            self._abort(key, record)
        if found.code and self.stat(key) is None:  # say, by the bucket's rule for old uploads
            raise StorageError(f"{self._name(key)}: {REASONS['NoSuchUpload']} ({found.code})")
        return not found.code, digest

    def _resume(self, key: str, given: Source, path: Path | None) -> UploadRecord:
        """Return the record of a resumed or new upload; it is durable before the first part."""
        at, record = self._locate(key), UploadRecord.read(path, self._name(key))
        unheard = record is not None and not record.upload_id
        if unheard:
            record = None
        if record is not None and record.matches(given):
            there: dict[int, tuple[str, int]] = {}
            with self._errors(key, _NO_UPLOAD) as found:
                there = self._parts(key, record.upload_id)
            if not found.code:
                kept = [p for p in record.parts if there.get(p.number) == (p.etag, p.size)]
                record.parts = kept
                return record
        elif record is not None:  # the file has changed: nobody resumes it
            self._abort(key, record)
        part_bytes = max(PART_BYTES, -(-given.size // MOST_PARTS))
        record = UploadRecord(self._name(key), "", given.size, given.mtime_ns, part_bytes)
        if path is None:
            if self._adopt(key, given, record):
                return record
        else:
            record.write(path)  # that there may be an upload whose id is not known here
        with self._errors(key):
            made = self._client.create_multipart_upload(**at, ChecksumAlgorithm="SHA256")
        record.upload_id = made["UploadId"]
        if unheard or made["ResponseMetadata"].get("RetryAttempts"):
            self._abort_empty(key, record.upload_id)
        if path is not None:
            record.write(path)
        return record

    def _adopt(self, key: str, given: Source, record: UploadRecord) -> bool:
        """Adopt an unfinished upload of the same bytes into the record; return True on success.

        A killed worker has left it, and its record is lost.  Parts are identified by their ETags,
        the MD5 of their bytes.  If a server uses other ETags (SSE-KMS), no upload is adopted.
        """
        for upload_id in self._uploads(key):
            there: dict[int, tuple[str, int]] = {}
            with self._errors(key, _NO_UPLOAD + _NOT_ALLOWED) as found:
                there = self._parts(key, upload_id)
            parts = None if found.code else _match_parts(given.path, record.part_bytes, there)
            if parts is not None:
                record.upload_id, record.parts = upload_id, parts
                return True
        return False

    def _parts(self, key: str, upload_id: str) -> dict[int, tuple[str, int]]:
        """Return ETag and size of the parts that the server has, by number."""
        pages = self._pages("list_parts", **self._locate(key), UploadId=upload_id)
        return {
            part["PartNumber"]: (part["ETag"], part["Size"])
            for page in pages
            for part in page.get("Parts", ())
        }

    def _uploads(self, key: str) -> tuple[str, ...]:
        """Return the ids of a key's unfinished uploads; empty if the server forbids the listing."""
        full = self._locate(key)["Key"]
        pages = self._pages("list_multipart_uploads", Bucket=self._bucket, Prefix=full)
        with self._errors(key, _NOT_ALLOWED):
            return tuple(
                str(each["UploadId"])
                for page in pages
                for each in page.get("Uploads", ())
                if each["Key"] == full
            )
        return ()

    def _abort_empty(self, key: str, wanted: str) -> None:
        """Abort the uploads of a key that have no parts, except `wanted`: their ids are lost.

        A foreign upload that has parts stays.  A server that does not allow the listing keeps the
        empty ones.
        """
        for upload_id in self._uploads(key):
            if upload_id != wanted:
                upload = {**self._locate(key), "UploadId": upload_id}
                with self._errors(key, _NO_UPLOAD + _NOT_ALLOWED):
                    if not self._client.list_parts(**upload, MaxParts=1).get("Parts"):
                        self._client.abort_multipart_upload(**upload)

    def _abort(self, key: str, record: UploadRecord) -> None:
        with self._errors(key, _NO_UPLOAD):
            self._client.abort_multipart_upload(**self._locate(key), UploadId=record.upload_id)

    def _errors(self, key: str, expected: tuple[str, ...] = ()) -> S3Errors:
        return S3Errors(self._bucket, self._name(key) if key else self.url, expected)


def _read_pieces(body: Any, where: str) -> Iterator[bytes]:
    """Yield an answer's bytes, in pieces that grow while they arrive quickly.

    A read waits for all of its bytes, and the time limit of the socket holds for each byte alone.

    Raises:
        StoreUnreachableError: the answer brings less than `LEAST_BYTES` in `LEAST_S`.
    """
    size, waited_s, read = 64, 0.0, 0
    while True:
        began_s = now_s()
        data = body.read(size)
        took_s = now_s() - began_s
        if not data:
            return
        yield data
        waited_s, read = waited_s + took_s, read + len(data)
        if waited_s >= LEAST_S:
            if read < LEAST_BYTES:
                raise StoreUnreachableError(
                    f"{where}: the server cannot be reached: it sent {read} bytes in "
                    f"{waited_s:.0f} s; given up"
                )
            waited_s, read = 0.0, 0
        size = min(2 * size, _CHUNK) if took_s < 1.0 else max(1, size // 2)


def _match_parts(
    source: Path, part_bytes: int, there: dict[int, tuple[str, int]]
) -> list[UploadedPart] | None:
    """Return the parts of an upload if they are the first parts of a file; else None."""
    parts = []
    with disk_errors(source), source.open("rb") as file:
        for number in range(1, len(there) + 1):
            data = file.read(part_bytes)
            etag, size = there.get(number, ("", 0))
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            if not data or (etag.strip('"'), size) != (md5, len(data)):
                return None
            parts.append(UploadedPart(number, size, etag, hashlib.sha256(data).hexdigest()))
    return parts


def _client(url: str, credentials: Path | None) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError as error:
        raise UsageError(f"{url}: {need_extra('s3')}: {error}") from None
    session = Session()
    if credentials is not None:
        session.set_config_variable("credentials_file", str(credentials))
    try:
        _check_rights(session)
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 5},
            connect_timeout=10,
            read_timeout=60,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        region = session.get_config_variable("region") or "us-east-1"
        return boto3.session.Session(botocore_session=session).client(
            "s3", region_name=region, config=config
        )
    except (BotoCoreError, ValueError) as error:  # a profile, an address of the server
        raise UsageError(f"{url}: {error}") from None


def _check_rights(session: Any) -> None:
    """Refuse a used file of credentials that other users can read."""
    if "AWS_ACCESS_KEY_ID" in os.environ and session.get_config_variable("profile") is None:
        return
    path = Path(session.get_config_variable("credentials_file")).expanduser()
    if path.exists():
        check_private(path)
    settings = Path(session.get_config_variable("config_file")).expanduser()
    with suppress(OSError, UnicodeDecodeError):
        if "aws_secret_access_key" in settings.read_text():
            check_private(settings)


def _sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
