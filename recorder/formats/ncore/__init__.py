"""NCore V4 sequences of any writer: stores of components, and their sensors as streams."""
