"""What happens inside a translator while it reads one text and writes its translation."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfformer.config import PAD
from tfformer.inference.fuse import fuse
from tfformer.inference.masks import behind_bos
from tfformer.inference.transformer import Inference
from tfformer.layers.watch import watched
from tfformer.search import beam_search
from training.report.pieces import by_character, characters


class Inside(NamedTuple):
    """Of one text, its translation, and a model that reads the one and writes the other.

    source, target: S and T labels, eos last: names of pieces, but a character that is several
        pieces, its bytes, is one.
    read: T labels or so of what the decoder reads, bos and the target without eos.
    attention: {"encoder": float [N, H, S, S], "decoder": [M, H, T, T], "cross": [M, H, T, S]},
        what each head of each layer attends to. A row is a query: of the decoder, what is written
        next, and a column of the decoder is one of `read`.
    pieces: the names of the P pieces of the target.
    labels: int32 [P], their ids.
    probs: float32 [P, V], the distribution that the model gives at each place of the target.
    """

    source: list
    target: list
    read: list
    attention: dict
    pieces: list
    labels: object
    probs: object


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
    source = names(tokenizer.source_pieces(source_ids))
    read = names(tokenizer.target_pieces(behind_bos(labels)))
    sides = [characters(side) for side in (source, pieces, read)]
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
        tf.nn.softmax(tf.cast(logits, tf.float32))[0].numpy(),
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


def search_tree(model, tokenizer, source, longest, beam_width, length_penalty):
    """The `Tree` of a translation.

    Args:
        model, tokenizer, source: see `look_inside`.
        longest: pieces of the translation at most, eos counted.
        beam_width, length_penalty: see `tfformer.search.beam_search`.
    """
    source_ids = tokenizer.encode_source([source]).to_tensor()
    inference = Inference(*fuse(model, max(longest, source_ids.shape[1])))
    state = inference.start(source_ids, beam_width)
    known = state, 1, longest, beam_width, length_penalty
    found = beam_search(inference.step, *known, num_results=1, keep=("steps",))
    token_ids, parents, scores = (x[0].numpy() for x in found.steps)
    pieces = tokenizer.target_pieces(tf.constant(token_ids)).numpy().tolist()
    pieces = [
        [piece.decode() if token != PAD else "" for piece, token in zip(*row, strict=True)]
        for row in zip(pieces, token_ids, strict=True)
    ]
    length = int(found.lengths[0, 0])
    best = path_of(token_ids, parents, found.token_ids[0, 0, :length].numpy())
    return Tree(pieces, parents.tolist(), scores.tolist(), best)


def path_of(token_ids, parents, wanted):
    """The beams that hypothesis `wanted`, ids [n], went through: of those that end as it does, the
    one whose pieces are the same. `token_ids` and `parents` are integers [T, W]."""
    for beam in range(token_ids.shape[1]):
        if token_ids[len(wanted) - 1, beam] != wanted[-1]:
            continue
        path = [beam]
        for step in range(len(wanted) - 1, 0, -1):
            path.insert(0, int(parents[step, path[0]]))
        if (token_ids[range(len(path)), path] == wanted).all():
            return path
    raise ValueError("the search has no such hypothesis")
