"""Common code of the embedded corpora: pairs made from a seed, in three splits, and a command."""

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterable

from tfformer.terminal.command import Number, Parser

SPLITS = ("train", "val", "test")


def split_of(key: str) -> str:
    """The split of a text: about eight in ten are "train", one is "val", one is "test".

    It depends only on the text, so no text is in two splits, with any seeds and counts.
    """
    digest = hashlib.sha256(key.encode()).digest()  # hash() differs between processes
    return {0: "test", 1: "val"}.get(int.from_bytes(digest[:8], "big") % 10, "train")


def require_split(split: str) -> None:
    """Raises a ValueError unless it is one of `SPLITS`."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")


def require(split: str, count: int, maximum: int, why: str, seed: int) -> None:
    """Raises a ValueError unless a split has `count` pairs; `why` says why it has `maximum`."""
    require_split(split)
    if type(count) is not int or not 0 <= count <= maximum:
        raise ValueError(f"count must be an integer from 0 to {maximum} ({why}), got {count!r}")
    if type(seed) is not int:
        raise ValueError(f"seed must be an integer, got {seed!r}")


def main(
    name: str,
    description: str,
    pairs: Callable[[str, int, int], Iterable[tuple[str, ...]]],
    arguments: list[str] | None = None,
) -> int:
    """The command of a corpus, which prints pairs as tab-separated lines; returns its exit code.

    `pairs` is a function of split, count and seed.
    """
    text = (
        f"{description}, with tabs between.\n\n"
        f"    tfformer {name.rpartition('.')[2]} --split test --count 5 --seed 1\n\n"
        "Exit codes: 0 printed; 1 an error of the output; 2 wrong usage; 130 or 143 interrupted."
    )
    parser = Parser(name, text, prints=True)
    parser.add_argument("--count", type=Number(int), default=20, help="pairs to print (default 20)")
    parser.add_argument("--split", choices=SPLITS, default="train", help="default train")
    parser.add_argument(
        "--seed", type=Number(int, 1 - 2**63, 2**63 - 1), default=0, help="default 0"
    )

    def run(options: argparse.Namespace) -> int:
        try:
            chosen = pairs(options.split, options.count, options.seed)
        except ValueError as error:
            parser.error(str(error))
        sys.stdout.reconfigure(encoding="utf-8")
        for pair in chosen:
            print(*pair, sep="\t")
        return 0

    return parser.run(run, arguments)
