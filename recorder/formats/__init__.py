"""File formats: encode and decode side by side, no knowledge of sensors."""
