"""Averages the weights of several runs: `tfformer average RUN RUN...`.

    tfformer train --source train.en --target train.de --run runs/one
    tfformer train --source train.en --target train.de --run runs/two --init runs/one \\
        --r-drop 1 --epochs 6 --warmup-steps 100 --learning-rate-scale 0.09 --cooldown 1
    tfformer average runs/one runs/two --out runs/mean

Use it for runs that started from the same weights, with --init, and were then trained in different
ways. Each has learned something different. Their mean costs as much as one model and may be better
than each of them (Wortsman et al. 2022, "Model soups"). Evaluate it before you use it. The mean of
runs with different initial weights is useless, since they learn the same thing at different
positions.

The runs must have the same vocabulary and the same model, except dropout. The mean has the search
options of the first run. A run that is named twice counts twice.

Exit codes: 0 written; 1 an error of a run or the disk, nothing is written; 2 wrong usage; 130 or
143 interrupted.
"""

import sys
from pathlib import Path

from tfformer.terminal.command import Parser, main_of

# Fields of a configuration that do not affect the weights.
DROPOUT = ("dropout", "attention_dropout", "activation_dropout")


def parser():
    """The command's arguments."""
    parser = Parser("training.average", __doc__, reads=["runs"], new={"out": "--out"})
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="at least two")
    parser.add_argument("--out", type=Path, required=True, help="the new run, which must not exist")
    return parser


def require_alike(runs):
    """The configurations of runs. Raises a RunError if one has another model or vocabulary."""
    from tfformer.files import RunError
    from tfformer.run import read_config, read_family, read_sizes, require_family

    configs = [read_config(run) for run in runs]
    first, expected = configs[0], read_sizes(runs[0], configs[0]).to_dict()
    for run, config in zip(runs, configs, strict=True):
        require_family(run, config, read_family(runs[0], first))
        found = read_sizes(run, config).to_dict()
        for name in sorted(expected.keys() - set(DROPOUT)):
            if found[name] != expected[name]:
                raise RunError(
                    f"{run} must have the same model as {runs[0]}, {name}={expected[name]!r}, "
                    f"got {found[name]!r}"
                )
        if _files(config) != _files(first):
            raise RunError(f"{run} must have the same vocabulary as {runs[0]}, got another")
    return configs


def _files(config):
    """The checksums of a run's files, except its weights."""
    return {name: value for name, value in config["sha256"].items() if name != config["weights"]}


def _run(command, options):
    if len(options.runs) < 2:
        return command.fail("RUN must be given at least twice, got 1", 2)

    from tfformer.files import unpack
    from tfformer.run import load, read_checked, require_new, save_new, set_weights

    from .trainer.checkpoint import average

    try:
        require_new("--out", options.out)
        configs = require_alike(options.runs)
        runs = [*zip(options.runs, configs, strict=True)]
        model, tokenizer = load(options.runs[0])
        files = (read_checked(run, config, config["weights"]) for run, config in runs)
        set_weights(model, average(map(unpack, files)))
        known = configs[0].get("training", {})
        training = {name: known[name] for name in ("examples", "references") if name in known}
        training["average_of"] = [(str(run), config["weights"]) for run, config in runs]
        save_new(options.out, model, tokenizer, configs[0]["search"], training)
    except (ValueError, OSError) as error:
        return command.fail(error)
    with command.remarks():
        print(f"{options.out}: the mean of {len(options.runs)} runs")
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
