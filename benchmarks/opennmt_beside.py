"""Compares a run with the OpenNMT-tf model that it was imported from, on the same lines.

    PYTHON tests/support/opennmt_original.py answer FOLDER < lines.txt > answers.json
    python benchmarks/opennmt_beside.py RUN answers.json lines.txt

If --length-penalty is not 0, both use it. It prints how many lines have the same number of ids, the
same greedy translation and the same beam translation, and the differences of the scores of equal
translations. For each line that differs, it prints both translations, their scores, and whether the
original's rules of beam search, over the run's log-probabilities, find the original's result.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfformer
from tfformer.config import BOS, EOS, PAD

LONGEST = 100  # maximum number of tokens without eos, as in opennmt_original.py


def main():
    parser = argparse.ArgumentParser()
    for name in ("run", "answers", "lines"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--length-penalty", type=float, default=0.0)
    options = parser.parse_args()
    lines = options.lines.read_text().splitlines()
    theirs = json.loads(options.answers.read_text())
    penalty = options.length_penalty
    limits = {"max_target_length": LONGEST + 1, "beam_width": 4, "length_penalty": penalty}
    translator = tfformer.load_translator(options.run, **limits)
    lengths = [len(ids) for ids in translator.tokenizer.encode_source(lines).to_list()]
    print("lines", len(lines))
    print("as many ids", sum(map(int.__eq__, lengths, theirs["lengths"])))
    print(
        "greedy alike", sum(map(alike, translator.translate(lines, greedy=True), theirs["greedy"]))
    )
    texts, log_probs = searched(translator, lines)
    same = np.array(list(map(alike, texts, theirs["beam"])))
    close = same & (np.abs(np.subtract(log_probs, theirs["scores"])) <= 1e-3)
    print("beam alike", same.sum(), "of the same score to 1e-3", close.sum())
    own = np.abs(np.subtract(theirs["scores"], theirs["log_probs"])) > 1e-3
    print("scores of theirs that are not what their own model gives the text", own.sum())
    explained = 0
    for n in np.flatnonzero(~close):
        found, score = by_their_rules(translator, lines[n], penalty)
        as_there = alike(found, theirs["beam"][n]) and abs(score - theirs["scores"][n]) < 1e-3
        explained += as_there
        print(f"\nline {n + 1}: {lines[n]}\n  their rules find it here: {as_there}")
        print(f"  ours {log_probs[n]:.5f}: {texts[n]}")
        print(f"  theirs {theirs['scores'][n]:.5f}, by their model {theirs['log_probs'][n]:.5f}: ")
        print(f"    {theirs['beam'][n]}")
    print(f"\nexplained by the rules {explained} of {(~close).sum()}")


def alike(one, other):
    """Whether two texts are the same except unknown words, which a run does not write."""
    return one.split() == other.replace("⁇", " ").split()


def searched(translator, lines, batch_size=32):
    """The translations by the run's own beam search, and their log-probabilities."""
    texts, log_probs = [], []
    for n in range(0, len(lines), batch_size):
        found = translator.functions["beam_search"](tf.constant(lines[n : n + batch_size]))
        texts += [text.decode() for text in found["translations"].numpy()[:, 0]]
        log_probs += found["token_log_probs"].numpy()[:, 0].sum(axis=-1).tolist()
    return texts, log_probs


def by_their_rules(translator, line, penalty):
    """The translation by OpenNMT-tf's rules of beam search, and its score there.

    Three rules are unusual. A finished hypothesis may move in the beam, but its log-probability
    does not move with it: it gets the one of the hypothesis that was there before. A finished
    hypothesis of n tokens is compared with length n + 1. The returned score is not divided by the
    penalty that decided the choice.
    """
    model, width = translator.model, translator.beam_width
    memory = model.encode(translator.tokenizer.encode_source([line]).to_tensor())
    memory = np.repeat(memory, width, axis=0)
    rows, finished = [(BOS,)] * width, np.zeros(width, bool)
    totals, lengths = np.array([0.0] + [-np.inf] * (width - 1)), np.zeros(width, int)
    for step in range(LONGEST):
        prefixes = np.array([ids + (EOS,) * (step + 1 - len(ids)) for ids in rows])
        logits = model.decode(prefixes, memory)[:, -1]
        log_probs = tf.nn.log_softmax(logits).numpy()
        log_probs[:, [PAD, BOS]] = -np.inf
        only_eos = np.where(np.arange(log_probs.shape[1]) == EOS, 0.0, -np.inf)
        log_probs = np.where(finished[:, None], only_eos, log_probs)
        found = log_probs + totals[:, None]
        scores = found / ((5.0 + lengths[:, None] + 1) / 6.0) ** penalty
        best = np.argsort(-scores, axis=None, kind="stable")[:width]
        beams, tokens = np.unravel_index(best, scores.shape)
        lengths = np.where(finished, lengths, lengths + 1)[beams]
        rows = [
            rows[b] if finished[b] else (*rows[b], int(t))
            for b, t in zip(beams, tokens, strict=True)
        ]
        finished = finished[beams]
        totals = np.where(finished, totals, found[beams, tokens])
        finished = finished | (tokens == EOS)
        if finished.all():
            break
    text = translator.tokenizer.decode(tf.constant([rows[0]], tf.int32)).numpy()[0]
    return text.decode(), totals[0]


if __name__ == "__main__":
    main()
