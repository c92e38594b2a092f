"""The shared code of an encoder-decoder's signatures: text to ids, forward pass, search, and ids to
text."""

import abc

import tensorflow as tf

from tfformer import search
from tfformer.config import EOS, PAD
from tfformer.config.search_options import OPTIONS
from tfformer.inference.ensemble import Ensemble
from tfformer.inference.masks import behind_bos, padding_mask, without_eos
from tfformer.inference.monotonic_attention import WindowedInference
from tfformer.inference.shortlist import ShortlistInference
from tfformer.inference.transformer import Inference
from tfformer.inference.xla import CompiledInference, in_bucket
from tfformer.service.checks import require_equal_batches, require_in
from tfformer.service.languages import InLanguages
from tfformer.service.limits import CHARACTERS_PER_TOKEN, unless_off
from tfformer.text.vocabularies import clean

# The options of beam search that a request may set.
ASKED = [option for option in OPTIONS.values() if option.asked]


class FromSource(InLanguages, abc.ABC):
    """Base class of models that read a text and translate it."""

    def source_ids(self, text):
        """string [B] -> int32 [B, S] of at most `max_source_length`; and whether a text was cut,
        bool [B]."""
        text = self.checked_rows("texts", text)
        clean = self.tokenizer.source.clean
        return encode_texts(text, self.encoder("source"), self.max_source_length, clean)

    def blank(self, source_ids):
        """The rows without a token besides the code of a language, boolean [B]."""
        empty = (source_ids == PAD) | (source_ids == EOS) | self.is_code(source_ids, "source")
        return tf.reduce_all(empty, axis=1)

    @abc.abstractmethod
    def written(self, source_ids):
        """Translate source ids [B, S] with the service's options: ids [B, T], padded at the end;
        their scores, float32 [B]; and the rows without a token, boolean [B]."""

    def translated(self, source_ids):
        """As `written`, but as text: `translation` and `score`, [B] each."""
        return self.as_text(*self.written(source_ids))

    def as_text(self, token_ids, scores, blank):
        translation = tf.where(blank, "", self.tokenizer.decode(token_ids))
        return {"translation": translation, "score": finite(scores, blank)}


class Generation(FromSource):
    """An encoder-decoder with its tokenizer and its limits, for the signatures.

    Args:
        config, fused, tokenizer, limits, penalty_form: see `Limited`.
        options: {name: number} for each option of the search.
        shortlist: the two arrays of a `Shortlist`, tensors or variables, for searches without a
            forced target. Default: none.
        xla: see `Translator`.
        ensemble_mean: for an ensemble, the kind of mean, see `mixed`; `fused` then returns the
            inference layers and weights of all models. Default None: one model.

    Attributes:
        asked: the `Option`s that a request may set.
        off: {name: number}, the values that turn off options with a cost at each step.
        kept: the values of each token that a beam search keeps for requests of all hypotheses.
    """

    asked = ASKED
    kept: tuple[str, ...] = ("token_log_probs", "alignment")
    # Makes a forward pass from inference layers and weights.
    forward: type = Inference

    def __init__(
        self,
        config,
        fused,
        tokenizer,
        options,
        limits,
        penalty_form="gnmt",
        shortlist=(),
        xla=False,
        ensemble_mean=None,
    ):
        super().__init__(config, fused, tokenizer, options, limits, penalty_form)
        self.shortlist, self.xla, self.ensemble_mean = shortlist, xla, ensemble_mean
        self.off = {option.name: option.off for option in self.asked if option.off is not None}

    def inference(self, source_ids=None):
        """The forward pass. With `source_ids`, it uses the shortlist for them, if there is one."""
        if self.ensemble_mean:
            members = zip(*self.fused(), strict=True)
            return Ensemble([self.forward(*member) for member in members], self.ensemble_mean)
        if source_ids is not None and self.shortlist:
            return ShortlistInference(*self.fused(), *self.shortlist, source_ids)
        if size := self.options.get("attention_window"):
            return WindowedInference(*self.fused(), size)
        return self.forward(*self.fused())

    def searched(self, source_ids=None):
        """As `inference`, for a search: each target begins with the code of its language, if the
        model is multilingual."""
        return self.begun(self.inference(source_ids))

    # From text to ids.

    def target_ids(self, text):
        """string [B] -> int32 [B, T] of at most `max_target_length`, each row ending with eos; and
        whether a text was cut, bool [B]."""
        clean = self.tokenizer.target.clean
        return encode_texts(text, self.encoder("target"), self.max_target_length, clean)

    def forced(self, source, target):
        """Source ids; target ids for teacher forcing, bos + y; the labels, y + eos; and whether one
        of the two texts was cut, bool [B]."""
        source, target = require_equal_batches(source=source, target=target)
        source_ids, source_cut = self.source_ids(source)
        labels, target_cut = self.target_ids(target)
        return source_ids, behind_bos(labels), labels, source_cut | target_cut

    def checked_ids(self, source_ids):
        """Check source ids from a request: inside the vocabulary, and not too long."""
        source_ids = self.checked_rows("source_ids", source_ids)
        size, longest = self.config.source_vocabulary_size, self.max_source_length
        length = require_in("the length of source_ids", tf.shape(source_ids)[1], 0, longest)
        return require_in("source_ids", source_ids[:, :length], 0, size - 1)

    # The search.

    def source_mask(self, source_ids):
        """True at the tokens of a source that the encoder reads; boolean [B, S]."""
        return padding_mask(source_ids if self.config.source_eos else without_eos(source_ids))

    def limit(self, source_ids, factor, max_length=0):
        """The maximum number of target tokens, a number or int32 [B]. `max_length` 0 means the
        limit of the service."""
        limit = self.longest_written(max_length)
        minimum = 1
        if self.tokenizer.target.first is not None:
            minimum = 2  # the given token, and eos
            limit = tf.maximum(limit, minimum) if tf.is_tensor(limit) else max(limit, minimum)
        if not tf.is_tensor(factor) and not factor:
            return limit
        tokens = tf.cast(tf.math.count_nonzero(padding_mask(source_ids), axis=1), tf.float32)
        of_source = tf.cast(tf.math.ceil(factor * tokens), tf.int32)
        return tf.where(tf.equal(factor, 0.0), limit, tf.clip_by_value(of_source, minimum, limit))

    def beam_search(self, source_ids, options, state=None, max_length=0, short=True, **more):
        """Run `search.beam_search` with these options, numbers or tensors. Options that are off add
        no operations.

        `state` is a pair, the inference and its `State`; it is made here if it is not given.
        `short`: use the shortlist, if there is one.
        """
        blank, width = self.blank(source_ids), options["beam_width"]
        if state is None:
            inference = self.searched(source_ids if short else None)
            state = inference, inference.start(source_ids, width)
        inference, state = state
        found = search.beam_search(
            inference.step,
            state,
            tf.shape(source_ids)[0],
            self.limit(source_ids, options["max_length_factor"], max_length),
            width,
            options["length_penalty"],
            self.penalty_form,
            skip=blank,
            min_length=options["min_length"],
            source_mask=self.source_mask(source_ids),
            **unless_off(options, self.off),
            **more,
        )
        return in_vocabulary(found, inference), blank

    def written(self, source_ids):
        return self.best(*self.beam_search(source_ids, self.options, num_results=1))

    def translated(self, source_ids):
        return self.by_xla(source_ids) if self.xla else super().translated(source_ids)

    def by_xla(self, source_ids):
        """As `translated`, by a beam search that XLA compiles, with padded shapes."""
        rows = tf.shape(source_ids)[0]
        source_ids = in_bucket(source_ids, self.max_source_length)
        inference = CompiledInference(*self.fused())
        state = inference, inference.start(source_ids, self.options["beam_width"])
        found = self.beam_search(source_ids, self.options, state, num_results=1, xla=True)
        return {name: value[:rows] for name, value in self.as_text(*self.best(*found)).items()}

    @staticmethod
    def best(found, blank):
        """The best hypothesis of each row, in the form of `written`."""
        return found.token_ids[:, 0], found.scores[:, 0], blank


def in_vocabulary(found, inference):
    """The result of a search in ids of the whole vocabulary."""
    return found._replace(token_ids=inference.vocabulary_ids(found.token_ids))


def finite(scores, blank):
    """Scores, set to 0 where the mask `blank`, which broadcasts to them, is True. An empty beam has
    the score -inf, which JSON cannot represent."""
    return tf.where(blank, 0.0, tf.maximum(scores, tf.float32.min))


def encode_texts(text, encode, length, clean=clean):
    """Encode texts as ids [B, S] of at most `length`, each row ending with eos; and whether a text
    was cut.

    `clean` is that of the encoding side. A text is cut before tokenisation, because the tokenizer
    needs 6 seconds for 8 MB.
    """
    text = clean(text)
    kept = tf.strings.substr(text, 0, length * CHARACTERS_PER_TOKEN, unit="UTF8_CHAR")
    ids = encode(kept)
    truncated = (ids.row_lengths() > length) | (tf.strings.length(kept) < tf.strings.length(text))
    ids = ids[:, :-1][:, : length - 1]
    eos = tf.fill([tf.shape(text)[0], 1], EOS)
    return tf.concat([ids, eos], axis=1).to_tensor(PAD), truncated
