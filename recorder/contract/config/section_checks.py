"""The sections of the config file besides ``sensors``: what their values must be together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_type_hints

from recorder.contract.config.checker import Checker
from recorder.contract.config.live_checks import live_faults
from recorder.contract.config.options import suggest
from recorder.contract.config.redact import read_redact
from recorder.contract.config.sections import read_section
from recorder.contract.config.settings import (
    ARCHIVES,
    FinalizeStep,
    LiveSettings,
    RecordFormatSettings,
    RingSettings,
    Sections,
    SessionSettings,
    SplitSettings,
    TriggerSettings,
    UploadSettings,
    option_table,
    section_of,
)
from recorder.contract.errors import UsageError
from recorder.contract.expressions import ExpressionError, compile_expression
from recorder.contract.session_names import check_template
from recorder.contract.streams import STREAM_NAME

_STORE = re.compile(r"s3://[^/@?#]+(/[^?#]*)?|file:///.+")
_RECIPIENT = re.compile(r"age1[0-9a-z]+|ssh-(ed25519|rsa) [A-Za-z0-9+/=]+( [^\n]*)?")


class SectionChecker(Checker):
    """Makes all sections but ``sensors``."""

    def sections(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All sections but ``sensors``; appends to `faults` what is wrong with them."""
        made = {
            name: kind(**self.settings(kind, values[name], name))
            for name, hint in get_type_hints(Sections).items()
            if (kind := section_of(hint)) is not None
        }
        made["live"] = self._live(made["live"])
        self.attempt(self._check_template, values["session"])
        made["finalize"] = self.attempt(self._finalize, values["finalize"])
        made["redact"] = self.attempt(
            read_redact, self.document, self.base, self.faults, list(values["sensors"] or ())
        )
        made["report"] = values["report"]
        made["triggers"] = tuple(self._triggers(values["triggers"] or {}))
        made["ring"] = self._ring(made["ring"], made["session"], made["triggers"])
        if names := list(values["sensors"] or ()):
            made["record_format"] = self.attempt(
                self._record_format, values["record_format"], names
            )
        made["calibration"] = values["calibration"]
        if made["calibration"] is not None:
            made["calibration"] = self.attempt(
                self.existing, "calibration", values["calibration"], file=True
            )
        self.attempt(self._check_upload, made["upload"])
        if (file := made["custody"].key) is not None:
            self.attempt(self.existing, "custody.key", str(file), file=True)
        if (keys := values["control"]["curve_keys"]) is not None:
            self.attempt(self.existing, "control.curve_keys", keys)
        return made

    def _check_template(self, session: Mapping[str, Any]) -> None:
        try:
            check_template(session["name"], session["metadata"])
        except UsageError as error:
            raise self.document.fail("session.name", str(error)) from None

    def _record_format(self, values: Mapping[str, Any], names: list[str]) -> RecordFormatSettings:
        written = self.document.values.get("record_format")
        if not isinstance(written, Mapping) or written.get("streams") is None:
            # The default streams are for rigs that have such sensors.
            streams = tuple(name for name in values["streams"] if name in names)
            return RecordFormatSettings(values["enabled"], streams)
        for index, stream in enumerate(values["streams"]):
            if not any(stream == name or stream.startswith(name + "_") for name in names):
                raise self.document.fail(
                    f"record_format.streams[{index}]",
                    f"no sensor records a stream {stream!r}{suggest(stream, names)}",
                )
        return RecordFormatSettings(values["enabled"], tuple(values["streams"]))

    def _live(self, live: LiveSettings) -> LiveSettings | None:
        if self.document.values.get("live") is None:
            return None
        self.faults.extend(self.document.fail(f"live.{k}", text) for k, text in live_faults(live))
        for name in ("certificate", "key"):
            if (path := getattr(live, name)) is not None:
                self.attempt(self.existing, f"live.{name}", str(path), file=True)
        return live

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
        if upload.credentials is not None:
            self.existing("upload.credentials", str(upload.credentials), file=True)

    def _ring(
        self, ring: RingSettings, session: SessionSettings, triggers: Iterable[TriggerSettings]
    ) -> RingSettings | None:
        if self.document.values.get("ring") is None:
            return None
        if session.split != SplitSettings():
            text = "a ring has parts of its own length: session.split must not be set"
            self.faults.append(self.document.fail("ring", text))
        if ring.ram_folder is not None and ring.ram_folder.resolve() == session.root.resolve():
            text = "is session.root, too: a ring in RAM needs a folder of its own"
            self.faults.append(self.document.fail("ring.folder", text))
        for trigger in triggers:
            if trigger.before > ring.seconds:
                text = f"{trigger.before:g} s is longer than the ring (ring.seconds)"
                key = f"triggers.{trigger.name}.before"
                self.faults.append(self.document.fail(key, text))
        return ring

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
            if not isinstance(name, str) or not STREAM_NAME.fullmatch(name):
                self.faults.append(
                    self.document.fail(key, "a trigger's name has only a-z, 0-9 and _")
                )
                continue
            if not isinstance(entry, Mapping):
                self.faults.append(self.document.fail(key, "needs a mapping with the key 'when'"))
                continue
            values = read_section(
                option_table(TriggerSettings), entry, self.document, key, self.faults
            )
            if values is None:
                continue
            trigger = TriggerSettings(name, **values)
            for part in ("when", "until"):
                if (text := getattr(trigger, part)) is not None:
                    self.attempt(self._check_expression, f"{key}.{part}", text)
            yield trigger

    def _check_expression(self, key: str, text: str) -> None:
        try:
            compile_expression(text)
        except ExpressionError as error:
            raise self.document.fail(key, str(error)) from None
