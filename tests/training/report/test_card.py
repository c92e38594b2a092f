"""The model card has the numbers of the run, however often it was interrupted."""

import dataclasses
import functools
import hashlib
import json
import os
import random
import re
import shutil
import signal
from pathlib import Path

import pytest
import tiny
from killing_recipe import RECIPE
from powercap import zone

import tfformer
from tfformer import Tokenizer, run
from tfformer.files import unpack
from training.data.corpus import TOKENS, Corpus
from training.data.reader import Pair
from training.evaluate import forced_perplexity
from training.metrics.bleu import bleu
from training.report import card, session
from training.report.energy import Energy
from training.report.history import read_history
from training.step.machine import CHECKOUT, commit
from training.tasks import TASKS
from training.trainer import fit
from training.trainer.signals import Interrupted
from training.trainer.state import Keeper

TRANSLATION = TASKS["translation"]
BLANK, LONG = 3, 2  # pairs that are dropped
STOPPED = 6  # the first session ends after these steps


def pairs(split, data):
    """A sentence for a word; in training there are also some invalid pairs."""
    words = random.Random(split)
    for _ in range({"train": 211, "val": 13}[split]):
        word = words.choice(tiny.WORDS)
        yield Pair(word, f"a little house by the lake with {word} in it")
    if split == "train":
        yield from [Pair("a", " ")] * BLANK + [Pair("a", "b" * 59)] * LONG


RECIPE = dataclasses.replace(
    RECIPE,
    pairs=pairs,
    origin="two files",
    max_tokens=48,
    max_characters=57,
    epochs=3,
    learning_rate_scale=2.0,
    average=1,
    r_drop=0.0,
    source_language="fi",
    language="en",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two sessions, the first interrupted in its first epoch, with a counter of energy."""
    directory = tmp_path_factory.mktemp("card") / "my run"
    powercap = tmp_path_factory.mktemp("powercap")
    counter = zone(powercap, "intel-rapl:0", "package-0", 5_000_000)
    keep = Keeper.on_train_batch_end

    def stopping(keeper, batch, logs=None):
        if keeper.state.progress["batch"] == STOPPED - 1:
            counter.write_text("7205000000")
            keeper.signals.number = signal.SIGTERM
        keep(keeper, batch, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Energy", functools.partial(Energy, powercap=powercap))
        patch.setattr(Keeper, "on_train_batch_end", stopping)
        with pytest.raises(Interrupted):
            fit.Training(directory, RECIPE).run()
    assert not (directory / card.CARD).exists(), "there is no model yet"
    with pytest.MonkeyPatch.context() as patch:
        nothing = powercap / "nothing"
        patch.setattr(session, "Energy", functools.partial(Energy, powercap=nothing))
        training = fit.Training(directory, RECIPE)
        training.resume()
        training.run()
    return directory


def cells(text):
    """The rows of all tables, by their first cell; if a cell occurs twice, the last row."""
    rows = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in text.splitlines() if line[:2] == "| "]
    return {row[0]: row[1:] for row in rows}


@pytest.fixture(scope="module")
def rows(trained):
    return cells((trained / card.CARD).read_text())


@pytest.mark.slow
def test_card_describes_the_model(trained, rows):
    model, tokenizer = tfformer.load(trained)
    weights = next(trained.glob("weights-*.npz"))
    assert rows["parameters"] == [f"{model.count_params():,}"]
    assert f"{tokenizer.source_vocabulary_size:,} pieces for both sides" in rows["vocabulary"][0]
    assert hashlib.sha256(weights.read_bytes()).hexdigest() in rows["weights"][0]
    text = (trained / card.CARD).read_text()
    assert text.startswith('---\nlanguage: ["fi", "en"]\n') and "\n# my run\n" in text
    assert "'runs/my run'" in text, "a command of a folder with a space"


@pytest.mark.slow
def test_the_scores_of_validation_are_those_of_the_published_model(trained):
    kept = list(pairs("val", None))
    translator = tfformer.load_translator(trained)
    found = translator.translate([pair.source for pair in kept], greedy=True)
    score, signature = bleu(found, [pair.target for pair in kept])
    assert 0 < score, "a BLEU of 0 would prove nothing"
    text = (trained / card.CARD).read_text()
    scores = [line for line in text.splitlines() if line.startswith("| validation, ")]
    escaped = signature.replace("|", "\\|")
    assert scores[0].endswith(f"| greedy | BLEU | {score:.2f} | `{escaped}` |")
    perplexity = float(re.search(r"perplexity, .*? \| ([\d.]+) \|", scores[1])[1])
    assert perplexity == pytest.approx(forced_perplexity(translator, kept, 64), rel=1e-3)


@pytest.mark.slow
def test_card_reports_kept_and_dropped_pairs(trained, rows):
    dropped = f"dropped {BLANK} blank, {LONG} too long"
    for split, report in (("train", f"211 pairs kept; {dropped}"), ("val", "13 pairs kept; ")):
        texts = (trained / "prepared" / split / "text.bin").read_bytes()
        assert rows[split][0].startswith(report)
        assert rows[split][1] == f"`{hashlib.sha256(texts).hexdigest()}`"
    assert "\nFrom two files.\n" in (trained / card.CARD).read_text()


@pytest.mark.slow
def test_sessions_are_summed_up(trained, rows):
    history, sessions = read_history(trained), session.read_sessions(trained)
    steps = int(history[-1]["step"])
    assert [one["steps"] for one in sessions] == [[0, STOPPED], [STOPPED, steps]]
    assert rows["steps"] == [f"{steps:,}"]
    seconds = sum(one["seconds"] for one in sessions)
    # The time in the checkpoints continues; a session is recorded just after it.
    last = unpack((trained / "checkpoints" / "last.npz").read_bytes())
    clock = json.loads(last["progress"].tobytes())["seconds"]
    assert clock - 0.2 <= seconds <= clock + 5
    assert rows["minutes, validation included"] == [f"{seconds / 60:.1f} in 2 sessions"]
    assert rows["from, to"] == [f"{sessions[0]['began']}, {sessions[1]['ended']}"]
    corpus = Corpus(trained / "prepared" / "train")
    tokens = RECIPE.epochs * int(corpus.index[:, TOKENS].sum())
    assert rows["tokens of the corpus seen, source and target"] == [
        f"{tokens:,} in {RECIPE.epochs} epochs"
    ]
    # The speed of the interrupted epoch is not that of its rest.
    speed = int(rows["tokens a second, without validation"][0].replace(",", ""))
    assert clock / 10 < tokens / speed < clock + 0.2
    assert rows["commit"] == [commit(CHECKOUT) or "unknown: no checkout of Git"]
    assert f"tfformer {tfformer.__version__}" in rows["versions"][0]


@pytest.mark.slow
def test_card_gives_measured_energy_or_why_it_is_missing(trained, rows, tmp_path):
    words = "0.002000 kWh by their counters, in 1 of 2 sessions; else it could not be had"
    assert rows["energy of the processors"] == [words]
    copy = shutil.copytree(trained, tmp_path / "copy")
    sessions = session.read_sessions(copy)
    assert "no intel-rapl zone" in sessions[1]["missing"]["processors"]
    sessions[0]["machine"]["gpus"] = ["Some GPU"]
    sessions[0]["joules"]["gpus"] = sessions[1]["joules"]["gpus"] = 1.8e6
    (copy / session.SESSIONS).write_text(json.dumps(sessions))
    assert cells(card.card(copy))["energy of the GPUs"] == ["1.000000 kWh by their counters"]
    (copy / session.SESSIONS).write_text(json.dumps(sessions[1:]))
    found = cells(card.card(copy))
    assert found["energy of the processors"][0].startswith("could not be had: ")
    assert f"before step {STOPPED} were not recorded" in found["minutes, validation included"][0]


@pytest.mark.slow
def test_card_is_reproducible_and_replaced_atomically(trained, tmp_path, monkeypatch):
    copy = shutil.copytree(trained, tmp_path / "elsewhere" / trained.name)
    path = copy / card.CARD
    before = path.read_text()
    assert card.card(copy) == before
    path.write_text(f"{card.MARK}\nmuch that is old\n" * 1000)
    old = path.read_text()

    def full(*paths):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError):
            card.write_card(copy)
    assert path.read_text() == old and not list(copy.glob(".*.partial"))
    card.write_card(copy)
    assert path.read_text() == before
    path.write_text("mine\n")
    card.write_card(copy)
    assert path.read_text() == "mine\n"


def test_card_shows_best_first_and_last_of_many_epochs():
    history = [{"epoch": n, "val_bleu": 50 - abs(n - 33)} for n in range(1, 101)]
    shown = [row["epoch"] for row in card._some(TRANSLATION, history)]
    assert len(shown) <= card.EPOCHS and shown == sorted(set(shown))
    assert {1, 33, 100} <= set(shown)
    for row in history:
        if row["epoch"] % 10:
            del row["val_bleu"]
    assert [row["epoch"] for row in card._some(TRANSLATION, history)] == list(range(10, 101, 10))


def test_saved_model_without_training_gets_a_shorter_card(tmp_path):
    def tokenizer():
        return Tokenizer.train(tiny.sentences(97), vocabulary_size=347)

    directory = tiny.save_run(tmp_path / "saved", tokenizer, {})
    card.write_card(directory)
    text = (directory / card.CARD).read_text()
    assert cells(text)["parameters"] == [f"{run.load_model(directory).count_params():,}"]
    assert "## Training" not in text and "## Scores" not in text


@pytest.mark.slow
def test_error_names_the_damaged_file(trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    for name in ("sessions.json", "scores.json", "prepared/corpus.json", "prepared/recipe.json"):
        before = (copy / name).read_bytes() if (copy / name).exists() else b"[]"
        (copy / name).write_text("{")
        with pytest.raises(run.RunError, match=Path(name).name):
            card.write_card(copy)
        (copy / name).write_bytes(before)
    weights = next(copy.glob("weights-*"))
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    with pytest.raises(run.RunError, match="weights-.* is damaged"):
        card.write_card(copy)
    weights.write_bytes(whole)
    card.write_card(copy)
