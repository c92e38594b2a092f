"""The ids of pad, unk, bos and eos: those of a model, and those of a search."""

import numbers
from typing import NamedTuple

import tensorflow as tf

from tfformer.annotations import Tensor
from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.search.hypotheses import IMPOSSIBLE


class SpecialIds(NamedTuple):
    """The ids of the special tokens in a model's vocabulary. Two tokens may share an id.

    A search uses 0, 1, 2 and 3 for them. For a model with other ids, the ids are renumbered: 0 to 3
    are these four, and 4 + n is the model's id n. Probabilities do not change.

    pad: fills the end of shorter sequences. None: there is no such id.
    unk: stands for text outside the vocabulary. None: there is no such id.
    bos: begins a sequence without a prompt. None: a prompt is required.
    eos: ends a sequence.

    Example, the ids of GPT-2, which has one id for bos and eos, and no others:
        >>> special_ids = SpecialIds(pad=None, unk=None, bos=50256, eos=50256)
        >>> special_ids.to_search(tf.constant([11, 50256])).numpy().tolist()
        [15, 3]
        >>> special_ids.to_model(tf.constant([15, 3])).numpy().tolist()
        [11, 50256]
    """

    pad: int | None = PAD
    unk: int | None = UNK
    bos: int | None = BOS
    eos: int = EOS

    def check(self) -> None:
        """Refuses invalid ids.

        Raises:
            ValueError: an id is negative or not an integer, or eos is None.
        """
        for name, value in self._asdict().items():
            if value is None and name != "eos":
                continue
            if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} of special_ids must be an id, at least 0, got {value!r}")

    @property
    def padding(self) -> int | None:
        """The id that means only padding, or None."""
        return None if self.pad in (self.unk, self.bos, self.eos) else self.pad

    @property
    def _ours(self):
        """{a model's id: that of a search}. A shared id becomes the first of eos, unk, bos, pad."""
        named = ((self.pad, PAD), (self.bos, BOS), (self.unk, UNK), (self.eos, EOS))
        return {own: ours for own, ours in named if own is not None}

    @property
    def _renumbers(self):
        return self != SpecialIds()

    def to_search(self, ids: Tensor) -> Tensor:
        """Convert ids of the model to ids of a search: int32, of the same shape."""
        if not self._renumbers:
            return ids
        renumbered = ids + len(self)
        for own, ours in self._ours.items():
            renumbered = tf.where(ids == own, ours, renumbered)
        return renumbered

    def to_model(self, ids: Tensor) -> Tensor:
        """Convert ids of a search to ids of the model: int32, of the same shape. eos replaces a
        special id that the model does not have."""
        if not self._renumbers:
            return ids
        own = tf.constant([self.eos if own is None else own for own in self])
        return tf.where(ids < len(self), tf.gather(own, tf.minimum(ids, 3)), ids - len(self))

    def logits_to_search(self, logits: Tensor) -> Tensor:
        """Reorder logits [N, V] of the model's ids to [N, 4 + V] of a search's ids, each id once.

        Raises:
            ValueError: a special id is V or more.
        """
        if not self._renumbers:
            return logits
        own = {ours: own for own, ours in self._ours.items()}
        size = logits.shape[-1] or tf.shape(logits)[-1]
        if not tf.is_tensor(size) and max(self._ours) >= size:
            raise ValueError(f"special_ids must be below V = {size}, got {max(self._ours)}")
        nothing = tf.fill(tf.shape(logits)[:1], IMPOSSIBLE)
        special = [logits[:, own[n]] if n in own else nothing for n in range(len(self))]
        named = tf.reduce_any(tf.range(size)[:, None] == list(self._ours), axis=-1)  # [V]
        others = tf.where(named, IMPOSSIBLE, logits)
        return tf.concat([tf.stack(special, axis=1), others], axis=1)
