"""The served signatures: each a `tf.function` of tensors, from text to text."""

import tensorflow as tf

from tfformer import search
from tfformer.config import BOS, EOS, PAD
from tfformer.inference.shortlist import ShortlistInference
from tfformer.inference.transformer import Inference
from tfformer.inference.xla import CompiledInference, in_bucket
from tfformer.search.options import OPTIONS
from tfformer.text.document import join_sentences, join_windows, split_sentences, split_windows
from tfformer.text.tokenizer import clean

# What a request may say of a beam search, and which of it costs something at each step.
ASKED = [option for option in OPTIONS.values() if option.asked]
OFF = {option.name: option.off for option in ASKED if option.off is not None}
# A piece of SentencePiece has at most 16 characters: more than this many for each token are cut
# before they are tokenised, which takes 6 seconds for 8 MB.
CHARACTERS_PER_TOKEN = 16
# A document may be so many times as long as the longest source; so many of its sentences are
# searched at once; and the pieces of a sentence that is too long overlap by this share.
DOCUMENT_SOURCES, DOCUMENT_BLOCK, OVERLAP = 64, 32, 0.25
# With this many beams a request may have `max_batch_size` rows, whatever the export's own number.
USUAL_WIDTH = 4


class Signatures:
    """What a model answers, as functions of tensors.

    Args:
        config: the model's `TransformerConfig`.
        fused: a function that gives what `fuse` does; it is called in each graph.
        tokenizer: a `Tokenizer`.
        options: {name: number} for each of `ASKED`.
        penalty_form, max_source_length, max_target_length, max_batch_size, xla: see `Translator`.
        shortlist: the two arrays of a `Shortlist`, tensors or variables, for the searches that
            nothing is forced upon. Default: none.
    """

    def __init__(
        self,
        config,
        fused,
        tokenizer,
        options,
        penalty_form,
        max_source_length,
        max_target_length,
        max_batch_size,
        shortlist=(),
        xla=False,
    ):
        self.config, self.fused, self.tokenizer = config, fused, tokenizer
        self.shortlist = shortlist
        self.options, self.penalty_form = options, penalty_form
        self.max_source_length, self.max_target_length = max_source_length, max_target_length
        self.max_batch_size, self.xla = max_batch_size, xla

    def greedy(self):
        """`text` [B] -> `translation` and `score`, its log-probability, by greedy search."""

        @_graph([tf.TensorSpec([None], tf.string, "text")])
        def greedy(text):
            source_ids, _ = self._source_ids(text)
            blank = self._blank(source_ids)
            inference = self._inference(source_ids)
            found = search.greedy_search(
                inference.step,
                inference.start(source_ids, width=1),
                tf.shape(source_ids)[0],
                self._limit(source_ids, self.options["max_length_factor"]),
                blank,
                min_length=self.options["min_length"],
            )
            return self._best(_whole(found, inference), blank)

        return greedy

    def served(self):
        """The served signatures by name; a server fills in the defaults of their options."""
        text, source, target, prefix = (
            tf.TensorSpec([None], tf.string, name)
            for name in ("text", "source", "target", "prefix")
        )
        source_ids = tf.TensorSpec([None, None], tf.int32, "source_ids")
        # What a request may say of the beam; its own limit is what `max_length` 0 stands for.
        names = [option.name for option in ASKED]
        names.insert(2, "max_length")
        defaults = {"max_length": 0, **self.options}
        defaults = {name: tf.constant(defaults[name]) for name in names}
        options = [tf.TensorSpec([], value.dtype, name) for name, value in defaults.items()]

        @_graph([text])
        def serving_default(text):
            source_ids, truncated = self._source_ids(text)
            if self.xla:
                return {**self._compiled(source_ids), "truncated": truncated}
            found, blank = self._beam_search(source_ids, self.options, num_results=1)
            return {**self._best(found, blank), "truncated": truncated}

        @_graph([text])
        def translate_document(text):
            return self._translate_document(text)

        @_graph([text, *options])
        def beam_search(
            text,
            beam_width=defaults["beam_width"],
            length_penalty=defaults["length_penalty"],
            max_length=defaults["max_length"],
            min_length=defaults["min_length"],
            max_length_factor=defaults["max_length_factor"],
            coverage_penalty=defaults["coverage_penalty"],
            repetition_penalty=defaults["repetition_penalty"],
            no_repeat_ngram=defaults["no_repeat_ngram"],
        ):
            asked = {name: value for name, value in locals().items() if name in defaults}
            source_ids, _ = self._source_ids(text)
            outputs = self._n_best(source_ids, asked)
            shape = tf.shape(outputs["token_ids"])
            flat = tf.reshape(outputs["token_ids"], [shape[0] * shape[1], shape[2]])
            translations = self.tokenizer.decode(flat)
            return {"translations": tf.reshape(translations, shape[:2]), **outputs}

        @_graph([source_ids, *options])
        def beam_search_ids(
            source_ids,
            beam_width=defaults["beam_width"],
            length_penalty=defaults["length_penalty"],
            max_length=defaults["max_length"],
            min_length=defaults["min_length"],
            max_length_factor=defaults["max_length_factor"],
            coverage_penalty=defaults["coverage_penalty"],
            repetition_penalty=defaults["repetition_penalty"],
            no_repeat_ngram=defaults["no_repeat_ngram"],
        ):
            asked = {name: value for name, value in locals().items() if name in defaults}
            return self._n_best(self._checked_ids(source_ids), asked)

        @_graph([source, target])
        def score(source, target):
            source_ids, target_ids, labels = self._forced(source, target)
            inference = self._inference()
            log_probs = inference.log_probs(target_ids, labels, inference.memory(source_ids))
            real = labels != PAD
            return {
                "log_prob": tf.reduce_sum(tf.where(real, log_probs, 0.0), axis=1),
                "length": tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            }

        def option(name, default):
            """The input spec of an option, and the default value that the server fills in."""
            default = tf.constant(default)
            return tf.TensorSpec([], default.dtype, name), default

        length, own_limit = option("max_length", 0)
        seed, default_seed = option("seed", 0)
        temperature, default_temperature = option("temperature", 1.0)
        top_k, all_tokens = option("top_k", 0)
        top_p, all_mass = option("top_p", 1.0)

        @_graph([text, seed, temperature, top_k, top_p, length])
        def sample(
            text,
            seed=default_seed,
            temperature=default_temperature,
            top_k=all_tokens,
            top_p=all_mass,
            max_length=own_limit,
        ):
            size = self.config.target_vocabulary_size
            temperature = _option_in("temperature", temperature, 1e-3, 1e3)
            top_k = _option_in("top_k", top_k, 0, size)
            top_p = _option_in("top_p", top_p, 1e-6, 1.0)
            source_ids, _ = self._source_ids(text)
            blank = self._blank(source_ids)
            inference = self._inference()
            found = search.sample_search(
                inference.step,
                inference.start(source_ids, width=1),
                tf.shape(source_ids)[0],
                self._limit(source_ids, self.options["max_length_factor"], max_length),
                seed,
                temperature,
                top_k,
                top_p,
                blank,
                min_length=self.options["min_length"],
            )
            translation = self._best(found, blank)["translation"]
            return {"translation": translation, "log_prob": found.log_probs[:, 0]}

        @_graph([text, prefix])
        def complete(text, prefix):
            text, prefix = _require_equal_batches(text=text, prefix=prefix)
            prefix_ids = self._target_ids(prefix)
            # The translation goes on behind the prefix: without its eos.
            prefix_ids = tf.where(prefix_ids == EOS, PAD, prefix_ids)
            source_ids, _ = self._source_ids(text)
            found, blank = self._beam_search(
                source_ids, self.options, short=False, num_results=1, prefix=prefix_ids
            )
            return self._best(found, blank)

        @_graph([source, target])
        def align(source, target):
            source_ids, target_ids, labels = self._forced(source, target)
            inference = self._inference()
            _, attention = inference.decode(target_ids, inference.memory(source_ids))
            return {
                "attention": tf.where((labels != PAD)[:, :, None], attention, 0.0),
                "source_tokens": self.tokenizer.source_pieces(source_ids),
                "target_tokens": self.tokenizer.target_pieces(labels),
            }

        signatures = (
            serving_default,
            translate_document,
            beam_search,
            beam_search_ids,
            score,
            sample,
            complete,
            align,
        )
        return {function.__name__: function for function in signatures}

    def _inference(self, source_ids=None):
        """The forward pass; of these sentences alone, it is that over the shortlist, if any."""
        if source_ids is not None and self.shortlist:
            return ShortlistInference(*self.fused(), *self.shortlist, source_ids)
        return Inference(*self.fused())

    # From text to ids.

    def _source_ids(self, text):
        """string [B] -> int32 [B, S] of at most `max_source_length`, and what was cut, bool [B]."""
        text = self._checked_rows("texts", text)
        return _encode(text, self.tokenizer.encode_source, self.max_source_length)

    def _target_ids(self, text):
        """string [B] -> int32 [B, T] of at most `max_target_length`, each row ending with eos."""
        return _encode(text, self.tokenizer.encode_target, self.max_target_length)[0]

    def _forced(self, source, target):
        """Source ids; target ids under teacher forcing, bos + y; and the labels, y + eos."""
        source, target = _require_equal_batches(source=source, target=target)
        source_ids, _ = self._source_ids(source)
        labels = self._target_ids(target)
        target_ids = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=BOS)
        # Behind the last token there is padding, not the eos that the shift has put there.
        return source_ids, tf.where(labels == PAD, PAD, target_ids), labels

    def _checked_ids(self, source_ids):
        """Source ids that somebody else made: inside the vocabulary and not too long."""
        source_ids = self._checked_rows("source_ids", tf.ensure_shape(source_ids, [None, None]))
        size, longest = self.config.source_vocabulary_size, self.max_source_length
        length = _require_in("the length of source_ids", tf.shape(source_ids)[1], 0, longest)
        return _require_in("source_ids", source_ids[:, :length], 0, size - 1)

    def _checked_rows(self, name, rows, width=None):
        """`rows`, if a request may have so many; and so many times `width`, if it is given."""
        count = tf.shape(rows)[0]
        checked = _require_in(f"the number of {name}", count, 0, self.max_batch_size)
        if width is not None:
            most = self.max_batch_size * max(USUAL_WIDTH, self.options["beam_width"])
            checked = _require_in(f"the number of {name} * beam_width", count * width, 0, most)
        with tf.control_dependencies([checked]):
            return tf.identity(rows)

    @staticmethod
    def _blank(source_ids):
        """The rows without a token, boolean [B]."""
        return tf.reduce_all((source_ids == PAD) | (source_ids == EOS), axis=1)

    # The search.

    def _limit(self, source_ids, factor, max_length=0):
        """Target tokens at most, a number or int32 [B]; `max_length` 0 stands for the own limit."""
        limit = self.max_target_length
        if tf.is_tensor(max_length):
            max_length = _option_in("max_length", max_length, 0, limit)
            limit = tf.where(tf.equal(max_length, 0), limit, max_length)
        if not tf.is_tensor(factor) and not factor:
            return limit
        tokens = tf.cast(tf.math.count_nonzero(source_ids != PAD, axis=1), tf.float32)
        of_source = tf.cast(tf.math.ceil(factor * tokens), tf.int32)
        return tf.where(tf.equal(factor, 0.0), limit, tf.clip_by_value(of_source, 1, limit))

    def _beam_search(self, source_ids, options, state=None, max_length=0, short=True, **more):
        """`search.beam_search` with these options, numbers or tensors; what is off costs nothing.

        `state` is what the search starts from, made here unless it is given with its inference;
        `short`: over the shortlist, if there is one.
        """
        blank, width = self._blank(source_ids), options["beam_width"]
        if state is None:
            inference = self._inference(source_ids if short else None)
            state = inference, inference.start(source_ids, width)
        inference, state = state

        def unless_off(name):
            value = options[name]
            return None if not tf.is_tensor(value) and value == OFF[name] else value

        found = search.beam_search(
            inference.step,
            state,
            tf.shape(source_ids)[0],
            self._limit(source_ids, options["max_length_factor"], max_length),
            width,
            options["length_penalty"],
            self.penalty_form,
            skip=blank,
            min_length=options["min_length"],
            coverage_penalty=unless_off("coverage_penalty"),
            repetition_penalty=unless_off("repetition_penalty"),
            no_repeat_ngram=unless_off("no_repeat_ngram"),
            source_mask=source_ids != PAD,
            **more,
        )
        return _whole(found, inference), blank

    def _translate_document(self, text):
        """The outputs of `translate_document`; see `tfformer.text.document`."""
        text = self._checked_rows("texts", tf.ensure_shape(text, [None]))
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        most = DOCUMENT_SOURCES * self.max_source_length * CHARACTERS_PER_TOKEN
        kept = tf.strings.substr(text, 0, most, unit="UTF8_CHAR")
        sentences, space = split_sentences(kept)
        # A source ends with eos, which takes a place of each window.
        ids = self.tokenizer.encode_source(sentences.flat_values)[:, :-1]
        length = self.max_source_length - 1
        overlap = int(OVERLAP * length)
        windows, rows = split_windows(ids, length, overlap)
        found = join_windows(self._search_windows(windows), rows, overlap / length)
        translations = sentences.with_flat_values(self.tokenizer.decode(found))
        return {
            "translation": join_sentences(translations, space),
            "sentences": tf.cast(sentences.row_lengths(), tf.int32),
            "truncated": tf.strings.length(kept) < tf.strings.length(text),
        }

    def _search_windows(self, windows):
        """RaggedTensor of source ids [M, (S)] without eos -> of target ids [M, (T)] without eos.

        Some at a time, those of like length together.
        """
        count = tf.cast(windows.nrows(), tf.int32)
        order = tf.argsort(tf.cast(windows.row_lengths(), tf.int32))
        block_size = min(DOCUMENT_BLOCK, self.max_batch_size)
        blocks = tf.maximum(1, (count + block_size - 1) // block_size)

        def search_block(block, parts):
            chosen = tf.gather(windows, order[block * block_size :][:block_size])
            eos = tf.fill([chosen.nrows(), 1], EOS)
            found, _ = self._beam_search(
                tf.concat([chosen, eos], axis=1).to_tensor(PAD), self.options, num_results=1
            )
            ids = found.token_ids[:, 0]
            ids = tf.ragged.boolean_mask(ids, (ids != PAD) & (ids != EOS))
            values = (ids.flat_values, tf.cast(ids.row_lengths(), tf.int32))
            written = zip(parts, values, strict=True)
            return block + 1, [part.write(block, value) for part, value in written]

        parts = [
            tf.TensorArray(tf.int32, blocks, infer_shape=False, element_shape=[None])
            for _ in ("ids", "lengths")
        ]
        _, parts = tf.while_loop(
            lambda block, parts: block < blocks, search_block, (0, parts), parallel_iterations=1
        )
        found = tf.RaggedTensor.from_row_lengths(*[part.concat() for part in parts])
        return tf.gather(found, tf.math.invert_permutation(order))

    def _compiled(self, source_ids):
        """What `_best` gives of a beam search that XLA compiles, in buckets of shapes."""
        rows = tf.shape(source_ids)[0]
        source_ids = in_bucket(source_ids, self.max_source_length)
        inference = CompiledInference(*self.fused())
        state = inference, inference.start(source_ids, self.options["beam_width"])
        found, blank = self._beam_search(source_ids, self.options, state, num_results=1, xla=True)
        return {name: value[:rows] for name, value in self._best(found, blank).items()}

    def _n_best(self, source_ids, asked):
        """The outputs that `beam_search` and `beam_search_ids` share, as a request asked for them.

        What costs something at each step has a loop of its own, in which it is on.
        """
        bounds = {option.name: (option.least, option.most) for option in ASKED}
        bounds["min_length"] = 0, self.max_target_length
        options = {name: _option_in(name, asked[name], *bounds[name]) for name in bounds}
        source_ids = self._checked_rows("rows", source_ids, options["beam_width"])
        inference = self._inference(source_ids)
        state = inference, inference.start(source_ids, options["beam_width"])

        def found_with(**changes):
            found, _ = self._beam_search(
                source_ids,
                {**options, **changes},
                state,
                asked["max_length"],
                keep=("token_log_probs", "alignment"),
            )
            return found

        on = [tf.not_equal(options[name], off) for name, off in OFF.items()]
        found = tf.cond(tf.reduce_any(on), found_with, lambda: found_with(**OFF))
        blank = self._blank(source_ids)
        return {
            "token_ids": found.token_ids,
            "scores": _finite(found.scores, blank),
            "lengths": found.lengths,
            "token_log_probs": found.token_log_probs,
            "alignment": found.alignment,
        }

    def _best(self, found, blank):
        """The text and the score of the best hypothesis of each row."""
        translation = self.tokenizer.decode(found.token_ids[:, 0])
        return {
            "translation": tf.where(blank, "", translation),
            "score": _finite(found.scores, blank)[:, 0],
        }


def _whole(found, inference):
    """What a search found, in ids of the whole vocabulary."""
    return found._replace(token_ids=inference.vocabulary_ids(found.token_ids))


def _finite(scores, blank):
    """Scores [B, W], 0 for blank rows. An empty place has no finite one, and JSON no infinity."""
    return tf.where(blank[:, None], 0.0, tf.maximum(scores, tf.float32.min))


def _graph(inputs):
    """`tf.function` of these inputs. The loops are `tf.while_loop`s, so AutoGraph has no work."""
    return tf.function(input_signature=inputs, autograph=False)


def _encode(text, encode, length):
    """Texts as ids [B, S] of at most `length`, each row ending with eos; and which were cut.

    A text is cut before it is tokenised: the tokenizer needs 6 seconds for 8 MB.
    """
    # The server does not check ranks; this makes a wrong one INVALID_ARGUMENT.
    text = clean(tf.ensure_shape(text, [None]))
    kept = tf.strings.substr(text, 0, length * CHARACTERS_PER_TOKEN, unit="UTF8_CHAR")
    ids = encode(kept)
    truncated = (ids.row_lengths() > length) | (tf.strings.length(kept) < tf.strings.length(text))
    ids = ids[:, :-1][:, : length - 1]
    eos = tf.fill([tf.shape(text)[0], 1], EOS)
    return tf.concat([ids, eos], axis=1).to_tensor(PAD), truncated


def _option_in(name, value, least, most):
    """`_require_in` for a scalar. The server checks no ranks, and a vector would broadcast."""
    return _require_in(name, tf.ensure_shape(value, []), least, most)


def _require_in(name, value, least, most):
    """`value`; INVALID_ARGUMENT on the server unless every number of it is in [least, most]."""
    inside = tf.reduce_all((value >= least) & (value <= most))
    return _behind(inside, [f"{name} must be in [{least}, {most}], got", value], value)


def _require_equal_batches(**texts):
    """The two texts; INVALID_ARGUMENT on the server unless they have as many rows."""
    (name, text), (other, second) = texts.items()
    sizes = [tf.shape(text)[0], tf.shape(second)[0]]
    message = [f"{name} and {other} must have as many rows, got", *sizes]
    return _behind(tf.equal(*sizes), message, (text, second))


def _behind(condition, message, values):
    """`values`, for use behind the check: else an op that they break may fail before it."""
    with tf.control_dependencies([tf.debugging.Assert(condition, message)]):
        return tf.nest.map_structure(tf.identity, values)
