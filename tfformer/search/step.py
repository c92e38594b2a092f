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
    """

    memory: Any = ()
    cache: Any = ()


class StepResult(NamedTuple):
    """What a step gives back.

    logits: [B, W, V], unnormalised, of the token after `ids`.
    cache: that of the state, with what this step has written.
    attention: [B, W, S], what each hypothesis attends to; or None.
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
