"""The section ``redact``: which program finds what archives must not show of each camera.

::

    redact:
      front: {command: [python, blur.py]}
      rear: keep                      # packed as it was recorded
      "*": {command: [./blur]}        # every other camera
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from recorder.contract.config.checker import Checker
from recorder.contract.config.options import suggest
from recorder.contract.config.settings import ALL_CAMERAS, RedactSettings, option_table
from recorder.contract.config.yaml_lines import read_yaml
from recorder.contract.errors import ConfigError, ConfigFaultsError

SECTION = "redact"
KEEP = "keep"


def read_redact(
    checker: Checker, sensors: Iterable[str] | None = None
) -> tuple[RedactSettings, ...]:
    """The entries of the section.

    Args:
        checker: has the config, and takes what is wrong with an entry; its folder is the working
            directory of the commands.
        sensors: names of the config's sensors; None: the file names none.

    Raises:
        ConfigError: the section is no mapping.
    """
    document, base = checker.document, checker.base
    entries = document.values.get(SECTION)
    if entries is None or any(fault.key == SECTION for fault in checker.faults):
        return ()
    if not isinstance(entries, dict):
        raise document.fail(SECTION, f"needs {{CAMERA: {{command: [PROGRAM]}}}}, or CAMERA: {KEEP}")
    made = []
    for camera, entry in entries.items():
        path = f"{SECTION}.{camera}"
        known = sensors is None or camera == ALL_CAMERAS
        if not known and not any(camera == s or camera.startswith(f"{s}_") for s in sensors or ()):
            near = suggest(camera, sensors or ())
            checker.fault(path, f"no sensor records a stream {camera!r}{near}")
        elif entry == KEEP:
            made.append(RedactSettings(camera, base))
        elif not isinstance(entry, dict):
            checker.fault(path, f"needs a mapping with the key 'command', or {KEEP}")
        elif values := checker.read(option_table(RedactSettings), entry, path):
            command = tuple(values.pop("command") or ())
            if not all(word and "\0" not in word for word in command[:1]) or not command:
                checker.fault(f"{path}.command", "needs a program")
            else:
                made.append(RedactSettings(camera, base, command, **values))
    return tuple(made)


def load_redact(path: Path) -> tuple[RedactSettings, ...]:
    """The section of a file, which may be a whole config or hold nothing else.

    Raises:
        ConfigFaultsError, ConfigError: the file, or an entry, is wrong, or there is no section.
    """
    checker = Checker(read_yaml(path), path.absolute().parent, [])
    made = read_redact(checker)
    if checker.faults:
        raise ConfigFaultsError(checker.faults)
    if not made:
        raise ConfigError(f"has no section {SECTION!r} with a camera", file=path, key=SECTION)
    return made


def asks_for_redaction(config: Path) -> bool:
    """Whether a session's copy of its config has the section; a damaged copy that names it does."""
    try:
        return bool(read_yaml(config).values.get(SECTION))
    except ConfigError:
        try:
            return SECTION.encode() in config.read_bytes()
        except OSError:
            return False
