"""Questions and answers: positions by hand, the artificial corpus, all steps from training to a
server."""

import json
import signal

import labelled
import numpy as np
import oracle
import pytest
import tensorflow as tf
from stopped import assert_goes_on

from tfformer import PositionCrossEntropy
from tfformer import run as runs
from tfformer.metrics import PositionAccuracy, PositionPerplexity
from training import evaluate, facts, train
from training.corpora.embedded import SPLITS, split_of
from training.data.reader import CorpusReport, Pair
from training.metrics import labels as measures
from training.tasks import TASKS
from training.tasks.span import place_of
from training.trainer import fit
from training.trainer.signals import Interrupted

pytestmark = pytest.mark.usefixtures("loaded_once")
TASK = TASKS["span"]
SIZES = [*labelled.SIZES, "--max-tokens", "256", "--batch-tokens", "2048"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with questions, texts and answers for training and validation."""
    folder = tmp_path_factory.mktemp("span")
    for split, count in (("train", 60), ("val", 17)):
        lines = ("\t".join(one) + "\n" for one in facts.pairs(split, count))
        (folder / f"{split}.tsv").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def folder(corpus):
    """The same folder with a trained run."""
    assert train.main(command(corpus, corpus / "run")) == 0
    return corpus


def command(folder, run, *options):
    files = ["--source", str(folder / "train.tsv"), "--val-source", str(folder / "val.tsv")]
    return ["--family", "span", "--run", str(run), *files, *SIZES, *options]


def test_corpus_depends_on_the_seed_and_splits_share_no_names():
    names = {}
    for split in SPLITS:
        found = [*facts.pairs(split, 300)]
        assert found == [*facts.pairs(split, 300)] != [*facts.pairs(split, 300, seed=1)]
        for question, text, answer in found:
            assert answer in text and question.endswith("?")
        words = {word.strip(".?") for one in found for word in one.text.split()}
        names[split] = {word for word in words if word[0].isupper() and word != "To"}
        assert all(split_of(name) == split for name in names[split])
    assert not names["train"] & names["val"] and not names["train"] & names["test"]
    with pytest.raises(ValueError, match="split must be one of"):
        facts.pairs("dev", 1)


@pytest.mark.slow
def test_positions_enclose_the_answer(folder):
    """The tokens between the two positions are the answer again."""
    tokenizer = runs.load_tokenizer(folder / "run")
    reading = TASK.reading(tokenizer, 256)
    raw = [*facts.pairs("test", 40), ("wo?", "Das größere Haus: ein\u0301 ﬁsch", "größere Haus"),
           ("a?", "Tarn in Tarnow, Tar.", "Tar"), ("b?", "日本 und 本", "本")]  # fmt: skip
    pairs = [*TASK.cleaned([Pair(*one) for one in raw], CorpusReport(), {})]
    assert len(pairs) == len(raw)
    for pair, (first, last) in zip(pairs, reading.places(pairs), strict=True):
        read = reading.read(tf.constant([pair.source]))
        text = pair.source.partition("\t")[2].encode()
        one, other = first - int(read.first[0]), last - int(read.first[0])
        start, end = read.starts[0].numpy()[one], read.ends[0].numpy()[other]
        assert text[start:end].decode().strip() == pair.target
    assert place_of("Tar", "Tarn in Tarnow, Tar.") == 16
    assert place_of("a", "xax") == 1
    short = TASK.reading(tokenizer, 16)
    assert [*short.places([Pair("a?\t" + "x " * 30 + "end", "end")])] == [None]


@pytest.mark.slow
def test_unusable_examples_are_dropped_and_counted(folder, tmp_path, monkeypatch, capsys):
    """Before its first step; the rest is the corpus of the finished training."""

    def stop(training):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(fit.Training, "run", stop)
    lines = (folder / "train.tsv").read_text()
    lines += "Where?\tNobody knows.\tTarn\nWhere?\t\tTarn\n" + f"Where?\t{'far ' * 90}Tarn\tTarn\n"
    (tmp_path / "train.tsv").write_text(lines)
    (tmp_path / "val.tsv").write_text((folder / "val.tsv").read_text())
    assert train.main(command(tmp_path, tmp_path / "run")) == 128 + signal.SIGTERM
    ours, theirs = (one / "run" / "prepared" / "train" / "text.bin" for one in (tmp_path, folder))
    assert ours.read_bytes() == theirs.read_bytes()
    said = capsys.readouterr().err
    assert "dropped 1 blank, 1 of too many tokens, 1 whose sides do not belong together" in said


def test_loss_and_metrics_are_those_of_numpy(rng):
    logits = rng.normal(size=(3, 2, 5)).astype("float32")
    logits[0, :, 3:], logits[:, :, 0] = -1e9, -1e9
    labels = np.array([[1, 2], [4, 4], [0, 0]])
    nll, smooth = [], []
    for row, side in np.ndindex(2, 2):
        own = logits[row, side][logits[row, side] > -1e8].astype("float64")
        log_probs = np.log(oracle.softmax(own))
        nll.append(-log_probs[labels[row, side] - 1])
        smooth.append(-log_probs.mean())
    np.testing.assert_allclose(PositionCrossEntropy(0.0)(labels, logits), np.mean(nll), rtol=1e-5)
    expected = 0.9 * np.mean(nll) + 0.1 * np.mean(smooth)
    np.testing.assert_allclose(PositionCrossEntropy(0.1)(labels, logits), expected, rtol=1e-5)
    assert np.isnan(PositionCrossEntropy()(np.full((3, 2), 5), logits))
    accuracy, perplexity = PositionAccuracy(), PositionPerplexity()
    for metric in (accuracy, perplexity):
        metric.update_state(labels, logits)
    hits = logits.argmax(axis=-1)[:2] == labels[:2]
    np.testing.assert_allclose(accuracy.result(), hits.mean())
    np.testing.assert_allclose(perplexity.result(), np.exp(np.mean(nll)), rtol=1e-5)


def test_f1_of_words_by_hand():
    assert measures.word_f1("the old house", "old House.") == pytest.approx(0.8)
    assert measures.word_f1("a a", "a") == pytest.approx(2 / 3)
    assert measures.word_f1("", "a") == measures.word_f1("b", "a") == 0
    assert measures.word_f1("?", "?") == 1


@pytest.mark.slow
def test_published_f1_equals_counts_by_hand(folder, tmp_path, capsys):
    config, service = runs.read_config(folder / "run"), runs.load_service(folder / "run")
    pairs = [*facts.pairs("val", 17)]
    found = service.answer([f"{one.question}\t{one.text}" for one in pairs])
    f1 = np.mean([measures.word_f1(a, one.answer) for a, one in zip(found, pairs, strict=True)])
    assert config["training"]["val_token_f1"] == pytest.approx(100 * f1)
    assert config["training"]["references"] == [one.answer for one in pairs]
    out = tmp_path / "found.json"
    test = [str(folder / "run"), "--source", str(folder / "val.tsv"), "--output", str(out)]
    assert evaluate.main(test) == 0
    scores = json.loads(out.read_text())
    assert scores["token_f1"] == pytest.approx(100 * f1)
    exact = np.mean([a == one.answer for a, one in zip(found, pairs, strict=True)])
    assert scores["exact_match"] == pytest.approx(100 * exact)
    assert evaluate.main([*test, "--picture", str(tmp_path / "x.png")]) == 1
    assert "--picture draws at most 100 labels, got none" in capsys.readouterr().err


@pytest.mark.slow
def test_training_resumes_bit_identically(folder, tmp_path):
    run = tmp_path / "run"
    assert_goes_on(command(folder, run), run, folder / "run", at=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--source", "FILE", "--target", "FILE"], "span needs --source, a TSV of question, text"),
        (["--source", "FILE", "--labels", "FILE"], "span needs --source, a TSV of question, text"),
        (["--source", "FILE", "--r-drop", "1"], "r_drop must be 0.0 for the family span"),
        (["--source", "FILE", "--max-tokens", "3"], "max_tokens must be at least 4 for a span"),
    ],
)
def test_incompatible_options_are_refused(corpus, tmp_path, capsys, given, message):
    given = [str(corpus / "train.tsv") if word == "FILE" else word for word in given]
    assert train.main(["--family", "span", "--run", str(tmp_path / "run"), *given]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_it_is_exported_and_verified(folder, tmp_path):
    from export import saved_model

    assert saved_model.main([str(folder / "run"), str(tmp_path / "answers")]) == 0
    page = (tmp_path / "answers" / "README.md").read_text()
    assert '"question": [' in page and "`answer` string [B]" in page
