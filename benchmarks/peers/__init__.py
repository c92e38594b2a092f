"""A worker for each system that is measured, with a Python of its own, 3.10 or newer."""
