"""What happens inside a translator while it reads one text and writes its translation."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfformer.inference.masks import behind_bos
from tfformer.layers.watch import watched
from training.report.pieces import by_character, characters

# What stands for bos.
BEGIN = "<s>"


class Inside(NamedTuple):
    """Of one text, its translation, and a model that reads the one and writes the other.

    source, target: S and T labels, eos last: names of pieces, but a character that is several
        pieces, its bytes, is one.
    read: T labels of what the decoder reads, bos and the target without eos.
    attention: {"encoder": float [N, H, S, S], "decoder": [M, H, T, T], "cross": [M, H, T, S]},
        what each head of each layer attends to. A row is a query: of the decoder, what is written
        next, and a column of the decoder is one of `read`.
    pieces: the names of the P pieces of the target.
    labels: int32 [P], their ids.
    log_probs: float32 [P, V], what the model says at each place of the target.
    """

    source: list
    target: list
    read: list
    attention: dict
    pieces: list
    labels: object
    log_probs: object


def look_inside(model, tokenizer, source, target):
    """The `Inside` of two texts.

    Args:
        model: a `Transformer`.
        tokenizer: its `Tokenizer`.
        source, target: strings.
    """
    source_ids = tokenizer.encode_source([source]).to_tensor()
    labels = tokenizer.encode_target([target]).to_tensor()
    with watched(model) as found:
        logits = model({"source_ids": source_ids, "target_ids": behind_bos(labels)})
    pieces = names(tokenizer.target_pieces(labels))
    sides = [characters(side) for side in (names(tokenizer.source_pieces(source_ids)), pieces)]
    # Before each label stands the one before it.
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
    """Attention [N, H, T, S] between pieces, as that between `characters`; see `by_character`."""
    return np.array([[by_character(head, keys, queries) for head in layer] for layer in attention])


def names(pieces):
    """The names of pieces, strings [1, T], as a list."""
    return [piece.decode() for piece in pieces[0].numpy().tolist()]


def places(model, count=64):
    """What a model adds to the first so many places of its source, float32 [L, D]; None if it adds
    nothing."""
    count = int(min(model.config.longest, count))
    zeros = tf.zeros([1, count, model.config.d_model], model.compute_dtype)
    table = tf.cast(model.source_positions(zeros), tf.float32)[0].numpy()
    return table if table.any() else None


class Tree(NamedTuple):
    """A beam search as a tree: W beams after each of T steps.

    pieces: [T][W], the name of the newest piece; "" where nothing is new.
    parents: [T][W], the beam of the step before that each goes on; -1: none.
    scores: [T][W].
    best: the beams that the best translation went through, one a step, as many as it has pieces.
    """

    pieces: list
    parents: list
    scores: list
    best: list


def search_tree(translator, source):
    """The `Tree` of a text, by a `Translator` that was made with `explain=True` and as it searches:
    but for a shortlist or a window, which `explain` does not know."""
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
    """The beams that the hypothesis of these n tokens went through: of those that end as it does,
    the one whose tokens are the same. `tokens` and `parents` are [T, W]."""
    for beam in range(tokens.shape[1]):
        if tokens[len(wanted) - 1, beam] != wanted[-1]:
            continue
        path = [beam]
        for step in range(len(wanted) - 1, 0, -1):
            path.insert(0, int(parents[step, path[0]]))
        if (tokens[range(len(path)), path] == wanted).all():
            return path
    raise ValueError("the search has no such hypothesis")
