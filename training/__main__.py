"""`python -m training` lists the commands that make weights."""

import ast
import sys
from pathlib import Path

from training.terminal.command import Parser


def commands(folder):
    """(name, what it does) of each command of a folder, by its first line; none is imported."""
    for path in sorted(Path(folder).glob("[!_]*.py")):
        text = path.read_text(encoding="utf-8")
        if 'if __name__ == "__main__":' in text:
            first = ast.get_docstring(ast.parse(text)).split("\n")[0]
            yield path.stem, first.split(": ")[0].rstrip(".")


def main(arguments=None):
    """Prints them; returns the exit code."""
    package = Path(__file__).parent
    parser = Parser(package.name, "Lists the commands; each says more by --help.", prints=True)
    return parser.run(lambda _: _list(package), arguments)


def _list(package):
    print(f"usage: python -m {package.name}.COMMAND ...\n")
    for name, text in commands(package):
        print(f"  {package.name + '.' + name:26} {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
