"""Text in, text out: the very functions that TensorFlow Serving runs.

`Translator` calls them in-process; `Translator.save` writes them as a SavedModel.
"""

import math

import tensorflow as tf

from tfformer import search
from tfformer.config import BOS, EOS, PAD
from tfformer.layers.masks import padding_mask
from tfformer.loss import label_logits
from tfformer.tokenizer import clean

MAX_BEAM_WIDTH = 64
# A piece of SentencePiece has at most 16 characters: more than this many for each token are cut
# before they are tokenised, which takes 6 seconds for 8 MB.
CHARACTERS_PER_TOKEN = 16


class Translator:
    """A model and its tokenizer as functions of text.

    Args:
        model: a `Transformer`.
        tokenizer: its `Tokenizer`; the vocabulary sizes must be the model's.
        beam_width: W, in [1, 64]. Default 4.
        length_penalty: alpha, in [0, 10]; 0 is none. Default 0.6.
        length_penalty_form: `"gnmt"` (default) or `"power"`; see `tfformer.search`.
        max_source_length: source tokens, eos counted; a longer text is cut. Default 256.
        max_target_length: target tokens, eos counted. Default 256.

    Attributes:
        functions: the served signatures by name, each a `tf.function` of tensors that gives a
            dict of tensors. Options have default values; `max_length` 0 means the limit.

    An empty or blank text gives an empty translation with score 0. A text is cut at
    `max_source_length` tokens, and before that at 16 characters for each of them.

    Raises:
        ValueError: naming the argument, the rule and the value received.

    Example:
        >>> translator = tfformer.load_translator("runs/dates")
        >>> translator.translate(["4 July 2031"])
        ['2031-07-04']
    """

    def __init__(
        self,
        model,
        tokenizer,
        *,
        beam_width=4,
        length_penalty=0.6,
        length_penalty_form="gnmt",
        max_source_length=256,
        max_target_length=256,
    ):
        config = model.config
        sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
        tokens = (tokenizer.source_vocabulary_size, tokenizer.target_vocabulary_size)
        if sizes != tokens:
            raise ValueError(
                f"tokenizer must have the model's numbers of ids, {sizes} for source and target, "
                f"got {tokens}"
            )
        if config.tie_embeddings == "all" and not tokenizer.is_shared:
            raise ValueError("tokenizer must be one for both sides with tie_embeddings='all'")
        if not 1 <= beam_width <= MAX_BEAM_WIDTH:
            raise ValueError(f"beam_width must be in [1, {MAX_BEAM_WIDTH}], got {beam_width}")
        if not 0 <= length_penalty <= 10:
            raise ValueError(f"length_penalty must be in [0, 10], got {length_penalty}")
        if length_penalty_form not in search.PENALTY_FORMS:
            raise ValueError(
                f"length_penalty_form must be one of {search.PENALTY_FORMS}, "
                f"got {length_penalty_form!r}"
            )
        most = config.max_positions if config.positions == "learned" else math.inf
        for name, value in (
            ("max_source_length", max_source_length),
            ("max_target_length", max_target_length),
        ):
            if not 2 <= value <= most:
                raise ValueError(f"{name} must be in [2, {most}], got {value}")
        self.model, self.tokenizer = model, tokenizer
        self.beam_width, self.length_penalty = beam_width, float(length_penalty)
        self.length_penalty_form = length_penalty_form
        self.max_source_length, self.max_target_length = max_source_length, max_target_length
        self.functions = self._functions()
        text = tf.TensorSpec([None], tf.string, "text")
        self._greedy = _graph([text])(self._translate_greedily)

    def translate(self, texts, batch_size=32, greedy=False):
        """Texts in any number -> their translations, in order, by beam search or greedily.

        Args:
            texts: strings.
            batch_size: how many are searched at once; the result does not depend on it.
            greedy: follow the most probable token alone. Default False.

        Returns:
            A list of strings.
        """
        if isinstance(texts, str):
            raise ValueError(f"texts must be a list of strings, got the string {texts!r}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        texts = list(texts)
        function = self._greedy if greedy else self.functions["serving_default"]
        # Sentences of like length together: less padding, fewer idle steps.
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        translations = [""] * len(texts)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            found = function(tf.constant([texts[n] for n in chosen]))["translation"].numpy()
            for n, translation in zip(chosen, found, strict=True):
                translations[n] = translation.decode()
        return translations

    def save(self, directory):
        """Writes a SavedModel with all signatures into `directory`, which must not exist yet.

        The exported root is a plain `tf.Module` over the raw `tf.Variable`s: one that reached a
        Keras object would load in Python and fail on the server, which restores the second copy
        that Keras makes of its variables.

        Raises:
            FileExistsError: there is something at `directory`, which stays as it is.
        """
        if tf.io.gfile.exists(directory):
            raise FileExistsError(f"directory must not exist yet, got {directory}")
        root = tf.Module()
        root.weights = [variable.value for variable in self.model.weights]
        root.tokenizer = self.tokenizer
        tf.saved_model.save(root, directory, signatures=self.functions)

    def _functions(self):
        """Each served signature as a `tf.function`; a server fills in the options' defaults."""
        text, source, target, prefix = (
            tf.TensorSpec([None], tf.string, name)
            for name in ("text", "source", "target", "prefix")
        )
        source_ids = tf.TensorSpec([None, None], tf.int32, "source_ids")

        def option(name, default):
            """The input spec of an option, and the default value that the server fills in."""
            default = tf.constant(default)
            return tf.TensorSpec([], default.dtype, name), default

        width, default_width = option("beam_width", self.beam_width)
        alpha, default_alpha = option("length_penalty", self.length_penalty)
        length, own_limit = option("max_length", 0)
        seed, default_seed = option("seed", 0)
        temperature, default_temperature = option("temperature", 1.0)
        top_k, all_tokens = option("top_k", 0)
        top_p, all_mass = option("top_p", 1.0)

        @_graph([text])
        def serving_default(text):
            source_ids, truncated = self._source_ids(text)
            found, blank = self._beam_search(source_ids, num_results=1)
            return {**self._best(found, blank), "truncated": truncated}

        def n_best(source_ids, beam_width, length_penalty, max_length):
            beam_width = _option_in("beam_width", beam_width, 1, MAX_BEAM_WIDTH)
            length_penalty = _option_in("length_penalty", length_penalty, 0.0, 10.0)
            max_length = self._max_length(max_length)
            found, blank = self._beam_search(
                source_ids, beam_width, length_penalty, max_length=max_length
            )
            # An empty place has no finite score, and JSON no infinity.
            scores = tf.maximum(found.scores, tf.float32.min)
            return {
                "token_ids": found.token_ids,
                "scores": tf.where(blank[:, None], 0.0, scores),
                "lengths": found.lengths,
            }

        @_graph([text, width, alpha, length])
        def beam_search(
            text,
            beam_width=default_width,
            length_penalty=default_alpha,
            max_length=own_limit,
        ):
            source_ids, _ = self._source_ids(text)
            outputs = n_best(source_ids, beam_width, length_penalty, max_length)
            shape = tf.shape(outputs["token_ids"])
            translations = self.tokenizer.decode(tf.reshape(outputs["token_ids"], [-1, shape[2]]))
            return {"translations": tf.reshape(translations, shape[:2]), **outputs}

        @_graph([source_ids, width, alpha, length])
        def beam_search_ids(
            source_ids,
            beam_width=default_width,
            length_penalty=default_alpha,
            max_length=own_limit,
        ):
            source_ids = self._checked_ids(source_ids)
            return n_best(source_ids, beam_width, length_penalty, max_length)

        @_graph([source, target])
        def score(source, target):
            inputs, labels = self._forced(source, target)
            logits = tf.cast(self.model(inputs, training=False), tf.float32)
            log_probs = label_logits(labels, logits) - tf.reduce_logsumexp(logits, axis=-1)
            real = labels != PAD
            return {
                "log_prob": tf.reduce_sum(tf.where(real, log_probs, 0.0), axis=1),
                "length": tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            }

        @_graph([text, seed, temperature, top_k, top_p, length])
        def sample(
            text,
            seed=default_seed,
            temperature=default_temperature,
            top_k=all_tokens,
            top_p=all_mass,
            max_length=own_limit,
        ):
            size = self.model.config.target_vocabulary_size
            temperature = _option_in("temperature", temperature, 1e-3, 1e3)
            top_k = _option_in("top_k", top_k, 0, size)
            top_p = _option_in("top_p", top_p, 1e-6, 1.0)
            max_length = self._max_length(max_length)
            step, cache, batch, blank = self._decoding(self._source_ids(text)[0], width=1)
            found = search.sample_search(
                step, cache, batch, max_length, seed, temperature, top_k, top_p, skip=blank
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
            found, blank = self._beam_search(source_ids, num_results=1, prefix=prefix_ids)
            return self._best(found, blank)

        @_graph([source, target])
        def align(source, target):
            inputs, labels = self._forced(source, target)
            last_layer = self.model.cross_attention_weights(inputs)[-1]
            attention = tf.reduce_mean(last_layer, axis=1)
            return {
                "attention": tf.where((labels != PAD)[:, :, None], attention, 0.0),
                "source_tokens": self.tokenizer.source_pieces(inputs["source_ids"]),
                "target_tokens": self.tokenizer.target_pieces(labels),
            }

        signatures = (
            serving_default,
            beam_search,
            beam_search_ids,
            score,
            sample,
            complete,
            align,
        )
        return {function.__name__: function for function in signatures}

    def _translate_greedily(self, text):
        source_ids, _ = self._source_ids(text)
        step, cache, batch, blank = self._decoding(source_ids, 1)
        found = search.greedy_search(step, cache, batch, self.max_target_length, skip=blank)
        return self._best(found, blank)

    def _source_ids(self, text):
        """string [B] -> int32 [B, S] of at most `max_source_length`, and what was cut, bool [B]."""
        return _encode(text, self.tokenizer.encode_source, self.max_source_length)

    def _target_ids(self, text):
        """string [B] -> int32 [B, T] of at most `max_target_length`, each row ending with eos."""
        return _encode(text, self.tokenizer.encode_target, self.max_target_length)[0]

    def _forced(self, source, target):
        """The model's inputs under teacher forcing, bos + y, and the labels, y + eos."""
        source, target = _require_equal_batches(source=source, target=target)
        source_ids, _ = self._source_ids(source)
        labels = self._target_ids(target)
        target_ids = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=BOS)
        # Behind the last token there is padding, not the eos that the shift has put there.
        target_ids = tf.where(labels == PAD, PAD, target_ids)
        return {"source_ids": source_ids, "target_ids": target_ids}, labels

    def _checked_ids(self, source_ids):
        """Source ids that somebody else made: inside the vocabulary and not too long."""
        source_ids = tf.ensure_shape(source_ids, [None, None])
        size, longest = self.model.config.source_vocabulary_size, self.max_source_length
        length = _require_in("the length of source_ids", tf.shape(source_ids)[1], 0, longest)
        return _require_in("source_ids", source_ids[:, :length], 0, size - 1)

    def _max_length(self, max_length):
        """The option `max_length`, in which 0 stands for the limit."""
        max_length = _option_in("max_length", max_length, 0, self.max_target_length)
        return tf.where(tf.equal(max_length, 0), self.max_target_length, max_length)

    def _decoding(self, source_ids, width):
        """What a search needs: the step function, the empty cache, B, and the blank rows [B].

        The memory's keys and values are computed here, once a sentence.
        """
        memory_mask = padding_mask(source_ids)
        memory = self.model.encode(source_ids, training=False)
        projected = self.model.decoder.project_memory(memory)

        def step(ids, position, cache):
            return self.model.decode_step(ids, position, projected, memory_mask, cache)

        batch = tf.shape(source_ids)[0]
        blank = tf.reduce_all((source_ids == PAD) | (source_ids == EOS), axis=1)
        return step, self.model.decoder.empty_cache(batch, width), batch, blank

    def _beam_search(
        self, source_ids, width=None, alpha=None, num_results=None, max_length=None, prefix=None
    ):
        """`beam_search` with this translator's own options where none are given."""
        width = self.beam_width if width is None else width
        step, cache, batch, blank = self._decoding(source_ids, width)
        found = search.beam_search(
            step,
            cache,
            batch,
            self.max_target_length if max_length is None else max_length,
            beam_width=width,
            alpha=self.length_penalty if alpha is None else alpha,
            penalty_form=self.length_penalty_form,
            num_results=num_results,
            prefix=prefix,
            skip=blank,
        )
        return found, blank

    def _best(self, found, blank):
        """The text and the score of the best hypothesis of each row."""
        translation = self.tokenizer.decode(found.token_ids[:, 0])
        return {
            "translation": tf.where(blank, "", translation),
            "score": tf.where(blank, 0.0, found.scores[:, 0]),
        }


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
