"""Finds faults in a corpus, for `training.inspect`."""

import dataclasses
import hashlib
import re
from collections import Counter
from itertools import islice

import numpy as np

from .batches import EDGES
from .reader import MAX_CHARACTERS, CorpusError, CorpusReport, clean_pairs

MAX_SUSPECTS = 1000  # maximum number of lines kept for each reason
CHUNK = 4096  # pairs processed together
SHORTEST_JUDGED = 20  # bytes: a shorter text says little about its language
FOREIGN = 0.5  # nats for each three bytes by which the other language must be more probable

# Patterns that a correct text does not contain, by the name of the fault.
FAULTS = {
    "replaced bytes": re.compile("\ufffd"),
    "UTF-8 read as Latin-1": re.compile(r"[ÃÂ][\x80-\xbf]|â€|Ã[Ÿœ]|Ã[„–]\w"),
    "control characters": re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    "markup": re.compile(r"</?[a-zA-Z][^>]{0,80}>|&(?:[a-z]{2,8}|#\d{2,5});"),
}

# What a program replaces in a text: %s, %d, %1$s, %-5.2f, %(name)s; {}, {0}, {name}, {0:.2f}. The
# position in %1$s is left out, because a translation may change the order. "100 %" is none.
PLACEHOLDER = re.compile(
    r"(?<!%)%(?:\d+\$)?((?:\(\w+\))?[-+#0]*\d*(?:\.\d+)?l{0,2}[sdifux](?!\w))|(\{[\w.]*(?:[:,!][^{}]*)?\})",
    re.ASCII,
)


class Letters:
    """The probability of each three-byte sequence in the source and in the target of a corpus."""

    BITS = 16

    def __init__(self, pairs):
        counts = np.ones((2, 2**self.BITS))
        for pair in pairs:
            for side, text in enumerate(pair[:2]):
                np.add.at(counts[side], self._places(text), 1)
        probabilities = counts / counts.sum(axis=1, keepdims=True)
        self.odds = np.log(probabilities[1]) - np.log(probabilities[0])

    def towards_target(self, text):
        """The mean log-odds that a text is in the target language; 0 for a short text."""
        places = self._places(text)
        return float(self.odds[places].mean()) if len(places) >= SHORTEST_JUDGED - 2 else 0.0

    def _places(self, text):
        data = np.frombuffer(text.lower().encode(errors="replace"), np.uint8).astype(np.uint32)
        mixed = (data[:-2] << 16 | data[1:-1] << 8 | data[2:]) * np.uint32(2654435769)
        return mixed >> np.uint32(32 - self.BITS)


@dataclasses.dataclass
class Findings:
    """The findings in a corpus.

    Attributes:
        suspects: [(line, reason, source, target)].
        characters, tokens: int32 [N, 2], the lengths of source and target of each pair.
        bytes, unknown: the number of source and target tokens that are single bytes, and unknown.
        overlap: {corpus: {"source" or "pair": number of its pairs that are also in this one}}.
    """

    counts: Counter
    suspects: list
    characters: np.ndarray
    tokens: np.ndarray
    bytes: np.ndarray
    unknown: np.ndarray
    overlap: dict

    def lengths(self):
        """{"characters", "tokens": {side: {mean and quantiles}}}."""
        names = {0.5: "median", 0.95: "95 %", 0.99: "99 %", 1.0: "longest"}

        def summary(column):
            quantiles = {name: float(np.quantile(column, q)) for q, name in names.items()}
            return {"mean": float(column.mean()), **quantiles}

        sides = ("source", "target")
        return {
            kind: {side: summary(values[:, n]) for n, side in enumerate(sides)}
            for kind, values in (("characters", self.characters), ("tokens", self.tokens))
        }

    def padding(self):
        """For each bucket of `training.data.batches`: [edge, pairs, share of padding]."""
        buckets = np.searchsorted(EDGES, self.tokens.max(axis=1))
        rows = []
        for bucket, edge in enumerate(EDGES):
            inside = self.tokens[buckets == bucket]
            if len(inside):
                rows.append([edge, len(inside), 1 - inside.sum() / (2 * edge * len(inside))])
        return rows


def inspect(pairs, tokenizer, letters, others=None, say=lambda count: None):
    """The `Findings` of an iterable of pairs, which is iterated once.

    `letters` are the `Letters` of the corpus, `others` {name: pairs} of the validation and test
    corpora. `say` is called from time to time with the number of pairs.
    """
    import tensorflow as tf

    counts, suspects, reasons = Counter(), [], Counter()
    characters, tokens = [], []
    single, unknown = np.zeros(2, "int64"), np.zeros(2, "int64")
    sources, whole = [], []
    byte_ids = tokenizer.source.byte_ids, tokenizer.target.byte_ids

    def suspect(line, reason, pair):
        counts[reason] += 1
        if reasons[reason] < MAX_SUSPECTS:
            reasons[reason] += 1
            suspects.append((line, reason, pair.source, pair.target))

    numbered, line = iter(pairs), 0
    while chunk := list(islice(numbered, CHUNK)):
        for pair in chunk:
            line += 1
            counts["pairs"] += 1
            for reason in reasons_of(pair, letters):
                suspect(line, reason, pair)
        characters.append(np.array([[len(p.source), len(p.target)] for p in chunk], "int32"))
        sizes = np.zeros((len(chunk), 2), "int32")
        for side, encode in enumerate((tokenizer.encode_source, tokenizer.encode_target)):
            ids = encode(tf.constant([pair[side][:MAX_CHARACTERS] for pair in chunk]))
            sizes[:, side] = ids.row_lengths().numpy()
            single[side] += int(np.sum(np.isin(ids.flat_values, byte_ids[side])))
            unknown[side] += int(np.sum(ids.flat_values == 1))
        tokens.append(sizes)
        sources.append(hashes(pair.source for pair in chunk))
        whole.append(hashes(f"{pair.source}\t{pair.target}" for pair in chunk))
        say(line)
    if not line:
        raise CorpusError("there is no pair")
    sources, whole = np.concatenate(sources), np.concatenate(whole)
    counts["occur before"] = line - len(np.unique(whole))
    counts["other translation of a source"] = len(np.unique(whole)) - len(np.unique(sources))
    overlap = {}
    for name, other in (others or {}).items():
        other = list(other)
        inside = np.isin(hashes(pair.source for pair in other), sources)
        both = np.isin(hashes(f"{pair.source}\t{pair.target}" for pair in other), whole)
        overlap[name] = {"pairs": len(other), "source": int(inside.sum()), "pair": int(both.sum())}
    return Findings(
        counts, suspects, np.concatenate(characters), np.concatenate(tokens), single, unknown,
        overlap,
    )  # fmt: skip


def reasons_of(pair, letters):
    """Yields the reasons why a pair is suspect; usually none."""
    report = CorpusReport()
    if not list(clean_pairs([pair], report)):
        yield "blank" if report.blank else "too long" if report.too_long else "length ratio"
        if report.blank:
            return
    if pair.source.strip() == pair.target.strip():
        yield "source = target"
    for reason, fault in FAULTS.items():
        if fault.search(pair.source) or fault.search(pair.target):
            yield reason
    if placeholders(pair.source) != placeholders(pair.target):
        yield "placeholders differ"
    if letters.towards_target(pair.source) > FOREIGN:
        yield "source looks like the target's language"
    if letters.towards_target(pair.target) < -FOREIGN:
        yield "target looks like the source's language"


def placeholders(text):
    """The placeholders of a text, sorted: "%2$s: {name}" has "s" and "{name}"."""
    return sorted(one or other for one, other in PLACEHOLDER.findall(text))


def hashes(texts):
    """A 64-bit hash of each text, in lower case and with single spaces."""
    digests = [
        hashlib.blake2b(" ".join(text.lower().split()).encode(errors="replace"), digest_size=8)
        for text in texts
    ]
    return np.frombuffer(b"".join(digest.digest() for digest in digests), np.uint64)


def suggestions(findings):
    """Yields a sentence with advice for each finding."""
    counts, total = findings.counts, findings.counts["pairs"]

    def share(reason):
        return f"{counts[reason]:,} pairs ({100 * counts[reason] / total:.1f} %)"

    for name, found in findings.overlap.items():
        if found["source"]:
            yield (
                f"{found['source']:,} of {found['pairs']:,} sources of {name} are in the training "
                f"corpus: take them out there, or the score of {name} will be too good."
            )
    dropped = [name for name in ("blank", "too long", "length ratio") if counts[name]]
    if dropped:
        parts = ", ".join(f"{share(name)} {name}" for name in dropped)
        yield f"Training drops by itself: {parts}."
    if counts["occur before"] > total / 100:
        yield f"{share('occur before')} occur before: remove them (--clean), or they weigh twice."
    if counts["source = target"] > total / 100:
        yield f"{share('source = target')} have source = target: a model learns to copy from them."
    for reason in FAULTS:
        if counts[reason]:
            yield f"{share(reason)} with {reason}: mend or remove them (suspects.tsv in --out)."
    if counts["placeholders differ"]:
        yield f"{share('placeholders differ')} whose placeholders, such as %s or {{name}}, differ."
    for side in ("source looks like the target's", "target looks like the source's"):
        if counts[f"{side} language"]:
            yield f"{share(f'{side} language')}: the {side} language: see suspects.tsv in --out."
    longest = findings.lengths()["tokens"]
    maximum = max(side["99 %"] for side in longest.values())
    edge = next((edge for edge in EDGES if edge >= maximum), None)
    if edge:
        yield f"99 % of the texts have at most {maximum:.0f} tokens: --max-tokens {edge} keeps all."
    else:
        yield (
            f"More than 1 % of the texts have over {EDGES[-1]:,} tokens, and training drops them: "
            "cut them into parts."
        )
    if slots := sum(pairs * 2 * edge for edge, pairs, _ in findings.padding()):
        waste = sum(pairs * 2 * edge * pad for edge, pairs, pad in findings.padding())
        yield f"{100 * waste / slots:.0f} % of a batch's tokens are padding."
    tokens = findings.tokens.sum(axis=0)
    for side, n in (("source", 0), ("target", 1)):
        if findings.bytes[n] > tokens[n] / 100:
            yield (
                f"{100 * findings.bytes[n] / tokens[n]:.1f} % of the {side} tokens are single "
                f"bytes: a larger vocabulary, or more text to learn it from, knows more characters."
            )
