"""The live process: taps of the drivers, or a recorded session, to browsers and to Foxglove."""
