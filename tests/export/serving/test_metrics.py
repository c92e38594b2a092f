"""Metrics have the names and the text format of TensorFlow Serving, and count correctly."""

import concurrent.futures
import re
import time
import urllib.request

import pytest
from serving import PREDICT, SECONDS, make_request, refused

from export.capi.library import ServingError
from export.serving.metrics import LIMITS, PATH, Metrics

LINE = re.compile(r'([a-zA-Z_:][\w:]*)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} (\S+)')
COUNT = ":tensorflow:serving:request_count"
LATENCY = ":tensorflow:serving:request_latency"
RUNTIME = ":tensorflow:serving:runtime_latency"


def parse(page):
    """({name: type}, {(name, labels): value}) of a page; each line must be valid."""
    types, values = {}, {}
    assert page.endswith("\n")
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types
            types[name] = kind
        else:
            name, labels, value = LINE.fullmatch(line).groups()
            assert (name, labels) not in values
            values[name, labels] = float(value)
    return types, values


def scrape(asked):
    with urllib.request.urlopen(asked.url + PATH, timeout=SECONDS) as response:
        assert response.headers["Content-Type"] == "text/plain"
        return parse(response.read().decode())


@pytest.mark.slow
def test_grpc_and_rest_requests_are_counted(asked):
    """Each prediction increases the numbers by one. No other client calls this server meanwhile."""
    _, before = scrape(asked)
    request = make_request("tiny", ["a house"])
    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: asked.predict(request), range(3)))
    with refused("INVALID_ARGUMENT"):
        asked.predict(make_request("tiny", ["a"], "beam_search", beam_width=65))
    asked.predict(make_request("labelled model", ["a house"]))
    assert asked.ask(PREDICT, {"instances": ["a house", "the lake"]})[0] == 200
    assert asked.ask(PREDICT, {"instances": []})[0] == 400
    assert asked.ask("/v1/models/no%22ne:predict", {"instances": ["a"]})[0] == 404
    assert asked.ask("/v1/models/tiny")[0] == 200  # no prediction
    types, after = scrape(asked)
    assert types == {COUNT: "counter", LATENCY: "histogram", RUNTIME: "histogram"}
    grown = {key: value - before.get(key, 0) for key, value in after.items()}
    counts = {key: n for key, n in grown.items() if n and key[0].endswith("_count")}
    assert counts == {
        (COUNT, 'model_name="tiny",status="OK"'): 4,
        (COUNT, 'model_name="tiny",status="INVALID_ARGUMENT"'): 2,
        (COUNT, 'model_name="no\\"ne",status="NOT_FOUND"'): 1,
        (COUNT, 'model_name="labelled model",status="OK"'): 1,
        (f"{LATENCY}_count", 'model_name="tiny",API="Predict",entrypoint="GRPC"'): 3,
        (f"{LATENCY}_count", 'model_name="tiny",API="predict",entrypoint="REST"'): 1,
        (f"{LATENCY}_count", 'model_name="labelled model",API="Predict",entrypoint="GRPC"'): 1,
        (f"{RUNTIME}_count", 'model_name="tiny",API="Predict",runtime="TF1"'): 4,
        (f"{RUNTIME}_count", 'model_name="labelled model",API="Predict",runtime="TF1"'): 1,
    }
    labels = 'model_name="tiny",API="predict",entrypoint="REST"'
    assert grown[f"{LATENCY}_bucket", f'{labels},le="+Inf"'] == 1
    assert grown[f"{LATENCY}_sum", labels] > 0


def test_latency_buckets_are_powers_of_1_8_and_cumulative():
    """10 microseconds times powers of 1.8; each bucket includes the smaller ones."""
    metrics = Metrics()
    for seconds in (5e-6, 10.5e-6, 17e-6, 0.6, 4000):
        metrics.run("m", seconds)
    _, values = parse(metrics.page())
    labels = 'model_name="m",API="Predict",runtime="TF1"'
    buckets = [
        (key[1].removeprefix(f"{labels},le=").strip('"'), value)
        for key, value in values.items()
        if key[0] == f"{RUNTIME}_bucket"
    ]
    assert len(buckets) == 34 == len(LIMITS) + 1
    found = dict(buckets)
    assert (found["10"], found["18"], found["32.4"], found["393464"]) == (1, 3, 3, 3)
    assert (found["708235"], found["1.27482e+06"], found["+Inf"]) == (4, 4, 5)
    assert [value for _, value in buckets] == sorted(value for _, value in buckets)
    assert values[f"{RUNTIME}_sum", labels] == pytest.approx(4000.6e6, rel=1e-5)
    assert values[f"{RUNTIME}_count", labels] == 5


def test_failed_request_is_counted_by_status_without_latency():
    metrics = Metrics()
    for error, status in (
        (ServingError("UNAVAILABLE", "x"), "UNAVAILABLE"),
        (ZeroDivisionError("x"), "UNKNOWN"),
    ):
        with pytest.raises(type(error)), metrics.request("a\\b\nc", "Predict", "GRPC"):
            raise error
        _, values = parse(metrics.page())
        assert values[COUNT, f'model_name="a\\\\b\\nc",status="{status}"'] == 1
    assert not any(name.startswith(LATENCY) for name, _ in values)
    with metrics.request("m", "Predict", "GRPC"):
        time.sleep(0.002)
    _, values = parse(metrics.page())
    assert values[f"{LATENCY}_sum", 'model_name="m",API="Predict",entrypoint="GRPC"'] >= 2000
