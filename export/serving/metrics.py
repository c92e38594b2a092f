"""The metrics of the server for Prometheus, under the names of TensorFlow Serving.

Names, labels and buckets follow `servables/tensorflow/util.cc`; the format of the page follows
`util/prometheus_exporter.cc`. Three of the server's metrics are implemented:

    :tensorflow:serving:request_count     predictions, by model_name and status
    :tensorflow:serving:request_latency   microseconds of successful requests, by model_name,
                                          API and entrypoint (Predict, GRPC; predict, REST)
    :tensorflow:serving:runtime_latency   microseconds of the session, by model_name, API, runtime
"""

import bisect
import contextlib
import itertools
import threading
import time

from ..capi.library import ServingError

PATH = "/monitoring/prometheus/metrics"
PREFIX = ":tensorflow:serving:"
# monitoring::Buckets::Exponential(10, 1.8, 33): microseconds, up to about 20 minutes.
LIMITS = [10 * 1.8**power for power in range(33)]
COUNT = ("request_count", ("model_name", "status"))
LATENCY = ("request_latency", ("model_name", "API", "entrypoint"))
RUNTIME = ("runtime_latency", ("model_name", "API", "runtime"))


class Histogram:
    """Counts the values in each bucket of LIMITS, and their sum."""

    def __init__(self):
        self.counts, self.sum = [0] * (len(LIMITS) + 1), 0.0

    def add(self, value):
        self.counts[bisect.bisect_right(LIMITS, value)] += 1
        self.sum += value


class Metrics:
    """The counters of a server for all its models and versions. Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._requests = {}  # (model, status) -> count
        self._latencies = {LATENCY: {}, RUNTIME: {}}  # -> {labels: Histogram}

    @contextlib.contextmanager
    def request(self, model, api, entrypoint):
        """Counts the block as a prediction. Its status is that of the ServingError, or OK."""
        start, status = time.perf_counter(), "UNKNOWN"
        try:
            yield
            status = "OK"
        except ServingError as error:
            status = error.code_name
            raise
        finally:
            with self._lock:
                key = model, status
                self._requests[key] = self._requests.get(key, 0) + 1
            if status == "OK":
                self._observe(LATENCY, (model, api, entrypoint), time.perf_counter() - start)

    def run(self, model, seconds):
        """Records the time of a run of a model's session."""
        self._observe(RUNTIME, (model, "Predict", "TF1"), seconds)

    def page(self):
        """The text that Prometheus reads."""
        with self._lock:
            name, labels = COUNT
            lines = [f"# TYPE {PREFIX}{name} counter"]
            lines += [
                f"{PREFIX}{name}{{{_labels(labels, values)}}} {count}"
                for values, count in sorted(self._requests.items())
            ]
            for (name, labels), histograms in self._latencies.items():
                lines.append(f"# TYPE {PREFIX}{name} histogram")
                for values, histogram in sorted(histograms.items()):
                    lines += _histogram(PREFIX + name, _labels(labels, values), histogram)
        return "\n".join(lines) + "\n"

    def _observe(self, metric, labels, seconds):
        with self._lock:
            self._latencies[metric].setdefault(labels, Histogram()).add(1e6 * seconds)


def _histogram(name, labels, histogram):
    """The lines of a histogram. Buckets are cumulative."""
    limits = [f"{limit:.6g}" for limit in LIMITS] + ["+Inf"]
    totals = list(itertools.accumulate(histogram.counts))
    for limit, total in zip(limits, totals, strict=True):
        yield f'{name}_bucket{{{labels},le="{limit}"}} {total}'
    yield f"{name}_sum{{{labels}}} {histogram.sum:.6g}"
    yield f"{name}_count{{{labels}}} {totals[-1]}"


def _labels(names, values):
    return ",".join(f'{n}="{_escaped(v)}"' for n, v in zip(names, values, strict=True))


def _escaped(value):
    """A label's value, escaped: a newline in it would start another metric."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
