"""Corpus scores of translations, each with a signature that describes the protocol.

On the same output, BLEU differs by more than a point between protocols. So a score needs its
protocol. There are two, both computed by sacreBLEU (Post 2018):

- `bleu`: cased, 13a tokenisation. This is sacreBLEU's default. Use it to compare systems.
- `bleu_multi30k`: the protocol of the Multi30K literature. Hypothesis and reference are
  lowercased, punctuation is normalised, both are Moses-tokenised (sacremoses), then scored.
"""

from sacrebleu.metrics import BLEU, CHRF
from sacremoses import MosesPunctNormalizer, MosesTokenizer


def bleu(hypotheses, references):
    """(score in 0 ... 100, signature) of BLEU, cased, 13a."""
    return _scored(BLEU(), hypotheses, references)


def chrf(hypotheses, references):
    """(score in 0 ... 100, signature) of chrF2 (Popovic 2015)."""
    return _scored(CHRF(), hypotheses, references)


def bleu_multi30k(hypotheses, references, language="de"):
    """(score in 0 ... 100, signature) of BLEU with the protocol of the Multi30K literature."""
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)

    def moses(text):
        return tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True, escape=False)

    metric = BLEU(tokenize="none", force=True)
    score, signature = _scored(metric, map(moses, hypotheses), map(moses, references))
    return score, f"lowercase+moses:{language}|{signature}"


def _scored(metric, hypotheses, references):
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return score, str(metric.get_signature())
