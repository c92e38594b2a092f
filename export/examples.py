"""Requests made up for a translator: what its export is verified with, and warmed up with."""

import numpy as np
import sentencepiece

SAMPLES = 5
MAX_LENGTH = 24  # of what the slow search is asked: its time grows with the square
WARMUP_LENGTHS = (4, 16, 64, 256)  # source tokens


def warmup_requests(translator):
    """One request for each signature, and for `serving_default` one for each bucket of lengths."""
    requests = sample_requests(translator)
    chosen = {name: asked[:1] for name, asked in requests.items()}
    longest = translator.max_source_length - 1
    buckets = [
        sample_text(translator.tokenizer, size, seed=size)
        for size in sorted({min(size, longest) for size in WARMUP_LENGTHS})
    ]
    together = in_rows({"text": buckets}, translator.max_batch_size)
    chosen["serving_default"] = [{"text": [text]} for text in buckets] + together
    return chosen


def in_rows(request, most):
    """A request as requests of at most `most` rows; a number is said in each of them."""
    rows = max(len(value) for value in request.values() if isinstance(value, list))
    return [
        {
            name: value[start : start + most] if isinstance(value, list) else value
            for name, value in request.items()
        }
        for start in range(0, rows, most)
    ]


def batchable(signatures):
    """The names of those that a server can batch: every input is a string [B]."""
    return [
        name
        for name, function in signatures.items()
        if all(spec.dtype == "string" and spec.shape.rank == 1 for spec in function.input_signature)
    ]


def sample_requests(translator):
    """Requests to every signature: texts of the vocabulary's own pieces, and awkward ones.

    Returns:
        {signature: [{input: value}]}, the same for the same tokenizer.
    """
    tokenizer = translator.tokenizer
    texts = [*sample_texts(tokenizer), "", " \u00a0 ", "Grüße, 你好 🎉", "a\x00b\tc"]
    source_ids = tokenizer.encode_source(np.array(texts[:SAMPLES], object)).to_tensor().numpy()
    source_ids = source_ids[:, : translator.max_source_length]
    targets = texts[::-1]
    prefixes = [target.split(" ")[0] for target in targets]
    longest = translator.max_target_length
    # What the slow search knows: no rules, whatever the export's own are.
    short = {"max_length": min(MAX_LENGTH, longest), "min_length": 0, "max_length_factor": 0.0}
    short |= {"coverage_penalty": 0.0, "repetition_penalty": 1.0, "no_repeat_ngram": 0}
    small = {"beam_width": 2, "length_penalty": 0.0, "max_length": 7}
    rules = {"min_length": min(3, longest), "max_length_factor": 1.5, "coverage_penalty": 0.2}
    rules |= {"repetition_penalty": 1.3, "no_repeat_ngram": 2}
    narrow = {"seed": 7, "temperature": 0.5, "top_k": 5, "top_p": 0.9}
    requests = {
        "serving_default": [{"text": texts}, {"text": texts[:1]}],
        "translate_document": [{"text": [". ".join(texts), "\n".join(texts), ""]}],
        "beam_search": [{"text": texts}, {"text": texts, **small}, {"text": texts, **rules}],
        "beam_search_ids": [{"source_ids": source_ids.tolist(), **short}],
        "score": [{"source": texts, "target": targets}],
        "sample": [{"text": texts}, {"text": texts, **narrow}],
        "complete": [{"text": texts, "prefix": prefixes}],
        "align": [{"source": texts, "target": targets}],
    }
    most = translator.max_batch_size
    return {
        name: [part for request in asked for part in in_rows(request, most)]
        for name, asked in requests.items()
    }


def sample_texts(tokenizer):
    """A few texts of one to nine random pieces of the source vocabulary."""
    return [sample_text(tokenizer, 1 + 2 * n, seed=n) for n in range(SAMPLES)]


def sample_text(tokenizer, size, seed):
    """A text of so many random pieces of the source vocabulary, the same for the same seed."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.source_model)
    pieces = [i for i in range(4, processor.vocab_size()) if not processor.is_byte(i)]
    ids = np.random.default_rng(seed).choice(pieces, size)
    return processor.decode([int(i) for i in ids]) or "a"
