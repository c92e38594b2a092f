"""Trains studies on JAX, several seeds of a row in one step: `python -m
benchmarks.on_jax.train_studies`.

    python -m benchmarks.on_jax.train_studies studies.npz --out results.jsonl.gz --seeds 0 1 2

The file is of `benchmarks.on_jax.pack_studies`. Each row is trained and searched as its study says,
apart from the differences of `benchmarks.on_jax.train` and these:

- Batches have three shapes, and an epoch as many steps as with all shapes.
- If the recipe averages epochs, a model is the mean of the last ones or the last one, whichever has
  the lower perplexity on val.
- A translation is at most as long as the longest source or target of val.

Rows that differ in learning rates only are trained in one step. --processes train different rows
at the same time, because compiling takes longer than training. A row that fails stops no other.
After --seconds, no further row is begun.

--out gets a line of JSON for each model as soon as it is trained: "rows", the names of study and
row; "seed"; "parameters"; "history", a dict for each epoch; "perplexity" on val; "averaged"; and
"translations" of val as ids. With `benchmarks.on_jax.score_studies` they become a table.

Exit codes: 0 all rows are trained; 1 an error of the file or of a row, or the time is over; 2 wrong
usage; 130 or 143 interrupted.
"""

import gzip
import json
import multiprocessing
import os
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from benchmarks.on_jax import batches
from benchmarks.on_jax.train import rates_of, train
from tfformer.terminal.command import Parser, count, main_of

# Few, because each shape is compiled.
EDGES = (16, 24, batches.EDGES[-1])
# The settings in which rows that are trained in one step may differ.
FREE = ("warmup", "warmup_steps", "learning_rate_scale", "cooldown", "scheduled_sampling_decay")


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.on_jax.train_studies", __doc__)
    parser.add_argument("studies", type=Path, help="the file of benchmarks.on_jax.pack_studies")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default 0 1 2")
    parser.add_argument("--processes", type=count(), default=1, help="default 1")
    parser.add_argument("--seconds", type=count(), default=10**6, help="default: no limit")
    parser.add_argument("--epochs", type=count(), help="for a trial; default: the recipes'")
    parser.add_argument("--pairs", type=count(), help="for a trial; default: all")
    parser.add_argument("--out", type=Path, required=True, help="a new file, .jsonl.gz")
    return parser


def groups_of(rows):
    """Lists of rows that are trained in one step, in the order of their first rows."""
    found = {}
    for row in rows:
        settings = row["settings"]
        fixed = {name: x for name, x in settings["recipe"].items() if name not in FREE}
        key = json.dumps([row["corpus"], settings | {"recipe": fixed}], sort_keys=True)
        found.setdefault(key, []).append(row)
    return list(found.values())


def batches_of(ids, batch_tokens, seeds):
    """The `Batches` of a corpus int16 [2, 1, N, S]."""
    lengths, seeds = np.count_nonzero(ids, axis=-1), [(seed,) for seed in seeds]
    usual, few = (
        batches.Batches(lengths, batch_tokens, seeds, edges) for edges in (batches.EDGES, EDGES)
    )
    return batches.Batches(lengths, round(batch_tokens * len(few) / len(usual)), seeds, EDGES)


def train_group(ids, val, rows, options, say):
    """Trains rows in one step. Yields the dict of each model.

    Args:
        ids, val: the corpora, int16 [2, 1, N, S].
        rows: a list of `groups_of`.
        options: those of the command.
        say: called with a line.
    """
    from benchmarks.on_jax.models import Models, chosen

    began = time.monotonic()
    settings = rows[0]["settings"]
    recipe = settings["recipe"] | {"validate_every": 1}
    recipe["epochs"] = options.epochs or recipe["epochs"]
    members = [(row, seed) for row in rows for seed in options.seeds]
    plain = {"reverse": 0, "r_drop": 0.0, "teacher_weight": 0.0}
    own = [plain | {"seed": seed, "shares": row.get("shares")} for row, seed in members]
    data = batches_of(ids, recipe["batch_tokens"], [seed for _, seed in members])
    dtype = "mixed_bfloat16" if recipe["dtype"] == "auto" else recipe["dtype"]
    models = Models(settings | {"recipe": recipe}, own, ids, 1, {}, dtype)
    known = val[0, 0], recipe["beam_width"], recipe["length_penalty"]
    search = models.search(*known, val.shape[-1], recipe["max_tokens"])
    greedy = models.search(val[0, 0], 1, 0.0, val.shape[-1], recipe["max_tokens"])
    perplexity, searched = models.validation(val), []

    def validation(weights=None):
        if settings["greedy"]:
            searched.append(greedy(weights))
        return perplexity(weights)

    def rates(steps):
        width = models.model.config.d_model
        own = [rates_of(row["settings"]["recipe"], width, steps) for row, _ in members]
        return np.stack(own, axis=1)

    def clock():
        return time.monotonic() - began

    known = models, data, recipe, 0, validation, say, clock, rates
    *history, mean = train(*known, finite=any)
    last, mean = (np.array(epoch["val_perplexity"]) for epoch in (history[-1], mean))
    averaged = (mean < last) & (recipe["average"] > 1)
    translations = search(chosen(averaged, models.total, models.state[0]))
    say(f"searched after {clock():.0f} s")
    for n, (row, seed) in enumerate(members):
        epochs = [
            {name: x[n] if isinstance(x, list) else x for name, x in epoch.items()}
            | ({"translations": lists(searched[m][n])} if searched else {})
            for m, epoch in enumerate(history)
        ]
        yield {
            "rows": row["rows"],
            "seed": seed,
            "parameters": models.model.count_params(),
            "steps": recipe["epochs"] * len(data),
            "history": epochs,
            "perplexity": float(np.where(averaged, mean, last)[n]),
            "averaged": bool(averaged[n]),
            "translations": lists(translations[n]),
        }


def lists(ids):
    """Padded ids [N, S] as lists."""
    return [row[row > 0].tolist() for row in ids]


def work(options, ends, number, lock):
    """The process that trains one group after the other.

    Args:
        options: those of the command.
        ends: the time after which no group is begun.
        number: a shared number, of the next group.
        lock: held while --out is written.
    """
    with np.load(options.studies, allow_pickle=False) as file:
        arrays = dict(file)
    groups = groups_of(json.loads(arrays["rows"].tobytes()))
    while True:
        with number.get_lock():
            n, number.value = number.value, number.value + 1
        if n >= len(groups):
            return
        rows = groups[n]
        names = ", ".join(": ".join(row["rows"][0]) for row in rows)
        if time.time() > ends:
            print(f"not begun: {names}", file=sys.stderr, flush=True)
            continue

        def say(line, names=names):
            print(f"{names[:60]}: {line}", file=sys.stderr, flush=True)

        try:
            train_ids, val = (arrays[f"{rows[0]['corpus']}/{split}"] for split in ("train", "val"))
            limit = slice(options.pairs)
            given = train_ids[:, :, limit], val[:, :, limit], rows, options, say
            lines = [json.dumps(found) + "\n" for found in train_group(*given)]
            with lock, open(options.out, "ab") as out:
                out.write(gzip.compress("".join(lines).encode()))
        except Exception:  # Any error of a row must not stop the other rows.
            say(traceback.format_exc())


def _run(command, options):
    ends = time.time() + options.seconds
    if options.out.exists():
        return command.fail(f"--out must be a new file, got {options.out}", 2)
    if (backend := os.environ.setdefault("KERAS_BACKEND", "jax")) != "jax":
        return command.fail(f"KERAS_BACKEND must be jax, got {backend}", 2)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # they share the GPU's memory
    try:
        with np.load(options.studies, allow_pickle=False) as file:
            wanted = len(json.loads(file["rows"].tobytes())) * len(options.seeds)
    except (ValueError, KeyError, OSError) as error:
        return command.fail(error)
    context = multiprocessing.get_context("spawn")
    shared = options, ends, context.Value("i", 0), context.Lock()
    workers = [context.Process(target=work, args=shared) for _ in range(options.processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    trained = len(read_results(options.out)) if options.out.exists() else 0
    print(f"{trained} of {wanted} models are trained", file=sys.stderr)
    return 0 if trained == wanted else 1


def read_results(path):
    """The dicts of a file that this command wrote."""
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
