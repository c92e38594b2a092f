"""Measures how long a server needs to load a run's export: `python -m benchmarks.loading`.

    python -m benchmarks.loading runs/dates --rounds 3

Each system is loaded in a fresh process, which then answers its first requests:

- the export with all signatures, with `beam_search`, and with `serving_default` alone, through the
  C API: load, then all warm-up requests
- Keras's `model.export` of the same model, which has no vocabulary and no search: load by the C
  API, then one batch of ids
- CTranslate2 with the same weights: load, then one sentence

The systems take turns. The table shows medians over the rounds: seconds, seconds of the processor,
and peak memory of the process. TensorFlow's libraries alone have a row.

Exit codes: 0 measured; 1 an error of the run or the installation; 2 wrong usage; 130 interrupted.
"""

import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import machine, work
from benchmarks.learning.trainings import file_name
from tfformer.terminal.command import Parser, main_of

# {system: options of the export}
EXPORTS = {
    "all signatures": (),
    "serving_default, beam_search": ("--signatures", "serving_default", "beam_search"),
    "serving_default": ("--signatures", "serving_default"),
}


def parser():
    """The command's arguments."""
    parser = Parser("benchmarks.loading", __doc__)
    parser.add_argument("run", type=Path, help="the run directory of a translator")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    return parser


def _run(command, options):
    work.require_at_least(command, options, rounds=1)
    found = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            jobs = prepare(options.run, Path(folder))
            for number in range(1, options.rounds + 1):
                print(f"round {number} of {options.rounds} ...", file=sys.stderr)
                for name, job in jobs.items():
                    found.setdefault(name, []).append(in_new_process(job))
    except (ImportError, ValueError, OSError, RuntimeError) as error:
        return command.fail(error)
    print(machine.sentence(machine.describe()))
    print("\n| system | seconds | seconds of the processor | MiB |\n|---|--:|--:|--:|")
    for name, rounds in found.items():
        seconds, processor, mib = map(statistics.median, zip(*rounds, strict=True))
        print(f"| {name} | {seconds:.1f} | {processor:.1f} | {mib:.0f} |")
    return 0


def prepare(run, folder):
    """Writes what is loaded into a folder; {system: (a function of this module, its arguments)}."""
    from export import ctranslate2 as to_ctranslate2
    from export import saved_model
    from export.serving.model import warmup_calls
    from export.verification.graph import read_graph
    from tfformer.run import load_translator

    jobs = {"TensorFlow's libraries alone": (load_libraries,)}
    for name, words in EXPORTS.items():
        exported = folder / file_name(name)
        if saved_model.main([str(run), str(exported), *words]):
            raise RuntimeError(f"the export of {run} with {name} failed")
        directory = exported / "1"
        calls = warmup_calls(directory, read_graph(directory))
        jobs[name] = load_saved_model, directory, calls
    translator = load_translator(run)
    directory = folder / "keras"
    translator.model.export(directory, verbose=False)
    signature = read_graph(directory).signatures["serving_default"]
    feeds = {info.name: np.full([1, 8], 5, "int32") for info in signature.inputs.values()}
    fetches = [info.name for info in signature.outputs.values()]
    jobs["Keras's model.export, no text and no search"] = (
        load_saved_model, directory, [(feeds, fetches)],
    )  # fmt: skip
    to_ctranslate2.export(run, folder / "ctranslate2")
    jobs["CTranslate2"] = load_ctranslate2, str(folder / "ctranslate2")
    return jobs


def load_libraries():
    """Loads TensorFlow's libraries and no model."""
    from export.capi.library import library

    library()


def load_saved_model(directory, calls):
    """Loads a SavedModel as the server does and makes the calls."""
    from export.capi.session import ServingSession

    session = ServingSession(directory)
    for feeds, fetches in calls:
        session.run(feeds, fetches)


def load_ctranslate2(directory):
    """Loads a folder of CTranslate2 and translates some pieces."""
    import ctranslate2

    translator = ctranslate2.Translator(directory)
    translator.translate_batch([["▁1", "2", "▁1", "9", "8", "7"]], beam_size=4)


def in_new_process(job):
    """(seconds, seconds of the processor, peak MiB) of a job in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(sender, *job))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError as error:
        raise RuntimeError("a process that loads has ended: see above") from error
    finally:
        process.join()


def _measured(sender, load, *arguments):
    start, processor = time.perf_counter(), time.process_time()
    load(*arguments)
    seconds = time.perf_counter() - start
    sender.send((seconds, time.process_time() - processor, machine.peak_mib()))


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
