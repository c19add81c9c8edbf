"""The simulated world: what each sensor would see of it."""
