"""The simulated receiver as a source."""

from __future__ import annotations

from collections import deque

from drivers.gnss.fixes import gnss_spec
from drivers.gnss.model import make_receiver
from drivers.kit.driver import Item, Sample, SensorConfig

_SIM_EPOCHS = 50


class SimulatedSource:
    """Source of the simulated receiver."""

    def __init__(self, sensor: SensorConfig) -> None:
        options = sensor.options
        self._receiver = make_receiver(sensor.name, options)
        about = {name: options[name] for name in ("scene", "seed")} | {"simulated": True}
        self.spec = gnss_spec(sensor.name, self._receiver.rate_hz, False, about)
        self._next = 0
        self._items: deque[Item] = deque()

    def read(self) -> Item:
        if not self._items:
            times, data = self._receiver.epochs(self._next, _SIM_EPOCHS)
            self._next += _SIM_EPOCHS
            for k in range(_SIM_EPOCHS):
                part = {name: values[k : k + 1] for name, values in data.items()}
                stamps = times[k : k + 1]
                self._items.append(Sample(self.spec.name, stamps, part, stamps))
        return self._items.popleft()

    def close(self) -> None:
        pass
