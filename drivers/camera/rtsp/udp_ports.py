"""The two UDP ports at which an RTSP camera's RTP and RTCP arrive."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from drivers.camera.rtsp.rtp import PacketOrder
from drivers.kit.udp_socket import Batch, UdpReceiver
from recorder.common.errors import DeviceError, ProtocolError
from recorder.common.files import Closeable

_BUFFER_BYTES = 8 << 20  # seconds of a camera: this process may be held up
_TRIES = 50
_RTCP_BYTES = 2048


class RtpPorts(Closeable):
    """An even port for RTP, and the next one for RTCP (RFC 3550, section 11).

    >>> with RtpPorts(ipv6=False) as ports:
    ...     ports.transport                       # for SETUP
    ...     ports.listen_to("192.168.1.20")       # the camera
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
        self._sender: bytes | None = None

    def listen_to(self, address: str) -> None:
        """Set the sender's address; before this call, no packet is received."""
        found = ipaddress.ip_address(address.partition("%")[0])
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        self._sender = (mapped or found).packed

    @property
    def transport(self) -> str:
        """The header ``Transport`` of SETUP (RFC 2326, section 12.39)."""
        return f"RTP/AVP;unicast;client_port={self._rtp.port}-{self._rtcp.port}"

    def receive(self, timeout_s: float) -> tuple[list[tuple[int, bytes]], list[bytes]]:
        """Return RTP packets in order with their arrival by the kernel, and RTCP packets.

        Packets of other senders are discarded: any host in the network could end the stream.
        """
        packets: list[tuple[int, bytes]] = []
        batch = self._rtp.receive(timeout_s)
        for k, data in self._sent(batch):
            packets += self._order.feed(data, int(batch.t_ns[k]))
        return packets, [data for _, data in self._sent(self._rtcp.receive(0.0))]

    def _sent(self, batch: Batch) -> Iterator[tuple[int, bytes]]:
        for k in range(len(batch)):
            if batch.source(k) == self._sender:
                yield k, batch.data[k, : batch.sizes[k]].tobytes()

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


def find_sender(transport: str, camera: str) -> str:
    """Return the address that the answer to SETUP names as RTP's sender, else the camera's own."""
    match = re.search(r";\s*source\s*=\s*\"?([0-9A-Fa-f.:]{2,45})", transport, re.IGNORECASE)
    try:
        return str(ipaddress.ip_address(match[1])) if match else camera
    except ValueError:
        return camera
