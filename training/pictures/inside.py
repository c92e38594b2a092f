"""Computes what happens inside a translator for one text: attention, probabilities, beams."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfformer.inference.masks import behind_bos
from tfformer.layers.watcher import watched

from ..report.piece_labels import by_character, characters

# The label of bos.
BEGIN = "<s>"


class Inside(NamedTuple):
    """The values inside a model that translates one text.

    source, target: S and T labels, eos last. A label is the name of a piece; if the bytes of a
        character are several pieces, they are one label.
    read: T labels that the decoder reads: bos, and the target without eos.
    attention: {"encoder": float [N, H, S, S], "decoder": [M, H, T, T], "cross": [M, H, T, S]},
        the attention of each head of each layer. A row is a query; in the decoder, that is the
        next piece to write. A column of the decoder is one of `read`.
    pieces: the names of the P pieces of the target.
    labels: int32 [P], their ids.
    log_probs: float32 [P, V], the model's log-probabilities at each position of the target.
    """

    source: list
    target: list
    read: list
    attention: dict
    pieces: list
    labels: object
    log_probs: object


def look_inside(model, tokenizer, source, target):
    """The `Inside` of a source text and its translation, in a `Transformer`."""
    source_ids = tokenizer.encode_source([source]).to_tensor()
    labels = tokenizer.encode_target([target]).to_tensor()
    with watched(model) as found:
        logits = model({"source_ids": source_ids, "target_ids": behind_bos(labels)})
    pieces = names(tokenizer.target_pieces(labels))
    sides = [characters(side) for side in (names(tokenizer.source_pieces(source_ids)), pieces)]
    # The decoder reads the labels shifted by one.
    sides.append([(BEGIN, 1), *sides[1][:-1]])
    of_sides = {"encoder": (0, 0), "decoder": (1, 2), "cross": (1, 0)}
    attention = {
        kind: merged(tf.concat(layers, axis=0).numpy(), *(sides[n] for n in of_sides[kind]))
        for kind, layers in found.items()
    }
    return Inside(
        *([label for label, _ in side] for side in sides),
        attention,
        pieces,
        labels[0].numpy(),
        tf.nn.log_softmax(tf.cast(logits, tf.float32))[0].numpy(),
    )


def merged(attention, queries, keys):
    """Converts attention [N, H, T, S] from pieces to `characters`; see `by_character`."""
    return np.array([[by_character(head, keys, queries) for head in layer] for layer in attention])


def names(pieces):
    """The names of pieces, a string tensor [1, T], as a list."""
    return [piece.decode() for piece in pieces[0].numpy().tolist()]


def places(model, count=64):
    """The vectors that a model adds to the first `count` source positions, float32 [L, D]; None if
    it adds nothing."""
    count = int(min(model.config.longest, count))
    zeros = tf.zeros([1, count, model.config.d_model], model.compute_dtype)
    table = tf.cast(model.source_positions(zeros), tf.float32)[0].numpy()
    return table if table.any() else None


class Tree(NamedTuple):
    """A beam search as a tree: W beams after each of T steps.

    pieces: [T][W], the name of the newest piece; "" if there is no new piece.
    parents: [T][W], the beam of the previous step that each beam continues; -1: none.
    scores: [T][W].
    best: the beams of the best translation, one per step, as many as it has pieces.
    """

    pieces: list
    parents: list
    scores: list
    best: list


def search_tree(translator, source):
    """The `Tree` of a text, by a `Translator` with `explain=True`.

    The search is its own, but without a shortlist or a window, which `explain` does not support.
    """
    found = translator.functions["explain"](tf.constant([source]))
    pieces, parents, scores, target = (
        found[name][0].numpy()
        for name in ("step_tokens", "step_parents", "step_scores", "target_tokens")
    )
    return Tree(
        [[piece.decode() for piece in step] for step in pieces.tolist()],
        parents.tolist(),
        scores.tolist(),
        path_of(pieces, parents, target[target != b""]),
    )


def path_of(tokens, parents, wanted):
    """The beams, one per step, of the hypothesis with the tokens `wanted`.

    `tokens` and `parents` are [T, W]. Each beam that ends with the last token is traced back and
    compared with `wanted`.
    """
    for beam in range(tokens.shape[1]):
        if tokens[len(wanted) - 1, beam] != wanted[-1]:
            continue
        path = [beam]
        for step in range(len(wanted) - 1, 0, -1):
            path.insert(0, int(parents[step, path[0]]))
        if (tokens[range(len(path)), path] == wanted).all():
            return path
    raise ValueError("the search has no such hypothesis")
