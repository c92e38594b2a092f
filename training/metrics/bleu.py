"""Corpus scores of translations, each with a signature that describes the protocol.

On the same output, BLEU differs by more than a point between protocols. So a score needs its
protocol. There are two, both computed by sacreBLEU (Post 2018):

- `bleu`: cased, 13a tokenisation. This is sacreBLEU's default. Use it to compare systems.
- `bleu_multi30k`: the protocol of the Multi30K literature. Hypothesis and reference are
  lowercased, punctuation is normalised, both are Moses-tokenised (sacremoses), then scored.
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
    """(score in 0 ... 100, signature) of BLEU with the protocol of the Multi30K literature."""
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
