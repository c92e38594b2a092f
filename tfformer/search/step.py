"""The interface between a search and a model.

A search can run over a model, an ensemble or a table of numbers. It only needs a state of the
sentences before the first step, and a step function. `tfformer.search` describes each tensor.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import tensorflow as tf

from tfformer.annotations import Tensor


class State(NamedTuple):
    """The input of a search step besides the ids: the memory of the sentences, and the cache.

    memory: computed once for each sentence, tensors [B, ...]; a step only reads it.
    cache: tensors [B, ..., C, K], computed at each of C positions.

    Example, in which the first axis of each tensor is that of two sentences:
        >>> source_ids = tf.constant([[5, 4, 3], [7, 3, 0]])
        >>> state = State(memory={"source_ids": source_ids}, cache=tf.zeros([2, 1, 7]))
        >>> tf.nest.map_structure(lambda leaf: leaf.shape[0], state)
        State(memory={'source_ids': 2}, cache=2)
    """

    memory: Any = ()
    cache: Any = ()


class StepResult(NamedTuple):
    """The result of a search step: logits, the cache, and attention weights.

    logits: [B, W, V], unnormalised, of the token after `ids`.
    cache: that of the state, with the values written by this step.
    attention: [B, W, S], the attention weights of each hypothesis; or None.

    Example, a step without a memory: 5 follows 4, 8 follows 7, and so on:
        >>> def step(ids, position, visible, state):
        ...     return StepResult(logits=9.0 * tf.one_hot(ids + 1, 11), cache=state.cache)
        >>> logits = step(tf.constant([[4], [7]]), 0, None, State()).logits
        >>> logits.shape, tf.argmax(logits, axis=-1).numpy().tolist()
        (TensorShape([2, 1, 11]), [[5], [8]])
    """

    logits: tf.Tensor
    cache: Any
    attention: tf.Tensor | None = None


# A function of ids, position, visible and state, see `tfformer.search`.
StepFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor, State], StepResult]


class Searchable(Protocol):
    """A model that can be searched. A search takes `step` and the result of `start`, so a test can
    replace them by two functions."""

    def start(self, source_ids: Tensor, width: int | Tensor) -> State:
        """The state of the sentences, source_ids [B, S], before the first step of W beams."""

    def prefill(self, prompt: Tensor, width: int | Tensor, state: State | None) -> State:
        """The state after a prompt, int32 [B, P], padded with 0 on the left. It has P positions and
        contains all tokens but the last, in the first of W beams."""

    def step(self, ids: Tensor, position: Tensor, visible: Tensor, state: State) -> StepResult:
        """Run one position of W hypotheses for each sentence, ids [B, W]."""

    def vocabulary_ids(self, ids: Tensor) -> Tensor:
        """Convert ids from a search to ids of the vocabulary; without a change if they are the
        same."""
