"""Who may ask the daemon what: the server of the control socket, and of TCP with keys."""
