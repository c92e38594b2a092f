"""Byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) in the graph, by stock operations."""

import functools
import json
import re

import numpy as np
import tensorflow as tf
import tensorflow_text

from tfformer.config import BOS, EOS, PAD, UNK
from tfformer.text.byte_pair_words import CUT, KINDS
from tfformer.text.language_codes import Beginning
from tfformer.text.lookup import lookup_table
from tfformer.text.vocabularies import FILLING, MASK, SPECIAL, Side

# The named arguments of a `BytePairs`, which its content has only with other values.
DEFAULTS = {"hidden": [], "ends": [], "prompt_bos": True, "nfc": False, "whole_words": False}
NEVER = 2**31 - 1  # the rank of a pair that no merge joins


@functools.cache
def byte_names():
    """The 256 characters that stand for bytes in the tables; a visible byte stands for itself."""
    seen = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    hidden = {byte: 256 + n for n, byte in enumerate(b for b in range(256) if b not in seen)}
    return [chr(hidden.get(byte, byte)) for byte in range(256)]


@functools.cache
def _bytes_by_name():
    return {name: bytes([n]) for n, name in enumerate(byte_names())}


class BytePairs(Side):
    """A byte-level BPE vocabulary: pieces of bytes, and the order of their merges.

    A text is a sequence of bytes. The pair with the first merge in the list is joined, the left one
    of two equal pairs, until no merge applies. If a text contains a piece of `whole`, it becomes
    that piece. Ids: 0 to 3 are pad, unk, bos and eos, and 4 + n is the table's id n. (The numbers
    4 + n of those four occur in no text.) A byte that is not in the table is dropped.

    Without `words`, texts are not split into words first, so the ids equal those of
    `tokenizers.models.BPE`. With `words`, they are split as in GPT-2 and RoBERTa, or in another way
    of `tfformer.text.byte_pair_words`. Between two bytes that no merge contains side by side,
    nothing is ever joined. There the text is split into segments, mostly words, which are merged in
    parallel.

    Args:
        vocabulary: {piece: id}, with bytes written as in `byte_names`.
        merges: pairs, "a b" each, in the order in which they apply.
        special_ids: the table's ids of pad, unk, bos and eos; None: there is no such id.
        size: the number of ids, above the maximum id. Default: the maximum id plus one.
        whole: pieces that are never split. Default: those of `special_ids`.
        words: how a text is split into words first, a key of `byte_pair_words.KINDS`: True, as in
            GPT-2, or a name. Default False: it is not split.
        prefix_space: whether a text gets a space in front, unless it begins with one. Default
            False.
        mask_takes_blanks: whether blanks before a mask token belong to it. Default False.
        beginning: the piece that every text begins with, which is in no text. Default: none.
        hidden: pieces of `whole` that no decoded text shows. Default: none.
        ends: pieces that end a generated text, besides eos. Default: none.
        prompt_bos: see `Side`. Default True.
        nfc: whether a text is normalised to Unicode's form NFC. Default False.
        whole_words: whether a word that is a piece becomes that piece, whatever the merges.
            Default False.

    Raises:
        ValueError: a merge is not a pair of pieces that form a piece, or an id or the size is not
            valid.
    """

    replaces_control = False
    suffix = ".bytepairs"

    def __init__(
        self, vocabulary, merges, special_ids, size=None, whole=None, words=False,
        prefix_space=False, mask_takes_blanks=False, beginning=None, *, hidden=(), ends=(),
        prompt_bos=True, nfc=False, whole_words=False,
    ):  # fmt: skip
        size = max(vocabulary.values(), default=-1) + 1 if size is None else size
        names = {n: piece for piece, n in vocabulary.items()}
        if not names or len(names) < len(vocabulary) or not 0 <= min(names) <= max(names) < size:
            raise ValueError(f"vocabulary must have ids in [0, {size}), each once")
        if wrong := [n for n in special_ids if n is not None and n not in names]:
            raise ValueError(f"special_ids must be of the vocabulary, got {wrong[0]}")
        special = zip((PAD, UNK, BOS, EOS), special_ids, strict=True)
        special = {n: ours for ours, n in special if n is not None}
        whole = [names[n] for n in special] if whole is None else list(whole)
        content = [vocabulary, list(merges), list(special_ids), size, whole]
        own = {"hidden": [*hidden], "ends": [*ends], "prompt_bos": prompt_bos, "nfc": nfc}
        own |= {"whole_words": whole_words}
        own = {name: value for name, value in own.items() if value != DEFAULTS[name]}
        if own or words or prefix_space or mask_takes_blanks or beginning is not None:
            content += [words, prefix_space, mask_takes_blanks]
        if own or beginning is not None:
            content.append(beginning)
        super().__init__(json.dumps(content + [own] * bool(own)).encode(), "byte_pairs")
        if words is not False and words not in KINDS:
            raise ValueError(f"words must be False or one of {list(KINDS)}, got {words!r}")
        for name, pieces in {"beginning": [beginning], "hidden": hidden, "ends": ends}.items():
            if wrong := [one for one in pieces if one is not None and one not in vocabulary]:
                raise ValueError(f"{name} must be of the vocabulary, got {wrong[0]!r}")
        self.words, self.prefix_space, self.nfc = words, prefix_space, nfc
        self.mask_takes_blanks, self.prompt_bos = mask_takes_blanks, prompt_bos
        self._ids = {piece: special.get(n, EOS + 1 + n) for piece, n in vocabulary.items()}
        self._size = EOS + 1 + size
        self._make_merges(merges)
        self._hidden, self._literal = set(hidden), {one for one in whole if one in self._ids}
        self._make_whole(whole_words)
        self._names = tf.constant([piece.encode() for piece in self.pieces])
        self._texts = tf.constant([self._shown(piece) for piece in self.pieces])
        self.codes = None if beginning is None else Beginning(self._ids[beginning])
        self.ends = tuple(self._ids[piece] for piece in ends)

    def _make_merges(self, merges):
        """Make the tables of merges: ranks and results of id pairs, and joinable byte pairs."""
        byte_of = {name: n for n, name in enumerate(byte_names())}
        joined, inside = {}, np.zeros([256, 256], bool)
        for number, merge in enumerate(merges):
            if merge.startswith("#version:"):
                continue
            left, _, right = merge.partition(" ")
            known = all(piece in self._ids for piece in (left, right, left + right))
            if not known or not {left[-1], right[0]} <= set(byte_of):
                raise ValueError(f"merge {number} must be two pieces that make one, got {merge!r}")
            key = self._ids[left] * self._size + self._ids[right]
            joined.setdefault(key, (len(joined), self._ids[left + right]))
            inside[byte_of[left[-1]], byte_of[right[0]]] = True
        known = joined or {-1: (NEVER, UNK)}
        self._ranks = lookup_table(
            tf.constant(list(known), tf.int64), [r for r, _ in known.values()], NEVER
        )
        self._joined = tf.constant([made for _, made in known.values()])
        self._inside = tf.constant(inside)
        self._numbers = lookup_table([bytes([n]) for n in range(256)], range(256), -1)
        self._of_byte = tf.constant([self._ids.get(name, -1) for name in byte_names()])

    def _make_whole(self, whole_words):
        """Make the pattern of the pieces at which a text is split, longest first, and the ids of
        parts that are not split further: of these pieces, and with `whole_words` of all others."""
        whole = sorted(self._literal, key=lambda piece: (-len(piece), piece))
        self._pattern = "|".join(re.escape(piece) for piece in whole)
        spelled = {_bytes_of(piece): n for piece, n in self._ids.items()} if whole_words else {}
        spelled |= {piece.encode(): self._ids[piece] for piece in whole}
        self._whole = lookup_table(list(spelled) or [CUT], spelled.values() or [-1], -1)

    @classmethod
    def _of_arguments(cls, arguments):
        """A side from the list that `content` stores: the last one may be named arguments."""
        *some, last = arguments
        return cls(*some, **last) if some and isinstance(last, dict) else cls(*arguments)

    @classmethod
    def from_content(cls, content, name="content"):
        try:
            return cls._of_arguments(json.loads(content))
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{name} must be tables of byte pairs: {error}") from error

    @functools.cached_property
    def pieces(self):
        found = [*SPECIAL, *(f"{FILLING}{n}" for n in range(self._size - len(SPECIAL)))]
        for piece, n in self._ids.items():
            # BART's <s> is another piece than our bos of this name.
            found[n] = piece if n <= EOS or piece not in SPECIAL else f"{FILLING}{piece}"
        return found

    @functools.cached_property
    def byte_ids(self):
        return [self._ids[name] for name in byte_names() if name in self._ids]

    @functools.cached_property
    def mask_id(self):
        return self._ids.get(MASK, BOS)

    @functools.cached_property
    def begins_word(self):
        return [piece.startswith(byte_names()[ord(" ")]) for piece in self.pieces]

    def spelled(self, ids):
        return tf.strings.strip(tf.gather(self._texts, ids))

    def _split(self, text):
        """Valid UTF-8 with `CUT` between words."""
        if self.nfc:
            text = tensorflow_text.normalize_utf8(text, "NFC")
        if self.prefix_space:
            text = tf.strings.regex_replace(text, "^([^ ])", r" \1")
        return KINDS[self.words].split(text) if self.words else text

    def _split_between_whole(self, text):
        """Valid UTF-8 with `CUT` around whole pieces, and between the words of the other parts."""
        if self._pattern:
            rewrite = CUT + rb"\1" + CUT
            text = tf.strings.regex_replace(text, f"({self._pattern})", rewrite)
        if not (self.words or self.prefix_space or self.nfc):
            return text
        if not self._pattern:
            return self._split(text)
        parts = tf.strings.split(text, CUT)
        whole = tf.strings.regex_full_match(parts.flat_values, self._pattern)
        parts = parts.with_flat_values(
            tf.where(whole, parts.flat_values, self._split(parts.flat_values))
        )
        return tf.strings.reduce_join(parts, axis=1, separator=CUT)

    def encode(self, text):
        text = self._split_between_whole(self.clean(text))
        parts = tf.strings.split(text, CUT)
        whole = self._whole.lookup(parts.flat_values)
        spelled = tf.strings.bytes_split(tf.where(whole < 0, parts.flat_values, ""))
        numbers = self._numbers.lookup(spelled.flat_values)
        ids, rows = tf.gather(self._of_byte, numbers), tf.cast(spelled.value_rowids(), tf.int32)
        numbers, ids, rows = (tf.boolean_mask(one, ids >= 0) for one in (numbers, ids, rows))
        ids, rows = self._join(ids, rows, numbers)
        # A whole piece has no bytes here, so it is inserted at its position among the parts.
        alone = tf.cast(tf.where(whole >= 0)[:, 0], tf.int32)
        ids = tf.concat([ids, tf.gather(whole, alone)], axis=0)
        rows = tf.concat([rows, alone], axis=0)
        order = tf.argsort(rows, stable=True)
        rows = tf.gather(parts.value_rowids(), tf.gather(rows, order))  # of parts, of texts
        count = tf.size(text, tf.int64)
        found = tf.RaggedTensor.from_value_rowids(tf.gather(ids, order), rows, count)
        begin = [] if self.codes is None else [self.codes.split(text)[0]]
        return tf.concat([*begin, found, tf.fill([count, 1], EOS)], axis=1)

    def _join(self, ids, rows, numbers):
        """Apply the merges to bytes: the ids of the pieces, int32 [N], and the row of each.

        Args:
            ids, rows, numbers: the id, the row and the value of each byte, int32 [N], with rows in
                ascending order.
        """
        pairs = tf.stack([numbers[:-1], numbers[1:]], axis=1)
        begins = (rows[:-1] != rows[1:]) | ~tf.gather_nd(self._inside, pairs)
        segments = tf.cumsum(tf.cast(begins, tf.int32))
        segments = tf.concat([tf.zeros_like(rows[:1]), segments], axis=0)  # [N]
        count = tf.size(ids)  # the maximum number of segments

        def ranks(ids, segments):
            key = tf.cast(ids[:-1], tf.int64) * self._size + tf.cast(ids[1:], tf.int64)
            return tf.where(segments[:-1] == segments[1:], self._ranks.lookup(key), NEVER)

        def minimum(values, segments):
            return tf.gather(tf.math.unsorted_segment_min(values, segments, count), segments)

        def some(ids, rows, segments, ranks):
            return tf.reduce_any(ranks < NEVER)

        def join(ids, rows, segments, found):
            chosen = (found < NEVER) & (found == minimum(found, segments[:-1]))  # [N - 1]
            places = tf.where(chosen, tf.range(tf.size(found)), NEVER)
            chosen &= places == minimum(places, segments[:-1])  # the leftmost
            made = tf.gather(self._joined, tf.where(chosen, found, 0))
            ids = tf.concat([tf.where(chosen, made, ids[:-1]), ids[-1:]], axis=0)
            stays = tf.concat([[True], ~chosen], axis=0)
            ids, rows, segments = (tf.boolean_mask(one, stays) for one in (ids, rows, segments))
            return ids, rows, segments, ranks(ids, segments)

        start = (ids, rows, segments, ranks(ids, segments))
        free = (tf.TensorShape([None]),) * len(start)
        return tf.while_loop(some, join, start, free, parallel_iterations=1)[:2]

    def decode(self, ids):
        texts = ids.with_flat_values(tf.gather(self._texts, ids.flat_values))
        return self.clean(tf.strings.reduce_join(texts, axis=1))

    def names(self, ids):
        return tf.gather(self._names, ids)

    def ids_of(self, piece):
        """The ids of the text that the piece stands for."""
        ids = self.encode(tf.constant([_bytes_of(piece)]))[0, :-1].numpy().tolist()
        return ids[self.first is not None :] or [UNK]

    def sampler(self, alpha):
        return None

    def filled_up(self, size):
        vocabulary, merges, special_ids, _, *options = json.loads(self.content)
        return self._of_arguments([vocabulary, merges, special_ids, size - EOS - 1, *options])

    def _shown(self, piece):
        """The bytes of a piece in a decoded text."""
        if piece in self._hidden:
            return b""
        return piece.encode() if piece in self._literal else _bytes_of(piece)

    def _text_of(self, ids):
        return b"".join(self._shown(self.pieces[n]) for n in ids).decode(errors="replace")


def _bytes_of(piece):
    """The bytes that a piece stands for; none for a filling piece."""
    if piece.startswith(FILLING):
        return b""
    known = _bytes_by_name()
    return b"".join(known.get(character, character.encode()) for character in piece)
