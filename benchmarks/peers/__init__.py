"""Workers, one for each measured system, each with its own Python, 3.10 or newer."""
