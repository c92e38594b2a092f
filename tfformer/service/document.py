"""`translate_document`: texts of any number of sentences, and sentences of any length."""

import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.service.checks import counted
from tfformer.service.limits import CHARACTERS_PER_TOKEN
from tfformer.service.signature import Signature, texts
from tfformer.text.document import (
    cut_documents,
    join_sentences,
    join_windows,
    split_sentences,
    split_windows,
)
from tfformer.text.vocabularies import valid_utf8

# The maximum length of a document, in sources of maximum length; and its maximum number of pieces,
# which are sentences, or windows of long sentences.
DOCUMENT_SOURCES, DOCUMENT_PIECES = 64, 1024
# The number of pieces searched at once; and the share by which the windows of a sentence overlap.
DOCUMENT_BLOCK, OVERLAP = 32, 0.25


def document_limits(max_source_length, max_batch_size):
    """The limits of documents: {name: number}, for one document, and for all of a request."""
    return {
        "max_document_characters": DOCUMENT_SOURCES * max_source_length * CHARACTERS_PER_TOKEN,
        "max_document_tokens": DOCUMENT_SOURCES * (max_source_length - 1),
        "max_document_pieces": DOCUMENT_PIECES,
        # Each row may have 64 sources of maximum length; or one row many short sentences.
        "max_request_pieces": max(DOCUMENT_PIECES, DOCUMENT_SOURCES * max_batch_size),
    }


def translate_document(generation):
    """`text` [B] -> `translation`, the number of `sentences`, and which are `truncated`."""

    def examples(samples):
        return [{"text": [". ".join(samples.texts), "\n".join(samples.texts), ""]}]

    function = generation.graph("translate_document", texts("text"), _translate)
    return Signature("translate_document", function, examples)


def _translate(generation, text):
    """Compute the outputs of `translate_document`; see `tfformer.text.document`."""
    text = valid_utf8(generation.checked_rows("texts", text))
    limits = document_limits(generation.max_source_length, generation.max_batch_size)
    kept = tf.strings.substr(text, 0, limits["max_document_characters"], unit="UTF8_CHAR")
    codes, document = generation.tokenizer.source.codes, kept
    if codes is not None:
        code, document = generation.split_codes(document)
    sentences, space = split_sentences(document)
    # A source ends with eos, which uses one token of each window; a code uses another one.
    ids = generation.tokenizer.encode_source(sentences.flat_values)[:, :-1]
    if generation.tokenizer.source.first is not None:
        ids = ids[:, 1:]  # here without the piece that each text begins with
    length = generation.max_source_length - (1 if codes is None else 2)
    overlap = int(OVERLAP * length)
    # One character may be many tokens, so a limit on characters alone is not enough.
    tokens, pieces = limits["max_document_tokens"], limits["max_document_pieces"]
    sentences, space, ids, cut = cut_documents(
        sentences, space, ids, tokens, pieces, length, overlap
    )
    windows, rows = split_windows(ids, length, overlap)
    windows = _checked(windows, limits["max_request_pieces"])
    documents = tf.gather(sentences.value_rowids(), rows)  # of the windows
    lengths = tf.cast(windows.row_lengths(), tf.int32)
    if codes is not None:
        windows = _coded(windows, tf.gather(code, documents))
    found = _search_windows(generation.of_rows(documents), windows)
    found = join_windows(found, rows, lengths, overlap)
    translations = sentences.with_flat_values(generation.tokenizer.decode(found))
    return {
        "translation": join_sentences(translations, space),
        "sentences": tf.cast(sentences.row_lengths(), tf.int32),
        "truncated": cut | (tf.strings.length(kept) < tf.strings.length(text)),
    }


def _checked(windows, maximum):
    """The windows, checked against the maximum number in a request."""
    count = tf.cast(windows.nrows(), tf.int32)
    ids = counted(windows.flat_values, ("pieces of all texts", count, maximum))
    return windows.with_flat_values(ids)


def _coded(windows, code):
    """Add the code of their document to the beginning of all windows that are not empty."""
    there = tf.gather(windows.row_lengths() > 0, code.value_rowids())
    return tf.concat([tf.ragged.boolean_mask(code, code.with_flat_values(there)), windows], axis=1)


def _search_windows(generation, windows):
    """RaggedTensor of source ids [M, (S)] without eos -> of target ids [M, (T)] without eos.

    Searches blocks of windows of similar length.
    """
    count = tf.cast(windows.nrows(), tf.int32)
    order = tf.argsort(tf.cast(windows.row_lengths(), tf.int32))
    block_size = min(DOCUMENT_BLOCK, generation.max_batch_size)
    blocks = tf.maximum(1, (count + block_size - 1) // block_size)

    def search_block(block, parts):
        places = order[block * block_size :][:block_size]
        chosen = tf.gather(windows, places)
        eos = tf.fill([chosen.nrows(), 1], EOS)
        own = generation.of_rows(places)
        ids, _, _ = own.written(tf.concat([chosen, eos], axis=1).to_tensor(PAD))
        inside = (ids != PAD) & (ids != EOS) & ~generation.is_code(ids, "target")
        ids = tf.ragged.boolean_mask(ids, inside)
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
