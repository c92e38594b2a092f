"""The messages between a benchmark and a worker, one line of JSON each.

    worker      {"version": "CTranslate2 4.8.0 float32", "python": "3.12.3"}  once it has loaded
    benchmark   {"decode": "8"}                 decode all batches of this name, one by one
    worker      {"seconds": 1.25, "foreign": 0.01}
    benchmark   {"say": "8"}                    return the texts for them, if the worker has texts
    worker      {"texts": ["..."]}
    worker      {"error": "..."}                instead of an answer; then the worker ends

`seconds` is wall-clock time; `foreign` is the processor time, in seconds, that other processes used
meanwhile (0 without /proc/stat). A worker ends when its standard input ends.

The worker is started with a job, a JSON file with the work to decode:

    size         num_layers (of encoder and decoder each), d_model, num_heads, d_ff
    vocabulary   the pieces by id; 0 to 3 are pad, unk, bos, eos
    beam_width, steps    steps: exactly so many target tokens for every sentence
    threads      how many; null leaves the system's own default
    batches      {name: [{"texts": [a text], "ids": [its source ids, eos at the end]}]}
    options      for this system only

For training, the requests are the same. The only batch of the job is the whole work:

    size, vocabulary, options    as above
    dropout, smoothing           rates
    batches      {"train": [{"batches": [{"source": [ids and eos], "target": [ids and eos],
                 "length": the length to which both are padded}]}]}

For an existing model with its own weights, the requests are the same, and the job has no `size`:

    folder       of the model
    beam_width, max_length, threads    as above; maximum number of tokens
    batches      {name: [{"texts": [a text]}]}
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Peer(NamedTuple):
    """A loaded system.

    Attributes:
        version: its name and version, and its choices.
        prepare: converts a batch of the job to the input of `decode`; not measured.
        decode: the measured function; it returns only when the whole result is available.
        lengths: likewise, but returns the number of target tokens of each hypothesis. None in a
            training, where `decode` makes a step for each batch and returns the last loss.
        texts: for an existing model: converts the input of `decode` to its translations.
    """

    version: str
    prepare: Callable[[dict], Any]
    decode: Callable[[Any], Any]
    lengths: Callable[[Any], Iterable[int]] | None = None
    texts: Callable[[Any], list[str]] | None = None


def serve(load):
    """Runs a worker: `load(job)` returns its `Peer`, then it answers until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Output of libraries goes to standard error.

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            job = json.load(file)
        peer = load(job)
        work = {name: list(map(peer.prepare, given)) for name, given in job["batches"].items()}
        first = next(iter(work.values()))[0]
        if peer.texts is not None:
            if not any(peer.texts(first)):
                raise ValueError("translations are wanted, got empty ones")
        elif peer.lengths is None:
            loss = float(peer.decode(first))
            if not 0 < loss < 20:
                raise ValueError(f"a loss in nats a token is wanted, got {loss}")
        else:
            found = {int(n) for n in peer.lengths(first)}
            if found != {job["steps"]}:
                raise ValueError(f"{job['steps']} target tokens are wanted, got {sorted(found)}")
        answer(version=peer.version, python=platform.python_version())
        for line in sys.stdin:
            asked = json.loads(line)
            if "say" in asked:
                texts = [text for batch in work[asked["say"]] for text in peer.texts(batch)]
                answer(texts=texts)
            else:
                answer(**measure(peer.decode, work[asked["decode"]]))
    except Exception as error:
        answer(error=f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise


def measure(decode, batches):
    """Decodes every batch once: {"seconds": ..., "foreign": ...}."""
    busy, own, start = machine_seconds(), time.process_time(), time.perf_counter()
    for batch in batches:
        decode(batch)
    seconds = time.perf_counter() - start
    own = time.process_time() - own
    return {"seconds": seconds, "foreign": machine_seconds() - busy - own}


def machine_seconds():
    """Processor seconds of all cores together since the machine started."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(number) for number in file.readline().split()[1:9]]
    except OSError:
        return time.process_time()
    idle, waiting = ticks[3:5]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def training_ids(batch):
    """A batch of a training as three padded lists: source, bos + target, target + eos."""
    length, targets = batch["length"], batch["target"]
    sides = (batch["source"], [[2, *row[:-1]] for row in targets], targets)
    return [[row + [0] * (length - len(row)) for row in side] for side in sides]


def padded(rows, multiple=1):
    """Pads rows of ids with 0 to one length, a multiple of `multiple`."""
    length = -(-max(map(len, rows)) // multiple) * multiple
    return [row + [0] * (length - len(row)) for row in rows]
