"""Records the attention weights of a model while it computes them."""

import contextlib


@contextlib.contextmanager
def watched(model):
    """Inside this context, each attention of an encoder and a decoder records its weights.

    Args:
        model: a `Transformer` or its inference layer; its `encoder` and `decoder` have `layers`.
            This function sets the `watcher` of each attention.

    Yields:
        {"encoder", "decoder", "cross"}: a list of float32 [B, H, T, S] each, in the order of the
        layers. Encoder and decoder may share a layer: its first calls belong to the encoder.
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
