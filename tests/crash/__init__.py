"""A simulated disk beneath the real writer, and what a crash may leave of it."""
