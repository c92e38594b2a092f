"""Lists the commands of a folder, each with the first line of its help."""

import ast
from pathlib import Path

from tfformer.terminal.command import Parser


def commands(folder):
    """Yields (name, purpose) of each command of a folder. Reads the files and imports none."""
    for path in sorted(Path(folder).glob("[!_]*.py")):
        text = path.read_text(encoding="utf-8")
        if 'if __name__ == "__main__":' in text:
            first = ast.get_docstring(ast.parse(text)).split("\n")[0]
            yield path.stem, first.split(": ")[0].rstrip(".")


def run(name, folder, arguments=None):
    """Prints the commands of the package `name` in a folder. Returns the exit code."""

    def show(_):
        print(f"usage: python -m {name}.COMMAND ...\n")
        for command, purpose in commands(folder):
            print(f"  {name + '.' + command:35} {purpose}")
        return 0

    text = "Lists the commands. --help of a command describes it."
    return Parser(name, text, prints=True).run(show, arguments)
