"""What every driver process is made of."""
