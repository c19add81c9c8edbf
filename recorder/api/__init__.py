"""Public API of the package, which `recorder` exports."""
