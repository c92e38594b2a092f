"""Processes that decode in turns, so that other work on the machine affects all of them equally."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",  # measurements are on the CPU
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class WorkerError(Exception):
    """A worker did not start or did not answer. The message is the reason, in one line."""


class Worker:
    """A process of `benchmarks.peers`; the constructor returns when it has loaded its model.

    Args:
        peer: the module of `benchmarks.peers`.
        job: see `benchmarks.peers.protocol`.
        python: the interpreter. Default: this one.
        environment: additional environment variables. Default: none.
        root: the checkout with its code. Default: this one.

    Attributes:
        version, python: the versions of the system and of its Python.
        process_id: the id of the process.

    Raises:
        WorkerError: it cannot be started, lacks a package, or dies.
    """

    def __init__(self, peer, job, python=sys.executable, environment=None, root=ROOT):
        self._log = tempfile.TemporaryFile("w+", errors="replace")
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump(job, file)
            file.flush()
            try:
                self._process = subprocess.Popen(
                    [python, "-m", f"benchmarks.peers.{peer}", file.name],
                    cwd=root, env={**os.environ, **ENVIRONMENT, **(environment or {})}, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                )  # fmt: skip
            except OSError as error:
                self._log.close()
                raise WorkerError(f"{python} cannot be started: {error.strerror}") from error
            self.process_id = self._process.pid
            try:
                answer = self._read()
            except BaseException:
                self.close()
                raise
        self.version, self.python = answer["version"], answer["python"]

    def decode(self, name):
        """Decodes the batches of this name once: {"seconds": ..., "foreign": ...}."""
        return self._ask({"decode": name})

    def say(self, name):
        """The translations of the batches of this name, if the worker can return texts."""
        return self._ask({"say": name})["texts"]

    def close(self):
        """Ends the process. A second call does nothing."""
        try:
            self._process.communicate(timeout=10)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _ask(self, what):
        try:
            print(json.dumps(what), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # It has ended; its last output has the reason.
        return self._read()

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            last = self._log.read().strip().splitlines()[-1:]
            code = self._process.wait()
            raise WorkerError(": ".join([f"the process ended with exit code {code}", *last]))
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer


def take_turns(workers, names, rounds, progress):
    """Every worker decodes the batches of every name, once a round.

    Args:
        workers: {label: Worker}. A worker that fails is closed and removed.
        names: the names of the batches.
        rounds: the number of measured rounds, after one round of warm-up.
        progress: a `Progress` with one step for each turn.

    Returns:
        {(label, name): the answers, one for each round} of the workers that did not fail.
    """
    answers = {(label, name): [] for label in workers for name in names}
    for number in range(rounds + 1):
        what = f"round {number} of {rounds}" if number else "warming up"
        for name in names:
            for label, worker in list(workers.items()):
                progress.step(f"{what}, {name}, {label}")
                try:
                    answer = worker.decode(name)
                except WorkerError as error:
                    progress.say(f"{label} drops out: {error}")
                    workers.pop(label).close()
                    continue
                if number:
                    answers[label, name].append(answer)
        progress.say(f"{what}: done")
    return {key: given for key, given in answers.items() if key[0] in workers}


class Progress:
    """Shows progress and remaining time on standard error.

    On a terminal, one line is updated. Otherwise only messages are written.
    """

    def __init__(self, steps):
        self.steps, self.done, self.started = steps, 0, time.monotonic()
        self.terminal = sys.stderr.isatty()

    def step(self, what):
        """Shows the next step."""
        if self.terminal:
            left = (time.monotonic() - self.started) / max(self.done, 1) * (self.steps - self.done)
            head = f"[{self.done}/{self.steps}, {left / 60:.0f} min left] " if self.done else ""
            print(f"\r{head}{what}\033[K", end="", file=sys.stderr, flush=True)
        self.done += 1

    def say(self, line):
        """Writes a message on its own line."""
        print(f"\r{line}\033[K" if self.terminal else line, file=sys.stderr, flush=True)
