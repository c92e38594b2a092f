"""An imported model of OpenNMT-tf is the original: ids, logits, scores and texts that it gave."""

import numpy as np
import opennmt_folders as opennmt
import pytest
import tensorflow as tf

import tfformer
from export.verification.reference import log_softmax
from tfformer.config import BOS, EOS, UNK
from training import import_opennmt
from training.importers.opennmt_description import read_description
from training.importers.opennmt_weights import sinusoids


class Both:
    """A stored model, its run, and what the original says."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        assert import_opennmt.main(opennmt.words(name, directory)) == 0
        self.translator = tfformer.load_translator(directory)
        self.model, self.tokenizer = self.translator.model, self.translator.tokenizer
        self.answers = opennmt.answers(name)

    def ours(self, side, ids):
        """Ids of the original as ours."""
        return opennmt.our_ids(self.name, side)[ids].tolist()


@pytest.fixture(scope="module", params=opennmt.FOLDERS)
def both(request, tmp_path_factory):
    return Both(request.param, tmp_path_factory.mktemp("opennmt") / "run")


def test_texts_become_the_same_ids(both):
    found = both.tokenizer.encode_source(tf.constant(both.answers["sources"])).to_list()
    size = len(opennmt.our_ids(both.name, "source"))
    for ids, expected in zip(found, both.answers["source_ids"], strict=True):
        # A piece that the vocabulary lacks has an id of its own, where the original has unknown.
        ids = [UNK if n >= size else n for n in ids]
        expected = both.ours("source", expected)
        assert ids == (expected if both.name == "joint" else [*expected, EOS])


def test_logits_are_the_originals(both):
    known = opennmt.our_ids(both.name, "target")
    sources = both.tokenizer.encode_source(tf.constant(both.answers["sources"])).to_list()
    compared = 0
    for source, (expected, target) in zip(sources, opennmt.logits(both.name), strict=False):
        target = [n for n in both.ours("target", target) if n != EOS]
        inputs = {"source_ids": np.array([source]), "target_ids": np.array([[*target]])}
        assert target[0] == BOS
        found = np.asarray(both.model(inputs, training=False))[0]
        expected = expected[: len(found)]
        np.testing.assert_allclose(found[:, known], expected, atol=1e-4, rtol=1e-4)
        compared += len(found)
        np.testing.assert_allclose(
            log_softmax(found)[:, known], log_softmax(expected), atol=1e-4, rtol=1e-4
        )
    assert compared > 7


def letters(text):
    """Without blanks, and without the unknown word, which is not written here."""
    return "".join(text.replace("<unk>", "").replace("⁇", "").split())


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_texts_and_scores_are_the_originals(both, search):
    answers = both.answers
    # One that comes to the limit of its length does not end there; here it does.
    ended = [n for n, text in enumerate(answers[search]) if len(text) < 100]
    assert len(ended) > 2
    options = {"beam_width": 1} if search == "greedy" else {}
    translator = tfformer.load_translator(both.directory, **options)
    sources = tf.constant([answers["sources"][n] for n in ended])
    found = translator.functions["serving_default"](sources)
    texts = [letters(text.decode()) for text in found["translation"].numpy()]
    same = [text == letters(answers[search][n]) for text, n in zip(texts, ended, strict=True)]
    scores = np.array([answers[f"{search}_scores"][n] for n in ended])
    same &= np.isclose(found["score"], scores, atol=1e-3)
    # The original's beam search gives some texts scores that are not theirs, as its own
    # log-probabilities of them show; where it is sure of a text, it does not.
    assert all(same) if search == "greedy" else sum(same) >= 3


def test_no_answer_depends_on_the_eos_that_the_encoder_does_not_see(tmp_path):
    """Nor on batch-mates: the padding behind it is as hidden."""
    assert import_opennmt.main(opennmt.words("words", tmp_path / "run")) == 0
    translator = tfformer.load_translator(tmp_path / "run")
    assert not translator.model.config.source_eos
    target_ids = np.array([[2, 5, 7]])
    given = [[5, 6, 3], [5, 6, 0], [5, 6, 3, 0, 0]]
    found = [
        np.asarray(translator.model({"source_ids": np.array([ids]), "target_ids": target_ids}))
        for ids in given
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6)
    sources = opennmt.answers("words")["sources"]
    alone = [translator.translate([text])[0] for text in sources]
    assert translator.translate(sources) == alone


def test_sinusoids_by_hand():
    """Of width 6: angles pos, pos / 100, pos / 10,000."""
    angles = np.array([[1, 0.01, 0.0001], [3, 0.03, 0.0003]])
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    np.testing.assert_allclose(sinusoids([1, 3], 6), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "heads", "activation"),
    [
        ("import opennmt.models.catalog as c\nmodel = lambda: c.TransformerBig()\n", 16, "relu"),
        ("model = lambda: opennmt.models.Transformer(num_heads=5)", 5, "relu"),
        ("model = lambda: Transformer(num_heads=H, ffn_activation=tf.nn.swish)", None, "silu"),
        (
            "class Mine(T):\n def __init__(self):\n"
            "  super().__init__(num_heads=3, ffn_activation=tf.nn.gelu)\nmodel = Mine\n",
            3,
            "gelu",
        ),
        ("raise SystemExit('it is not run')", None, "relu"),
    ],
)
def test_a_description_is_read_and_not_run(tmp_path, text, heads, activation):
    path = tmp_path / "model_description.py"
    path.write_text(text)
    assert read_description(path)[1:] == (heads, activation)
