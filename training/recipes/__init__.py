"""The recipes, one Python file each. Its docstring shows how to run it and what to expect."""
