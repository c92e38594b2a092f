"""Converts weights trained on JAX to a run: `python -m benchmarks.on_jax.keep`.

    python -m benchmarks.on_jax.keep trained/one.npz --of runs/multi30k --out runs/one

Vocabulary, sizes and search options are those of the run that was packed. The result is a run
directory like any other. A model with `reverse` translates in the other direction.

Exit codes: 0 written; 1 an error of a file or a run; 2 wrong usage; 130 or 143 interrupted.
"""

import sys
from pathlib import Path

from benchmarks.on_jax.pack import read_begun
from tfformer.terminal.command import Parser, main_of


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.on_jax.keep", __doc__)
    parser.add_argument("weights", type=Path, help="a file of benchmarks.on_jax.train")
    parser.add_argument("--of", type=Path, required=True, help="the run that was packed")
    parser.add_argument("--out", type=Path, required=True, help="the new run directory")
    return parser


def keep(weights, packed, out):
    """Writes the run.

    Args:
        weights: the file of weights.
        packed: the run that was packed.
        out: the new run directory.

    Raises:
        RunError: a file is damaged or belongs to another model, or `out` exists.
    """
    from tfformer import Transformer, run
    from tfformer.files import RunError, read_arrays

    if (out / "config.json").exists():
        raise RunError(f"{out} holds a model: choose another directory")
    recipe, task, tokenizer, begun = read_begun(packed)
    model = Transformer(begun.config)
    arrays = {name: x.astype("float32") for name, x in read_arrays(weights).items()}
    run.set_weights(model, arrays)
    run.save(out, model, tokenizer, task.search(recipe))


def _run(command, options):
    try:
        keep(options.weights, options.of, options.out)
    except (ValueError, OSError) as error:
        return command.fail(error)
    print(f"{options.out}: written", file=sys.stderr)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
