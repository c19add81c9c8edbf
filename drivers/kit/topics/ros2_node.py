"""Nodes of ROS 2 by rclpy, with a profile of Fast DDS for large messages.

rclpy and its libraries come from the package registry (extra ``ros2``) or from a sourced ROS.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from recorder.common.errors import DeviceError, SourceError, need_extra

RECEIVE_BUFFER_BYTES: Final = 4 << 20
"""Receive buffer of Fast DDS's sockets: with the defaults most large messages are lost."""
PROFILE_VARIABLES: Final = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
"""Variables that name a file with a profile of Fast DDS."""
PROFILE: Final = """<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns="http://www.eprosima.com"><profiles>
  <transport_descriptors><transport_descriptor>
    <transport_id>recorder_udp</transport_id><type>UDPv4</type>
    <receiveBufferSize>{size}</receiveBufferSize><sendBufferSize>{size}</sendBufferSize>
  </transport_descriptor></transport_descriptors>
  <participant profile_name="recorder" is_default_profile="true"><rtps>
    <userTransports><transport_id>recorder_udp</transport_id></userTransports>
    <useBuiltinTransports>false</useBuiltinTransports>
  </rtps></participant>
</profiles></dds>
"""
"""The driver's profile, with a place for `RECEIVE_BUFFER_BYTES`: UDP, without shared memory."""
_RMEM_MAX: Final = Path("/proc/sys/net/core/rmem_max")


class Ros2Domain:
    """A node in a ROS 2 domain.

    Args:
        domain: number of the domain, 0 to 232.
        discovery: ``subnet``, ``localhost`` or ``off`` (static peers alone); "": as ROS is set.
        peers: addresses of computers that discovery by multicast does not reach.

    Attributes:
        node: of rclpy.
        context: of rclpy.
        implementation: name of the middleware, such as ``rmw_fastrtps_cpp``.
        warnings: likely reasons for lost messages.

    Raises:
        SourceError: rclpy cannot be imported.
        DeviceError: the domain cannot be joined.
    """

    def __init__(self, domain: int, discovery: str = "", peers: tuple[str, ...] = ()) -> None:
        profile = _set_environment(discovery, peers)
        self.warnings = list(_warn_of_small_buffers())
        try:
            import rclpy
            from rclpy.signals import SignalHandlerOptions
        except ImportError as error:
            text = f"ROS 2 topics need rclpy: {need_extra('ros2')}, or a sourced ROS: {error}"
            raise SourceError(text) from None
        self.context = rclpy.Context()
        try:
            rclpy.init(
                context=self.context,
                domain_id=domain,
                signal_handler_options=SignalHandlerOptions.NO,
            )
            self.node = rclpy.create_node(
                f"recorder_{os.getpid()}",
                context=self.context,
                enable_rosout=False,
                start_parameter_services=False,
            )
        except (RuntimeError, ValueError) as error:  # RCLError is a RuntimeError
            raise DeviceError(f"ROS 2 domain {domain} cannot be joined: {error}") from None
        finally:
            if profile is not None:  # Fast DDS has read it
                del os.environ[PROFILE_VARIABLES[0]]
                profile.unlink(missing_ok=True)
        self.implementation: str = rclpy.get_rmw_implementation_identifier()

    def leave(self) -> None:
        """Destroy the node."""
        import rclpy

        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)


def _set_environment(discovery: str, peers: tuple[str, ...]) -> Path | None:
    """Set what Fast DDS reads when it starts; return the profile that was made, if any."""
    if discovery:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = discovery.upper()
    if peers:
        os.environ["ROS_STATIC_PEERS"] = ";".join(peers)
    own = any(os.environ.get(name) for name in PROFILE_VARIABLES)
    if (
        own
        or "FASTDDS_BUILTIN_TRANSPORTS" in os.environ
        or Path("DEFAULT_FASTDDS_PROFILES.xml").exists()
    ):
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".xml", prefix="recorder-", delete=False) as file:
        file.write(PROFILE.format(size=RECEIVE_BUFFER_BYTES))
    os.environ[PROFILE_VARIABLES[0]] = file.name
    return Path(file.name)


def _warn_of_small_buffers() -> list[str]:
    try:
        limit = int(_RMEM_MAX.read_text())
    except (OSError, ValueError):
        return []
    if limit >= RECEIVE_BUFFER_BYTES:
        return []
    return [
        f"the kernel limits receive buffers to {limit} bytes: large best-effort messages will be "
        f"lost; sudo sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}"
    ]
