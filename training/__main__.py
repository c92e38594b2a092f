"""`python -m training` lists the commands for corpora, training and evaluation."""

import sys
from pathlib import Path

from tfformer.terminal import listing


def main(arguments=None):
    """Prints the commands. Returns the exit code."""
    return listing.run(__package__, Path(__file__).parent, arguments)


if __name__ == "__main__":
    sys.exit(main())
