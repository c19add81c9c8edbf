from tests.contract.configs import rig

__all__ = ["rig"]
