"""CAN: structures, flags and error classes as the C compiler reads them in the headers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from drivers.can import connection as device
from drivers.can import errors, frames

pytestmark = pytest.mark.conformance

HEADERS = ("linux/can.h", "linux/can/error.h", "linux/can/raw.h", "linux/if_arp.h", "linux/if.h")
EXPECTED = {
    "CAN_EFF_FLAG": frames.EXTENDED,
    "CAN_RTR_FLAG": frames.REMOTE,
    "CAN_ERR_FLAG": frames.ERROR,
    "CAN_EFF_MASK": frames.ID_MASK,
    "CAN_SFF_MASK": frames.STANDARD_MASK,
    "CAN_MAX_DLEN": frames.CLASSIC_BYTES,
    "CANFD_MAX_DLEN": frames.FD_BYTES,
    "CAN_MTU": frames.CLASSIC_MTU,
    "CANFD_MTU": frames.FD_MTU,
    "CANFD_BRS": frames.SWITCHED,
    "CANFD_ESI": frames.PASSIVE,
    "__builtin_offsetof(struct can_frame, can_id)": 0,
    "__builtin_offsetof(struct can_frame, len)": 4,
    "__builtin_offsetof(struct can_frame, data)": 8,
    "__builtin_offsetof(struct canfd_frame, len)": 4,
    "__builtin_offsetof(struct canfd_frame, flags)": 5,
    "__builtin_offsetof(struct canfd_frame, data)": 8,
    "SOL_CAN_RAW": device._SOL_CAN_RAW,
    "CAN_RAW_ERR_FILTER": device._ERROR_FILTER,
    "CAN_RAW_FD_FRAMES": device._FD_FRAMES,
    "CAN_ERR_MASK": errors.ALL_CLASSES,
    "ARPHRD_CAN": device._ARPHRD_CAN,
    "IFF_UP": device._IFF_UP,
    "MSG_DONTROUTE": device._MSG_DONTROUTE,
    "CAN_ERR_TX_TIMEOUT": errors.TX_TIMEOUT,
    "CAN_ERR_LOSTARB": errors.LOST_ARBITRATION,
    "CAN_ERR_CRTL": errors.CONTROLLER,
    "CAN_ERR_PROT": errors.PROTOCOL,
    "CAN_ERR_TRX": errors.TRANSCEIVER,
    "CAN_ERR_ACK": errors.NO_ACK,
    "CAN_ERR_BUSOFF": errors.BUS_OFF,
    "CAN_ERR_BUSERROR": errors.BUS_ERROR,
    "CAN_ERR_RESTARTED": errors.RESTARTED,
    "CAN_ERR_CRTL_RX_OVERFLOW": errors.RX_OVERFLOW,
    "CAN_ERR_CRTL_TX_OVERFLOW": errors.TX_OVERFLOW,
    "CAN_ERR_CRTL_RX_WARNING | CAN_ERR_CRTL_TX_WARNING": errors.WARNING,
    "CAN_ERR_CRTL_RX_PASSIVE | CAN_ERR_CRTL_TX_PASSIVE": errors.ERROR_PASSIVE,
    "CAN_ERR_CRTL_ACTIVE": errors.ERROR_ACTIVE,
}
# Newer than the headers of some systems: Linux 6.0 and 5.14.
NEWER = {"CAN_ERR_CNT": errors.COUNTERS, "CANFD_FDF": frames.FD}
PROTOCOL_BITS = {
    "CAN_ERR_PROT_BIT": "bit_errors",
    "CAN_ERR_PROT_FORM": "form_errors",
    "CAN_ERR_PROT_STUFF": "stuff_errors",
    "CAN_ERR_PROT_BIT0": "bit0_errors",
    "CAN_ERR_PROT_BIT1": "bit1_errors",
    "CAN_ERR_PROT_OVERLOAD": "overloads",
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a compiled program says, by expression."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path("/usr/include/linux/can/raw.h").exists():
        pytest.skip("no C compiler, or no linux/can.h: CAN's layouts are not checked")
    folder = tmp_path_factory.mktemp("abi")
    head = "#include <stdio.h>\n#include <sys/socket.h>\n"
    head += "".join(f"#include <{name}>\n" for name in HEADERS)
    expressions = [*EXPECTED, *PROTOCOL_BITS]
    lines = "".join(f'    printf("%llu\\n", (unsigned long long)({e}));\n' for e in expressions)
    lines += "".join(
        f'#ifdef {name}\n    printf("%llu\\n", (unsigned long long){name});\n#else\n'
        f'    printf("{value}\\n");\n#endif\n'
        for name, value in NEWER.items()
    )
    source = folder / "abi.c"
    source.write_text(f"{head}int main(void) {{\n{lines}    return 0;\n}}\n")
    program = folder / "abi"
    subprocess.run([compiler, "-o", str(program), str(source)], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return dict(zip([*expressions, *NEWER], map(int, printed.split()), strict=True))


def test_structures_and_numbers_are_the_headers(reported: dict[str, int]) -> None:
    for expression, value in (EXPECTED | NEWER).items():
        assert reported[expression] == value, expression


def test_protocol_violations_are_the_headers(reported: dict[str, int]) -> None:
    bits = {reported[expression]: name for expression, name in PROTOCOL_BITS.items()}
    assert bits == errors._PROTOCOL_NAMES
