"""Converts text to ids and back, and splits documents into sentences."""
