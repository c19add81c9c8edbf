"""File formats: encoding and decoding side by side, without knowledge of sensors."""
