"""Runs trainings in parallel, a core each, and makes the table of their results."""

import os
import queue
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from benchmarks.workers import ENVIRONMENT


def file_name(row):
    """A row's name without characters that a file system may refuse."""
    return re.sub(r"\W+", "-", row)


def side_by_side(trainings):
    """Finishes trainings in parallel, a core each, and reports failures.

    If this process is interrupted, the trainings are too: each saves its state.

    Args:
        trainings: each has `run`, its directory, `log`, a file, and `finish(call)`, which calls
            `call(arguments, log)` for each command, with the words after `python -m`.
    """
    cores, running = queue.SimpleQueue(), set()
    for core in os.sched_getaffinity(0):
        cores.put(core)

    def call(arguments, log):
        command = [sys.executable, "-m", *arguments]
        with open(log, "a") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, env=os.environ | ENVIRONMENT
            )
        running.add(process)
        code = process.wait()
        running.remove(process)
        if code:
            raise subprocess.CalledProcessError(code, command)

    def finish(training):
        core = cores.get()
        # For this thread, and so for the processes that it starts.
        os.sched_setaffinity(0, {core})
        try:
            training.finish(call)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        waiting = {pool.submit(finish, training): training for training in trainings}
        try:
            for future in as_completed(waiting):
                training = waiting[future]
                try:
                    future.result()
                    print(f"{training.run} is finished", file=sys.stderr)
                except subprocess.CalledProcessError as error:
                    module, code = error.cmd[2], error.returncode
                    print(f"{module} ended with {code}: see {training.log}", file=sys.stderr)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.terminate()
            raise


def spread(values, form):
    """The mean and, of several values, their standard deviation, in a format such as "{:.1f}"."""
    mean = form.format(statistics.mean(values))
    return mean if len(values) == 1 else f"{mean} ± {form.format(statistics.stdev(values))}"


def table(trainings, columns, significance=None, title="p"):
    """Mean and standard deviation over the finished seeds of each row, as Markdown.

    Args:
        trainings: each has `row`, its name, and `figures()`, numbers by name, or None if it is not
            finished.
        columns: {the name of a figure: (title, format)}; minutes have no deviation.
        significance: p-values by row, for a last column. Default: no such column.
        title: of that column. Default "p".
    """
    rows = {}
    for training in trainings:
        if figures := training.figures():
            rows.setdefault(training.row, []).append(figures)
    every = sum(rows.values(), [])
    names = [name for name in columns if all(name in found for found in every)]
    for name in columns:
        if name not in names:
            print(f"not every row has the figure {name}: no column", file=sys.stderr)
    titles = ["seeds", *(columns[name][0] for name in names)]
    titles += [] if significance is None else [title]
    lines = [f"| | {' | '.join(titles)} |", "|---|" + "--:|" * len(titles)]
    for row, found in rows.items():
        cells = [str(len(found))]
        for name in names:
            values = [figures[name] for figures in found]
            form = columns[name][1]
            mean = form.format(statistics.mean(values))
            cells.append(mean if name == "minutes" else spread(values, form))
        if significance is not None:
            cells.append(f"{significance[row]:.3f}" if row in significance else "")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)
