"""What comes after recording: recovery, checksums, archives, and what is deleted."""
