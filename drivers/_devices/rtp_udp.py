"""The two UDP ports at which an RTSP camera's RTP and RTCP arrive."""

from __future__ import annotations

import re

from drivers._devices.udp import UdpReceiver
from drivers._protocols.rtp_order import PacketOrder
from recorder.contract.closing import Closing
from recorder.contract.errors import DeviceError, ProtocolError

_BUFFER_BYTES = 8 << 20  # seconds of a camera: this process may be held up
_TRIES = 50
_RTCP_BYTES = 2048


class RtpPorts(Closing):
    """An even port for RTP, and the next one for RTCP (RFC 3550, section 11).

    >>> with RtpPorts(ipv6=False) as ports:
    ...     ports.transport                       # for SETUP
    ...     packets, reports = ports.receive(0.2)

    Args:
        ipv6: the camera has an IPv6 address.

    Raises:
        DeviceError: no two such ports are free.
    """

    def __init__(self, ipv6: bool) -> None:
        address = "::" if ipv6 else "0.0.0.0"  # the route to the camera decides
        for _ in range(_TRIES):
            self._rtp = UdpReceiver(address, 0, _BUFFER_BYTES, 0.0)
            try:
                if self._rtp.port % 2 == 0:
                    self._rtcp = UdpReceiver(
                        address, self._rtp.port + 1, 1 << 16, 0.0, packet_bytes=_RTCP_BYTES, batch=8
                    )
                    break
            except DeviceError:
                pass
            self._rtp.close()
        else:
            raise DeviceError("no two UDP ports are free for RTP and RTCP")
        self._order = PacketOrder()
        self._source: bytes | None = None

    @property
    def transport(self) -> str:
        """The header ``Transport`` of SETUP (RFC 2326, section 12.39)."""
        return f"RTP/AVP;unicast;client_port={self._rtp.port}-{self._rtcp.port}"

    def receive(self, timeout_s: float) -> tuple[list[tuple[int, bytes]], list[bytes]]:
        """Return RTP packets in order with their arrival by the kernel, and RTCP packets.

        Packets of another sender than the first are left out.
        """
        packets: list[tuple[int, bytes]] = []
        batch = self._rtp.receive(timeout_s)
        for k in range(len(batch)):
            source = batch.source(k)
            self._source = self._source or source
            if source == self._source:
                data = batch.data[k, : batch.sizes[k]].tobytes()
                packets += self._order.feed(data, int(batch.t_ns[k]))
        batch = self._rtcp.receive(0.0)
        reports = [batch.data[k, : batch.sizes[k]].tobytes() for k in range(len(batch))]
        return packets, reports

    def close(self) -> None:
        self._rtp.close()
        self._rtcp.close()


def check_transport(transport: str) -> None:
    """Check the answer to SETUP.

    Raises:
        ProtocolError: the camera does not send RTP over UDP to this machine alone.
    """
    if not re.match(r"RTP/AVP(/UDP)?(;|$)", transport.strip(), re.IGNORECASE) or (
        "multicast" in transport.lower() or "interleaved" in transport.lower()
    ):
        raise ProtocolError(f"offers no RTP over UDP, but {transport[:80]!r}; set transport: tcp")
