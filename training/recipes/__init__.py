"""The recipes: a Python file each, whose docstring says how to run it and what to expect."""
