"""What a search asks of a model: the protocol between the two.

A model, an ensemble or a table of numbers can be searched if it can say what it knows of the
sentences before the first step, and take a step. `tfformer.search` says what each tensor is.
"""

from typing import Any, NamedTuple, Protocol

import tensorflow as tf


class State(NamedTuple):
    """What a step knows of the sentences.

    memory: what a sentence has once, tensors [B, ...]; a step only reads it.
    cache: tensors [B, ..., C, K], what was computed at each of C positions.

    Example, in which each tensor has the two sentences first:
        >>> source_ids = tf.constant([[5, 4, 3], [7, 3, 0]])
        >>> state = State(memory={"source_ids": source_ids}, cache=tf.zeros([2, 1, 7]))
        >>> tf.nest.map_structure(lambda leaf: leaf.shape[0], state)
        State(memory={'source_ids': 2}, cache=2)
    """

    memory: Any = ()
    cache: Any = ()


class StepResult(NamedTuple):
    """What a step gives back.

    logits: [B, W, V], unnormalised, of the token after `ids`.
    cache: that of the state, with what this step has written.
    attention: [B, W, S], what each hypothesis attends to; or None.

    Example, a step that remembers nothing: 5 follows 4, 8 follows 7, and so on:
        >>> def step(ids, position, visible, state):
        ...     return StepResult(logits=9.0 * tf.one_hot(ids + 1, 11), cache=state.cache)
        >>> logits = step(tf.constant([[4], [7]]), 0, None, State()).logits
        >>> logits.shape, tf.argmax(logits, axis=-1).numpy().tolist()
        (TensorShape([2, 1, 11]), [[5], [8]])
    """

    logits: tf.Tensor
    cache: Any
    attention: tf.Tensor | None = None


class Searchable(Protocol):
    """What can be searched. The searches take `step` and what `start` gives, so that a test can
    drive them with two functions."""

    def start(self, source_ids, width) -> State:
        """What is known of the sentences, source_ids [B, S], before the first step of W beams."""

    def prefill(self, prompt, width, state) -> State:
        """What is known after a prompt, int32 [B, P], padded with 0 on the left: all of it but the
        last token, in the first of W beams, with room for P positions."""

    def step(self, ids, position, visible, state) -> StepResult:
        """One position of W hypotheses a sentence, ids [B, W]."""

    def vocabulary_ids(self, ids):
        """The ids that a search has found, as ids of the vocabulary: the same, if it searches in
        those."""
