"""Who may ask the daemon what, and how: the control socket, and TCP with keys."""
