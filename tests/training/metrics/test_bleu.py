"""BLEU is that of sacreBLEU; each score has the name of its protocol."""

import pytest
import sacrebleu

from training.metrics.bleu import bleu, bleu_multi30k, chrf

HYPOTHESES = ["A man rides a red bicycle .", "Two dogs are playing in the snow", "The end"]
REFERENCES = ["A man is riding a red bike.", "Two dogs play in the snow.", "The end."]


def test_cased_bleu_is_the_default_of_sacrebleu():
    score, signature = bleu(HYPOTHESES, REFERENCES)
    assert score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert 0 < score < 100
    for part in ("case:mixed", "tok:13a", "smooth:exp", f"version:{sacrebleu.__version__}"):
        assert part in signature


def test_chrf_is_the_default_of_sacrebleu():
    score, signature = chrf(HYPOTHESES, REFERENCES)
    assert score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert "nc:6" in signature


def test_multi30k_bleu_equals_bleu_of_text_normalised_by_hand():
    # Quotation marks normalised, all lowercased, punctuation apart, nothing escaped.
    hypotheses = ["Ein „Hund“ läuft & springt.", "Zwei Männer, die lachen"]
    references = ["Ein Hund läuft und springt.", "Zwei Männer, die laut lachen."]
    by_hand = (
        ['ein " hund " läuft & springt .', "zwei männer , die lachen"],
        [["ein hund läuft und springt .", "zwei männer , die laut lachen ."]],
    )
    score, signature = bleu_multi30k(hypotheses, references)
    expected = sacrebleu.corpus_bleu(*by_hand, tokenize="none", force=True).score
    assert score == pytest.approx(expected)
    assert 0 < score < 100
    for part in ("lowercase", "moses:de", "tok:none", f"version:{sacrebleu.__version__}"):
        assert part in signature


def test_the_language_is_in_the_signature():
    assert "moses:en" in bleu_multi30k(HYPOTHESES, REFERENCES, language="en")[1]
