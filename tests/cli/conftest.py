from tests.cli.fakes import fakes, fakes_folder

__all__ = ["fakes", "fakes_folder"]
