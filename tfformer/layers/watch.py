"""What the layers of a model attend to, noted while they compute it."""

import contextlib


@contextlib.contextmanager
def watched(model):
    """Inside, what each attention of an encoder and a decoder looks at is noted.

    Args:
        model: what has an `encoder` and a `decoder`, each with `layers`: a `Transformer`, or its
            twin. Each attention has a `watcher`, which is set here.

    Yields:
        {"encoder", "decoder", "cross"}: a list of float32 [B, H, T, S] each, a layer after the
        other. A layer may stand in both halves: the first of its calls are the encoder's.
    """
    found = {"encoder": [], "decoder": [], "cross": []}

    def of_itself(weights):
        first = len(found["encoder"]) < len(model.encoder.layers)
        found["encoder" if first else "decoder"].append(weights)

    layers = [*model.encoder.layers, *model.decoder.layers]
    own = [layer.self_attention for layer in layers]
    cross = [layer.cross_attention for layer in model.decoder.layers]
    for attentions, watcher in ((own, of_itself), (cross, found["cross"].append)):
        for attention in attentions:
            attention.watcher = watcher
    try:
        yield found
    finally:
        for attention in (*own, *cross):
            attention.watcher = None
