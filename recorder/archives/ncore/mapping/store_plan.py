"""Plan of a sequence's stores: which components are packed into which, and which stores stay.

By default all components are in one store.  The option ``groups`` puts them into several, and
``only`` packs some of these again, for example with a better calibration or new labels::

    ncore: {groups: {sensors: [cameras, lidars, radars], labels: [cuboids, camera_labels]}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.archives.ncore.format.extra_stores import (
    find_differences,
    find_extra_stores,
    find_group,
    find_own_groups,
    read_packed,
    store_names,
)
from recorder.archives.ncore.format.manifest import Manifest, StoreEntry, store_md5
from recorder.archives.ncore.format.sequence import GROUP_NAME
from recorder.common.errors import ArchiveError, ConfigError, FormatError
from recorder.config.options import Option, OptionTable, suggest

SENSORS: Final = ("cameras", "lidars", "radars")
STANDARD: Final = "standard"
_STANDARD: Mapping[str, Sequence[str]] = {
    "sensors": SENSORS,
    "poses": ("poses", "intrinsics"),
    "labels": ("masks", "cuboids", "camera_labels", "point_clouds"),
}
COMPONENTS: Final = tuple(name for names in _STANDARD.values() for name in names)
GROUP_OPTIONS: OptionTable = {
    "groups": Option(
        "map",
        {},
        "components by group, each group a store of its own; standard: sensors, poses, labels",
        words=(STANDARD,),
    ),
    "only": Option(
        "list", [], "groups or components to pack again beside the other stores", items="str"
    ),
}
Groups = Mapping[str, Sequence[str]]


def check_groups(options: Mapping[str, Any], key: str) -> dict[str, list[str]]:
    """Return the option ``groups`` as a mapping; raise a ConfigError for a wrong one.

    Args:
        options: the checked options.
        key: the archive's key, for messages.
    """
    groups = _STANDARD if options["groups"] == STANDARD else options["groups"]
    seen: dict[str, str] = {}
    for group, names in groups.items():
        place = f"{key}.groups.{group}"
        if not isinstance(group, str) or not group or not GROUP_NAME.match(group):
            raise ConfigError("cannot be the name of a group", key=place)
        if not isinstance(names, Sequence) or isinstance(names, str) or not names:
            raise ConfigError(f"needs a list of components: {', '.join(COMPONENTS)}", key=place)
        for name in names:
            if name not in COMPONENTS:
                near = suggest(str(name), COMPONENTS)
                raise ConfigError(f"{name!r} is no component{near}", key=place)
            if name in seen:
                raise ConfigError(f"{name} is in the group {seen[name]} already", key=place)
            seen[name] = group
    return {group: list(names) for group, names in groups.items()}


@dataclass(frozen=True)
class StorePlan:
    """Stores of a sequence.

    Attributes:
        groups: components by group; others are in the main store.
        written: the components that are packed.
        kept: stores of the packed sequence that are not packed again.
        beside: stores that others added.
        replaced: names of stores that the new ones replace.
    """

    groups: Groups
    written: frozenset[str]
    kept: Sequence[StoreEntry]
    beside: Sequence[StoreEntry]
    replaced: Sequence[str]

    def kept_instances(self, *components: str) -> set[str]:
        """Return the instances of components in the kept stores."""
        return {
            instance
            for entry in self.kept
            for component in components
            for instance in entry.components.get(component, ())
        }


def make_plan(
    folder: Path,
    name: str,
    sequence: Manifest,
    options: Mapping[str, Any],
    note: Callable[[str, str], None],
) -> StorePlan:
    """Plan the stores of a session.

    Args:
        folder: the archive's place.
        name: the sequence's name.
        sequence: the sequence, without stores.
        options: values of `GROUP_OPTIONS`, and other options.
        note: called with a sentence about an irregularity, and the name of the file.

    Raises:
        ArchiveError: the packed stores do not match, or others added a store of such a group; the
            message names the store and a remedy.
    """
    groups: Groups = options["groups"]
    try:
        older = read_packed(folder, name)
    except (ArchiveError, FormatError):
        if options["only"]:
            raise
        older = None  # `find_extra_stores` reports it
    own = find_own_groups(older)
    if options["only"]:
        return _plan_parts(folder, name, sequence, older, groups or own, options["only"])
    for store in store_names(name, [group for group in groups if group not in own]):
        _refuse_foreign(folder / store)
    known = ["", *groups, *own]
    beside = find_extra_stores(folder, name, sequence, note, known)
    replaced = store_names(name, list(dict.fromkeys(known)))
    return StorePlan(groups, frozenset(COMPONENTS), (), beside, replaced)


def _refuse_foreign(path: Path) -> None:
    if path.exists():
        raise ArchiveError(
            f"{path}: was not made by packing this session in groups: name the group otherwise, "
            "or move the store away"
        )


def _plan_parts(
    folder: Path,
    name: str,
    sequence: Manifest,
    older: Manifest | None,
    groups: Groups,
    only: Sequence[str],
) -> StorePlan:
    """Plan to pack some groups again, beside the other stores of a packed sequence."""
    place = folder / f"{name}.json"
    if older is None:
        raise ArchiveError(f"{place}: is missing: pack all of the session first, without only")
    if problems := find_differences(older, sequence):
        raise ArchiveError(f"{place}: was packed from other data: {problems}; pack without only")
    if not groups:
        raise ArchiveError(
            f"{place}: all components are in one store: pack once with the option groups={STANDARD}"
        )
    by_component = {component: group for group, names in groups.items() for component in names}
    stored = {find_group(entry.path) for entry in older.stores}
    chosen = {_choose_group(text, groups, by_component) for text in only}
    written = frozenset(c for c in COMPONENTS if by_component.get(c, "") in chosen)
    if sensors := [component for component in SENSORS if component in written]:
        raise ArchiveError(
            f"only: {', '.join(only)}: {', '.join(sensors)} would be packed again, too: pack "
            "without only, or with other groups"
        )
    kept = [entry for entry in older.stores if find_group(entry.path) not in chosen]
    own = find_own_groups(older)
    for entry in older.stores:
        if (group := find_group(entry.path)) in chosen:
            if group and group not in own:
                _refuse_foreign(folder / entry.path)
            if more := sorted(entry.components.keys() - written):
                raise ArchiveError(
                    f"{folder / entry.path}: has {', '.join(more)}, too, which would be lost: pack "
                    "without only"
                )
    for entry in kept:
        if not (folder / entry.path).exists():
            raise ArchiveError(f"{folder / entry.path}: is missing: pack without only")
        entry.md5 = entry.md5 or store_md5(folder / entry.path)
    replaced = store_names(name, sorted(chosen & stored))
    return StorePlan(groups, written, kept, (), replaced)


def _choose_group(text: str, groups: Groups, by_component: Mapping[str, str]) -> str:
    """Return the group of a name of a group or component; "" is the main store."""
    if text in groups:
        return text
    if text in COMPONENTS:
        return by_component.get(text, "")
    known = ", ".join(groups)
    near = suggest(text, [*groups, *COMPONENTS])
    raise ArchiveError(f"only: {text!r} is no group ({known}) and no component{near}")
