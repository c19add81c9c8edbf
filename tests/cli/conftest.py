from tests.cli.fakes import fakes

__all__ = ["fakes"]
