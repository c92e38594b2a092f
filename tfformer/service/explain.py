"""`explain`: the internals of a translation, such as attention weights and search steps."""

import tensorflow as tf

from tfformer.inference.masks import behind_bos, padding_mask
from tfformer.service.checks import require_in
from tfformer.service.encoder_decoder_signatures import finite
from tfformer.service.n_best import asked_options, checked_options
from tfformer.service.signature import Signature, texts

# The maximum rows of a request, because the attention of every layer and head is much to send.
MAXIMUM = 4


def explain(generation):
    """`text` [B], B at most 4, and the options of `beam_search` -> for the best translation

        translation, truncated             [B]
        source_tokens, target_tokens       string [B, S] and [B, T]
        probabilities                      float32 [B, T], of each target token
        encoder_attention                  float32 [B, N, H, S, S]
        decoder_attention                  float32 [B, M, H, T, T]
        cross_attention                    float32 [B, M, H, T, S]
        step_tokens, step_parents, step_scores   [B, L, W], see `tfformer.search.SearchSteps`

    Each row of an attention belongs to a query and sums to 1; at padding it is 0. In the decoder,
    the rows are the target tokens to predict. The columns are its inputs: bos and the target
    without its last token. The full model computes everything, without a shortlist or an attention
    window.
    """

    def answer(generation, text, asked):
        text = require_few(text)
        source_ids, truncated = generation.source_ids(text)
        options = checked_options(generation, asked)
        source_ids = generation.checked_rows("rows", source_ids, options["beam_width"])
        inference = generation.forward(*generation.fused())
        searched = generation.begun(inference)
        state = searched, searched.start(source_ids, options["beam_width"])
        found, blank = generation.beam_search(
            source_ids, options, state, asked["max_length"], num_results=1, keep=("steps",)
        )
        labels, steps = found.token_ids[:, 0], found.steps
        with inference.watched() as seen:
            logits, _ = inference.decode(behind_bos(labels), inference.memory(source_ids))
        log_probs = tf.gather(tf.nn.log_softmax(logits), labels, batch_dims=2)
        source, target = padding_mask(source_ids), padding_mask(labels)
        queries = {"encoder": source, "decoder": target, "cross": target}
        attention = {
            f"{kind}_attention": tf.where(
                queries[kind][:, None, None, :, None], tf.stack(layers, axis=1), 0.0
            )
            for kind, layers in seen.items()
        }
        written = generation.as_text(*generation.best(found, blank))
        return {
            "translation": written["translation"],
            "truncated": truncated,
            "source_tokens": generation.tokenizer.source_pieces(source_ids),
            "target_tokens": generation.tokenizer.target_pieces(labels),
            "probabilities": tf.where(target, tf.exp(log_probs), 0.0),
            **attention,
            "step_tokens": generation.tokenizer.target_pieces(steps.token_ids),
            "step_parents": steps.parents,
            "step_scores": finite(steps.scores, steps.parents < 0),
        }

    def examples(samples):
        few = {"text": samples.texts[:MAXIMUM]}
        return [few, {**few, "beam_width": 2, "length_penalty": 0.0, "max_length": 7}]

    function = generation.graph("explain", texts("text"), answer, asked_options(generation))
    return Signature("explain", function, examples)


def require_few(text):
    """`text`; INVALID_ARGUMENT on the server if it has more rows than `explain` accepts."""
    count = require_in("rows of explain", tf.shape(text)[0], 0, MAXIMUM)
    return text[:count]
