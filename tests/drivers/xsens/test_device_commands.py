"""Commands to an Xsens device: refusals, and answers that come late."""

from __future__ import annotations

import os

import pytest

from drivers.xsens.commands import Mid, Output, make_outputs
from drivers.xsens.connection import Mti, RefusedError
from drivers.xsens.emulator_commands import MtiDevice, MtiState
from drivers.xsens.model import accept_outputs
from drivers.xsens.packets import encode_message
from tests.drivers.xsens.rig import MtiRig
from tests.support.devices import terminal


def test_commands_and_refusals() -> None:
    with MtiRig() as rig:
        mti = Mti(rig.address, "imu")
        try:
            mti.find([115_200])
            assert mti.request(Mid.SET_BAUDRATE) == b"\x02"
            assert mti.request(Mid.REQ_HARDWARE_VERSION) == b"\x02\x00"
            with pytest.raises(
                RefusedError, match="SET_BAUDRATE is rejected: the baud rate is inv"
            ):
                mti.request(Mid.SET_BAUDRATE, b"\x77")
            with pytest.raises(RefusedError, match="a parameter is invalid"):
                mti.configure((Output(0x5040, 10),))
            mti.configure(make_outputs(100, []))
            mti.measure()
            with pytest.raises(RefusedError, match="not implemented"):
                mti.request(Mid.REQ_DID)
            assert mti.request(Mid.RESET) == b""
            while [m.mid for m, _ in mti.receive(5.0)] != [Mid.WAKE_UP]:
                pass
            mti.send(Mid.WAKE_UP_ACK)
            assert mti.outputs() == make_outputs(100, [])  # in config state, and remembered
        finally:
            mti.close()


class LateAnswers:
    """A device at a terminal that answers one command late: when the host has repeated it.

    Args:
        terminal: the device's end.
        late: a command, and which one of its kind, from 1.
        refused: a command that the device does not know.
    """

    def __init__(self, terminal: int, late: tuple[Mid, int], refused: Mid | None) -> None:
        self.device = MtiDevice(115_200, make_outputs(50, ["quaternion"]), accept_outputs)
        self.sent: list[int] = []
        self._terminal, self._late, self._refused = terminal, late, refused
        self._held = b""

    def send(self, mid: int, data: bytes = b"") -> None:
        """In place of the host's: so the answer is there when the host waits for it."""
        self.sent.append(mid)
        answer = self.device.receive(encode_message(mid, data), 0)
        if mid == self._refused:
            answer = encode_message(Mid.ERROR, b"\x04")
        wanted, number = self._late
        held = mid == wanted and self.sent.count(mid) in (number, number + 1)
        os.write(self._terminal, self._held + (b"" if held else answer))
        self._held = answer if held else b""


@pytest.mark.parametrize("product", [True, False])
@pytest.mark.parametrize(
    "late",
    [
        (Mid.GOTO_CONFIG, 1),
        (Mid.REQ_DID, 1),
        (Mid.REQ_PRODUCT_CODE, 1),
        (Mid.REQ_FW_REV, 1),
        (Mid.SET_OUTPUT_CONFIGURATION, 1),  # which they are
        (Mid.SET_OUTPUT_CONFIGURATION, 2),  # which they shall be: refused
        (Mid.SET_OUTPUT_CONFIGURATION, 4),  # which they shall be, and then are
    ],
)
def test_the_second_answer_to_a_repeated_command_is_not_the_next_commands(
    late: tuple[Mid, int], product: bool
) -> None:
    """Xbus does not number answers; the device gives them in the commands' order."""
    with terminal() as (master, port):
        mti = Mti(port, "imu")
        line = LateAnswers(master, late, None if product else Mid.REQ_PRODUCT_CODE)
        mti.send = line.send  # type: ignore[method-assign]
        mti.find([115_200])
        identity = mti.identify()
        with pytest.raises(RefusedError, match="a parameter is invalid"):
            mti.configure((Output(0x5040, 10),))
        outputs = mti.configure(make_outputs(100, ["euler_angles"]))
        assert outputs == line.device.outputs
        mti.measure()
        assert line.device.state is MtiState.MEASURING
        assert line.sent.count(late[0]) > 1
        # To find the device, and once after what was late: repeated, or before the next command.
        assert line.sent.count(Mid.GOTO_CONFIG) == 2
        mti.close()
    assert identity.product == ("MTi-300 (emulated)" if product else "")
    assert identity.firmware == "1.9.2"
