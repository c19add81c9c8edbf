"""Where recordings are kept off the vehicle: a bucket of an S3 server, or a folder.

::

    store = open_store("s3://fleet/vehicle-7")
    store.put_new("notes.txt", b"...")            # creates only; never overwrites
    store.upload_new("drive/camera/video.avi", path)
"""

from recorder.fleet.store.base import (
    PART_BYTES,
    ObjectExistsError,
    Store,
    StoredObject,
    StoreRefusedError,
    StoreUnreachableError,
    UploadRecord,
    open_store,
)
from recorder.fleet.store.manifest import Entry, Manifest, Segment

__all__ = [
    "PART_BYTES",
    "Entry",
    "Manifest",
    "ObjectExistsError",
    "Segment",
    "Store",
    "StoreRefusedError",
    "StoreUnreachableError",
    "StoredObject",
    "UploadRecord",
    "open_store",
]
