from tests.config.configs import rig

__all__ = ["rig"]
