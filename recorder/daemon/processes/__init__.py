"""Writer and drivers: started, watched, started again, ended in order."""
