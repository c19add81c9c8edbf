"""Common parts of spinning lidars: columns, sweeps, loss accounts and geometry."""
