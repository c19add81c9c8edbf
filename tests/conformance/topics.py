"""Talkers in processes of their own, a lossy network between them and the test, and receptions."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from drivers.kit.topics.middleware import Arrival, ArrivalQueue, Middleware
from drivers.kit.topics.reception import SETTLING_NS, Loss, PublishersChanged, Reception
from tests.support.waiting import wait_until

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
PROFILES: Final = {"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4"}


class Talker:
    """A process that publishes: its methods are those of the script's class.

    Args:
        script: in this folder.
        words: its arguments.
        namespace: network namespace in which it runs; "": this one.
    """

    def __init__(self, script: str, *words: object, namespace: str = "") -> None:
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        command = [*inside, sys.executable, str(HERE / script), *map(str, words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        path = {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, env=os.environ | PROFILES | path, **pipes, text=True
        )  # type: ignore[call-overload]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**values: Any) -> Any:
            assert self.process.stdin is not None and self.process.stdout is not None
            self.process.stdin.write(json.dumps({"do": name, **values}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            assert line, "the talker has ended"
            return json.loads(line)

        return call

    def end(self) -> None:
        """Kill the process, as a publisher that crashes."""
        self.process.kill()
        self.process.communicate()


class Listener:
    """A reception and what it gave, by topic; publishers that appear from now on are new.

    Args:
        middleware: connected.
        queue: its queue.
        names: topics.
    """

    def __init__(self, middleware: Middleware, queue: ArrivalQueue, names: Sequence[str]) -> None:
        self.middleware = middleware
        self._passed_ns = 0
        self.reception = Reception(
            middleware, queue, names, None, now_ns=lambda: time.monotonic_ns() + self._passed_ns
        )
        self.arrivals: dict[str, list[Arrival]] = defaultdict(list)
        self.losses: dict[str, list[Loss]] = defaultdict(list)
        self.publishers: dict[str, int] = {}
        self.reception.start()

    def settle(self) -> None:
        """Let the time pass after which publishers are new."""
        self._passed_ns = SETTLING_NS + 1

    def listen(self) -> None:
        for event in self.reception.take(0.05):
            if isinstance(event, Arrival):
                self.arrivals[event.topic].append(event)
            elif isinstance(event, Loss):
                self.losses[event.topic].append(event)
            else:
                assert isinstance(event, PublishersChanged)
                self.publishers[event.topic] = len(event.publishers)

    def until(self, what: str, ready: Callable[[], bool]) -> None:
        def look() -> bool:
            self.listen()
            return ready()

        wait_until(what, look, pause=lambda _: None)

    def wait_for(self, topic: str, count: int) -> list[Arrival]:
        """Return the messages of a topic, at least `count`."""
        self.until(f"{count} messages of {topic}", lambda: len(self.arrivals[topic]) >= count)
        return self.arrivals[topic]

    def wait_for_number(self, topic: str, number: int) -> None:
        self.until(f"number {number} of {topic}", lambda: number in self.numbers(topic))

    def wait_for_end(self, topic: str) -> None:
        """Wait until the publishers of a topic are gone, and take what is left."""
        self.until(f"the end of {topic}", lambda: topic not in self.reception.look())
        self.listen()

    def numbers(self, topic: str, publisher: bytes | None = None) -> list[int]:
        return [
            each.number or 0 for each in self.arrivals[topic] if publisher in (None, each.publisher)
        ]

    def counted(self, topic: str) -> int:
        """Return the number of messages that are counted as lost."""
        return sum(each.missing.count or 0 for each in self.losses[topic])

    def causes(self, topic: str) -> list[str]:
        return [each.missing.cause for each in self.losses[topic]]

    def close(self) -> None:
        self.reception.close()


def lossy_network_absence() -> str:
    """Return why there can be no lossy network here; "": there can."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [name for name in ("ip", "nft") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


@contextmanager
def lossy_network(percent: float) -> Iterator[str]:
    """A network namespace from which this share of the data packets of Fast DDS does not leave.

    Packets of discovery, by multicast, are not touched.
    """
    number = random.Random(os.getpid()).randrange(2, 250)
    name = f"recorder-{os.getpid()}"
    ours, theirs = f"rc{os.getpid()}a", f"rc{os.getpid()}b"
    drop = f"numgen random mod 1000 < {round(percent * 10)} drop"
    rule = f"udp dport 7400-65535 ip daddr != 224.0.0.0/4 udp length > 200 {drop}"
    nft = f"ip netns exec {name} nft add"
    try:
        for command in (
            f"ip netns add {name}",
            f"ip link add {ours} type veth peer name {theirs} netns {name}",
            f"ip addr add 10.213.{number}.1/24 dev {ours}",
            f"ip link set {ours} up",
            f"ip -n {name} addr add 10.213.{number}.2/24 dev {theirs}",
            f"ip -n {name} link set {theirs} up",
            f"ip -n {name} link set lo up",
            f"ip -n {name} route add default dev {theirs}",
            f"{nft} table ip lossy",
            f"{nft} chain ip lossy out {{ type filter hook output priority 0 ; }}",
            f"{nft} rule ip lossy out {rule}",
        ):
            subprocess.run(command.split(), check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
        subprocess.run(["ip", "link", "del", ours], check=False, stderr=subprocess.DEVNULL)
