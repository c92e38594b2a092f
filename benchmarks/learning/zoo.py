"""Trains the zoo of bugs of the tutorial with several seeds: `python -m benchmarks.learning.zoo`.

    python -m benchmarks.learning.zoo --out runs/zoo

Each bug changes one line of a small Transformer (`docs/tutorial/zoo.py`). The table shows for each
the training loss of the last epoch, how many unseen sentences are translated right, and which
checks an untrained model fails. Only `WrongSmoothing` learns with smoothing, so its loss cannot be
compared with the others. A result is kept in `--out`, so the same command continues after an
interruption.

Exit codes: 0 the table; 2 wrong usage; 130 or 143 interrupted.
"""

import sys
from pathlib import Path

from benchmarks import machine
from benchmarks.learning.trainings import spread
from tfformer.files import read_json, write_json
from tfformer.terminal.command import Parser, main_of


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.learning.zoo", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="default 1 2 3")
    return parser


def _run(command, options):
    from docs.tutorial import zoo

    options.out.mkdir(parents=True, exist_ok=True)
    kinds = [zoo.Healthy, *zoo.BUGS]
    found = {
        kind: [_result(zoo, kind, seed, options.out) for seed in options.seeds] for kind in kinds
    }
    print(f"{machine.today()}.\n")
    print("| bug | seeds | training loss | right, % | checks that fail |")
    print("|---|--:|--:|--:|---|")
    for kind, results in found.items():
        name = "no bug" if kind is zoo.Healthy else kind.__doc__
        losses, shares = zip(*results, strict=True)
        failed = ", ".join(f"`{check.__name__}`" for check in zoo.failed(kind)) or "none"
        percents = [100 * share for share in shares]
        cells = len(results), spread(losses, "{:.3f}"), spread(percents, "{:.1f}"), failed
        print(f"| {name} | {' | '.join(map(str, cells))} |")
    return 0


def _result(zoo, kind, seed, out):
    """The training loss and the share of right translations of one training, from its file if it
    has one."""
    path = out / f"{kind.__name__}-{seed}.json"
    if not path.exists():
        model, losses = zoo.trained(kind, seed)
        write_json(path, [losses[-1], zoo.right_of(zoo.translated(model))])
        print(f"{path} is finished", file=sys.stderr)
    return read_json(path, list)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
