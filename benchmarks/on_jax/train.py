"""Trains several models at once on JAX: `python -m benchmarks.on_jax.train`.

    python -m benchmarks.on_jax.train multi30k.npz --out trained \\
        --models one:seed=1 two:seed=2 back:seed=1,reverse=1
    python -m benchmarks.on_jax.train diverse.npz --out students --passes 2 \\
        --models taught:r_drop=2,teacher_weight=0.5 --teachers trained/one.npz trained/two.npz

A small model is too little work for a large GPU, which then waits between kernels. Here each step
trains all models. They differ in weights, dropout and batches, and their products become one
batched product (`jax.vmap`).

Layers, loss, optimizer, schedule, dropout and batches are those of `training.train`, with the
recipe of the corpus, a file of `benchmarks.on_jax.pack`. The differences: a model computes in
bfloat16; batches have fewer shapes, and pairs with more than 64 source or target tokens are left
out; each segmentation is one of --drawn that were drawn at the beginning; all models have batches
of the same shape at a time; the mean of the last epochs is always written, even if it is worse.

Options of a model, as NAME:seed=2,r_drop=1: seed (1); reverse (0), 1 to exchange source and target;
r_drop (0), the weight of R-Drop; teacher_weight (0), the teachers' share of the loss.

--out gets NAME.npz, weights that `benchmarks.on_jax.keep` converts to a run, log.txt, and
history.json: losses, perplexities and seconds.

Exit codes: 0 trained; 1 an error of a file, or a loss is not finite; 2 wrong usage; 130 or 143
interrupted.
"""

import argparse
import functools
import math
import os
import sys
import time
from pathlib import Path

from tfformer.terminal.command import Number, Parser, count, main_of

# The options of a model: {name: (default, type)}.
OPTIONS = {
    "seed": (1, Number(int)),
    "reverse": (0, Number(int, 0, 1)),
    "r_drop": (0.0, Number(float)),
    "teacher_weight": (0.0, Number(float, 0, 1)),
}
UNMEASURED = 60  # steps at the beginning, with --minutes


def model(text):
    """A model of --models: its name and its options."""
    name, _, rest = text.partition(":")
    if not name.isidentifier():
        raise argparse.ArgumentTypeError(
            f"must begin with a name of letters and digits, got {text}"
        )
    options = {key: default for key, (default, _) in OPTIONS.items()}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        if key not in OPTIONS:
            raise argparse.ArgumentTypeError(
                f"must have options of {', '.join(OPTIONS)}, got {pair}"
            )
        try:
            options[key] = OPTIONS[key][1](value)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"must be a model whose {key} {error}") from error
    return options | {"name": name}


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.on_jax.train", __doc__)
    parser.add_argument("corpus", type=Path, help="the file of benchmarks.on_jax.pack")
    parser.add_argument(
        "--models", nargs="+", required=True, type=model, metavar="NAME:OPTIONS", help="see above"
    )
    parser.add_argument(
        "--teachers", nargs="+", type=Path, default=[], help="files of weights, of these sizes"
    )
    parser.add_argument("--passes", type=int, choices=(1, 2), default=1, help="2 for R-Drop")
    parser.add_argument("--epochs", type=count(), help="default: the recipe's")
    parser.add_argument(
        "--minutes", type=Number(float), default=0.0, help="fewer epochs, where not all fit into it"
    )
    parser.add_argument("--cooldown", type=Number(float, 0, 1), help="default: the recipe's")
    parser.add_argument("--average", type=count(), help="epochs; default: the recipe's")
    parser.add_argument("--validate-every", type=count(), help="epochs; default: the recipe's")
    parser.add_argument(
        "--drawn", type=count(), default=8, help="segmentations of a text; default 8"
    )
    parser.add_argument(
        "--dtype", choices=("mixed_bfloat16", "float32"), default="mixed_bfloat16", help="policy"
    )
    parser.add_argument("--half", action="store_true", help="write weights in float16")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    return parser


def fault(options):
    """The error in the combination of options, or None."""
    models = options.models
    if len({one["name"] for one in models}) < len(models):
        return "--models must have a name each"
    if options.passes == 1 and (weights := [one["r_drop"] for one in models if one["r_drop"]]):
        return f"r_drop must be 0 without --passes 2, got {weights[0]}"
    weights = [one["teacher_weight"] for one in models if one["teacher_weight"]]
    if weights and not options.teachers:
        return f"teacher_weight must be 0 without --teachers, got {weights[0]}"
    if options.teachers and not weights:
        return "teacher_weight must be above 0 of a model with --teachers"
    if options.teachers and len({one["reverse"] for one in models}) > 1:
        return "reverse must be the same for all models with --teachers"
    if (options.out / "history.json").exists():
        return f"--out must be a new folder, got {options.out}"
    return None


def train(models, batches, recipe, minutes, validation, say, clock, rates, finite=all):
    """Trains the models. Returns the history, a dict for each epoch.

    The last entry is for the mean of the last epochs' weights, which `models.total` then has.

    Args:
        models: `Models`.
        batches: `Batches`.
        recipe: the settings.
        minutes: maximum time, after at least two epochs; 0: no limit.
        validation: a function of `Models.validation`.
        say: called with a line.
        clock: returns the seconds since the beginning.
        rates: a function of the number of steps that returns the learning rates, [steps], or
            [steps, models].
        finite: `any`, if the others go on when a model diverges. Default `all`: the losses of all
            models must be finite.

    Raises:
        ValueError: losses are not finite.
    """
    models.compile(batches)
    say(f"compiled after {clock():.0f} s")
    number, seen, history = 0, 0.0, []
    epochs, unmeasured = recipe["epochs"], min(UNMEASURED, len(batches) // 2)
    schedule = rates(epochs * len(batches))
    averaged = min(recipe["average"], epochs)
    epoch = 0
    while epoch < epochs:
        share = recipe["subword_sampling_from"] / recipe["epochs"]
        drawn = bool(recipe["subword_sampling"]) and epoch >= share * epochs
        for n, (bucket, index) in enumerate(batches.epoch(epoch, drawn)):
            last = n == len(batches) - 1 and epochs - epoch <= averaged
            models.step(bucket, index, number, schedule[number], last)
            number += 1
            if epoch == 0 and n == unmeasured:
                models.losses()  # all steps so far have ended
                since = clock()
        losses = models.losses()
        if not finite(map(math.isfinite, losses)):
            raise ValueError(f"losses must be finite, got {losses.tolist()} in epoch {epoch + 1}")
        if epoch == 0 and minutes:
            seconds = (clock() - since) / max(1, len(batches) - unmeasured - 1) * len(batches)
            epochs = min(epochs, max(2, 1 + int((60 * minutes - clock()) / (1.02 * seconds))))
            averaged = min(averaged, epochs)
            schedule = rates(epochs * len(batches))
            say(f"{epochs} epochs of {seconds:.1f} s")
        epoch += 1
        row = {"epoch": epoch, "loss": ((losses - seen) / len(batches)).tolist()}
        seen = losses
        if epoch % recipe["validate_every"] == 0 or epoch == epochs:
            row["val_perplexity"] = validation()
            say(f"epoch {epoch}: loss {rounded(row['loss'])}, val {rounded(row['val_perplexity'])}")
        history.append(row | {"seconds": clock()})
    models.total = [total / averaged for total in models.total]
    history.append({"mean_of_epochs": averaged, "val_perplexity": validation(models.total)})
    say(f"mean of {averaged} epochs: val {rounded(history[-1]['val_perplexity'])}")
    return history


def rates_of(recipe, d_model, steps):
    """The learning rate of each step."""
    import numpy as np

    from tfformer import WarmupSchedule

    schedule = WarmupSchedule(
        d_model,
        recipe["warmup_steps"],
        recipe["learning_rate_scale"],
        total_steps=steps,
        cooldown_steps=round(recipe["cooldown"] * steps),
        rises=recipe["warmup"],
    )
    return np.asarray(schedule(np.arange(steps)))


def rounded(numbers):
    return " ".join(f"{number:.3f}" for number in numbers)


def _run(command, options):
    began = time.monotonic()
    if wrong := fault(options):
        return command.fail(wrong, 2)
    if (backend := os.environ.setdefault("KERAS_BACKEND", "jax")) != "jax":
        return command.fail(f"KERAS_BACKEND must be jax, got {backend}", 2)

    import numpy as np

    from benchmarks.on_jax.batches import EDGES, Batches
    from benchmarks.on_jax.corpus import Corpus
    from tfformer.files import pack, read_arrays, write_atomically, write_json

    lines = []

    def clock():
        return time.monotonic() - began

    def say(line):
        lines.append(line)
        print(line, file=sys.stderr, flush=True)
        write_atomically(options.out / "log.txt", "".join(f"{line}\n" for line in lines).encode())

    try:
        corpus, longest = Corpus(options.corpus), int(EDGES[-1])
        teachers = {path: read_arrays(path) for path in options.teachers}
        options.out.mkdir(parents=True, exist_ok=True)
        ids, val = corpus.ids("train", options.drawn, longest), corpus.ids("val", 0, longest)
        recipe = corpus.settings["recipe"]
        for name in ("epochs", "cooldown", "average", "validate_every"):
            if (value := getattr(options, name)) is not None:
                recipe[name] = value

        import jax
        import keras

        from benchmarks.on_jax.models import Models

        device = jax.devices()[0].device_kind
        say(f"{device}, JAX {jax.__version__}, Keras {keras.__version__}")
        seeds = [(one["seed"], one["reverse"]) for one in options.models]
        batches = Batches(np.count_nonzero(ids, axis=-1), recipe["batch_tokens"], seeds)
        given = options.models, ids, options.passes, teachers, options.dtype
        models = Models(corpus.settings, *given)
        say(
            f"{ids.shape[2]:,} pairs of {len(corpus.texts['train-source']):,}, {len(batches):,} "
            f"steps an epoch, {len(options.models)} models, after {clock():.0f} s"
        )
        validation = models.validation(val)
        rates = functools.partial(rates_of, recipe, models.model.config.d_model)
        history = train(models, batches, recipe, options.minutes, validation, say, clock, rates)
        kind = "float16" if options.half else "float32"
        for n, one in enumerate(options.models):
            found = [np.asarray(x[n], kind) for x in models.total]
            found = dict(zip(models.names, found, strict=True))
            write_atomically(options.out / f"{one['name']}.npz", pack(found))
        record = {"models": options.models, "device": device, "history": history}
        write_json(options.out / "history.json", record)
    except (ValueError, OSError, ImportError) as error:
        return command.fail(error)
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
