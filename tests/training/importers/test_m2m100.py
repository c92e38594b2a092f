"""Imported M2M100, NLLB-200 and SMALL-100 have the originals' ids, states, scores and texts."""

import m2m100
import numpy as np
import pytest
import tensorflow as tf

import tfformer
from tfformer.config import BOS, UNK
from tfformer.run import read_config
from training import import_hf


class Both:
    """A stored folder, its run, and the original's results."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        assert import_hf.main(m2m100.arguments(name, directory)) == 0
        self.translator = tfformer.load_translator(directory)
        self.model, self.tokenizer = self.translator.model, self.translator.tokenizer
        self.answers, self.pairs = m2m100.answers(name), m2m100.PAIRS[name]
        self.known = m2m100.our_ids(name, self.tokenizer)

    def ours(self, ids):
        """The original's ids as ours."""
        return [self.known[n] for n in ids]

    def encoded(self, side, texts, pair):
        """The ids of texts by a tokenizer with the languages of a pair."""
        tokenizer = self.tokenizer.with_languages(**m2m100.languages(self.name, pair))
        return getattr(tokenizer, f"encode_{side}")(tf.constant(texts)).to_list()

    def requested(self, name, pair, **inputs):
        """The outputs of a signature for a request that names its languages."""
        asked = m2m100.languages(self.name, pair)
        asked = {key: tf.constant([value]) for key, value in asked.items()}
        return self.translator.functions[name](**asked, **inputs)


@pytest.fixture(scope="module", params=m2m100.FOLDERS)
def both(request, tmp_path_factory):
    return Both(request.param, tmp_path_factory.mktemp("m2m100") / "run")


def test_token_ids_match_the_original(both):
    """Except if a text looks like a code, which is text here; and if a space at its end is a
    piece, which no version of SentencePiece writes."""
    *texts, blank, coded = both.answers["sources"]
    extra = {n for n in range(both.tokenizer.source_vocabulary_size)} - set(both.known.values())
    for pair in both.pairs:
        *expected, of_blank, of_code = both.answers[pair]["source_ids"]
        found = both.encoded("source", texts, pair)
        for ids, theirs in zip(found, expected, strict=True):
            # A piece that is not in the table has its own id; the original has unknown.
            assert [UNK if n in extra else n for n in ids] == both.ours(theirs)
        [ids] = both.encoded("source", [blank], pair)
        *before, piece, eos = both.ours(of_blank)
        ends = both.tokenizer.pieces("source")[piece] == "▁"
        assert ends == (both.name in ("nllb", "whole", "mbart"))
        assert ids == [*before, *([] if ends else [piece]), eos]
        [ids] = both.encoded("source", [coded], pair)
        codes = both.tokenizer.source.languages.contains(tf.constant(ids)).numpy()
        assert codes.tolist() == [True, *[False] * (len(ids) - 1)]
        of_code = tf.constant(both.ours(of_code))
        assert sum(both.tokenizer.source.languages.contains(of_code).numpy()) == (
            1 if both.name == "mbart" else 2  # its codes look different
        )


def test_target_ids_match_the_original_except_unknown(both):
    for pair in both.pairs:
        found = both.encoded("target", both.answers["targets"], pair)
        expected = [both.ours(ids) for ids in both.answers[pair]["target_ids"]]
        # A piece that is not in the table is written as smaller ones, for which there are labels.
        known = [n for n, ids in enumerate(expected) if UNK not in ids]
        assert len(known) > 1
        assert [found[n] for n in known] == [expected[n] for n in known]


def test_logits_and_encoder_states_match_the_original(both):
    theirs, ours = list(both.known), list(both.known.values())
    stored = m2m100.states(both.name)
    assert len(stored) == 12
    for pair in both.pairs:
        of_pair = both.answers[pair]
        rows = zip(of_pair["source_ids"], of_pair["target_ids"], strict=False)
        for n, (source, target) in zip(range(3), rows, strict=False):
            source, target = np.array([both.ours(source)]), both.ours(target)
            states = np.array(both.model.encode(source))[0]
            expected = stored[f"{pair}/{n}/states"]
            np.testing.assert_allclose(states, expected, atol=1e-4, rtol=1e-4)
            inputs = {"source_ids": source, "target_ids": np.array([m2m100.with_bos(target)])}
            found = np.array(both.model(inputs, training=False))[0]
            logits = stored[f"{pair}/{n}/logits"]
            np.testing.assert_allclose(found[:, ours], logits[:, theirs], atol=1e-4, rtol=1e-4)
            # Both are normalised over the same ids.
            np.testing.assert_allclose(np.exp(found).sum(1), np.exp(logits).sum(1), rtol=1e-4)
            assert np.all(found[:, BOS] < -9e3)


def searched(both):
    """The texts that are not empty, and their numbers, without those with other ids. For an
    empty text there is no search."""
    texts = both.answers["sources"][:-2]
    return zip(*[(n, text) for n, text in enumerate(texts) if text], strict=True)


@pytest.mark.parametrize(
    "both",
    [pytest.param(n, marks=[pytest.mark.slow] * (n != "m2m")) for n in m2m100.FOLDERS],
    indirect=True,
)
def test_searches_find_the_same_texts_in_each_language(both):
    numbers, texts = searched(both)
    for pair in both.pairs:
        of_pair, languages = both.answers[pair], m2m100.languages(both.name, pair)
        found = both.translator.translate(texts, greedy=True, **languages)
        assert [text.strip() for text in found] == [of_pair["greedy"][n] for n in numbers]
        found = both.requested("serving_default", pair, text=tf.constant(texts))
        expected = [of_pair["beam"][n] for n in numbers]
        assert [text.decode().strip() for text in found["translation"].numpy()] == expected
        scores = [of_pair["scores"][n] for n in numbers]
        np.testing.assert_allclose(found["score"], scores, atol=1e-4)
    # The code of the language has probability 1, and counts as a token.
    texts, translations = tf.constant(texts), found["translation"]
    scored = both.requested("score", pair, source=texts, target=translations)
    lengths = tf.cast(scored["length"], tf.float32)
    expected = scored["log_prob"] / lengths**both.translator.length_penalty
    ended = lengths.numpy() < 30  # a longer one was cut
    assert ended.sum() > 4
    np.testing.assert_allclose(found["score"].numpy()[ended], expected.numpy()[ended], atol=1e-4)


def test_the_run_keeps_the_options_of_the_search(both):
    kept = read_config(both.directory)["search"]
    assert kept["length_penalty_form"] == "power" and kept["max_source_length"] == 64
    expected = {
        "m2m": (3, 0.8, 39),
        "nllb": (2, 0.5, 37),
        "whole": (2, 1.0, 36),
        "small100": (4, 1.3, 40),
        "mbart": (3, 1.0, 38),
    }[both.name]
    names = ("beam_width", "length_penalty", "max_target_length")
    assert tuple(kept[name] for name in names) == expected
    defaults = {name: one.default for name, one in both.tokenizer.languages.items()}
    assert (
        defaults
        == {
            "m2m": {"source_language": "en", "target_language": "de"},
            "nllb": {"source_language": "eng_Latn", "target_language": "fra_Latn"},
            "whole": {"source_language": "eng_Latn", "target_language": "deu_Latn"},
            "small100": {"target_language": "en"},
            "mbart": {"source_language": "en_XX", "target_language": "de_DE"},
        }[both.name]
    )
    assert both.model.config.tie_embeddings == "all"
