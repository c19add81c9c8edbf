"""Stores of recordings off the vehicle: a bucket of an S3 server, or a folder.

::

    store = open_store("s3://fleet/vehicle-7")
    store.put_new("notes.txt", b"...")            # creates; never overwrites
    store.upload_new("drive/camera/video.avi", path)
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from recorder.common.errors import UsageError
from recorder.common.files import check_private
from recorder.fleet.store.base import Store, check_key
from recorder.fleet.store.folder import FolderStore
from recorder.fleet.store.s3 import S3Store


def open_store(url: str, *, credentials: Path | None = None) -> Store:
    """Return the store of a URL.

    Args:
        url: ``s3://BUCKET[/PREFIX]`` or ``file:///FOLDER``.  For an S3 server that is not Amazon's,
            set its address in AWS_ENDPOINT_URL.
        credentials: file in the format of ``~/.aws/credentials``; None: the usual places (the
            environment, that file).

    Raises:
        UsageError: the URL is invalid, the extra s3 is not installed, or other users can read the
            file.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.username or parts.password:
        host = parts.netloc.rpartition("@")[2]
        raise UsageError(
            f"{parts.scheme}://{host}{parts.path}: needs a plain s3://BUCKET/PREFIX; credentials "
            "come from the environment or a file"
        )
    if url.startswith("file://") and parts.netloc in ("", "localhost") and parts.path:
        return FolderStore(Path(unquote(parts.path)), url.rstrip("/"))
    if parts.scheme == "s3" and parts.netloc:
        prefix = parts.path.strip("/")
        if prefix:
            check_key(prefix)
        if credentials is not None:
            check_private(credentials)
        return S3Store(parts.netloc, prefix, credentials)
    raise UsageError(f"{url}: is no store; needs s3://BUCKET/PREFIX or file:///FOLDER")
