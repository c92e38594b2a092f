"""The signatures of a language model: `serving_default`, `generate`, `beam_search` and `score`."""

import tensorflow as tf

from tfformer import search
from tfformer.config import BOS, PAD
from tfformer.config.search_options import OPTIONS, SAMPLING
from tfformer.inference.language_model import LanguageModelInference
from tfformer.inference.masks import behind_bos, padding_mask
from tfformer.search.rules import is_end
from tfformer.service.checks import require_in
from tfformer.service.encoder_decoder_signatures import encode_texts, finite
from tfformer.service.limits import CHARACTERS_PER_TOKEN, Limited, unless_off
from tfformer.service.sample import asked_sampling
from tfformer.service.signature import Signature, graph, graph_with_options, text_examples, texts

# The maximum number of windows of tokens to score in a text.
SCORED_WINDOWS = 64
RULES = ("repetition_penalty", "no_repeat_ngram")
OF_BEAM = ("beam_width", "length_penalty", "min_length", *RULES)
OFF = {name: OPTIONS[name].off for name in RULES}


class Writing(Limited):
    """A language model with its tokenizer and its limits, for the signatures; see `Limited`."""

    def inference(self):
        return LanguageModelInference(*self.fused())

    @property
    def ends(self):
        """The ids that end a text, besides eos."""
        return self.tokenizer.source.ends

    def prompts(self, text):
        """string [B] -> int32 [B, P], bos and the text's last tokens, padded on the left; and
        whether a text was cut, boolean [B].

        A text is cut before tokenisation, at its beginning, because its end decides what follows.
        If the tokenizer puts no bos before a prompt, only an empty text has one.
        """
        side = self.tokenizer.source
        text = side.clean(self.checked_rows("texts", text))
        longest = self.max_source_length - side.prompt_bos
        size = tf.strings.length(text, unit="UTF8_CHAR")
        first = tf.maximum(size - longest * CHARACTERS_PER_TOKEN, 0)
        kept = tf.strings.substr(text, first, size - first, unit="UTF8_CHAR")
        ids = self.tokenizer.encode_source(kept)[:, :-1]  # without eos
        truncated = (first > 0) | (ids.row_lengths() > longest)
        ids = tf.reverse(ids[:, -longest:] if longest else ids[:, :0], [1])
        begins = tf.cast(tf.equal(ids.row_lengths(), 0) | side.prompt_bos, tf.int64)  # [B]
        bos = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(begins)], BOS), begins)
        ids = tf.concat([ids, bos], axis=1).to_tensor(PAD)
        ids = tf.pad(ids, [[0, 0], [0, tf.maximum(1 - tf.shape(ids)[1], 0)]])  # P >= 1 without rows
        return tf.reverse(ids, [1]), truncated

    def text_after(self, prompt, token_ids):
        """The text that ids [B, T] add to a prompt, string [B], with its leading space."""
        before = self.tokenizer.decode(prompt)
        whole = self.tokenizer.decode(tf.concat([prompt, token_ids], axis=1))
        size = tf.strings.length(before)
        return tf.strings.substr(whole, size, tf.strings.length(whole) - size)

    def start(self, prompt, width):
        """The forward pass, and its state after a prompt."""
        inference = self.inference()
        return inference, inference.prefill(prompt, width)

    def drawn(self, text, options, stop=None):
        """The outputs of sampling; `options` are those of `generate`, numbers or tensors."""
        prompt, truncated = self.prompts(text)
        inference, state = self.start(prompt, 1)
        drawing = {name: options[name] for name in ("seed", *SAMPLING)}
        found = search.sample_search(
            inference.step,
            state,
            tf.shape(prompt)[0],
            self.longest_written(options["max_length"]),
            min_length=options["min_length"],
            prompt=prompt,
            stop=None if stop is None else self.stops(stop),
            force_eos=False,  # a forced eos would make a cut text look finished
            ends=self.ends,
            **unless_off(options, OFF),
            **drawing,
        )
        token_ids = found.token_ids[:, 0]
        text = self.text_after(prompt, token_ids)
        ended = tf.reduce_any(is_end(token_ids, self.ends), axis=1)
        if stop is not None:
            text, stopped = until(text, stop)
            ended |= stopped
        return {
            "continuation": text,
            "log_prob": found.log_probs[:, 0],
            "length": found.lengths[:, 0],
            "finished": ended,
            "truncated": truncated,
        }

    def stops(self, stop):
        """The `stop` of a search: whether the text of the newest tokens contains a string. "" never
        matches."""

        def ends(newest):
            return tf.cond(
                tf.equal(stop, ""),
                lambda: tf.zeros([tf.shape(newest)[0]], tf.bool),
                lambda: until(self.tokenizer.decode(newest), stop)[1],
            )

        return ends


def until(text, stop):
    """Cut texts, string [B], before a string; and whether they contain it. "" never matches."""
    is_asked = tf.not_equal(stop, "")
    # `split` by an empty string would split at white space.
    parts = tf.strings.split(text, tf.where(is_asked, stop, "-"))
    first = tf.strings.reduce_join(parts[:, :1], axis=1)
    return tf.where(is_asked, first, text), is_asked & (parts.row_lengths() > 1)


def serving_default(writing):
    """`text` [B] -> `continuation`, sampled with the export's own options and seed 0, and the other
    outputs of `generate`."""

    @graph(texts("text"))
    def serving_default(text):
        options = {**writing.options, "seed": 0, "max_length": 0}
        return writing.drawn(text, options)

    return Signature("serving_default", serving_default, text_examples)


def generate(writing):
    """`text` [B] and options -> `continuation`, without the text; its `log_prob` and `length`,
    which include the tokens of `stop` and a chosen eos; `finished`, whether the model chose eos or
    `stop` was found before the limit; and `truncated`, whether a text was cut."""
    names = [*SAMPLING, "min_length", *RULES]
    options = {"seed": 0, "max_length": 0, **{name: writing.options[name] for name in names}}

    def answer(text, asked):
        options = asked_sampling(asked, writing.config.vocabulary_size)
        options["max_length"] = asked["max_length"]
        options["min_length"] = require_in(
            "min_length", asked["min_length"], 0, writing.max_target_length
        )
        for name in RULES:
            option = OPTIONS[name]
            options[name] = require_in(name, asked[name], option.minimum, option.maximum)
        stop = asked["stop"]
        on = [tf.not_equal(options[name], off) for name, off in OFF.items()]
        # The rules have a cost at each step, so they run in a separate loop, only if they are on.
        return tf.cond(
            tf.reduce_any(on),
            lambda: writing.drawn(text, options, stop),
            lambda: writing.drawn(text, {**options, **OFF}, stop),
        )

    def examples(samples):
        narrow = {"seed": 7, "temperature": 0.5, "top_k": 5, "top_p": 0.9}
        rules = {"repetition_penalty": 1.3, "no_repeat_ngram": 2, "stop": "e"}
        text = {"text": samples.texts}
        return [text, {**text, **narrow}, {**text, **narrow, **rules}]

    function = graph_with_options("generate", texts("text"), {**options, "stop": ""}, answer)
    return Signature("generate", function, examples)


def beam_search(writing):
    """`text` [B] and options -> `continuations` [B, W], `scores`, `token_ids`, `lengths` and
    `token_log_probs` of W hypotheses, best first; and `truncated`, whether a text was cut."""
    options = {name: writing.options[name] for name in OF_BEAM}

    def answer(text, asked):
        bounds = {name: (OPTIONS[name].minimum, OPTIONS[name].maximum) for name in OF_BEAM}
        bounds["min_length"] = 0, writing.max_target_length
        options = {name: require_in(name, asked[name], *bounds[name]) for name in OF_BEAM}
        width = options["beam_width"]
        prompt, truncated = writing.prompts(text)
        prompt = writing.checked_rows("texts", prompt, width)
        inference, state = writing.start(prompt, width)

        def found_with(**changes):
            return search.beam_search(
                inference.step,
                state,
                tf.shape(prompt)[0],
                writing.longest_written(asked["max_length"]),
                length_penalty_form=writing.penalty_form,
                prompt=prompt,
                keep=("token_log_probs",),
                ends=writing.ends,
                **{**options, **changes},
            )

        on = [tf.not_equal(options[name], off) for name, off in OFF.items()]
        off = {name: None for name in OFF}
        found = tf.cond(tf.reduce_any(on), found_with, lambda: found_with(**off))
        shape = tf.shape(found.token_ids)
        flat = tf.reshape(found.token_ids, [shape[0] * shape[1], shape[2]])  # [B * W, T]
        written = writing.text_after(tf.repeat(prompt, width, axis=0), flat)
        nothing = tf.zeros([shape[0]], tf.bool)
        return {
            "continuations": tf.reshape(written, shape[:2]),  # [B, W]
            "scores": finite(found.scores, nothing[:, None]),
            "token_ids": found.token_ids,
            "lengths": found.lengths,
            "token_log_probs": found.token_log_probs,
            "truncated": truncated,
        }

    def examples(samples):
        text = {"text": samples.texts}
        small = {"beam_width": 2, "length_penalty": 0.0, "max_length": 7}
        # Without a penalty the scores are the model's own: they can be verified.
        small["repetition_penalty"] = 1.0
        return [text, {**text, **small}, {**text, **small, "no_repeat_ngram": 2}]

    options = {**options, "max_length": 0}
    function = graph_with_options("beam_search", texts("text"), options, answer)
    return Signature("beam_search", function, examples)


def score(writing):
    """`text` [B] -> `log_prob` of the whole text with its end; its `length`, with eos; and
    `truncated`, whether a text was cut.

    A text longer than the model's input is read in windows that overlap by half. Each token is
    scored by a window that has at least half its length before the token.
    """

    @graph(texts("text"))
    def score(text):
        log_probs, real, truncated = scored(writing, text)
        return {
            "log_prob": tf.reduce_sum(tf.where(real, log_probs, 0.0), axis=1),
            "length": tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            "truncated": truncated,
        }

    return Signature("score", score, text_examples)


def scored(writing, text, stride=None):
    """log P of each token of texts, float32 [B, T]; the mask of tokens, boolean [B, T]; and whether
    a text was cut, boolean [B].

    Args:
        writing: a `Writing`.
        text: string [B].
        stride: the number of tokens between the starts of two windows, at most the length of a
            window. Default: half of it.
    """
    window = writing.max_source_length + writing.max_target_length - 1  # as long as a row
    stride = max(1, window // 2) if stride is None else stride
    text = writing.checked_rows("texts", text)
    side = writing.tokenizer.source
    labels, truncated = encode_texts(text, side.encode, SCORED_WINDOWS * window, side.clean)
    real, ids = padding_mask(labels), behind_bos(labels)  # [B, T] each
    size = tf.shape(labels)[1]
    window = tf.minimum(window, size)
    more = (size - window + stride - 1) // stride  # windows after the first
    missing = [[0, 0], [0, window + more * stride - size]]
    padded, padded_labels = tf.pad(ids, missing), tf.pad(labels, missing)
    inference = writing.inference()

    def log_probs(n):
        inside = slice(n * stride, n * stride + window)
        return inference.log_probs(padded[:, inside], padded_labels[:, inside], {})

    found = tf.map_fn(
        log_probs, tf.range(1 + more), parallel_iterations=1, fn_output_signature=tf.float32
    )  # [N, B, window]
    later = tf.transpose(found[1:, :, window - stride :], [1, 0, 2])  # [B, N - 1, stride]
    later = tf.reshape(later, [tf.shape(text)[0], more * stride])  # [B, (N - 1) * stride]
    return tf.concat([found[0], later], axis=1)[:, :size], real, truncated
