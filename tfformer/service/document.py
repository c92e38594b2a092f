"""`translate_document`: texts of any number of sentences, and sentences of any length."""

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.service.generation import CHARACTERS_PER_TOKEN
from tfformer.service.signature import Signature, graph, texts
from tfformer.text.document import join_sentences, join_windows, split_sentences, split_windows

# A document may be so many times as long as the longest source; so many of its sentences are
# searched at once; and the pieces of a sentence that is too long overlap by this share.
DOCUMENT_SOURCES, DOCUMENT_BLOCK, OVERLAP = 64, 32, 0.25


def translate_document(generation):
    """`text` [B] -> `translation`, the number of `sentences`, and which were cut, `truncated`."""

    @graph(texts("text"))
    def translate_document(text):
        return _translate(generation, text)

    def examples(samples):
        return [{"text": [". ".join(samples.texts), "\n".join(samples.texts), ""]}]

    return Signature("translate_document", translate_document, examples)


def _translate(generation, text):
    """The outputs of `translate_document`; see `tfformer.text.document`."""
    text = generation.checked_rows("texts", tf.ensure_shape(text, [None]))
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    most = DOCUMENT_SOURCES * generation.max_source_length * CHARACTERS_PER_TOKEN
    kept = tf.strings.substr(text, 0, most, unit="UTF8_CHAR")
    sentences, space = split_sentences(kept)
    # A source ends with eos, which takes a place of each window.
    ids = generation.tokenizer.encode_source(sentences.flat_values)[:, :-1]
    length = generation.max_source_length - 1
    overlap = int(OVERLAP * length)
    windows, rows = split_windows(ids, length, overlap)
    found = join_windows(_search_windows(generation, windows), rows, overlap / length)
    translations = sentences.with_flat_values(generation.tokenizer.decode(found))
    return {
        "translation": join_sentences(translations, space),
        "sentences": tf.cast(sentences.row_lengths(), tf.int32),
        "truncated": tf.strings.length(kept) < tf.strings.length(text),
    }


def _search_windows(generation, windows):
    """RaggedTensor of source ids [M, (S)] without eos -> of target ids [M, (T)] without eos.

    Some at a time, those of like length together.
    """
    count = tf.cast(windows.nrows(), tf.int32)
    order = tf.argsort(tf.cast(windows.row_lengths(), tf.int32))
    block_size = min(DOCUMENT_BLOCK, generation.max_batch_size)
    blocks = tf.maximum(1, (count + block_size - 1) // block_size)

    def search_block(block, parts):
        chosen = tf.gather(windows, order[block * block_size :][:block_size])
        eos = tf.fill([chosen.nrows(), 1], EOS)
        found, _ = generation.beam_search(
            tf.concat([chosen, eos], axis=1).to_tensor(PAD), generation.options, num_results=1
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
