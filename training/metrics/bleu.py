"""Corpus scores of translations, each with the signature that says what it is.

BLEU differs by more than a point between protocols on the same output, so a figure without its
protocol means nothing. Two protocols, both computed by sacreBLEU (Post 2018):

- `bleu`: cased, 13a tokenisation: sacreBLEU's default, and the one to compare systems by.
- `bleu_multi30k`: that of the Multi30K literature: hypothesis and reference lowercased,
  punctuation normalised and Moses-tokenised (sacremoses), then scored as they are.
"""

import functools

from sacrebleu.metrics import BLEU, CHRF
from sacremoses import MosesPunctNormalizer, MosesTokenizer


def bleu(hypotheses, references):
    """(score in 0 ... 100, signature) of BLEU, cased, 13a."""
    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references]).score
    return score, str(metric.get_signature())


def chrf(hypotheses, references):
    """(score in 0 ... 100, signature) of chrF2 (Popovic 2015)."""
    metric = CHRF()
    score = metric.corpus_score(hypotheses, [references]).score
    return score, str(metric.get_signature())


def bleu_multi30k(hypotheses, references, language="de"):
    """(score in 0 ... 100, signature) of BLEU by the protocol of the Multi30K literature."""
    metric = BLEU(tokenize="none", force=True)
    hypotheses, references = (
        [_moses(text, language) for text in texts] for texts in (hypotheses, references)
    )
    score = metric.corpus_score(hypotheses, [references]).score
    return score, f"lowercase+moses:{language}|{metric.get_signature()}"


def _moses(text, language):
    normalizer, tokenizer = _moses_tools(language)
    return tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True, escape=False)


@functools.cache
def _moses_tools(language):
    return MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
