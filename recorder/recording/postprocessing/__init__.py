"""Work after a recording: recovery, checksums, archives, and deletion of old sessions."""
