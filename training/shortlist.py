"""Learns which target pieces a source piece may become: `tfformer shortlist RUN`.

    tfformer shortlist runs/mine --source train.en --target train.de --out mine.npz
    tfformer export runs/mine exported/mine --shortlist mine.npz

With a shortlist, an exported model computes at each step only the logits of the source's
candidates and of frequent pieces. This is faster if the vocabulary is large. The probabilities
t(target piece | source piece) are those of IBM model 1 (Brown et al. 1993), with the pieces of the
run's tokenizer. Each source piece keeps its most likely target pieces, and itself if the target
vocabulary has it. Every 50th pair is held out; the command prints how many of the target tokens in
these pairs are candidates of their source.

Memory: 4 bytes for each combination of a source and a target token in a pair, and about 60 bytes
for each two pieces that occur together. Multi30K's 29,000 pairs need 0.3 GiB more than TensorFlow
alone, and 12 seconds. The first 1,000,000 pairs are used.

Exit codes: 0 written; 1 an error of the run, the corpus or the disk: nothing is written; 2 wrong
usage; 130 or 143 interrupted.
"""

import functools
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfformer.terminal.command import Number, Parser, main_of

CANDIDATES, FREQUENT = 100, 1000
MAX_PAIRS = 1_000_000
ITERATIONS = 5
HELD_OUT = 50  # one pair of so many
CHUNK = 1024  # pairs whose links are unpacked at once


def parser():
    """The command's arguments."""
    parser = Parser("training.shortlist", __doc__, reads=["run"], files=["source", "target"])
    parser.add_argument("run", type=Path, help="the run directory, whose tokenizer is used")
    parser.add_argument("--source", type=Path, required=True, help="a text file, or a TSV alone")
    parser.add_argument("--target", type=Path, help="its translation, line by line")
    pieces = Number(int, 1, 10_000, rule="be in [1, 10000]")
    parser.add_argument(
        "--candidates", type=pieces, default=CANDIDATES, metavar="N",
        help=f"maximum target pieces for each source piece; default {CANDIDATES}",
    )  # fmt: skip
    parser.add_argument(
        "--frequent", type=pieces, default=FREQUENT, metavar="M",
        help=f"number of most frequent target pieces, allowed for every source; default {FREQUENT}",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="the .npz file")
    return parser


class Tokens(NamedTuple):
    """The pairs of a corpus as ids without eos, a list of int32 arrays for each side."""

    source: list[np.ndarray]
    target: list[np.ndarray]


class Coverage(NamedTuple):
    """How well a shortlist fits some pairs: the share of target tokens that are candidates of their
    source, the number of target tokens, and the mean number of candidates."""

    covered: float
    tokens: int
    size: float


def tokenise(pairs, tokenizer):
    """The `Tokens` of an iterable of pairs."""
    import tensorflow as tf

    pairs, tokens = iter(pairs), Tokens([], [])
    while chunk := list(itertools.islice(pairs, CHUNK)):
        sources = tokenizer.encode_source(tf.constant([pair.source for pair in chunk]))
        targets = tokenizer.encode_target(tf.constant([pair.target for pair in chunk]))
        for side, ragged in zip(tokens, (sources, targets), strict=True):
            ends = ragged.row_limits().numpy()
            side += [ids[:-1] for ids in np.split(ragged.values.numpy(), ends)[:-1]]
    return tokens


def translation_probabilities(tokens, iterations=ITERATIONS):
    """IBM model 1, by expectation and maximisation (Brown et al. 1993, section 4.1).

    P(y | x) is proportional to prod_j sum_i t(y_j | x_i), where x_0 is the null word, with id 0.
    All t have the same initial value; no other initial values lead to a better result.

    Returns:
        source, target, t: int32, int32 and float64 [U], the pieces that occur together in a pair,
        ascending by source and then by target, and t(target | source).
    """
    size = 1 + max((int(ids.max()) for ids in tokens.target if len(ids)), default=0)
    chunks, lengths = [], []
    for first in range(0, len(tokens.source), CHUNK):
        part = [side[first : first + CHUNK] for side in tokens]
        keys, counts = _links(*part, size)
        keys, own = np.unique(keys, return_inverse=True)
        chunks.append((keys, own.astype("int32")))
        lengths.append(counts)
    # Each link as the index of its two pieces among all that occur together.
    met = np.unique(np.concatenate([np.zeros(0, "int64"), *(keys for keys, _ in chunks)]))
    chunks = [np.searchsorted(met, keys).astype("int32")[own] for keys, own in chunks]
    source, target = (part.astype("int32") for part in np.divmod(met, size))
    t = np.ones(len(met))
    for _ in range(iterations):
        expected = np.zeros(len(met))
        for links, counts in zip(chunks, lengths, strict=True):
            shares = t[links]
            totals = np.add.reduceat(shares, np.cumsum(counts) - counts)
            np.add.at(expected, links, shares / np.repeat(totals, counts))
        t = expected / np.bincount(source, expected)[source]
    return source, target, t


def _links(sources, targets, size):
    """Links each target token with each source token of its pair, the null word first.

    Returns source * size + target, int64 [links], and the number of links of each target token,
    int64 [target tokens].
    """
    keys, counts = [np.zeros(0, "int64")], [np.zeros(0, "int64")]
    for source, target in zip(sources, targets, strict=True):
        source = np.concatenate([[0], source]).astype("int64")
        keys.append((target[:, None] + size * source).ravel())
        counts.append(np.full(len(target), len(source)))
    return np.concatenate(keys), np.concatenate(counts)


def learn(tokens, tokenizer, candidates=CANDIDATES, frequent=FREQUENT):
    """Learns the `Shortlist` from `Tokens`.

    Each source piece has at most `candidates` target pieces: the most likely ones, and always the
    same piece if the target vocabulary has it, since names and numbers are copied. Every sentence
    may use the `frequent` most frequent target pieces, the special pieces and the bytes. So every
    text can still be written.
    """
    from tfformer.shortlist import Shortlist

    source, target, t = translation_probabilities(tokens)
    order = np.lexsort((target, -t, source))
    source, target = source[order], target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    kept = (rank < candidates) & (source > 0)
    sizes = tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size
    table = np.zeros((sizes[0], candidates), "int32")
    table[source[kept], rank[kept]] = target[kept]

    same, special = _same_pieces(tokenizer)
    missing = np.flatnonzero((same > 0) & ~(table == same[:, None]).any(axis=1))
    free = np.minimum((table[missing] > 0).sum(axis=1), candidates - 1)
    table[missing, free] = same[missing]

    counts = np.bincount(np.concatenate([[0], *tokens.target]), minlength=sizes[1])
    counts[special] = 0
    often = np.argsort(-counts, kind="stable")[:frequent]
    always = np.union1d(special, often[counts[often] > 0])
    return Shortlist(table, always, tokenizer.sha256)


def _same_pieces(tokenizer):
    """(for each source piece, the id of the same target piece or 0; the ids of the target's special
    pieces and bytes)."""
    from tfformer.config import EOS

    pieces = tokenizer.target.pieces
    special = [*range(EOS + 1), *tokenizer.target.byte_ids]
    ids = {piece: n for n, piece in enumerate(pieces)}
    for n in special:
        del ids[pieces[n]]
    same = [ids.get(piece, 0) for piece in tokenizer.source.pieces]
    return np.array(same), np.array(special)


def coverage(shortlist, tokens):
    """The `Coverage` of the pairs of `Tokens`. The sources end with eos."""
    from tfformer.config import EOS

    covered = total = size = 0
    for source, target in zip(*tokens, strict=True):
        allowed = shortlist.allowed([*source, EOS])
        covered += int(np.isin(target, allowed).sum())
        total += len(target)
        size += len(allowed)
    return Coverage(covered / max(total, 1), total, size / max(len(tokens.source), 1))


def split(tokens):
    """(the `Tokens` to learn from, those of every 50th pair, held out). If there are fewer pairs,
    all are in both."""
    learned = Tokens(*([ids for n, ids in enumerate(s) if (n + 1) % HELD_OUT] for s in tokens))
    held_out = Tokens(*(side[HELD_OUT - 1 :: HELD_OUT] for side in tokens))
    return learned, held_out if held_out.source else learned


def _run(command, arguments):
    try:
        return _learn(command, arguments)
    except (ValueError, OSError) as error:
        return command.fail(error)


def _learn(command, arguments):
    if not arguments.out.parent.is_dir():
        raise OSError(f"--out must be in a folder that exists, got {arguments.out}")

    from tfformer.models import ENCODER_DECODER
    from tfformer.run import load_tokenizer, read_config, require_family

    from .data.reader import CorpusReport, clean_pairs, read_pairs

    progress = functools.partial(print, file=sys.stderr)
    require_family(arguments.run, read_config(arguments.run), ENCODER_DECODER)
    tokenizer, report = load_tokenizer(arguments.run), CorpusReport()
    progress("reading the corpus ...")
    pairs = clean_pairs(read_pairs(arguments.source, arguments.target, report=report), report)
    tokens = tokenise(itertools.islice(pairs, MAX_PAIRS), tokenizer)
    report.require_some(" and ".join(str(f) for f in (arguments.source, arguments.target) if f))
    learned, held_out = split(tokens)
    progress(f"{report}; learning from {len(learned.source):,} ...")
    shortlist = learn(learned, tokenizer, arguments.candidates, arguments.frequent)
    shortlist.save(arguments.out)
    found = coverage(shortlist, held_out)
    with command.remarks():
        print(
            f"{arguments.out}: {shortlist.describe()}\n"
            f"{len(held_out.source):,} pairs held out: {found.covered:.2%} of {found.tokens:,} "
            "target tokens are candidates of their source; a source has "
            f"{found.size:,.0f} candidates on average"
        )
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
