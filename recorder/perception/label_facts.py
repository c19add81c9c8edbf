"""Facts beside labels: about whole pictures, and about classes (docs/labels.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder.common.errors import FormatError
from recorder.config.options import suggest
from recorder.perception.labels import BOXES, LabelFile, read_label_file, read_mapping, text

STAGES = ("load", "preprocess", "inference", "decode")
"""Stages of the key ``timing``: what a model spent on a picture, each in ns."""
FREQUENCIES = ("f", "c", "r")
"""How frequent a class is, as in LVIS: frequent, common, rare."""
_TEXTS = ("supercategory", "synset", "definition")
_ENTRIES = ("id", *_TEXTS, "synonyms", "frequency")
_LARGEST = 2**32 - 1


@dataclass(frozen=True, slots=True)
class PictureFacts:
    """Facts about a whole picture.

    Attributes:
        degradation: how much of the picture's quality is lost, `DEGRADATIONS`; None: not stated.
        timing: durations in ns by stage, `STAGES`.
        absent: classes of which the picture has no object.
        incomplete: classes of which the picture may have objects without a label.
        metadata: anything else.
    """

    degradation: str | None
    timing: Mapping[str, int] | None
    absent: list[str] | None
    incomplete: list[str] | None
    metadata: Mapping[str, Any]

    @classmethod
    def read(cls, line: Mapping[str, Any], where: str) -> PictureFacts:
        """Read a line of `picture_file`; raise a FormatError that names `where` and key."""
        timing = read_mapping(line, "timing", where) or None
        for stage, value in (timing or {}).items():
            if stage not in STAGES:
                known = suggest(stage, STAGES) or f"; there are {', '.join(STAGES)}"
                raise FormatError(f"{where}: timing.{stage}: unknown stage{known}")
            if type(value) is not int or not 0 <= value < 2**63:
                raise FormatError(
                    f"{where}: timing.{stage}: needs a whole number of nanoseconds, "
                    f"not {value!r:.60}"
                )
        absent, incomplete = (_classes(line, key, where) for key in ("absent", "incomplete"))
        if both := set(absent or ()) & set(incomplete or ()):
            raise FormatError(f"{where}: absent: {min(both)!r} is incomplete, too")
        degradation = line.get("degradation")
        return cls(degradation, timing, absent, incomplete, line.get("metadata", {}))


def picture_files(session: Path) -> list[LabelFile]:
    """Return ``_labels/FILE/pictures.jsonl``, sorted; FormatError for an invalid header.

    FILE is CAMERA or CAMERA@SET.
    """
    paths = sorted((session / BOXES).glob("*/pictures.jsonl"))
    return [read_label_file(path, "recorder-pictures") for path in paths]


def read_categories(file: LabelFile) -> dict[str, dict[str, Any]]:
    """Return the ``categories`` of a label file's header, by class.

    Raises:
        FormatError: an entry is unknown or of a wrong type; the message names the file and the key.
    """
    where = f"{file.path}:1"
    found = read_mapping(file.header, "categories", where)
    for name, about in found.items():
        key = f"categories.{text({'categories': name}, 'categories', where)}"
        for entry, value in read_mapping({key: about}, key, where).items():
            if entry not in _ENTRIES:
                known = suggest(entry, _ENTRIES) or f"; there are {', '.join(_ENTRIES)}"
                raise FormatError(f"{where}: {key}.{entry}: unknown entry{known}")
            _check_entry(entry, value, f"{where}: {key}")
    return found


def _check_entry(entry: str, value: Any, where: str) -> None:
    if entry == "id":
        if type(value) is not int or not 0 <= value <= _LARGEST:
            raise FormatError(f"{where}.id: needs a whole number from 0, not {value!r:.60}")
    elif entry == "frequency":
        if value not in FREQUENCIES:
            known = ", ".join(FREQUENCIES)
            raise FormatError(f"{where}.frequency: needs one of {known}, not {value!r:.60}")
    elif entry == "synonyms":
        _classes({entry: value}, entry, where)
    else:
        text({entry: value}, entry, where)


def _classes(values: Mapping[str, Any], key: str, where: str) -> list[str] | None:
    """Return a list of texts; None without the key."""
    if key not in values:
        return None
    names = values[key]
    if not isinstance(names, list):
        raise FormatError(f"{where}: {key}: needs a list of texts, not {names!r:.60}")
    return [text({key: name}, key, where) for name in names]
