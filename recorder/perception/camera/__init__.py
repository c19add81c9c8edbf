"""Camera pictures: decoded, demosaiced and scaled."""
