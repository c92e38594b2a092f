"""Splits long text in the graph: documents into sentences, and long sentences into windows.

A Transformer handles the lengths of its training texts: sentences. So a document is translated
sentence by sentence. A sentence above the maximum source length is split into overlapping windows.
Their translations overlap too, and are joined where they agree.
"""

import tensorflow as tf

from tfformer.config import PAD
from tfformer.text.abbreviations import WORDS, alternation

# Marks the boundary between a sentence and the white space after it. It occurs in no text.
MARK = "\x1e"
# Control characters, except tabs and new lines.
CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x{9f}]"
# After these a full stop does not end a sentence, in the languages that use these titles.
TITLES = "Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Nr|No|Hr|Fr|Bd|Mme|Mlle|Sra|vs|bzw|ca|z\\.B|e\\.g|i\\.e"
CLOSING, OPENING = "[\"'”’»)\\]]*", "[\"'“„‘«(\\[¿¡]*"
# The end of a sentence. A full stop after a number or an initial does not end one.
END = rf"(?:\S[^\s\d.!?…][.!?…]+|\d[!?…]+){CLOSING}"
BEGINNING = rf"{OPENING}[\p{{Lu}}\p{{Lt}}\p{{Lo}}\p{{N}}]"
BREAKS = (
    # A new line, with the white space around it.
    (r"\s*\n\s*", rf"{MARK}\0{MARK}"),
    # An East Asian full stop needs no space after it.
    (r"[。！？]+[」』”’）]*", rf"\0{MARK}{MARK}"),
    (rf"({END})([ \t\xa0]+)({BEGINNING})", rf"\1{MARK}\2{MARK}\3"),
)
# Exceptions: no sentence begins after a title, and none begins with a digit after an abbreviation.
GAP = rf"{MARK}([ \t\xa0]+){MARK}"
NO_BREAKS = (
    (rf"\b({TITLES})\.{GAP}", r"\1.\2"),
    (
        rf"((?:^|[^\p{{L}}\p{{M}}]){alternation(WORDS)}\.){GAP}({OPENING}\p{{N}})",
        r"\1\2\3",
    ),
)
# The minimum number of consecutive equal tokens at which two translations agree.
MIN_AGREEMENT = 3


def split_sentences(text):
    """Split texts into sentences and the white space after each.

    A sentence ends at a new line, at `.`, `!`, `?` or `…` before white space and a capital letter
    or digit, and at East Asian full stops. A full stop after a number, an initial or one of a few
    titles (`TITLES`) does not end it; nor does one after an abbreviation, if a digit follows.

    Args:
        text: string [B], UTF-8.

    Returns:
        (sentences, white space), two string RaggedTensors [B, (N)]. Joined alternately, they give
        the text again. The last white space of each text is empty.
    """
    text = tf.strings.regex_replace(text, "\r\n?", "\n")
    text = tf.strings.regex_replace(text, CONTROLS, " ")
    for pattern, rewrite in (*BREAKS, *NO_BREAKS):
        text = tf.strings.regex_replace(text, pattern, rewrite)
    parts = tf.strings.split(text, MARK)
    nothing = tf.fill([tf.shape(text)[0], 1], "")
    return parts[:, ::2], tf.concat([parts[:, 1::2], nothing], axis=1)


def join_sentences(sentences, space):
    """Join translated sentences into texts.

    New lines and the white space around them are kept. Between two sentences of a line comes one
    space, but none after an East Asian full stop.

    Args:
        sentences: string RaggedTensor [B, (N)].
        space: the white space after each in the source, from `split_sentences`.

    Returns:
        string [B].
    """
    closed = tf.strings.regex_full_match(sentences.flat_values, r"(?s).*[。！？][」』”’）]*")
    # The following sentence; empty at the end.
    end = tf.fill([sentences.nrows(), 1], "")
    following = tf.concat([sentences[:, 1:], end], axis=1).flat_values
    apart = tf.where(closed | tf.equal(following, ""), "", " ")
    new_line = tf.strings.regex_full_match(space.flat_values, r"(?s).*\n.*")
    apart = tf.where(new_line, space.flat_values, apart)
    joined = sentences.with_flat_values(tf.strings.join([sentences.flat_values, apart]))
    return tf.strings.reduce_join(joined, axis=1)


def cut_documents(sentences, space, ids, tokens, pieces, length, overlap):
    """Cut documents to a maximum number of tokens and of windows.

    Args:
        sentences, space: string RaggedTensors [B, (N)], from `split_sentences`.
        ids: RaggedTensor int32 [M, (S)], the tokens of all sentences.
        tokens: the maximum tokens of a document, an integer. A sentence that exceeds it is cut.
        pieces: the maximum windows of a document, an integer. A sentence that exceeds it is
            dropped.
        length, overlap: those of a window, see `split_windows`.

    Returns:
        (sentences, space, ids, cut boolean [B]): what is kept, and which documents were cut.
    """
    sizes = tf.cast(ids.row_lengths(), tf.int32)
    before = _before(sizes, sentences)
    room = tf.clip_by_value(tokens - before, 0, sizes)
    counts = _windows(room, length, overlap)
    kept = (before < tokens) & (_before(counts, sentences) + counts <= pieces)
    room = tf.where(kept, room, 0)
    ends = tf.cast(ids.row_starts(), tf.int32) + room
    inside = tf.range(tf.size(ids.flat_values)) < tf.gather(ends, ids.value_rowids())
    values = tf.gather(ids.flat_values, tf.where(inside)[:, 0])
    remaining = tf.where(kept)[:, 0]
    ids = _rows(values, tf.gather(room, remaining))
    documents, count = sentences.value_rowids(), sentences.nrows()
    cut = tf.math.unsorted_segment_max(tf.cast(~kept | (room < sizes), tf.int32), documents, count)
    counts = tf.math.unsorted_segment_sum(tf.cast(kept, tf.int64), documents, count)
    sentences, space = (
        _rows(tf.gather(part.flat_values, remaining), counts) for part in (sentences, space)
    )
    return sentences, space, ids, cut > 0


def _rows(values, lengths):
    """Split values into rows of these lengths, which must add up to the number of values."""
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def _before(numbers, sentences):
    """For each sentence, int32 [M], the sum of `numbers` of earlier sentences in its document."""
    sums = tf.cumsum(numbers, exclusive=True)
    return sums - tf.gather(tf.gather(sums, sentences.row_starts()), sentences.value_rowids())


def _windows(sizes, length, overlap):
    """The number of windows for rows of these sizes: 1, plus the strides to reach the end."""
    stride = length - overlap
    return 1 + tf.maximum(sizes - length + stride - 1, 0) // stride


def split_windows(ids, length, overlap):
    """Split rows of ids into windows of at most `length` tokens. Each window begins `overlap`
    tokens before the end of the previous one.

    Args:
        ids: RaggedTensor int32 [N, (S)].
        length: an integer.
        overlap: an integer, less than `length`.

    Returns:
        (windows RaggedTensor int32 [M, (S)], the row of each window int32 [M]). An empty row gives
        one empty window.
    """
    sizes, stride = tf.cast(ids.row_lengths(), tf.int32), length - overlap
    counts = _windows(sizes, length, overlap)
    rows = tf.repeat(tf.range(tf.size(sizes)), counts)
    number = tf.range(tf.size(rows)) - tf.gather(tf.cumsum(counts, exclusive=True), rows)
    starts = number * stride
    ends = tf.minimum(starts + length, tf.gather(sizes, rows))
    first = tf.cast(tf.gather(ids.row_starts(), rows), tf.int32)
    windows = tf.gather(ids.flat_values, tf.ragged.range(first + starts, first + ends))
    return windows, rows


def join_windows(ids, rows, lengths, overlap):
    """Join the translations of windows into the translations of their rows.

    Two consecutive translations are joined if they share a run of at least 3 tokens. The end of the
    first and the beginning of the second are cut in the middle of this run. If there are several
    runs, the best has the highest value: its length, up to the expected overlap, minus the
    difference between its overlap and the expected one, in tokens. The expected overlap is the
    overlap of the sources times the number of target tokens per source token. So a text that
    repeats itself is not joined one repetition too far. Without such a run, each of the two loses
    half the expected overlap. A join removes at most twice the expected overlap.

    Args:
        ids: RaggedTensor int32 [M, (T)], without eos.
        rows: int32 [M], the row of each window, in order, without gaps.
        lengths: int32 [M], the number of source tokens in each window.
        overlap: the number of source tokens that consecutive windows share, an integer.

    Returns:
        RaggedTensor int32 [N, (T)].
    """
    sizes = tf.cast(ids.row_lengths(), tf.int32)
    # The overlap in tokens of each translation.
    rates = tf.cast(sizes, tf.float32) / tf.cast(tf.maximum(lengths, 1), tf.float32)
    shared = overlap * rates
    expected = (shared[:-1] + shared[1:]) / 2
    # Twice the overlap, because the ratio of target to source tokens varies within a text.
    reach = tf.minimum(tf.cast(tf.math.ceil(2.0 * shared), tf.int32), sizes)
    maximum = tf.reduce_max(tf.concat([reach, [1]], axis=0))
    # The last and first `maximum` tokens of a window; those out of reach match nothing.
    places = tf.range(maximum)
    offsets = sizes[:, None] - maximum + places
    tails = tf.where(places >= maximum - reach[:, None], _tokens(ids, offsets), -1)
    heads = tf.where(places < reach[:, None], _tokens(ids, places), -2)
    size, tail_end, head_end = _best_run(tails[:-1], heads[1:], expected)
    agreed = size > 0
    half = tf.cast(tf.round(shared / 2), tf.int32)
    end = tf.where(agreed, sizes[:-1] - maximum + tail_end - size // 2, sizes[:-1] - half[:-1])
    begin = tf.where(agreed, head_end - size // 2, half[1:])
    together = tf.equal(rows[:-1], rows[1:])
    begins = tf.concat([tf.zeros_like(sizes[:1]), tf.where(together, begin, 0)], axis=0)
    ends = tf.concat([tf.where(together, end, sizes[:-1]), sizes[-1:]], axis=0)
    # A window becomes empty if its neighbours cover it.
    first = tf.cast(ids.row_starts(), tf.int32)
    kept = tf.ragged.range(first + begins, first + tf.maximum(begins, ends))
    counts = tf.math.segment_sum(tf.cast(kept.row_lengths(), tf.int32), rows)
    return tf.RaggedTensor.from_row_lengths(tf.gather(ids.flat_values, kept.flat_values), counts)


def _tokens(ids, places):
    """The tokens at `places` [M, R] of the rows of `ids`; arbitrary values outside a row."""
    values = tf.concat([ids.flat_values, [PAD]], axis=0)
    places += tf.cast(ids.row_starts(), tf.int32)[:, None]
    return tf.gather(values, tf.clip_by_value(places, 0, tf.size(values) - 1))


def _best_run(tails, heads, expected):
    """Find the run of tokens at which to join two translations, for each pair of rows [P, R].

    Args:
        tails: the last R tokens of the first.
        heads: the first R tokens of the second.
        expected: float32 [P], the expected overlap.

    Returns:
        int32 [P] each: the length of the run, and its end in each of the two; 0 if there is none.
    """
    length = tf.shape(tails)[1]
    places, expected = tf.range(length), expected[:, None]

    def step(place, run, best, value):
        """`run` [P, R]: the length of the run that ends at this tail position and each head."""
        run = tf.where(tf.equal(tails[:, place, None], heads), 1 + tf.pad(run, one)[:, :-1], 0)
        # The overlap of the two if they are aligned here.
        overlap = tf.cast(length - place + places, tf.float32)  # [R]
        values = tf.minimum(tf.cast(run, tf.float32), expected) - tf.abs(overlap - expected)
        allowed = (run >= MIN_AGREEMENT) & (overlap <= 2 * expected)
        values = tf.where(allowed, values, -tf.float32.max)
        head = tf.argmax(values, axis=1, output_type=tf.int32)
        newest = tf.reduce_max(values, axis=1)
        size = tf.gather(run, head, batch_dims=1)
        found = (size, tf.fill(tf.shape(size), place + 1), head + 1)
        better = newest > value
        best = [tf.where(better, *pair) for pair in zip(found, best, strict=True)]
        return place + 1, run, best, tf.maximum(newest, value)

    one = [[0, 0], [1, 0]]
    nothing = [tf.zeros_like(tails[:, 0])] * 3
    worst = tf.fill(tf.shape(tails[:, 0]), -tf.float32.max)
    _, _, best, _ = tf.while_loop(
        lambda place, *_: place < length,
        step,
        (0, tf.zeros_like(heads), nothing, worst),
        parallel_iterations=1,
    )
    return best
