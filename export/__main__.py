"""`python -m training` lists the commands that make a service."""

import ast
import sys
from pathlib import Path


def commands(folder):
    """(name, first sentence of its help) of each command of a folder; none is imported."""
    for path in sorted(Path(folder).glob("[!_]*.py")):
        text = path.read_text(encoding="utf-8")
        if 'if __name__ == "__main__":' in text:
            first = ast.get_docstring(ast.parse(text)).split("\n")[0]
            yield path.stem, first.split(": `")[0].split(": ")[0].rstrip(".")


def main():
    """Prints them; returns the exit code: 2 for a command that there is not."""
    package = Path(__file__).parent
    print(f"usage: python -m {package.name}.COMMAND ... (--help says more of each)\n")
    for name, text in commands(package):
        print(f"  {package.name + '.' + name:26} {text}")
    return 2 if len(sys.argv) > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
