"""Measures how fast exports decode, compared with other systems, and how the cost grows."""
