"""The processes of writer and drivers: started, watched, restarted, and ended in order."""
