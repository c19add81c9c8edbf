"""Start, supervision, restart and end of the processes of writer and drivers."""
