"""Generates requests for a service, to verify an export and to warm up a server."""

import numpy as np

from tfformer.service.signature import Samples

SAMPLES = 5


def samples_for(service):
    """Texts and ids for the signatures' example requests: texts from pieces of the vocabulary, and
    unusual ones. The same tokenizer gives the same samples."""
    tokenizer = service.tokenizer
    texts = [tokenizer.sample_text(1 + 2 * n, seed=n) for n in range(SAMPLES)]
    source_ids = tokenizer.encode_source(np.array(texts, object)).to_tensor().numpy()
    return Samples(
        texts=[*texts, "", " \u00a0 ", "Grüße, 你好 🎉", "a\x00b\tc"],
        source_ids=source_ids[:, : service.max_source_length].tolist(),
        longest=service.max_target_length,
        of_length=lambda size: tokenizer.sample_text(size, seed=size),
        source_length=service.max_source_length,
    )


def sample_requests(service):
    """Example requests to every signature: {signature: [{input: value}]}."""
    samples, maximum = samples_for(service), service.max_batch_size
    return {
        name: [part for asked in signature.examples(samples) for part in in_rows(asked, maximum)]
        for name, signature in service.signatures.items()
    }


def warmup_requests(service):
    """Warm-up requests for each signature: its own choice, or else its first example."""
    samples, maximum = samples_for(service), service.max_batch_size
    chosen = {}
    for name, signature in service.signatures.items():
        if signature.warmup is not None:
            asked = signature.warmup(samples)
            chosen[name] = [part for request in asked for part in in_rows(request, maximum)]
        else:
            chosen[name] = in_rows(signature.examples(samples)[0], maximum)[:1]
    return chosen


def in_rows(request, maximum):
    """Splits a request into requests of at most `maximum` rows. Each of them gets the scalars."""
    rows = max(len(value) for value in request.values() if isinstance(value, list))
    return [
        {
            name: value[start : start + maximum] if isinstance(value, list) else value
            for name, value in request.items()
        }
        for start in range(0, rows, maximum)
    ]
