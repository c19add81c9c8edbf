"""A middleware without a network: tests publish by hand, and move the clock."""

from __future__ import annotations

from collections.abc import Mapping

from drivers.kit.topics.middleware import Arrival, ArrivalQueue, Publisher, Topic
from drivers.kit.topics.reception import Loss, PublishersChanged, Reception
from recorder.common.errors import DeviceError

STRING = "std_msgs/msg/String"
Event = Arrival | Loss | PublishersChanged


class FakeMiddleware:
    """Topics that a test sets, and the subscriptions that it asked for."""

    def __init__(self, queue: ArrivalQueue) -> None:
        self.queue = queue
        self.counts_losses = True
        self.warnings: list[str] = []
        self.topics: dict[str, Topic] = {}
        self.subscribed: list[tuple[str, int, bool, bool]] = []
        self.problem = ""
        self.refusal = ""
        self.joined = self.closed = 0

    def offer(self, *publishers: Publisher, name: str = "/a", kind: str = STRING) -> None:
        self.topics[name] = Topic(name, kind, "", {each.id: each for each in publishers})

    def send(
        self,
        number: int | None,
        data: bytes = b"x",
        publisher: bytes = b"p",
        *,
        name: str = "/a",
        t_ns: int = 0,
    ) -> None:
        self.queue.put(Arrival(name, t_ns, data, publisher, number))

    def discover(self) -> Mapping[str, Topic]:
        if self.problem:
            raise DeviceError(self.problem)
        return dict(self.topics)

    def subscribe(self, topic: Topic, depth: int) -> None:
        if self.refusal:
            raise DeviceError(self.refusal)
        publishers = topic.publishers.values()
        reliable = all(each.is_reliable for each in publishers)
        self.subscribed.append(
            (topic.name, depth, reliable, all(each.has_cache for each in publishers))
        )

    def describe_type(self, topic: Topic) -> str | None:
        return f"text of {topic.type_name}"

    def close(self) -> None:
        self.closed += 1


class Bench:
    """A reception of the topic ``/a`` with a clock that tests move."""

    def __init__(self, depth: int | None = None, limit_bytes: int = 100_000) -> None:
        self.queue = ArrivalQueue(limit_bytes)
        self.middleware = FakeMiddleware(self.queue)
        self.t_ns = 0
        self.reception = Reception(
            self.middleware, self.queue, ["/a"], depth, now_ns=lambda: self.t_ns
        )

    def take(self, passed_s: float = 0) -> list[Event]:
        self.t_ns += int(passed_s * 1e9)
        return list(self.reception.take(0))
