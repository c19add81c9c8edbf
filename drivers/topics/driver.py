"""Topics that no other driver decodes: their messages as they come, a stream for each topic.

The stream of ``/radar/points`` is ``NAME_radar_points``.  A sample is a message: ``message`` (its
bytes), ``number`` and ``publisher`` (which message of which publisher it is) and ``t_source`` (when
it was published).  ``topic.json`` beside it has the topic's name, type and definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from drivers.kit.driver import SensorConfig
from drivers.kit.source_driver import FindingDriver
from drivers.topics.selection import Selection
from drivers.topics.simulated import SimulatedTopics
from drivers.world import SCENE_OPTION, SEED_OPTION
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable


class TopicsDriver(FindingDriver):
    """Records topics as they are.

    ``bag:PATH`` plays the topics of a recording, ``bag:PATH#TOPIC`` one of them.  The stamp of a
    message is its log time.  Messages that cannot be read are `Lost`, cause ``corrupt``; of a
    recording that ends early, each topic gets an interval of loss, cause ``truncated``.

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
        "scene": SCENE_OPTION,
        "seed": SEED_OPTION,
    }  # fmt: skip
    schemes: ClassVar[dict[str, str]] = {
        "bag": "PATH[#TOPIC]: the topics of a ROS 2 bag (MCAP, SQLite)",
        "mcap": "as bag",
        "sim": "nodes of the simulated vehicle, endless",
    }
    ordered = True
    sim_origin_ns = 0  # start of the simulated nodes

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._selection = Selection(sensor)

    def open(self) -> Sequence[StreamSpec]:
        """Open the source.

        Raises:
            SourceError: the recording is missing or cannot be read, or has no topic to record.
        """
        self.close()
        if self.sensor.scheme == "sim":
            return self.begin(SimulatedTopics(self.sensor, self._selection))
        from drivers.topics.played import BagTopics

        bag = BagTopics(self.sensor, self._selection)
        specs = self.begin(bag, bag.warnings)
        self.clock_steps, self._origin_ns = bag.clock_steps, bag.origin_ns
        return specs
