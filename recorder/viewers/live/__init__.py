"""Live process, which serves live taps or a recorded session to browsers and Foxglove."""
