"""The sections of the config file besides ``sensors``: what their values must be together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from recorder.contract.config.checker import Checker
from recorder.contract.config.options import suggest
from recorder.contract.config.redact import read_redact
from recorder.contract.config.settings import (
    ARCHIVES,
    SECTIONS,
    FinalizeStep,
    RingSettings,
    Sections,
    SensorEntry,
    SplitSettings,
    TriggerSettings,
    UploadSettings,
    option_table,
    read_settings,
)
from recorder.contract.errors import UsageError
from recorder.contract.expressions import ExpressionError, compile_expression
from recorder.contract.session_names import check_template
from recorder.contract.streams import STREAM_NAME

_EXISTING = {"control.curve_keys": False} | dict.fromkeys(
    ("calibration", "live.certificate", "live.key", "upload.credentials", "custody.key"), True
)
"""Paths that must exist, and whether they must be files."""
_STORE = re.compile(r"s3://[^/@?#]+(/[^?#]*)?|file:///.+")
_RECIPIENT = re.compile(r"age1[0-9a-z]+|ssh-(ed25519|rsa) [A-Za-z0-9+/=]+( [^\n]*)?")


class SectionChecker(Checker):
    """Makes all sections but ``sensors``."""

    def plain_sections(self) -> dict[str, Any] | None:
        """The file by its tables; None if it lacks a required key."""
        return self.read(SECTIONS, self.document.values, "", self._find)

    def _find(self, key: str, text: str) -> Path:
        if key in _EXISTING:
            return self.existing(key, text, file=_EXISTING[key])
        return self.path(key, text)

    def sections(self, values: dict[str, Any], sensors: tuple[SensorEntry, ...]) -> Sections:
        """The sections; appends to `faults` what is wrong with all but ``sensors``.

        Args:
            values: as of `plain_sections`.
            sensors: those without a fault.
        """
        names = list(values["sensors"])
        self.check_cpus(values["storage"]["process"], "storage.process")
        self.attempt(self._check_template, values["session"])
        self.attempt(self._check_streams, values["record_format"], names)
        values |= dict.fromkeys(
            name for name in ("live", "ring") if self.document.values.get(name) is None
        )
        sections = read_settings(
            values
            | {
                "sensors": sensors,
                "finalize": self.attempt(self._finalize, values["finalize"]) or (),
                "redact": self.attempt(read_redact, self, names) or (),
                "triggers": tuple(self._triggers(values["triggers"])),
            },
            Sections,
            self.base,
        )
        for key, text in () if sections.live is None else sections.live.faults():
            self.fault(f"live.{key}", text)
        if sections.ring is not None:
            self._check_ring(sections.ring, sections)
        self.attempt(self._check_upload, sections.upload)
        return sections

    def _check_template(self, session: Mapping[str, Any]) -> None:
        try:
            check_template(session["name"], session["metadata"])
        except UsageError as error:
            raise self.document.fail("session.name", str(error)) from None

    def _check_streams(self, values: dict[str, Any], names: list[str]) -> None:
        written = self.document.values.get("record_format")
        if not isinstance(written, Mapping) or written.get("streams") is None:
            # The default streams are for rigs that have such sensors.
            values["streams"] = [name for name in values["streams"] if name in names]
            return
        for index, stream in enumerate(values["streams"] if names else ()):
            if not any(stream == name or stream.startswith(name + "_") for name in names):
                raise self.document.fail(
                    f"record_format.streams[{index}]",
                    f"no sensor records a stream {stream!r}{suggest(stream, names)}",
                )

    def _check_upload(self, upload: UploadSettings) -> None:
        if upload.url is not None and not _STORE.fullmatch(upload.url):
            text = "needs s3://BUCKET/PREFIX or file:///FOLDER, without keys"
            raise self.document.fail("upload.url", text)
        if upload.when not in ("idle", "always") and upload.hours is None:
            text = f"needs idle, always, or hours such as 22:00-06:00, not {upload.when!r}"
            raise self.document.fail("upload.when", text)
        for index, text in enumerate(upload.recipients):
            if not _RECIPIENT.fullmatch(text):  # it is not shown: it may be a secret key
                where = f"upload.recipients[{index}]"
                raise self.document.fail(where, "needs a public key of age, such as age1...")

    def _check_ring(self, ring: RingSettings, sections: Sections) -> None:
        if sections.session.split != SplitSettings():
            self.fault("ring", "a ring has parts of its own length: session.split must not be set")
        if ring.ram_folder is not None and ring.ram_folder == sections.session.root:
            text = "is session.root, too: a ring in RAM needs a folder of its own"
            self.fault("ring.folder", text)
        for trigger in sections.triggers:
            if trigger.before > ring.seconds:
                text = f"{trigger.before:g} s is longer than the ring (ring.seconds)"
                self.fault(f"triggers.{trigger.name}.before", text)

    def _finalize(self, items: Iterable[Any]) -> tuple[FinalizeStep, ...]:
        steps: list[FinalizeStep] = []
        for index, item in enumerate(items):
            key = f"finalize[{index}]"
            name, options = item, None
            if isinstance(item, Mapping) and len(item) == 1:
                [(name, options)] = item.items()
            if not isinstance(name, str):
                raise self.document.fail(key, "needs an archive's name, or {name: {option: value}}")
            if name not in ARCHIVES:
                known = ", ".join(ARCHIVES)
                raise self.document.fail(
                    key, f"no archive {name!r}{suggest(name, ARCHIVES)}; known archives: {known}"
                )
            if options is not None and not isinstance(options, Mapping):
                raise self.document.fail(f"{key}.{name}", "needs a mapping of options")
            if any(step.archive == name for step in steps):
                raise self.document.fail(key, f"duplicate archive {name!r}")
            steps.append(FinalizeStep(name, options or {}))
        return tuple(steps)

    def _triggers(self, entries: Mapping[str, Any]) -> Iterator[TriggerSettings]:
        for name, entry in entries.items():
            key = f"triggers.{name}"
            if not STREAM_NAME.fullmatch(name):
                self.fault(key, "a trigger's name has only a-z, 0-9 and _")
            elif not isinstance(entry, Mapping):
                self.fault(key, "needs a mapping with the key 'when'")
            elif values := self.read(option_table(TriggerSettings), entry, key):
                trigger = TriggerSettings(name, **values)
                for part in ("when", "until"):
                    if (text := values[part]) is not None:
                        self.attempt(self._check_expression, f"{key}.{part}", text)
                yield trigger

    def _check_expression(self, key: str, text: str) -> None:
        try:
            compile_expression(text)
        except ExpressionError as error:
            raise self.document.fail(key, str(error)) from None
