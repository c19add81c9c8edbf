"""Choice of topics by patterns, and the names of their streams.

A pattern is a topic's name in which ``*`` stands for any text within a part of the name, and ``**``
for any number of parts: ``/radar/**`` is ``/radar/front`` and ``/radar/front/points``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from drivers.kit.driver import SensorConfig
from recorder.common.errors import ConfigError

_LONGEST: Final = 64
_DIGEST: Final = 6
_TOKENS: Final = re.compile(r"\*\*|\*|[^*]+")
_MOST_HZ: Final = 1e6
_SERVICE: Final = re.compile(r"/_service_event$|/_action/|^/?(rq|rr|rs)/")
"""Topics of services and actions: events of services (REP-2012), and DDS's topics of requests."""


class Pattern:
    """A pattern of topics' names.

    Args:
        text: the pattern, with or without the first ``/``.
    """

    def __init__(self, text: str) -> None:
        self.text = text if text.startswith(("/", "**")) else f"/{text}"
        self.is_name = "*" not in text
        parts = [
            {"**": ".*", "*": "[^/]*"}.get(token) or re.escape(token)
            for token in _TOKENS.findall(self.text)
        ]
        self._matches = re.compile("".join(parts), re.DOTALL).fullmatch

    def matches(self, topic: str) -> bool:
        """Return whether a topic's name, with the first ``/``, fits the pattern."""
        return self._matches(topic) is not None


class Selection:
    """The topics that a sensor records.

    Args:
        sensor: the sensor's entry, with the options of `drivers.topics.driver`.

    Attributes:
        names: the topics that are asked for by their full names.

    Raises:
        ConfigError: a pattern or a rate is wrong; names the option.
    """

    def __init__(self, sensor: SensorConfig) -> None:
        options = sensor.options
        self._wanted = _parse(sensor, "topics")
        self._excluded = _parse(sensor, "exclude")
        self._rates = [
            (Pattern(str(text)), _parse_rate(sensor, text, rate))
            for text, rate in options["max_rate"].items()
        ]
        self.names = [pattern.text for pattern in self._wanted if pattern.is_name]

    def takes(self, topic: str) -> bool:
        """Return whether a topic is recorded."""
        return (
            not is_service(topic)
            and any(pattern.matches(topic) for pattern in self._wanted)
            and not any(pattern.matches(topic) for pattern in self._excluded)
        )

    def least_interval_ns(self, topic: str) -> int:
        """Return the shortest time between two recorded messages of a topic; 0: any.

        Of several patterns that fit, the first decides.
        """
        rates = (rate for pattern, rate in self._rates if pattern.matches(topic))
        return round(1e9 / rate) if (rate := next(rates, None)) else 0


def is_service(topic: str) -> bool:
    """Return whether a topic belongs to a service or an action, which are not recorded."""
    return _SERVICE.search(topic) is not None


def _parse(sensor: SensorConfig, option: str) -> list[Pattern]:
    for at, text in enumerate(sensor.options[option]):
        if not text.strip("/") or not text.isprintable() or " " in text:
            raise ConfigError(f"{text!r:.100} is no topic", key=f"{sensor.name}.{option}[{at}]")
    return [Pattern(text) for text in sensor.options[option]]


def _parse_rate(sensor: SensorConfig, text: Any, rate: Any) -> float:
    number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not number or not 0 < rate <= _MOST_HZ:
        key = f"{sensor.name}.max_rate.{text}"
        raise ConfigError(f"{rate!r:.60} is no rate in Hz above 0", key=key)
    return float(rate)


def name_stream(sensor: str, topic: str, taken: Mapping[str, str]) -> str:
    """Return the name of a topic's stream, ``SENSOR_topic_path``.

    A name that is too long, or that another topic's stream has (``/a/b`` and ``/a_b``), ends with a
    digest of the topic.

    Args:
        sensor: the sensor's name.
        topic: the topic's name.
        taken: topics by the names of their streams.
    """
    path = re.sub("[^a-z0-9]+", "_", topic.lower()).strip("_") or "topic"
    name = f"{sensor}_{path}"
    if len(name) > _LONGEST or taken.get(name, topic) != topic:
        digest = hashlib.sha256(topic.encode(errors="surrogateescape")).hexdigest()[:_DIGEST]
        name = f"{name[: _LONGEST - _DIGEST - 1].rstrip('_')}_{digest}"
    return name


class RateLimit:
    """Filter that passes a topic's messages at most at a rate.

    Args:
        least_ns: shortest time between two messages that pass; 0: all pass.

    Attributes:
        skipped: number of messages that did not pass.
    """

    def __init__(self, least_ns: int) -> None:
        self._least_ns = least_ns
        self._due_ns: int | None = None
        self.skipped = 0

    def passes(self, t_ns: int) -> bool:
        """Return whether a message passes; its time does not decrease."""
        if not self._least_ns:
            return True
        if self._due_ns is not None and t_ns < self._due_ns:
            self.skipped += 1
            return False
        # A message that is a little late does not delay the next ones.
        due_ns = t_ns if self._due_ns is None else max(self._due_ns, t_ns - self._least_ns)
        self._due_ns = due_ns + self._least_ns
        return True


def describe_ignored(topics: Sequence[str]) -> str:
    """Return a sentence about topics of services and actions; "" without any."""
    if not topics:
        return ""
    shown = ", ".join(sorted(topics)[:5]) + (", ..." if len(topics) > 5 else "")
    return f"services and actions are not recorded: {shown}"
