"""Joined requests get the same answers as separate ones, and share errors."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest
import tiny
from serving import Asked, add_version, wait_until, write_log

from export.capi.library import ServingError
from export.local_server import LocalServer
from export.serving.batching import Batcher, BatchingParameters
from export.serving.versions import one_model
from export.verification.graph import UsageError

FETCHES = ["y:0"]


class Session:
    """Squares numbers, records its calls, and waits until it may answer."""

    def __init__(self):
        self.asked, self.timeouts, self.error = [], [], None
        self.go = threading.Event()
        self.go.set()

    def run(self, feeds, fetches, timeout=None):
        self.asked.append(feeds["x:0"].tolist())
        self.timeouts.append(timeout)
        assert self.go.wait(60)
        if self.error:
            raise self.error
        return [feeds["x:0"] ** 2 for _ in fetches]


@pytest.fixture
def session():
    return Session()


@pytest.fixture
def make(session):
    """`make(max_batch_size=..., ...)` returns a `Batcher` with one thread, which is closed at the
    end."""
    batchers = []

    def run(**parameters):
        batchers.append(
            Batcher(session.run, BatchingParameters(**{"num_batch_threads": 1, **parameters}))
        )
        return batchers[-1]

    yield run
    session.go.set()
    for batcher in batchers:
        batcher.close()


class Callers:
    """Threads that call a batcher, in the order of the calls of `ask`."""

    def __init__(self, session, batcher):
        self.session, self.batcher = session, batcher
        self.threads = concurrent.futures.ThreadPoolExecutor(31)

    def ask(self, values, timeout=None):
        waiting, asked = self.waiting(), len(self.session.asked)
        feeds = {"x:0": np.array(values, "float32")}
        future = self.threads.submit(self.batcher.run, feeds, FETCHES, timeout)
        wait_until(
            lambda: future.done() or self.waiting() > waiting or len(self.session.asked) > asked
        )
        return future

    def waiting(self):
        queues = list(self.batcher._queues.values())
        return sum(len(batch.tasks) for queue in queues for batch in list(queue))


def answers(futures):
    return [future.result(60)[0].tolist() for future in futures]


def occupy(session, callers):
    """Occupies the only thread, so that later requests wait until `session.go.set()`."""
    session.go.clear()
    first = callers.ask([100])
    wait_until(lambda: session.asked)
    return first


def test_waiting_requests_share_a_batch_and_get_their_own_rows(session, make):
    callers = Callers(session, make(max_batch_size=7))
    occupy(session, callers)
    futures = [callers.ask(values) for values in ([1, 2], [3], [4, 5, 6])]
    session.go.set()
    assert answers(futures) == [[1, 4], [9], [16, 25, 36]]
    assert session.asked == [[100], [1, 2, 3, 4, 5, 6]]


def test_request_that_does_not_fit_starts_another_batch(session, make):
    callers = Callers(session, make(max_batch_size=5))
    occupy(session, callers)
    futures = [callers.ask(values) for values in ([1, 2, 3], [4, 5, 6], [7], [8, 9, 10])]
    session.go.set()
    assert answers(futures) == [[1, 4, 9], [16, 25, 36], [49], [64, 81, 100]]
    assert session.asked == [[100], [1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_a_batch_is_padded_with_the_first_row_of_the_last_request(session, make):
    callers = Callers(session, make(max_batch_size=11, allowed_batch_sizes=(2, 7, 11)))
    occupy(session, callers)
    futures = [callers.ask(values) for values in ([1, 2], [3, 4])]
    session.go.set()
    assert answers(futures) == [[1, 4], [9, 16]]
    assert session.asked == [[100, 100], [1, 2, 3, 4, 3, 3, 3]]


def test_batch_error_reaches_all_its_requests_but_no_later_ones(session, make):
    callers = Callers(session, make(max_batch_size=2))
    first = occupy(session, callers)
    futures = [callers.ask([n]) for n in range(2)]
    session.error = ServingError("INVALID_ARGUMENT", "not you")
    session.go.set()
    for future in (first, *futures):
        with pytest.raises(ServingError, match="not you"):
            future.result(60)
    session.error = None
    assert answers([callers.ask([3])]) == [[9]]


def test_too_large_a_request_is_refused(make):
    with pytest.raises(ServingError, match="INVALID_ARGUMENT: Task size 4 .* batch size 3"):
        make(max_batch_size=3).run({"x:0": np.zeros(4)}, FETCHES)


def test_full_queue_raises_unavailable(session, make):
    callers = Callers(session, make(max_batch_size=1, max_enqueued_batches=2))
    first = occupy(session, callers)
    futures = [callers.ask([n]) for n in range(2)]
    with pytest.raises(ServingError, match="UNAVAILABLE: .*queue .* is full; currently 2 batches"):
        callers.ask([2]).result(60)
    session.go.set()
    assert answers([first, *futures]) == [[10000], [0], [1]]


def test_batch_waits_for_more_requests_until_the_timeout(session, make):
    callers = Callers(session, make(batch_timeout_micros=300_000, max_batch_size=3))
    start = time.monotonic()
    futures = [callers.ask([1]), callers.ask([2])]
    assert answers(futures) == [[1], [4]]
    assert time.monotonic() - start >= 0.3
    assert session.asked == [[1, 2]]


def test_requests_for_different_outputs_are_batched_separately(session, make):
    callers = Callers(session, make())
    occupy(session, callers)
    other = callers.threads.submit(callers.batcher.run, {"x:0": np.array([3.0])}, ["y:0", "z:0"])
    mine = callers.ask([2])
    wait_until(lambda: callers.waiting() == 2)
    session.go.set()
    assert [array.tolist() for array in other.result(60)] == [[9], [9]]
    assert answers([mine]) == [[4]]
    assert sorted(session.asked) == [[2], [3], [100]]


def test_request_that_expires_in_the_queue_is_not_run(session, make):
    callers = Callers(session, make())
    occupy(session, callers)
    late = callers.ask([1], timeout=0.01)
    time.sleep(0.02)
    session.go.set()
    with pytest.raises(ServingError, match="RESOURCE_EXHAUSTED: Run.. timeout exceeded"):
        late.result(60)
    assert session.asked == [[100]]


def test_waiting_and_new_requests_are_unavailable_after_close(session, make):
    callers = Callers(session, make())
    first = occupy(session, callers)
    waiting = callers.ask([1])
    callers.batcher.close()
    with pytest.raises(ServingError, match="UNAVAILABLE: the version is unloaded"):
        waiting.result(60)
    with pytest.raises(ServingError, match="UNAVAILABLE: the version is unloaded"):
        callers.batcher.run({"x:0": np.zeros(1)}, FETCHES)
    session.go.set()
    assert answers([first]) == [[10000]]


def test_inputs_without_a_common_batch_dimension_are_refused(make):
    batcher = make()
    with pytest.raises(ServingError, match="INVALID_ARGUMENT: .* at least one dimension"):
        batcher.run({"x:0": np.array(3.0)}, FETCHES)
    with pytest.raises(ServingError, match="INVALID_ARGUMENT: .* equal 0th-dimension size"):
        batcher.run({"x:0": np.zeros(2), "z:0": np.zeros(3)}, FETCHES)


# The file.


def test_batching_parameters_are_parsed_from_text():
    found = BatchingParameters.parse(
        """
        # a comment
        max_batch_size { value: 32 }
        batch_timeout_micros { value: 2000 }
        max_enqueued_batches { value: 100 }
        num_batch_threads { value: 2 }
        allowed_batch_sizes: 4
        allowed_batch_sizes: [16, 32]
        """
    )
    assert found == BatchingParameters(32, 2000, 100, 2, (4, 16, 32))
    assert BatchingParameters.parse("") == BatchingParameters()
    assert BatchingParameters.parse("").max_batch_size == 1000


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("max_batch_size: 32", "batching parameters do not parse: 1:"),
        ("most { value: 1 }", 'do not parse: .* has no field named "most"'),
        ("pad_variable_length_inputs: true", "do not parse: .*pad_variable_length_inputs"),
        ("max_batch_size { value: 0 }", "max_batch_size must be at least 1, got 0"),
        ("num_batch_threads { value: -1 }", "num_batch_threads must be at least 1, got -1"),
        ("max_enqueued_batches { value: 0 }", "max_enqueued_batches must be at least 1, got 0"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros must not be negative, got -1"),
        ("allowed_batch_sizes: 4", "end with max_batch_size = 1000, got .4"),
        (
            "max_batch_size { value: 4 } allowed_batch_sizes: [4, 4]",
            r"must grow and end with max_batch_size = 4, got \[4, 4\]",
        ),
    ],
)
def test_wrong_parameters_raise_a_clear_usage_error(text, match):
    with pytest.raises(UsageError, match=match):
        BatchingParameters.parse(text)


# With a model.


@pytest.mark.slow
def test_concurrent_requests_get_the_same_answers_as_single_ones(translator_served, tmp_path):
    base = tmp_path / "tiny"
    tiny.save_version(translator_served, base, 1, ["serving_default"])
    batching = BatchingParameters(
        max_batch_size=16, batch_timeout_micros=20_000, allowed_batch_sizes=(1, 4, 16)
    )
    texts = tiny.sentences(61)
    expected = [translator_served.translate([text])[0] for text in texts]
    with LocalServer(one_model("tiny", base), batching=batching) as server:
        asked = Asked(server)
        with concurrent.futures.ThreadPoolExecutor(31) as threads:
            found = list(threads.map(asked.translate, texts))
        assert found == [[translation] for translation in expected]
        # A request of 17 rows is larger than a batch; one of 16 is a full batch.
        assert asked.translate(*texts[:16]) == expected[:16]
        status, answer = asked.ask("/v1/models/tiny:predict", {"instances": texts[:17]})
        assert status == 400 and "Task size 17 is larger than" in answer["error"]
        asked.close()


@pytest.mark.slow
def test_batching_server_refuses_a_version_with_search_options(served_model, tmp_path):
    model = add_version(served_model / "1", tmp_path, 1)
    write_log(model, ["beam_search"])
    with LocalServer(one_model("tiny", tmp_path), batching=BatchingParameters()) as server:
        with pytest.raises(ServingError, match="UNKNOWN: .* got beam_width; `tfformer export RUN"):
            server.versions.require_all()
