"""How fast an export decodes, beside what others decode with; and how its cost grows."""
