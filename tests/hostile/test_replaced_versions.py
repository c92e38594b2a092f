"""Versions come, go, are damaged and replaced under a local server that is asked all the while.

Each answer is that of one of two whole models whose weights and graphs differ, or a documented
status, and only where there is none to answer; it ends in order in the middle of it.
"""

import contextlib
import ctypes
import functools
import http.client
import json
import os
import random
import shutil
import signal
import threading
import time

import pytest
import tensorflow as tf
import tiny
from server_process import PREDICTION, ServerProcess
from serving import SECONDS, make_request, wait_until
from tensorflow_serving.apis import predict_pb2

from export.serving.model import Model

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="there is no /proc")

SOME, ALL = 5, 45  # events of `make test-slow`, and of each of the parts of `make test-hostile`
TEXTS = tiny.sentences(5)
STATUSES = {404: "NOT_FOUND", 503: "UNAVAILABLE"}
# Of a request that names a version, which may be none; of any while nothing is there to answer.
GONE = {"NOT_FOUND", "UNAVAILABLE"}


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def weights(folder):
    return next((folder / "variables").glob("variables.data-*"))


def link(folder, to):
    shutil.rmtree(folder)
    folder.symlink_to(to)


def file_in_its_place(folder):
    shutil.rmtree(folder)
    folder.write_bytes(b"")


def empty(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def exchange(one, other):
    """Each has the other's name: there is no moment without either."""
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), both):
        raise OSError(ctypes.get_errno(), f"renameat2 of {one} and {other}")


def remove(folder):
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink()


DAMAGES = [
    lambda folder: cut(weights(folder)),
    lambda folder: weights(folder).unlink(),
    lambda folder: cut(folder / "variables" / "variables.index"),
    lambda folder: shutil.rmtree(folder / "variables"),
    lambda folder: (folder / "saved_model.pb").unlink(),
    lambda folder: (folder / "saved_model.pb").write_bytes(b"\0" * 99),
]
NO_FOLDERS = [file_in_its_place, empty, lambda folder: link(folder, "none")]


@pytest.fixture(scope="module")
def known(two_models):
    """{letter: the translations of TEXTS} of both models."""
    found = {}
    for letter in "ab":
        model = Model("tiny", 1, two_models / letter / "1", warm_up=False)
        outputs = model.predict(make_request("tiny", TEXTS)).outputs
        found[letter] = tuple(text.decode() for text in outputs["translation"].string_val)
        model.close()
    assert not set(found["a"]) & set(found["b"])
    return found


class Askers:
    """Threads that ask by gRPC and by REST; `faults` is what they were answered wrongly.

    Args:
        server: the `ServerProcess`.
        known: the translations of both models.
        pause: seconds between an answer and the next request of a thread.

    Attributes:
        gap: whether there may be no model now.
        numbers: of versions that may be named.
    """

    def __init__(self, server, known, pause):
        self._server, self._letters = server, {texts: letter for letter, texts in known.items()}
        self._pause = pause
        self.faults, self.asked, self.gap, self.ending = [], 0, False, False
        self.numbers, self._stop = [1], threading.Event()
        ways = [self.by_grpc, self.by_rest]
        self._threads = [
            threading.Thread(target=self._ask, args=[n, ways[n % 2]]) for n in range(4)
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, seed, way):
        rng = random.Random(seed)
        while not self._stop.wait(self._pause):
            number = rng.choice(self.numbers) if rng.random() < 0.3 else None
            gap = self.gap
            try:
                found = way(number)
            except Exception as error:  # of any type; while it ends, it may close connections
                found = f"{type(error).__name__}: {error}"
            if self.ending:
                return
            self.asked += 1
            allowed = GONE if number is not None or gap or self.gap else set()
            if found not in self._letters.values() and found not in allowed:
                self.faults.append(f"version {number}: {found}")

    def by_grpc(self, number=None):
        """A letter, the name of a status, or a mixture."""
        return self.answered(number)[0]

    def answered(self, number=None):
        """The same, and the number of the version that has answered or None."""
        request = make_request("tiny", TEXTS)
        if number is not None:
            request.model_spec.version.value = number
        code, details, answer = self._server.by_grpc(
            PREDICTION + "Predict", request.SerializeToString(), SECONDS
        )
        if code != "OK":
            return code if code in GONE else f"{code}: {details}", None
        response = predict_pb2.PredictResponse.FromString(answer)
        texts = tf.make_ndarray(response.outputs["translation"])
        return self._letter(text.decode() for text in texts), response.model_spec.version.value

    def by_rest(self, number=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._server.rest_port, SECONDS)
        with contextlib.closing(connection):
            version = "" if number is None else f"/versions/{number}"
            body = json.dumps({"inputs": TEXTS})
            connection.request("POST", f"/v1/models/tiny{version}:predict", body)
            answer = connection.getresponse()
            found = json.load(answer)
        if answer.status != 200:
            return STATUSES.get(answer.status, f"{answer.status}: {found}")
        return self._letter(found["outputs"]["translation"])

    def _letter(self, texts):
        texts = tuple(texts)
        return self._letters.get(texts, f"a mixture: {texts}")

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * SECONDS)
            assert not thread.is_alive(), "a request hangs"


class Folders:
    """A base directory whose folders are known: {number: letter, or None for a broken one}.

    Attributes:
        served: (number, letters one of which it may be) of what answers; None: nothing does.
    """

    def __init__(self, base, models, rng):
        self.base, self._models, self._rng = base, models, rng
        self.folders, self.served, self._count = {}, None, 0

    def settle(self):
        """What is loaded after the directory was looked at."""
        if not self.folders:
            self.served = None
            return
        newest = max(self.folders)
        if (self.served is None or self.served[0] != newest) and self.folders[newest]:
            self.served = newest, self.folders[newest]

    def make(self, letter):
        self._count += 1
        return shutil.copytree(self._models / letter / "1", self.base / f"partial-{self._count}")

    def put(self, folder, number, letter):
        """A folder becomes a version, in one moment."""
        folder.rename(self.base / str(number))
        self.folders[number] = letter

    def take(self, number):
        self._count += 1
        away = (self.base / str(number)).rename(self.base / f"away-{self._count}")
        del self.folders[number]
        return away

    # The events. `workers` is a function that gives the numbers of the server's children.

    def publish(self, workers):
        letter = self._rng.choice("ab")
        self.put(self.make(letter), max(self.folders, default=0) + 1, letter)

    def publish_broken(self, workers):
        folder, number = self.make(self._rng.choice("ab")), max(self.folders, default=0) + 1
        damages = [*DAMAGES, *NO_FOLDERS, lambda folder: link(folder, str(number))]  # to itself
        self._rng.choice(damages)(folder)
        self.put(folder, number, None)

    def withdraw(self, workers):
        """The newest goes, in one moment or file by file; another one stays."""
        if len(self.folders) < 2:
            return self.publish(workers)
        remove(self.take(max(self.folders)))

    def withdraw_file_by_file(self, workers):
        number = max(self.folders)
        if len(self.folders) < 2 or not self.folders[number]:
            return self.publish(workers)
        shutil.rmtree(self.base / str(number))
        del self.folders[number]

    def damage(self, workers):
        """The files of what is loaded, which nobody reads again."""
        number = max(self.folders)
        if self.served is None or self.served[0] != number or not self.folders[number]:
            return self.publish(workers)
        self._rng.choice(DAMAGES)(self.base / str(number))
        self.folders[number] = None

    def replace(self, workers):
        """Under the same number: what is loaded stays, what was refused is tried again."""
        number, letter = max(self.folders), self._rng.choice("ab")
        exchange(self.make(letter), self.base / str(number))
        self.folders[number] = letter

    def replace_while_it_is_loaded(self, workers):
        """By the other model, again and again: whichever is loaded, it is whole."""
        number, other = max(self.folders) + 1, self.make("b")
        self.put(self.make("a"), number, "ab")
        for _ in range(self._rng.randrange(1, 30)):
            time.sleep(self._rng.random() * 0.1)
            exchange(other, self.base / str(number))

    def kill(self, workers):
        """Its process; it is loaded again as its folder is now."""
        for worker in workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        if self.served:
            number, _ = self.served
            letters = self.folders.get(number)
            self.served = (number, letters) if letters else None

    def withdraw_all(self, workers):
        for number in [*self.folders]:
            remove(self.take(number))


EVENTS = [
    Folders.publish, Folders.publish, Folders.publish_broken, Folders.publish_broken,
    Folders.withdraw, Folders.withdraw_file_by_file, Folders.damage, Folders.replace,
    Folders.replace_while_it_is_loaded, Folders.replace_while_it_is_loaded, Folders.kill,
    Folders.kill, Folders.withdraw_all,
]  # fmt: skip


def hold(two_models, known, folder, count, seed, pause=0.1):
    """Lets so many things happen; what was answered wrongly. `pause` is that of `Askers`."""
    rng, base, found = random.Random(seed), folder / "tiny", []
    base.mkdir()
    folders = Folders(base, two_models, rng)
    folders.publish(None)
    folders.settle()
    server = ServerProcess(base, folder)
    try:
        askers = Askers(server, known, pause)
        try:
            happened = [e for _ in range(count // len(EVENTS) + 1) for e in EVENTS]
            rng.shuffle(happened)
            for event in happened[:count]:
                if not folders.folders:
                    event = Folders.publish
                gap = event is Folders.kill or event is Folders.withdraw_all or not folders.served
                askers.gap = askers.gap or gap
                event(folders, server.workers)
                folders.settle()
                askers.numbers = [*list(folders.folders)[-3:], 10**9]
                number, letters = folders.served or (None, GONE)
                if event in (Folders.replace, Folders.damage, Folders.publish_broken):
                    time.sleep(1.5)  # the server has looked at what changes nothing
                try:
                    wait_until(functools.partial(_both, askers, number, letters))
                except AssertionError:
                    found.append(
                        f"after {event.__name__}: {askers.answered()}, not {folders.served}"
                    )
                    break
                askers.gap = not folders.served
            found += askers.faults
            askers.ending = True
            assert server.alive and askers.asked > count
            workers = server.workers()
            assert server.end() == 0
        finally:
            askers.ending = True
            askers.stop()
        wait_until(lambda: not any(os.path.isdir(f"/proc/{worker}") for worker in workers))
        said = server.said()
    finally:
        server.kill()
    if "Traceback" in said:
        found.append(said[-3000:])
    print(f"versions: {count} events, {askers.asked} requests, {len(found)} faults")
    return found


def _both(askers, number, letters):
    found = askers.answered()
    return found[0] in letters and found[1] == number and askers.by_rest() in letters


@pytest.mark.slow
def test_some_events(two_models, known, tmp_path):
    # Four threads that hardly pause keep the processor so busy that the server is slow to load.
    assert not hold(two_models, known, tmp_path, SOME, 0, pause=0.4)


@pytest.mark.hostile
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_events(two_models, known, tmp_path, seed):
    assert not hold(two_models, known, tmp_path, ALL, seed)
