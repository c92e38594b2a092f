"""The mean of the weights of several runs, as a run: `python -m training.average RUN RUN...`.

    python -m training.train --source train.en --target train.de --run runs/one
    python -m training.train --source train.en --target train.de --run runs/two --init runs/one \\
        --epochs 3 --warmup-steps 100 --learning-rate-scale 0.1 --cooldown 1
    python -m training.average runs/one runs/two --out runs/mean

It is for runs that began with the same weights, by `--init`, and went on in different ways: each
has learned something of its own, and their mean has the most of it, at the cost of one model
(Wortsman et al. 2022, "Model soups"). Of runs that began with weights of their own the mean is
nothing: the same thing is learned at different places. Evaluate it before you use it.

The runs have one vocabulary, and one model but for its dropout; the options of the search are those
of the first.

Exit codes: 0 written; 1 a run or the disk is at fault, nothing is written; 2 wrong usage; 130 or
143 interrupted.
"""

import itertools
import sys
from pathlib import Path

from training.command import Parser

# Fields of a model that change nothing of what its weights are.
DROPOUT = ("dropout", "attention_dropout", "activation_dropout")


def parser():
    """The command's arguments."""
    parser = Parser("training.average", __doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="at least two")
    parser.add_argument("--out", type=Path, required=True, help="the new run, which must not exist")
    return parser


def mean(weights):
    """The mean of models' weights.

    Args:
        weights: an iterable of {name: array}, all of the same names and shapes.

    Returns:
        {name: array}, of the dtypes of the first; what counts, as the state of a random generator,
        is the first's.
    """
    import numpy as np

    total, first, count = {}, {}, 0
    for arrays in weights:
        first, count = first or arrays, count + 1
        for name, array in arrays.items():
            total[name] = total.get(name, 0.0) + np.asarray(array, "float64")
    return {
        name: (total[name] / count).astype(array.dtype) if array.dtype.kind == "f" else array
        for name, array in first.items()
    }


def require_alike(runs):
    """The configurations of runs, as `read_config` gives them.

    Raises:
        RunError: a run has another model or vocabulary than the first, or cannot be read.
    """
    from tfformer.files import RunError
    from tfformer.run import read_config, read_family, require_family

    first, *others = configs = [read_config(run) for run in runs]
    family = read_family(runs[0], first)
    for run, config in zip(runs[1:], others, strict=True):
        require_family(run, config, family)
        fields = first["model"] | config["model"]
        for name in sorted(fields.keys() - set(DROPOUT)):
            expected, found = (one["model"].get(name) for one in (first, config))
            if found != expected:
                raise RunError(
                    f"{run} must have the model of {runs[0]}, of {name} {expected!r}, got {found!r}"
                )
        files = [_files(one) for one in (first, config)]
        if files[0] != files[1]:
            raise RunError(f"{run} must have the vocabulary of {runs[0]}, got another")
    return configs


def _files(config):
    """The checksums of a run's files, but for that of its weights."""
    return {name: value for name, value in config["sha256"].items() if name != config["weights"]}


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda options: _run(command, options), arguments)


def _run(command, options):
    if len(options.runs) < 2:
        return command.fail(f"give two runs or more, got {len(options.runs)}", 2)

    from tfformer.run import load, load_model, model_weights, require_new, save_new, set_weights

    try:
        require_new("--out", options.out)
        configs = require_alike(options.runs)
        model, tokenizer = load(options.runs[0])
        others = (model_weights(load_model(run)) for run in options.runs[1:])
        set_weights(model, mean(itertools.chain([model_weights(model)], others)))
        known = configs[0].get("training", {})
        training = {name: known[name] for name in ("examples", "references") if name in known}
        training["average_of"] = {
            str(run): config["weights"] for run, config in zip(options.runs, configs, strict=True)
        }
        save_new(options.out, model, tokenizer, configs[0]["search"], training)
    except (ValueError, OSError) as error:
        return command.fail(error)
    with command.remarks():
        print(f"{options.out}: the mean of {len(options.runs)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
