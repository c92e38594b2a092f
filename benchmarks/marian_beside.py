"""Compares a run with the Marian model that it was imported from, on the same lines.

    PYTHON tests/support/marian_original.py answer FOLDER < lines.txt > answers.json
    python benchmarks/marian_beside.py RUN answers.json lines.txt

It prints how many lines have the same number of ids, the same greedy translation and the same beam
translation, and the differences of the scores of equal translations. For each line that differs, it
prints both translations, their scores, and whether the original's rules of beam search, over the
run's log-probabilities, find the original's result.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfformer
from tfformer.config import BOS, EOS, PAD


def main():
    parser = argparse.ArgumentParser()
    for name in ("run", "answers", "lines"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    lines = options.lines.read_text().splitlines()
    theirs = json.loads(options.answers.read_text())
    translator = tfformer.load_translator(options.run)
    lengths = [len(ids) for ids in translator.tokenizer.encode_source(lines).to_list()]
    print("lines", len(lines))
    print("as many ids", sum(map(equal, lengths, map(len, theirs["source_ids"]))))
    greedy = [text.strip() for text in translator.translate(lines, greedy=True)]
    print("greedy alike", sum(map(equal, greedy, theirs["greedy"])))
    beam, scores = searched(translator, lines)
    alike = [a == b for a, b in zip(beam, theirs["beam"], strict=True)]
    apart = np.abs(np.subtract(scores, theirs["scores"]))
    close = np.array(alike) & (apart <= 1e-3)
    print("beam alike", sum(alike), "of the same score to 1e-3", close.sum())
    print(f"these scores apart by at most {apart[close].max():.1e}")
    explained = 0
    for n in np.flatnonzero(~close):
        found, score = by_their_rules(translator, lines[n])
        same = found == theirs["beam"][n] and abs(score - theirs["scores"][n]) < 1e-3
        explained += same
        print(f"\nline {n + 1}: {lines[n]}\n  their rules find it here: {same}")
        print(f"  ours {scores[n]:.5f}: {beam[n]}\n  theirs {theirs['scores'][n]:.5f}: ", end="")
        print(theirs["beam"][n])
    print(f"\nexplained by the rules {explained} of {(~close).sum()}")


def equal(one, other):
    return one == other


def searched(translator, lines, batch_size=32):
    """The translations by the run's own beam search, and their scores."""
    texts, scores = [], []
    for n in range(0, len(lines), batch_size):
        found = translator.functions["serving_default"](tf.constant(lines[n : n + batch_size]))
        texts += [text.decode().strip() for text in found["translation"].numpy()]
        scores += found["score"].numpy().tolist()
    return texts, scores


def by_their_rules(translator, line):
    """The translation by transformers' rules of beam search, and its score.

    Finished hypotheses leave the beam, and others take their places. The W best finished ones are
    kept. The search ends when no open hypothesis has a better score than the worst of these, or at
    the limit, where eos costs nothing.
    """
    model, width, limit = translator.model, translator.beam_width, translator.max_target_length
    memory = model.encode(translator.tokenizer.encode_source([line]).to_tensor())
    running, finished = [((BOS,), 0.0)], []
    for length in range(1, limit + 1):
        prefixes = np.array([ids for ids, _ in running])
        logits = model.decode(prefixes, np.repeat(memory, len(running), axis=0))[:, -1]
        log_probs = tf.nn.log_softmax(logits).numpy()
        log_probs[:, [PAD, BOS]] = -np.inf
        if length == limit:
            log_probs = np.where(np.arange(log_probs.shape[1]) == EOS, 0.0, -np.inf)[None]
            log_probs = np.repeat(log_probs, len(running), axis=0)
        totals = log_probs + np.array([total for _, total in running])[:, None]
        best = np.argsort(-totals, axis=None)[: 2 * width]
        rows, tokens = np.unravel_index(best, totals.shape)
        found = [
            ((*running[r][0], int(t)), totals[r, t]) for r, t in zip(rows, tokens, strict=True)
        ]
        ended = [(ids, total) for ids, total in found[:width] if ids[-1] == EOS]
        finished += [(ids, total / length**translator.length_penalty) for ids, total in ended]
        finished = sorted(finished, key=lambda one: -one[1])[:width]
        running = [one for one in found if one[0][-1] != EOS][:width]
        hope = running[0][1] / length**translator.length_penalty
        if len(finished) == width and hope <= finished[-1][1]:
            break
    ids, score = finished[0]
    text = translator.tokenizer.decode(tf.constant([ids], tf.int32)).numpy()[0]
    return text.decode().strip(), score


if __name__ == "__main__":
    main()
