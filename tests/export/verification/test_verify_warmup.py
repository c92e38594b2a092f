"""A SavedModel is verified with its warm-up requests; a failing one would keep it from being
served."""

import re

import pytest
import tensorflow as tf
from serving import failed, flip, write_log

from export.capi.job import serve_calls
from export.verification.warmup import WARMUP_FILE, write_warmup
from export.verify import verify


@pytest.fixture
def warmed(tmp_path):
    """Saves a model that looks up one of its 3 weights, with warm-up requests."""
    spec = tf.TensorSpec([None], tf.int32, "x")
    module = tf.Module()
    module.table = tf.Variable([2.0, 3.0, 5.0])
    module.call = tf.function(lambda x: {"y": tf.gather(module.table, x)}, input_signature=[spec])

    def make(*asked):
        directory = tmp_path / "warmed"
        signatures = {"serving_default": module.call}
        tf.saved_model.save(module, str(directory), signatures)
        requests = {"serving_default": [{"x": ids} for ids in asked]}
        write_warmup(directory, requests, signatures)
        return directory

    return make


def test_warmup_requests_run_first_in_the_same_process(warmed, monkeypatch):
    asked = []

    def watched(path, calls, *args, **options):
        asked.append([feeds["serving_default_x:0"].tolist() for feeds, _ in calls])
        return serve_calls(path, calls, *args, **options)

    monkeypatch.setattr("export.verification.serve.serve_calls", watched)
    report = verify(warmed([0], [2, 1]), {"serving_default": [{"x": [1, 0]}]})
    assert report.passed and asked == [[[0], [2, 1], [1, 0]]]
    details = {check.name: check.detail for check in report.checks}
    assert details["warm-up"] == "2 requests" and details["served: serving_default"] == "1 requests"
    [answer] = report.served["serving_default"]
    assert answer["y"].tolist() == [3.0, 2.0]


def test_a_warmup_request_that_fails_is_refused(warmed):
    directory = warmed([0], [7], [2, 8])
    reasons = failed(verify(directory, {"serving_default": [{"x": [1]}]}))
    assert list(reasons) == ["warm-up"]
    for number, place in ((1, 7), (2, 8)):
        said = f"INVALID_ARGUMENT: warm-up request {number}: .*{place} is not in \\[0, 3\\)"
        assert re.search(said, reasons["warm-up"])


def test_foreign_or_damaged_warmup_requests_are_refused(warmed):
    directory = warmed([0])
    write_log(directory, ["serving_default", "none"])
    asked = {"serving_default": [{"x": [1]}]}
    said = 'FAILED_PRECONDITION: warm-up request 1: Serving signature key "none" not found.'
    assert failed(verify(directory, asked)) == {"warm-up": said}
    flip(directory / WARMUP_FILE)
    reasons = failed(verify(directory, asked))
    assert list(reasons) == ["warm-up"]
    assert reasons["warm-up"].startswith(f"DATA_LOSS: {WARMUP_FILE}: ")
