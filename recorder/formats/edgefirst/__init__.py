"""EdgeFirst datasets of any writer: the files of their samples, and their sensors as streams."""
