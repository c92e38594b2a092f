"""A SavedModel passes exactly if the server's own loader gives the same answers as Python."""

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

from paths import ROOT

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tensorflow_text
from serving import failed

from export.capi.job import serve_calls, write_job
from export.capi.library import ServingError
from export.capi.session import ServingSession
from export.verification.graph import BrokenModel, read_graph, read_variables
from export.verify import UsageError, main, verify

SENTENCES = [f"the {a} {b} is {c}" for a in ("red", "old") for b in ("cat", "dog") for c in "abcde"]
STRINGS = [b"", b"\0", b"a\0b\0", b"\xff\xfe not UTF-8", "Grüße 你好".encode(), b"x" * 123_457]


class Toy(tf.Module):
    """A small module with everything that a served translator has: text, pieces, ids, options,
    weights."""

    def __init__(self, pieces: bytes):
        super().__init__()
        self.table = tf.Variable([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])
        self.pieces = tensorflow_text.SentencepieceTokenizer(pieces)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def same(self, text):
        return {"text": tf.identity(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def round_trip(self, text):
        ids = self.pieces.tokenize(text)
        return {"text": self.pieces.detokenize(ids), "length": ids.row_lengths()}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, "ids"),
            tf.TensorSpec([], tf.float32, "factor"),
        ]
    )
    def look_up(self, ids, factor=tf.constant(0.5)):  # noqa: B008  a tensor: a served default
        rows = factor * tf.gather(self.table, ids % 3)
        return {
            "rows": rows,
            "half": tf.cast(rows, tf.float16),
            "brain": tf.cast(rows, tf.bfloat16),
            "wide": tf.cast(ids, tf.int64),
            "odd": ids % 2 == 1,
        }


class OneFunction(tf.Module):
    def __init__(self, function):
        super().__init__()
        self.weight = tf.Variable([2.0])
        spec = tf.TensorSpec([None], tf.float32, "x")
        self.call = tf.function(lambda x: {"y": function(x, self.weight)}, input_signature=[spec])


class NaiveExport(tf.Module):
    """The usual first attempt: the Keras model as an attribute."""

    def __init__(self):
        super().__init__()
        self.model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        spec = tf.TensorSpec([None, 3], tf.float32, "x")
        self.call = tf.function(lambda x: {"y": self.model(x)}, input_signature=[spec])


def save(module, directory, **signatures):
    tf.saved_model.save(module, str(directory), signatures=signatures)
    return directory


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=30,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    toy = Toy(model.getvalue())
    return save(
        toy, tmp_path_factory.mktemp("good") / "1",
        serving_default=toy.same, round_trip=toy.round_trip, look_up=toy.look_up,
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(good):
    requests = {
        "serving_default": [{"text": STRINGS}],
        "round_trip": [{"text": ["the red cat is a", ""]}],
        "look_up": [{"ids": [[0, 1, 5]]}, {"ids": [[2]], "factor": 2}],
    }
    return verify(good, requests)


@pytest.fixture
def copy(good, tmp_path):
    """A copy of the good SavedModel for the test to damage."""
    return Path(shutil.copytree(good, tmp_path / "copy"))


# A good SavedModel passes, and its values are correct.


def test_good_model_is_verified(report):
    assert report.passed, failed(report)


def test_every_byte_string_survives_the_session(report):
    [answer] = report.served["serving_default"]
    assert answer["text"].tolist() == STRINGS


def test_sentencepiece_runs_without_python(report):
    [answer] = report.served["round_trip"]
    assert answer["text"].tolist() == [b"the red cat is a", b""]
    assert answer["length"][0] > 0 and answer["length"][1] == 0


def test_served_values_equal_those_computed_by_hand(report):
    by_default, doubled = report.served["look_up"]
    np.testing.assert_array_equal(by_default["rows"], [[[0.5, 1.0], [1.5, 2.5], [3.5, 5.5]]])
    np.testing.assert_array_equal(by_default["wide"], [[0, 1, 5]])
    np.testing.assert_array_equal(by_default["odd"], [[False, True, True]])
    np.testing.assert_array_equal(doubled["rows"], [[[14.0, 22.0]]])
    dtypes = {key: str(array.dtype) for key, array in doubled.items()}
    assert dtypes == {
        "rows": "float32", "half": "float16", "brain": "bfloat16", "wide": "int64", "odd": "bool"
    }  # fmt: skip


def test_report_lists_inputs_defaults_weights_and_ops(good, report):
    signature = report.graph.signatures["look_up"]
    assert signature.inputs["ids"].shape == (None, None)
    assert signature.inputs["ids"].dtype == "int32"
    assert list(signature.defaults) == ["factor"] and signature.defaults["factor"] == 0.5
    assert report.weights == {"variables": 1, "parameters": 6}
    assert report.files["saved_model.pb"]["bytes"] == (good / "saved_model.pb").stat().st_size
    assert "SentencepieceTokenizeOp" in report.graph.ops


def test_command_verifies_a_version_with_its_own_requests(good, tmp_path, capsys):
    assert main([str(good.parent), "--report", str(tmp_path / "report.json")]) == 0
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["passed"] and written["directory"] == str(good)
    assert [len(answer["text"]) for answer in written["served"]["serving_default"]] == [3, 1]
    assert list(tmp_path.iterdir()) == [tmp_path / "report.json"]
    output, progress = capsys.readouterr()
    assert output.endswith("verified\n") and "serving 6 requests" in progress


def test_child_process_has_no_python_tensorflow(good, tmp_path):
    signature = read_graph(good).signatures["serving_default"]
    texts = np.array([b"a", b"b"], object)
    feeds, fetches = {signature.inputs["text"].name: texts}, [signature.outputs["text"].name]
    write_job(tmp_path, good, [(feeds, fetches), (feeds, ["no_such_op:0"])])
    command = [sys.executable, "-m", "export.capi.job", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True)
    answers, imported = pickle.loads((tmp_path / "results.pickle").read_bytes())
    assert imported is False
    assert list(answers[0]) == fetches
    assert answers[1].code_name == "NOT_FOUND"


THREADS = """
import os, sys
import numpy as np
from export.capi.session import ServingSession

feeds = {sys.argv[2]: np.array([[0, 1, 5]], "int32"), sys.argv[3]: np.array(0.5, "float32")}
answers, threads = [], [len(os.listdir("/proc/self/task"))]
for count in (1, 1, 7):
    with ServingSession(sys.argv[1], intra_op_threads=count, inter_op_threads=count) as session:
        [rows] = session.run(feeds, [sys.argv[4]])
        answers.append(rows.tolist())
        threads.append(len(os.listdir("/proc/self/task")))
print(answers == [answers[0]] * 3, threads[3] - threads[2], answers[0])
"""


def test_session_of_one_thread_answers_the_same(good):
    signature = read_graph(good).signatures["look_up"]
    names = [signature.inputs[key].name for key in ("ids", "factor")]
    arguments = [str(good), *names, signature.outputs["rows"].name]
    done = subprocess.run(
        [sys.executable, "-c", THREADS, *arguments],
        cwd=ROOT, check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    # Each session has its own inter-op threads; the first one sets the intra-op threads of all.
    assert done.stdout == "True 6 [[[0.5, 1.0], [1.5, 2.5], [3.5, 5.5]]]\n"


@pytest.mark.parametrize("name", ["intra_op_threads", "inter_op_threads"])
def test_zero_threads_are_refused(good, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        ServingSession(good, **{name: 0})


# What would fail on the server is refused.


def test_keras_object_in_the_root_is_refused_though_python_loads_it(tmp_path):
    module = NaiveExport()
    report = verify(save(module, tmp_path / "naive", serving_default=module.call))
    reasons = failed(report)
    assert list(reasons) == ["served: serving_default"]
    assert "FAILED_PRECONDITION" in reasons["served: serving_default"]
    assert "Could not find variable" in reasons["served: serving_default"]


def test_python_function_is_refused(tmp_path):
    module = OneFunction(lambda x, w: w * tf.py_function(lambda v: v + 1, [x], tf.float32))
    reasons = failed(verify(save(module, tmp_path / "python", serving_default=module.call)))
    assert "PyFunc" in reasons["no Python ops"]
    assert "served: serving_default" in reasons


def test_jit_compilation_is_refused_statically_and_fails_when_served(tmp_path):
    compiled = tf.function(lambda x, w: x * w + 1, jit_compile=True)
    module = OneFunction(compiled)
    reasons = failed(verify(save(module, tmp_path / "jit", serving_default=module.call)))
    assert "jit_compile=True" in reasons["no XLA"]
    assert "served: serving_default" in reasons


def test_answers_that_differ_are_refused(tmp_path):
    # The clock in milliseconds differs from call to call, whatever the seeds are.
    module = OneFunction(lambda x, w: w * x + tf.cast(tf.timestamp() * 1e3 % 1e3, x.dtype))
    reasons = failed(verify(save(module, tmp_path / "random", serving_default=module.call)))
    assert list(reasons) == ["agreement: serving_default"]
    assert reasons["agreement: serving_default"].startswith("y differs by ")


def test_custom_op_is_named(copy):
    pb = (copy / "saved_model.pb").read_bytes()
    damaged = pb.replace(b"SentencepieceTokenizeOp", b"SentencepieceTokenizeXy")
    (copy / "saved_model.pb").write_bytes(damaged)
    [offender] = read_graph(copy).custom_ops()
    assert offender.startswith("SentencepieceTokenizeXy in ")


def test_lost_variables_are_refused(copy):
    shutil.rmtree(copy / "variables")
    reasons = failed(verify(copy))
    assert "variables/variables.index is missing" in reasons["weights"]
    assert "served: look_up" in reasons


def test_lost_data_shard_and_flipped_byte_are_refused(copy):
    [shard] = (copy / "variables").glob("variables.data-*")
    data = bytearray(shard.read_bytes())
    at = bytes(data).index(np.float32(7.0).tobytes())
    data[at] ^= 1
    shard.write_bytes(data)
    with pytest.raises(BrokenModel, match="variables/ does not read back"):
        read_variables(copy, read_graph(copy))
    with pytest.raises(ServingError, match="DATA_LOSS"):
        serve_calls(copy, [])
    shard.unlink()
    with pytest.raises(BrokenModel, match="variables/ does not read back"):
        read_variables(copy, read_graph(copy))


def test_truncated_graph_is_refused_in_one_line(copy, capsys):
    pb = (copy / "saved_model.pb").read_bytes()
    (copy / "saved_model.pb").write_bytes(pb[: len(pb) // 2])
    assert main([str(copy)]) == 1
    reasons = [line for line in capsys.readouterr().err.splitlines() if "not verified" in line]
    assert reasons == [
        "python -m export.verify: error: not verified: graph: "
        "saved_model.pb is truncated or damaged: it does not parse"
    ]


def test_dying_child_is_an_error_not_an_answer(good, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ServingError, match="UNAVAILABLE: the serving process ended with exit code"):
        serve_calls(good, [])


# Mistakes of the caller give one line.


@pytest.mark.parametrize(
    "requests, message",
    [
        ({"serving": []}, "requests must name signatures"),
        ({"serving_default": []}, "must be a list of one or more"),
        ({"serving_default": [{"texts": []}]}, r"must name inputs of \['text'\], got 'texts'"),
        ({"serving_default": [{}]}, "must give input 'text'"),
        ({"serving_default": [{"text": [1]}]}, "must be string"),
        ({"serving_default": ["a"]}, "must be {input: value}"),
        ({"look_up": [{"ids": [[1.5]]}]}, "must be int32"),
        ({"look_up": [{"ids": [[2**40]]}]}, "must be int32"),
    ],
)
def test_wrong_requests_are_refused(good, requests, message):
    with pytest.raises(UsageError, match=message):
        verify(good, requests)


@pytest.mark.parametrize("what", ["missing", "file", "empty"])
def test_wrong_usage_gives_one_line_error(what, tmp_path, capsys):
    path = tmp_path / what
    if what == "file":
        path.write_text("not a folder")
    if what == "empty":
        path.mkdir()
    assert main([str(path)]) == 2
    output, error = capsys.readouterr()
    assert not output and error.count("\n") == 1
    assert error.startswith("python -m export.verify: error: directory must ")


def test_command_line_shows_no_traceback(tmp_path):
    command = [sys.executable, "-m", "export.verify", str(tmp_path / "missing")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "directory must exist" in done.stderr
