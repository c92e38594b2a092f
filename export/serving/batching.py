"""Joins requests of several clients into one run of the session (`batching/batching_session.cc`).

Tensors are concatenated along their first dimension, padded to an allowed batch size with copies
of the last request's first row, run, and split again. So the first dimension of each input and
output must be the batch. Requests in one batch share its error and the latest of their deadlines.
"""

import collections
import concurrent.futures
import dataclasses
import math
import os
import threading
import time

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from ..capi.library import ServingError, as_serving_error, invalid
from ..verification.graph import UsageError
from .deadline import Deadline
from .worker import GRACE


@dataclasses.dataclass(frozen=True)
class BatchingParameters:
    """The fields of `--batching_parameters_file` (`session_bundle_config.proto`).

    Attributes:
        max_batch_size: maximum number of rows of a batch. Default 1,000.
        batch_timeout_micros: microseconds that a request waits for others. Default 0.
        max_enqueued_batches: maximum number of batches that wait for a thread. If the queue is
            full, a request fails with UNAVAILABLE. Default 10.
        num_batch_threads: batches that run at the same time. Default: one per core.
        allowed_batch_sizes: in ascending order; a batch is padded to the next of them. Default:
            any size.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple[int, ...] = ()

    def __post_init__(self):
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.batch_timeout_micros < 0:
            raise UsageError(
                f"batch_timeout_micros must not be negative, got {self.batch_timeout_micros}"
            )
        sizes = self.allowed_batch_sizes
        if sizes and (sorted(set(sizes)) != list(sizes) or sizes[-1] != self.max_batch_size):
            raise UsageError(
                f"allowed_batch_sizes must grow and end with max_batch_size = "
                f"{self.max_batch_size}, got {list(sizes)}"
            )

    @classmethod
    def parse(cls, text):
        """Reads the text format of protocol buffers. Raises a UsageError for a field not supported
        here."""
        try:
            message = text_format.Parse(text, _message())
        except text_format.ParseError as error:
            raise UsageError(f"batching parameters do not parse: {error}") from error
        given = {field.name: value for field, value in message.ListFields()}
        sizes = tuple(given.pop("allowed_batch_sizes", ()))
        return cls(
            **{name: value.value for name, value in given.items()}, allowed_batch_sizes=sizes
        )


def _message():
    """An empty `BatchingParameters` message, defined here: the stubs' package lacks its file."""
    field = descriptor_pb2.FieldDescriptorProto
    wrapper, name = ".google.protobuf.Int64Value", "tfformer/batching_parameters.proto"
    file = descriptor_pb2.FileDescriptorProto(name=name, package="tfformer", syntax="proto3")
    file.dependency.append("google/protobuf/wrappers.proto")
    message = file.message_type.add(name="BatchingParameters")
    numbers = [f.name for f in dataclasses.fields(BatchingParameters)][:4]
    for number, name in enumerate(numbers, 1):
        message.field.add(
            name=name, number=number, label=field.LABEL_OPTIONAL, type=field.TYPE_MESSAGE,
            type_name=wrapper,
        )  # fmt: skip
    message.field.add(
        name="allowed_batch_sizes", number=6, label=field.LABEL_REPEATED, type=field.TYPE_INT64
    )
    from google.protobuf import wrappers_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("tfformer.BatchingParameters")
    )()


class Batcher:
    """Joins the calls `run(feeds, fetches, timeout)` of many threads into batches."""

    def __init__(self, run, parameters):
        self._run, self._parameters = run, parameters
        self._queues = collections.defaultdict(collections.deque)  # signature -> its batches
        self._changed = threading.Condition()
        self._closed = False
        for _ in range(parameters.num_batch_threads):
            threading.Thread(target=self._work, daemon=True).start()

    def run(self, feeds, fetches, timeout=None):
        """See `ServingSession.run`. The timeout of a batch is the longest one of its requests."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        task = _Task(feeds, fetches, _rows(feeds), deadline)
        if task.rows > self._parameters.max_batch_size:
            raise invalid(
                f"Task size {task.rows} is larger than maximum input batch size "
                f"{self._parameters.max_batch_size}"
            )
        with self._changed:
            if self._closed:
                raise _closed()
            self._enqueue(task)
            self._changed.notify()
        try:
            return task.result.result(Deadline(timeout).left(GRACE))
        except TimeoutError:  # all threads wait for a process that hangs
            message = "Timeout exceeded while waiting for a batch"
            raise ServingError("DEADLINE_EXCEEDED", message) from None

    def close(self):
        """Starts no further batch. Waiting requests fail with UNAVAILABLE."""
        with self._changed:
            self._closed = True
            waiting = [task for queue in self._queues.values() for b in queue for task in b.tasks]
            self._queues.clear()
            self._changed.notify_all()
        for task in waiting:
            task.result.set_exception(_closed())

    def _enqueue(self, task):
        """Adds a task to the last batch of its signature if it fits, else to a new batch."""
        queue = self._queues[tuple(sorted(task.feeds)), tuple(task.fetches)]
        if queue and queue[-1].rows + task.rows <= self._parameters.max_batch_size:
            queue[-1].tasks.append(task)
            return
        if len(queue) >= self._parameters.max_enqueued_batches:
            raise ServingError(
                "UNAVAILABLE",
                f"The batch scheduling queue to which this task was submitted is full; currently "
                f"{len(queue)} batches enqueued and max_enqueued_batches is "
                f"{self._parameters.max_enqueued_batches}",
            )
        queue.append(_Batch([task]))

    def _work(self):
        while batch := self._next():
            try:
                self._run_batch(batch.tasks)
            except Exception as error:  # answer these requests and keep the thread running
                for task in batch.tasks:
                    task.result.set_exception(as_serving_error(error))

    def _next(self):
        """The oldest batch that is full or has waited long enough. None after `close`."""
        wait = self._parameters.batch_timeout_micros / 1e6
        with self._changed:
            while not self._closed:
                now, due = time.monotonic(), {}
                for queue in filter(None, self._queues.values()):
                    full = len(queue) > 1 or queue[0].rows == self._parameters.max_batch_size
                    due[queue[0].since + (0 if full else wait)] = queue
                if due and min(due) <= now:
                    return due[min(due)].popleft()
                self._changed.wait(min(due) - now if due else None)
        return None

    def _run_batch(self, tasks):
        """Concatenates the inputs, runs the session, and splits the outputs."""
        left = max(task.deadline for task in tasks) - time.monotonic()
        if left <= 0:
            message = "Run() timeout exceeded while waiting in batching queue"
            raise ServingError("RESOURCE_EXHAUSTED", message)
        sizes, allowed = [task.rows for task in tasks], self._parameters.allowed_batch_sizes
        rows = sum(sizes)
        padding = next((size for size in allowed if size >= rows), rows) - rows
        feeds = {}
        for name in tasks[0].feeds:
            arrays = [task.feeds[name] for task in tasks]
            if len({array.shape[1:] for array in arrays}) > 1:
                raise ServingError(
                    "FAILED_PRECONDITION",
                    f"Tensors with name '{name}' from different tasks have different shapes and "
                    f"padding is turned off.",
                )
            if len({array.dtype for array in arrays}) > 1:
                message = "Tensor concat operation failed: the tensors have different types"
                raise ServingError("INTERNAL", message)
            feeds[name] = np.concatenate([*arrays, *[arrays[-1][:1]] * padding])
        outputs = self._run(feeds, tasks[0].fetches, None if left == math.inf else left)
        for array in outputs:
            if array.ndim == 0:
                message = "Batched output tensor has 0 dimensions"
                raise ServingError("FAILED_PRECONDITION", message)
            if len(array) != rows + padding:
                raise ServingError(
                    "FAILED_PRECONDITION",
                    "Batched output tensor's 0th dimension does not equal the sum of the 0th "
                    "dimension sizes of the input tensors",
                )
        ends = np.cumsum(sizes)
        for task, end in zip(tasks, ends, strict=True):
            task.result.set_result([array[end - task.rows : end] for array in outputs])


class _Task:
    """A request that waits for its rows of a batch."""

    def __init__(self, feeds, fetches, rows, deadline):
        self.feeds, self.fetches, self.rows, self.deadline = feeds, fetches, rows, deadline
        self.result = concurrent.futures.Future()


class _Batch:
    def __init__(self, tasks):
        self.tasks, self.since = tasks, time.monotonic()

    @property
    def rows(self):
        return sum(task.rows for task in self.tasks)


def _closed():
    return ServingError("UNAVAILABLE", "the version is unloaded")


def _rows(feeds):
    """The first dimension, which all inputs must share (`batching/batching_util.h`)."""
    if any(array.ndim == 0 for array in feeds.values()):
        raise invalid("Batching Run() input tensors must have at least one dimension")
    sizes = {len(array) for array in feeds.values()}
    if len(sizes) != 1:
        raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()
