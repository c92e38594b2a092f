"""Serves models: signatures from text to text, and the services that have them."""
