"""`python -m export` lists the commands that export and serve models."""

import sys
from pathlib import Path

from tfformer.terminal import listing


def main(arguments=None):
    """Prints the commands. Returns the exit code."""
    return listing.run(__package__, Path(__file__).parent, arguments)


if __name__ == "__main__":
    sys.exit(main())
