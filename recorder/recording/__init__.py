"""Recording: the writer, the drivers' supervisor, the daemon, the ring, triggers and clips."""
