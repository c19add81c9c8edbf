"""Topics that no other driver decodes: their messages as they come, a stream for each topic.

The stream of ``/radar/points`` is ``NAME_radar_points``.  A sample is a message: ``message`` (its
bytes), ``number`` and ``publisher`` (which message of which publisher it is) and ``t_source`` (when
it was published).  ``topic.json`` beside it has the topic's name, type and definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from drivers.kit.driver import Sample, SensorConfig
from drivers.kit.source_driver import FindingDriver
from drivers.kit.topics.connect import TOPIC_OPTIONS, TOPIC_SCHEMES
from drivers.topics.selection import Selection
from drivers.topics.simulated import SimulatedTopics
from drivers.world import SEED_OPTION, WORLD_OPTIONS
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable

if TYPE_CHECKING:
    from drivers.topics.live import LiveTopics
    from drivers.topics.played import BagTopics
    from drivers.topics.vrs_records import VrsRecords


class TopicsDriver(FindingDriver):
    """Records topics as they are.

    ``ros2:DOMAIN`` and ``zenoh:[LOCATOR/]DOMAIN`` receive live topics; a topic that appears later
    becomes a stream when it does.  The stamp of a message is its arrival.  What the transport lost
    is `Lost` by the publishers' numbers (`drivers.kit.topics.reception`).  A lasting `State` has
    the publishers by their numbers in the channel ``publisher``.

    ``bag:PATH`` plays the topics of a recording, ``bag:PATH#TOPIC`` one of them.  The stamp of a
    message is its log time.  Messages that cannot be read are `Lost`, cause ``corrupt``; of a
    recording that ends early, each topic gets an interval of loss, cause ``truncated``.

    ``vrs:PATH`` plays the records of a VRS file in the same way: see `drivers.topics.vrs_records`.

    >>> options = check_options(TopicsDriver.options, {"topics": ["/tf", "/radar/**"]})
    >>> driver = TopicsDriver(SensorConfig("ros", "bag", "drive", options))
    >>> driver.open()                 # ros_tf, ros_radar_points, ...
    >>> sample = driver.read()
    >>> sample.data["message"]        # a list of bytes, one for each message
    >>> driver.close()
    """

    options: ClassVar[OptionTable] = {
        "topics": Option(
            "list", ["**"], "topics to record; * within a part of the name, ** for any parts",
            items="str",
        ),
        "exclude": Option("list", [], "topics not to record, as in `topics`", items="str"),
        "max_rate": Option(
            "map", {}, "most messages per second of a topic: TOPIC: HZ, with * and ** [Hz]"
        ),
        "without_pictures": Option(
            "list", [],
            "vrs: streams that a camera plays; their records are recorded without the pictures "
            "that the camera records as they are",
            items="str",
        ),
        **WORLD_OPTIONS,
        "seed": SEED_OPTION,
        **TOPIC_OPTIONS,
    }  # fmt: skip
    schemes: ClassVar[dict[str, str]] = {
        "bag": "PATH[#TOPIC]: the topics of a ROS 2 bag (MCAP, SQLite)",
        "mcap": "as bag",
        "vrs": "PATH[#STREAM]: the records of a VRS file",
        "sim": "nodes of the simulated vehicle, endless",
        "ros2": "DOMAIN[#/topic]: topics of a ROS 2 domain; extra `ros2` or a sourced ROS",
        "zenoh": "[LOCATOR/]DOMAIN[#/topic]: topics of ROS 2 over Zenoh, or LOCATOR[#rt/topic]: of "
        "an EdgeFirst device; extra `zenoh`",
    }
    live_schemes: ClassVar[frozenset[str]] = TOPIC_SCHEMES
    ordered = True
    sim_origin_ns = 0  # start of the simulated nodes

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._selection = Selection(sensor)
        self._live: LiveTopics | None = None
        self._played: BagTopics | VrsRecords | None = None

    def open(self) -> Sequence[StreamSpec]:
        """Open the source.

        Raises:
            SourceError: the recording is missing or cannot be read, or has no topic to record; the
                middleware's packages are missing.
            DeviceError: no topic to record has a publisher.
        """
        self.close()
        if self.sensor.scheme == "sim":
            return self.begin(SimulatedTopics(self.sensor, self._selection))
        if self.sensor.scheme in TOPIC_SCHEMES:
            return self._open_live()
        if self.sensor.scheme == "vrs":
            return self._open_vrs()
        from drivers.topics.played import BagTopics

        bag = self._played = BagTopics(self.sensor, self._selection)
        specs = self.begin(bag, bag.warnings)
        self.clock_steps = bag.clock_steps
        return specs

    def _open_vrs(self) -> Sequence[StreamSpec]:
        from drivers.topics.vrs_records import VrsRecords

        records = self._played = VrsRecords(self.sensor, self._selection)
        return self.begin(records)

    @property
    def origin_ns(self) -> int | None:
        """Stamp of the source at the start; see `Driver`."""
        return self._origin_ns if self._played is None else self._played.origin_ns

    def repeat(self, t_ns: int) -> Sequence[Sample]:
        """Return the last messages of transient-local publishers, such as ``/tf_static``."""
        return () if self._live is None else self._live.repeat(t_ns)

    def _open_live(self) -> Sequence[StreamSpec]:
        from drivers.topics.live import LiveTopics

        live = self._live = self._live or LiveTopics(self.sensor, self._selection)
        live.join()
        return self.begin(live, live.warnings)
