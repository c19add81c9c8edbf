"""Conversion of boto3's errors to the errors of a store."""

from __future__ import annotations

from typing import Final

from recorder.common.errors import StorageError
from recorder.fleet.store.base import StoreRefusedError, StoreUnreachableError

_BUSY: Final = (429, 502, 503, 504)
REDIRECTS: Final = range(300, 400)
_DAMAGED: Final = "the bytes that arrived are not those that were sent"
REASONS: Final = {
    "BadDigest": _DAMAGED,
    "XAmzContentChecksumMismatch": _DAMAGED,
    "NoSuchUpload": "the server dropped the upload; try again",
}
_REFUSALS: Final = {
    "InvalidAccessKeyId": "the server does not know the access key",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "ExpiredToken": "the credentials have expired",
    "AccessDenied": "the server refuses these credentials",
    "403": "the server refuses these credentials",
    "NoSuchBucket": "there is no such bucket",
    "RequestTimeTooSkewed": "the clock of this machine is wrong; the server refuses its requests",
    "InvalidToken": "the credentials have expired",
}


class S3Errors:
    """Context that converts boto3's errors to StorageError, but keeps the code of an expected one.

    Attributes:
        code: code of the expected error; empty if there was none.
    """

    def __init__(self, bucket: str, where: str, expected: tuple[str, ...]) -> None:
        self.code = ""
        self._bucket, self._where, self._expected = bucket, where, expected

    def __enter__(self) -> S3Errors:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> bool:
        from botocore import exceptions as known
        from botocore.parsers import ResponseParserError
        from urllib3.exceptions import HTTPError

        if isinstance(error, known.ClientError):
            about = error.response.get("Error", {})
            code = str(about.get("Code", ""))
            if not code:
                raise make_stranger_error(self._where) from None
            if code in self._expected:
                self.code = code
                return True
            why = _REFUSALS.get(code) or REASONS.get(code) or about.get("Message") or code
            where = f"s3://{self._bucket}" if code == "NoSuchBucket" else self._where
            kind = StoreRefusedError if code in _REFUSALS else StorageError
            status = error.response["ResponseMetadata"].get("HTTPStatusCode")
            if status in _BUSY:
                kind, why = StoreUnreachableError, f"the server cannot be reached: {why}"
            if status in REDIRECTS:
                raise make_redirect_error(self._where) from None
            raise kind(f"{where}: {why} ({code})") from None
        if isinstance(error, known.NoCredentialsError | known.PartialCredentialsError):
            raise StoreRefusedError(
                f"{self._where}: there are no credentials; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or name a file of credentials"
            ) from None
        if isinstance(error, known.ConnectionError | known.HTTPClientError):
            raise StoreUnreachableError(
                f"{self._where}: the server cannot be reached: {error}"
            ) from None
        if isinstance(error, ResponseParserError):
            raise make_stranger_error(self._where) from None
        if isinstance(error, known.InvalidRegionError):
            raise make_redirect_error(self._where) from None
        if isinstance(error, known.BotoCoreError | HTTPError):
            raise StorageError(f"{self._where}: {error}") from None
        if isinstance(error, LookupError | ValueError | TypeError):  # botocore takes it for granted
            raise StorageError(
                f"{self._where}: the answer of the server cannot be read: {error!r}"
            ) from None
        return False


def make_stranger_error(where: str) -> StoreUnreachableError:
    """Return the error for an answer that no S3 server gives."""
    return StoreUnreachableError(
        f"{where}: the server cannot be reached: what answers is no S3 server; check "
        "AWS_ENDPOINT_URL, and whether the network wants a login"
    )


def make_redirect_error(where: str) -> StoreUnreachableError:
    """Return the error for a redirection that leads to no bucket."""
    return StoreUnreachableError(
        f"{where}: the server cannot be reached: it redirects to a place that does not answer for "
        "the bucket; check AWS_ENDPOINT_URL and AWS_DEFAULT_REGION"
    )
