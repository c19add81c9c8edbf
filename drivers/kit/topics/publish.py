"""Publication of topics for a replay: ``python -m drivers.kit.topics.publish SOURCE``.

SOURCE is ``ros2:DOMAIN`` or ``zenoh:[LOCATOR/]DOMAIN``.  `recorder.bus.offered_topics` has the
format of stdin and stdout.
"""

from __future__ import annotations

import select
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final, Protocol

import msgspec

from drivers.kit.driver import SensorConfig
from drivers.kit.topics.connect import TOPIC_OPTIONS, parse_address
from drivers.kit.topics.definitions import hash_definition
from drivers.kit.topics.ros2_publisher import Ros2Publishers
from drivers.kit.topics.zenoh_publisher import ZenohPublishers
from recorder.bus.offered_topics import (
    HEAD,
    Answer,
    Failed,
    Offer,
    OfferedTopic,
    Opened,
    Published,
)
from recorder.common.errors import DeviceError, FormatError, RecorderError, SourceError
from recorder.common.struct_codec import prepare_type
from recorder.config.options import check_options

_DISCOVERY_S: Final = 1.0  # in which subscribers find the publishers
_LOOK_S: Final = 0.02


class Publishers(Protocol):
    """Publishers of topics on a middleware."""

    def open(self, topic: OfferedTopic) -> None:
        """Make the publisher of a topic.

        Raises:
            DeviceError: it cannot be published; the text says why.
        """

    def has_subscriber(self, name: str) -> bool:
        """Return whether a topic has a subscriber."""

    def publish(self, name: str, data: bytes) -> None:
        """Publish a message of a topic.

        Raises:
            DeviceError: the middleware does not take it.
        """

    def close(self) -> None:
        """Wait until subscribers have what was published, at most some seconds, and leave."""


def open_publishers(source: str) -> Publishers:
    """Join a middleware to publish.

    Args:
        source: ``ros2:DOMAIN`` or ``zenoh:[LOCATOR/]DOMAIN``.

    Raises:
        SourceError: the source has a wrong form, or packages are missing.
        DeviceError: it cannot be joined or reached.
    """
    scheme, _, address = source.partition(":")
    options = check_options(dict(TOPIC_OPTIONS), {}, scheme)
    place = parse_address(SensorConfig("replay", scheme, address, options))
    if place.domain is None:
        raise SourceError(f"{source}: needs a domain, as in zenoh:LOCATOR/0")
    if place.scheme == "zenoh":
        return ZenohPublishers(place.locator, place.domain)
    return Ros2Publishers(place.domain)


def open_topics(publishers: Publishers, offer: Offer) -> dict[str, str]:
    """Make the publishers of all topics; return, by name, why a topic cannot be published."""
    refused: dict[str, str] = {}
    for topic in offer.topics:
        try:
            if not topic.type_hash and topic.definition:
                known = hash_definition(topic.type_name, topic.definition)
                topic = msgspec.structs.replace(topic, type_hash=known)
            publishers.open(topic)
        except (DeviceError, FormatError) as error:
            refused[topic.name] = str(error)
    return refused


def publish(
    publishers: Publishers, names: Sequence[str], source: BinaryIO, refused: Mapping[str, str]
) -> Published:
    """Publish messages until the end of the input.

    Args:
        publishers: with the topics opened.
        names: of the topics, by their places in the offer.
        source: `HEAD` and bytes of each message.
        refused: reasons of the topics that are not opened; their messages are counted as failed.
    """
    published, failed, reasons = Counter[str](), Counter[str](), dict(refused)
    while len(head := source.read(HEAD.size)) == HEAD.size:
        place, size = HEAD.unpack(head)
        data = source.read(size)
        if len(data) < size:  # the replay was killed
            break
        name = names[place]
        if name in refused:
            failed[name] += 1
            continue
        try:
            publishers.publish(name, data)
            published[name] += 1
        except DeviceError as error:
            failed[name] += 1
            reasons[name] = str(error)
    return Published(published, failed, reasons)


def _wait_for_subscribers(publishers: Publishers, awaited: Sequence[str], source: BinaryIO) -> bool:
    """Wait until the topics have subscribers; return False if the replay has ended."""
    until_s = time.monotonic() + _DISCOVERY_S
    while True:
        if awaited and all(publishers.has_subscriber(name) for name in awaited):
            return True
        if not awaited and time.monotonic() >= until_s:
            return True
        if select.select([source], [], [], _LOOK_S)[0]:
            return False


def _answer(answer: Answer) -> None:
    print(msgspec.json.encode(answer).decode(), flush=True)


def main(argv: Sequence[str]) -> int:
    """Publish what stdin has; return 0, or the exit code of an error."""
    source = sys.stdin.buffer
    result = Published({}, {}, {})
    try:
        offer = msgspec.json.decode(source.readline(), type=prepare_type(Offer))
        publishers = open_publishers(argv[0])
        try:
            refused = open_topics(publishers, offer)
            awaited = [name for name in offer.awaited if name not in refused]
            if _wait_for_subscribers(publishers, awaited, source):
                _answer(Opened(refused))
                names = [topic.name for topic in offer.topics]
                result = publish(publishers, names, source, refused)
        finally:
            publishers.close()
    except RecorderError as error:
        _answer(Failed(str(error).removeprefix("replay: ")))
        return error.exit_code
    _answer(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
