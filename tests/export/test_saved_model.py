"""A run is exported, verified as the server loads it, and works without the run."""

import collections
import json
import shutil
import time
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny
from few_texts import prove_by_few

import tfformer
from export import saved_model, translate, verify
from export.artifacts import deployment, examples
from export.artifacts.publish import publish
from export.capi.job import serve_calls
from export.verification import reference, translation
from export.verification.graph import read_graph
from tfformer import Tokenizer, Translator
from tfformer.service.n_best import beam_search, beam_search_ids
from tfformer.service.sample import sample
from tfformer.service.score import score as score_signature
from tfformer.service.translation import serving_default

TEXTS = [f"word {n} and {n * 7} more" for n in range(97)]
SEARCH = {
    "beam_width": 3,
    "length_penalty": 0.7,
    "max_source_length": 17,
    "max_target_length": 13,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a tiny model whose distributions are not flat."""
    directory = tmp_path_factory.mktemp("run") / "run"
    return tiny.save_run(directory, lambda: Tokenizer.train(TEXTS, vocabulary_size=290), SEARCH)


@pytest.fixture(scope="module")
def translator(run):
    return Translator(*tfformer.load(run), **SEARCH)


def only(patch, *signatures):
    """Gives translators that are made from now on only these signatures."""
    patch.setattr("tfformer.service.translator.SIGNATURES", signatures)


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """A verified export that was moved to another folder; its run is deleted.

    It has serving_default and the signatures that a server cannot batch. test_deployment.py
    verifies the others.
    """
    copy = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(run, copy)
    base = tmp_path_factory.mktemp("exported")
    (base / "7").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        only(patch, serving_default, beam_search, beam_search_ids, sample)
        prove_by_few(patch)
        assert saved_model.main([str(copy), str(base)]) == 0
    shutil.rmtree(copy)
    (base / "7").rmdir()
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "model"
    shutil.move(base, elsewhere)
    return elsewhere


WORDS = [text.encode() for text in TEXTS[:5]] + [b"", b"\xff\xfe", "Grüße 🎉".encode()]
ASKED = {
    "words": ("serving_default", {"text": WORDS}),
    "alone": ("serving_default", {"text": [b"word 5"]}),
    "mixed": ("serving_default", {"text": [b" \t ", b"word 5", b""]}),
}


@pytest.fixture(scope="module")
def served(exported):
    """The answers of the server's loader to ASKED: {output: array}."""
    signatures, calls = read_graph(exported / "8").signatures, []
    for name, inputs in ASKED.values():
        signature = signatures[name]
        feeds = {**signature.defaults, **inputs, "text": np.array(inputs["text"], object)}
        feeds = {signature.inputs[key].name: value for key, value in feeds.items()}
        calls.append((feeds, [info.name for info in signature.outputs.values()]))
    answers = serve_calls(exported / "8", calls)
    return {
        key: {k: found[info.name] for k, info in signatures[name].outputs.items()}
        for (key, (name, _)), found in zip(ASKED.items(), answers, strict=True)
    }


@pytest.mark.slow
def test_report_lists_the_checks(exported, translator):
    report = json.loads((exported / "8.report.json").read_text())
    assert report["passed"]
    names = {check["name"] for check in report["checks"]}
    assert {"no Python ops", "no XLA", "no custom ops", "plain beam search in NumPy"} <= names
    alone = {name for name, one in translator.signatures.items() if not one.is_batchable}
    assert alone == {"beam_search", "beam_search_ids", "sample"}
    assert {f"served: {name}" for name in {"serving_default", *alone}} <= names


@pytest.mark.slow
def test_export_is_the_next_version_and_leaves_no_other_files(exported):
    assert sorted(path.name for path in exported.iterdir()) == [
        "8",
        "8.report.json",
        "README.md",
        "docker-compose.gpu.yml",
        "docker-compose.yml",
        "kubernetes.yaml",
        "models.config",
        "monitoring.config",
    ]


@pytest.mark.slow
def test_exported_model_equals_the_translator(exported, served, translator):
    answer = served["words"]
    here = translator.functions["serving_default"](tf.constant(WORDS))
    assert answer["translation"].tolist() == here["translation"].numpy().tolist()
    np.testing.assert_allclose(answer["score"], here["score"], atol=1e-4)
    assert translate.translate(exported, TEXTS[:5]) == translator.translate(TEXTS[:5])


@pytest.mark.slow
def test_blank_text_gives_an_empty_translation_and_changes_no_other(served):
    alone, mixed = served["alone"], served["mixed"]
    assert mixed["translation"].tolist() == [b"", alone["translation"][0], b""]
    np.testing.assert_allclose(mixed["score"], [0, alone["score"][0], 0], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_signatures_have_the_default_options(exported):
    search = {"beam_width": 3, "length_penalty": 0.7, "max_length": 0, "min_length": 0}
    search |= {"max_length_factor": 0, "coverage_penalty": 0}
    search |= {"repetition_penalty": 1, "no_repeat_ngram": 0}
    drawn = {"seed": 0, "temperature": 1, "top_k": 0, "top_p": 1, "max_length": 0}
    expected = {"beam_search": search, "beam_search_ids": search, "sample": drawn}
    signatures = read_graph(exported / "8").signatures
    for name, signature in signatures.items():
        values = {key: float(value) for key, value in signature.defaults.items()}
        assert values == pytest.approx(expected.get(name, {})), name
    assert set(signatures) == {"serving_default", *expected}
    assert set(signatures["serving_default"].inputs) == {"text"}


def test_export_that_fails_verification_is_not_published(run, tmp_path, monkeypatch, capsys):
    def refuse(directory, requests, progress, xla, quick):
        assert not xla and not quick
        report = verify.Report(str(directory))
        report.add("weights", ["they are gone"], "")
        return report

    monkeypatch.setattr(verify, "verify", refuse)
    monkeypatch.setattr(Translator, "save", lambda self, path, names: Path(path).mkdir())
    assert saved_model.main([str(run), str(tmp_path / "exported")]) == 1
    assert "not exported: weights: they are gone" in capsys.readouterr().err
    assert list((tmp_path / "exported").iterdir()) == []


def test_sample_requests_have_no_more_rows_than_max_batch_size(run):
    translator = tfformer.load_translator(run, max_batch_size=2)
    for asked in (examples.sample_requests, examples.warmup_requests):
        for name, requests in asked(translator).items():
            for request in requests:
                sizes = {len(value) for value in request.values() if isinstance(value, list)}
                assert len(sizes) == 1 and max(sizes) <= 2, name
    whole = examples.sample_requests(tfformer.load_translator(run))["score"][0]
    parts = examples.sample_requests(translator)["score"]
    assert sum((part["source"] for part in parts), []) == whole["source"]


@pytest.mark.slow
def test_export_with_its_own_limits_is_verified(run, tmp_path, monkeypatch):
    # One for each kind of input: texts, ids, pairs of texts.
    only(monkeypatch, serving_default, beam_search_ids, score_signature)
    given = {"max_batch_size": 2, "max_source_length": 19, "max_target_length": 11}
    options = [word for name, n in given.items() for word in (f"--{name.replace('_', '-')}", n)]
    assert saved_model.main([str(run), str(tmp_path / "small"), *map(str, options)]) == 0
    report = json.loads((tmp_path / "small" / "1.report.json").read_text())
    checks = {check["name"]: check["detail"] for check in report["checks"]}
    assert checks["plain beam search in NumPy"] == "5 sentences"
    assert list(report["deployment"]["latency"]["milliseconds"]) == ["1", "2"]
    assert report["deployment"]["limits"].items() >= given.items()
    answers = [one for some in report["served"]["serving_default"] for one in some["truncated"]]
    assert any(answers) and not all(answers)


def test_xla_answers_are_compared_with_stock_operations():
    texts, scores = np.array([b"a", b"b"], object), np.array([-1.0, -2.0], "float32")
    stock = {"translations": np.array([[b"a", b"x"], [b"c", b"b"]], object)}
    stock["scores"] = np.array([[-1.0, -3.0], [-2.0, -2.0]], "float32")
    compiled = {"translation": texts, "score": scores}
    for score, passed in ((-2.0, True), (-1.9, False)):
        compiled["score"] = np.array([-1.0, score], "float32")
        report = verify.Report("", served={"serving_default": [compiled], "beam_search": [stock]})
        translation.compare_stock(report)
        assert report.passed is passed


@pytest.mark.slow
def test_wrong_search_result_fails_the_reference_check(translator):
    requests = examples.sample_requests(translator)
    [request] = requests["beam_search_ids"]
    request["source_ids"] = request["source_ids"][:2]
    right = translator.functions["beam_search_ids"](
        tf.constant(request["source_ids"]), max_length=tf.constant(request["max_length"])
    )
    right = {key: value.numpy() for key, value in right.items()}

    def caught(answer):
        report = verify.Report("", served={"beam_search_ids": [answer]})
        translation.compare_reference(translator, requests, report)
        return not report.passed

    assert not caught(right)
    assert caught({**right, "scores": right["scores"] - 0.01})
    assert caught({**right, "token_ids": right["token_ids"] + 1})


def test_bad_arguments_give_one_line_error(run, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("x")
    for arguments in (
        [str(tmp_path / "missing"), str(tmp_path / "out")],
        [str(tmp_path), str(tmp_path / "out")],
        [str(run), str(file)],
    ):
        assert saved_model.main(arguments) == 1
        assert_one_line(capsys)
    with pytest.raises(SystemExit, match="2"):
        saved_model.main([str(run), str(tmp_path / "out"), "--beam-width", "0"])
    assert "--beam-width must be in [1, 64], got 0" in assert_one_line(capsys)


def assert_one_line(capsys, module="export.saved_model"):
    """The error in the last line of standard error; only progress may come before it."""
    *before, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"python -m {module}: error: ")
    assert all(line.endswith(" ...") for line in before), before
    return last


@pytest.mark.parametrize(
    "error, code, message",
    [
        (tf.errors.ResourceExhaustedError(None, None, "disk full\nmore"), 1, "disk full"),
        (tf.errors.PermissionDeniedError(None, None, "not yours"), 1, "not yours"),
        (OSError("no\nspace"), 1, "no space"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failed_write_gives_one_line_error_and_leaves_no_files(
    error, code, message, run, tmp_path, monkeypatch, capsys
):
    def fail(self, directory, signatures):
        Path(directory).mkdir()
        Path(directory, "saved_model.pb").write_text("half")
        raise error

    monkeypatch.setattr(Translator, "save", fail)
    assert saved_model.main([str(run), str(tmp_path)]) == code
    assert assert_one_line(capsys) == f"python -m export.saved_model: error: {message}"
    assert list(tmp_path.iterdir()) == []


def test_version_is_published_when_its_report_cannot_be_written(tmp_path):
    lines = []
    (tmp_path / "²").mkdir()
    for number in ("1", "2"):
        model = tmp_path / "partial" / "model"
        model.mkdir(parents=True)
        if number == "2":  # a folder has the name of its report
            (tmp_path / "2.report.json" / "full").mkdir(parents=True)
        report = verify.Report("")
        version = publish(model, report, tmp_path, lines.append)
        assert version == tmp_path / number and version.is_dir() and not model.exists()
    assert json.loads((tmp_path / "1.report.json").read_text())["directory"].endswith("/1")
    [warning] = lines
    assert warning.startswith("warning: ") and str(version) in warning


@pytest.mark.slow
def test_near_tie_between_hypotheses_passes_verification(translator, monkeypatch):
    requests = examples.sample_requests(translator)
    [request] = requests["beam_search_ids"]
    request["source_ids"] = request["source_ids"][:1]
    answer = translator.functions["beam_search_ids"](
        tf.constant(request["source_ids"]), max_length=tf.constant(request["max_length"])
    )
    answer = {key: value.numpy() for key, value in answer.items()}
    swapped = {key: answer[key][:, [1, 0, 2]] for key in ("token_ids", "lengths")}

    def checked(answer):
        report = verify.Report("", served={"beam_search_ids": [answer]})
        translation.compare_reference(translator, requests, report)
        return report.passed

    assert checked(answer) and not checked({**answer, **swapped})
    plain = reference.beam_search

    def tied(*arguments):
        """As if the two best hypotheses had the same score."""
        best, second, *others = plain(*arguments)
        alpha, form = arguments[-2:]
        wanted = reference.score(best, *arguments[-2:])
        log_prob = second.log_prob * wanted / reference.score(second, *arguments[-2:])
        return [reference.Hypothesis(second.tokens, log_prob), second, *others]

    monkeypatch.setattr(reference, "beam_search", tied)
    assert checked(answer)


@pytest.mark.parametrize(("seconds", "calls"), [(60, {"1": 6, "2": 6}), (0.05, {"1": 3})])
def test_latency_of_a_slow_model_is_measured_for_a_limited_time(seconds, calls, monkeypatch):
    """A request to a large language model may take minutes."""
    found = collections.Counter()

    class Slow:
        worker = types.SimpleNamespace(peak_bytes=1)

        def __init__(self, *_, **__):
            pass

        def predict(self, request):
            found[str(request.inputs["text"].tensor_shape.dim[0].size)] += 1
            time.sleep(0.02)

        def close(self):
            pass

    monkeypatch.setattr("export.serving.model.Model", Slow)
    monkeypatch.setattr(deployment, "LATENCY_SECONDS", seconds)
    measured = deployment.measure_latency("", ["a", "b"], maximum=2)["milliseconds"]
    assert set(measured) == set(calls) and found == calls
    assert all(20 <= one < 60 for one in measured.values())
