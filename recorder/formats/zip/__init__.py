"""ZIP archives with members that begin at page boundaries."""
