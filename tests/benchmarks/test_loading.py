"""The benchmark of loading: each job has a process of its own, and a failure is one line."""

import time

import pytest

from benchmarks import loading
from export.serving.model import warmup_calls
from export.verification.graph import read_graph


def test_a_job_is_measured_in_its_own_process(small_model):
    directory = small_model / "1"
    calls = warmup_calls(directory, read_graph(directory))
    alone = loading.in_new_process((loading.load_libraries,))
    seconds, processor, mib = loading.in_new_process((loading.load_saved_model, directory, calls))
    assert 0 < processor and 0 < seconds
    assert 100 < alone[2] < mib  # the model needs memory beside TensorFlow's libraries


def test_sleeping_takes_time_but_no_processor_time():
    seconds, processor, _ = loading.in_new_process((time.sleep, 0.5))
    assert seconds >= 0.5 > processor


def test_job_whose_process_ends_raises_an_error():
    with pytest.raises(RuntimeError, match="a process that loads has ended"):
        loading.in_new_process((int, "no number"))


def test_error_names_the_missing_run(tmp_path, capsys):
    assert loading.main([str(tmp_path / "none")]) == 1
    assert "none with all signatures failed" in capsys.readouterr().err.splitlines()[-1]
