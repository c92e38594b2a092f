"""Non-autoregressive translation: masking, and all steps from two files to a server."""

import random

import numpy as np
import pytest
import tensorflow as tf
from few_texts import prove_by_few
from stopped import assert_goes_on

from tfformer import run as runs
from tfformer.files import read_json
from training import compare, evaluate, train
from training.data.batches import Batches
from training.data.corpus import Corpus
from training.tasks import TASKS
from training.tasks.non_autoregressive import filled_up, glanced, length_ids, masked

WORDS = {
    "alpha": "eins", "beta": "zwei", "gamma": "drei", "delta": "vier", "epsilon": "fünf",
    "zeta": "sechs", "eta": "sieben", "theta": "acht",
}  # fmt: skip
LAYERS = ["--preset", "test", "--num-encoder-layers", "1", "--num-decoder-layers", "1"]
SIZES = [*LAYERS, "--vocabulary-size", "300", "--vocabulary-kind", "char"]
OPTIONS = [
    "--max-tokens", "47", "--batch-tokens", "512", "--epochs", "2", "--cores", "1",
    "--warmup-steps", "5", "--checkpoint-steps", "3", "--optimizer", "adam",
]  # fmt: skip
DECODINGS = ["mask-predict", "ctc", pytest.param("eos", marks=pytest.mark.slow)]


def write_pairs(folder, name, count):
    chosen = random.Random(count)
    rows = [chosen.choices(list(WORDS), k=chosen.randint(1, 4)) for _ in range(count)]
    sides = [" ".join(row) for row in rows], [" ".join(WORDS[word] for word in row) for row in rows]
    for side, lines in zip(("en", "de"), sides, strict=True):
        (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))


def words(folder, run, *options, family="non-autoregressive"):
    files = [
        f"--{prefix}{side}={folder}/{name}.{language}"
        for prefix, name in (("", "train"), ("val-", "val"))
        for side, language in (("source", "en"), ("target", "de"))
    ]
    return ["--family", family, *files, "--run", str(run), *OPTIONS, *options]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus, an autoregressive run, and a run of each decoding except the one up to eos."""

    folder = tmp_path_factory.mktemp("non-autoregressive")
    write_pairs(folder, "train", 211)
    write_pairs(folder, "val", 37)
    # It has learned almost nothing, but gives a translation for each source.
    options = ["--preset", "test", *SIZES[len(LAYERS) :], "--min-length", "3"]
    assert train.main(words(folder, folder / "teacher", *options, family="transformer")) == 0
    for decoding in ("mask-predict", "ctc"):
        begin(folder, decoding)
    return folder


def begin(folder, decoding):
    options = [*SIZES, "--decoding", decoding, "--max-length-difference", "20"]
    options += ["--tie-embeddings", "all"]
    assert train.main(words(folder, folder / decoding, *options)) == 0


# The examples of a batch.


def test_number_and_positions_of_masked_tokens_are_uniform():
    ids = tf.constant([[9] * 5 + [0, 0]] * 4000 + [[7] + [0] * 6] + [[0] * 7])
    found, hidden = (x.numpy() for x in masked(ids, [3, 5]))
    np.testing.assert_array_equal(found, np.where(hidden, 2, ids))
    assert not hidden[:, 5:].any() and hidden[4000, 0] and not hidden[4001].any()
    counts = np.bincount(hidden[:4000].sum(axis=1), minlength=6)
    assert counts[0] == 0
    # Each number 1 ... 5 has a fifth of the rows; five standard deviations are 127.
    assert np.abs(counts[1:] - 800).max() < 127
    places = hidden[:4000, :5].mean(axis=0)  # 3 of 5, on average
    assert np.abs(places - 0.6).max() < 5 * (0.24 / 4000) ** 0.5
    again, _ = masked(ids, [3, 5])
    other, _ = masked(ids, [3, 6])
    np.testing.assert_array_equal(again, found)
    assert (other.numpy() != found).any()


class Writes:
    """A mask-predict model that predicts these ids for each target, and records its inputs."""

    def __init__(self, ids):
        self.logits = tf.one_hot(tf.pad(ids, [[0, 0], [1, 0]]), 13)

    def __call__(self, inputs, training):
        assert not training
        self.asked = inputs
        return self.logits


def test_glancing_reveals_tokens_in_proportion_to_errors():
    tokens = np.array([[5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 0, 0, 0, 0], [0] * 7] * 500)
    said = np.array([[5, 6, 4, 4, 4, 4, 4], [5, 6, 7, 9, 9, 9, 9], [9] * 7] * 500)
    lengths = np.array([[3], [1], [0]] * 500)
    target_ids, hidden = masked(tf.constant(tokens), [2, 3])
    inputs = {"source_ids": tokens, "target_ids": target_ids}
    labels = tf.concat([lengths, tf.where(hidden, tokens, 0)], axis=1)
    model = Writes(said)
    found, learned = glanced(model, inputs, labels, tf.constant([3, 5]), share=0.5)
    # Its input was fully masked.
    np.testing.assert_array_equal(model.asked["target_ids"], np.where(tokens != 0, 2, 0))
    assert found["source_ids"] is tokens
    found, learned = found["target_ids"].numpy(), learned.numpy()
    np.testing.assert_array_equal(learned[:, :1], lengths)
    np.testing.assert_array_equal(learned[:, 1:], np.where(found == 2, tokens, 0))
    np.testing.assert_array_equal(np.where(found == 2, tokens, found), tokens)
    # Half of five wrong ones are two; if nothing is wrong, nothing is shown.
    shown = (found != 2) & (tokens != 0)
    np.testing.assert_array_equal(shown.sum(axis=1), [2, 0, 0] * 500)
    # Any of the seven, also correct ones; five standard deviations.
    assert np.abs(shown[::3].mean(axis=0) - 2 / 7).max() < 5 * (10 / 49 / 500) ** 0.5
    again, _ = glanced(model, inputs, labels, tf.constant([3, 5]), share=0.5)
    other, _ = glanced(model, inputs, labels, tf.constant([4, 5]), share=0.5)
    np.testing.assert_array_equal(again["target_ids"], found)
    assert (other["target_ids"].numpy() != found).any()


def test_length_ids_and_filled_up_targets_by_hand():
    source = tf.constant([[5, 6, 3, 0], [5, 3, 0, 0], [5, 6, 7, 3], [0, 0, 0, 0]])
    target = tf.constant([[8, 9, 0, 0, 0], [8, 9, 4, 8, 9], [8, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
    # Equal lengths: 3 of 5; 4 more count as at most 2 more; 2 fewer; none.
    assert length_ids(source, target, 2).numpy().tolist() == [[3], [5], [1], [0]]
    found = filled_up(source, target, 2).numpy().tolist()
    assert found == [
        [8, 9, 3, 3, 3, 3, 0, 0],
        [8, 9, 4, 8, 0, 0, 0, 0],  # five do not fit into four positions
        [8, 3, 3, 3, 3, 3, 3, 3],
        [0] * 8,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("decoding", DECODINGS)
def test_batches_fit_the_model_and_loss_of_each_decoding(folder, decoding):
    """Rows of padding, for which there were no pairs, count nothing."""
    if not (folder / decoding).exists():
        begin(folder, decoding)
    model, tokenizer = runs.load(folder / decoding)
    task = TASKS["non-autoregressive"].of(model.config)
    corpus = Corpus(folder / decoding / "prepared" / "val")
    count = 0
    for inputs, labels in Batches(task, corpus, tokenizer, 512, shuffle=False).dataset():
        logits = model(inputs, training=False)
        assert set(inputs) == ({"source_ids", "target_ids"} if model.length else {"source_ids"})
        empty = ~(inputs["source_ids"].numpy() != 0).any(axis=1)
        assert not labels.numpy()[empty].any()
        if decoding != "ctc":
            assert logits.shape[:2] == labels.shape
        if decoding == "mask-predict":
            hidden, real = inputs["target_ids"].numpy() == 2, labels.numpy()[:, 1:] != 0
            np.testing.assert_array_equal(hidden, real)
            assert (labels.numpy()[~empty, 0] > 0).all()
        count += (~empty).sum()
    assert count == 37


# From training to a server.


@pytest.mark.slow
@pytest.mark.parametrize("glancing", ["0", "0.5"])
def test_training_resumes_bit_identically(folder, tmp_path, glancing):
    """The same masks are drawn."""
    run, whole = tmp_path / "run", folder / "mask-predict"
    options = [*SIZES, "--decoding", "mask-predict", "--max-length-difference", "20"]
    options += ["--tie-embeddings", "all", "--glancing", glancing]
    if glancing != "0":
        learned, whole = runs.read_config(whole)["weights"], tmp_path / "whole"
        assert train.main(words(folder, whole, *options)) == 0
        assert runs.read_config(whole)["weights"] != learned  # it has an effect
    assert_goes_on(words(folder, run, *options), run, whole)


@pytest.mark.slow
def test_distillation_trains_on_the_teacher_s_translations(folder, tmp_path):
    """Its vocabulary is the teacher's; validation uses the human translations."""
    run, teacher = tmp_path / "run", folder / "teacher"
    options = [*LAYERS, "--max-length-difference", "20", "--distill", str(teacher)]
    assert train.main(words(folder, run, *options)) == 0
    translator = runs.load_translator(teacher)
    assert runs.load_tokenizer(run).sha256 == translator.tokenizer.sha256
    sources = (folder / "train.en").read_text().splitlines()
    expected = dict(zip(sources, translator.translate(sources), strict=True))
    corpus = Corpus(run / "prepared" / "train")
    found = zip(*corpus.texts(slice(None)), strict=True)
    found = [(source.decode(), target.decode()) for source, target in found]
    assert found == [(text, expected[text]) for text in sources if expected[text].strip()]
    facts = read_json(run / "prepared" / "corpus.json")
    assert facts["teacher"]["run"] == "teacher"
    assert facts["train"]["kept"] + facts["train"]["blank"] == 211
    _, references = Corpus(run / "prepared" / "val").texts(slice(None))
    assert [text.decode() for text in references] == (folder / "val.de").read_text().splitlines()
    assert "Its targets are translations by the run `teacher`" in (run / "README.md").read_text()


@pytest.mark.slow
def test_evaluation_records_the_decoding_options(folder, tmp_path, capsys):
    pairs = ["--source", f"{folder}/val.en", "--target", f"{folder}/val.de"]
    output = ["--output", str(tmp_path / "scores.json"), "--passes", "2", "--lengths", "5"]
    assert evaluate.main([str(folder / "mask-predict"), *pairs, *output]) == 0
    scores = read_json(tmp_path / "scores.json")
    assert scores["search"] == "mask-predict, passes 2, lengths 5"
    assert "perplexity" not in scores and 0 <= scores["repeated_words"] <= 100
    assert evaluate.main([str(folder / "teacher"), *pairs, *output]) == 1
    assert "is no option of the family 'encoder-decoder'" in capsys.readouterr().err


@pytest.mark.slow
def test_compare_command_accepts_runs_of_both_kinds(folder, capsys):
    pairs = ["--source", f"{folder}/val.en", "--target", f"{folder}/val.de"]
    assert compare.main([str(folder / "teacher"), str(folder / "ctc"), *pairs]) == 0
    rows = {row.split("│")[1].strip(): row.split("│")[2:4] for row in table_of(capsys)}
    assert rows["perplexity"][0].strip() and not rows["perplexity"][1].strip()
    assert all(cell.strip() for cell in rows["repeated words, %"])


def table_of(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if line.count("│") > 2]


def test_repeated_words_by_hand():
    assert evaluate.repeated_words(["a a b", "b a", "", "c c c c"]) == pytest.approx(400 / 9)
    assert evaluate.repeated_words([""]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--decoding", "ctc", "--r-drop", "1"], "r_drop must be 0 with decoding='ctc', got 1.0"),
        (["--decoding", "both"], "decoding must be one of ('mask-predict', 'ctc', 'eos'), got"),
        (["--decoding", "ctc", "--glancing", "0.5"],
         "glancing must be 0 with decoding='ctc', got 0.5"),
        (["--glancing", "0.5", "--r-drop", "1"], "r_drop must be 0 with glancing, got 1.0"),
        (["--family", "transformer", "--glancing", "0.5"],
         "glancing must be 0.0 for the family encoder-decoder, got 0.5"),
        (["--coverage-penalty", "1"], "search options of the family non-autoregressive must be of"),
        (["--distill", "FILE"], "is no directory"),
        (["--distill", "ctc"], "must be a run of the family 'encoder-decoder'"),
        (["--distill", "teacher", "--vocabulary-size", "300"],
         "--vocabulary-size cannot be given with --distill: that run decides it"),
    ],
)  # fmt: skip
def test_incompatible_options_are_refused(folder, tmp_path, capsys, given, message):
    known = {"FILE": f"{folder}/val.en", "teacher": f"{folder}/teacher"}
    known["ctc"] = f"{folder}/ctc" if given[0] == "--distill" else "ctc"
    given = [known.get(word, word) for word in given]
    sizes = [] if "--distill" in given else SIZES[2:]
    command = words(folder, tmp_path / "run", "--preset", "tiny", *sizes, *given)
    try:
        code = train.main(command)
    except SystemExit as stop:
        code = stop.code
    assert code in (1, 2)
    said = capsys.readouterr().err
    assert message in said and said.count("error:") == 1 and "Traceback" not in said
    assert not (tmp_path / "run" / "prepared").exists()


@pytest.mark.parametrize(
    ("decoding", "epochs", "minimum"),
    [
        pytest.param("mask-predict", "40", 40, marks=pytest.mark.nightly),
        pytest.param("ctc", "17", 80, marks=pytest.mark.slow),
    ],
)
def test_word_translation_is_learned_exported_and_served(
    folder, tmp_path, monkeypatch, decoding, epochs, minimum
):
    """Each word has one translation; the exported model gives it for unseen sentences."""
    from export import saved_model, translate_files
    from tfformer.service import parallel_translator

    prove_by_few(monkeypatch)
    if decoding == "ctc":  # test_parallel_translator.py saves both signatures of each decoding
        chosen = (parallel_translator.serving_default,)
        monkeypatch.setattr(parallel_translator, "SIGNATURES", chosen)
    learn = ["--d-model", "48", "--dropout", "0", "--norm", "pre", "--epochs", epochs]
    learn += ["--optimizer", "muon", "--learning-rate-scale", "0.3", "--cooldown", "0.3"]
    learn += ["--validate-every", epochs]  # only at the end
    options = ["--preset", "test", "--vocabulary-size", "300", "--decoding", decoding]
    options += ["--max-length-difference", "20", "--tie-embeddings", "all"]
    run, exported = tmp_path / "run", tmp_path / "exported"
    assert train.main(words(folder, run, *options, *learn)) == 0
    assert runs.read_config(run)["training"]["val_bleu"] > minimum
    assert saved_model.main([str(run), str(exported)]) == 0
    assert translate_files.main([str(exported), str(tmp_path / "out"), f"{folder}/val.en"]) == 0
    lines = (tmp_path / "out" / "val.en").read_text().splitlines()
    assert lines == runs.load_service(run).translate((folder / "val.en").read_text().splitlines())
