"""CTranslate2 with random weights of the job's size, written by its own converter's specs.

Options of the job: `compute_type`; the version shows which one CTranslate2 really uses. `parts`:
whether the threads take a part of a request each, instead of sharing its operations.
"""

import tempfile

from benchmarks.peers.protocol import Peer, serve


def load(job):
    import ctranslate2

    parts = (job["threads"] or 2) if job["options"].get("parts") else 1
    with tempfile.TemporaryDirectory() as folder:
        random_model(job["size"], job["vocabulary"]).save(folder)
        translator = ctranslate2.Translator(
            folder,
            device="cpu",
            compute_type=job["options"]["compute_type"],
            inter_threads=parts,
            intra_threads=1 if parts > 1 else job["threads"] or 0,
        )

    def decode(sentences):
        return translator.translate_batch(
            sentences,
            beam_size=job["beam_width"],
            min_decoding_length=job["steps"],
            max_decoding_length=job["steps"],
            max_batch_size=-(-len(sentences) // parts) if parts > 1 else 0,
        )

    return Peer(
        version=f"CTranslate2 {ctranslate2.__version__} {translator.compute_type}",
        prepare=lambda batch: [[job["vocabulary"][i] for i in row] for row in batch["ids"]],
        decode=decode,
        lengths=lambda sentences: [len(found.hypotheses[0]) for found in decode(sentences)],
    )


def random_model(size, vocabulary):
    """The paper's Transformer as a `TransformerSpec` that can be saved."""
    import numpy as np
    from ctranslate2.specs import common_spec, transformer_spec

    d_model, d_ff = size["d_model"], size["d_ff"]
    changes = size.get("changes", {})
    layers = (
        changes.get("num_encoder_layers", size["num_layers"]),
        changes.get("num_decoder_layers", size["num_layers"]),
    )
    random = np.random.default_rng(1)
    spec = transformer_spec.TransformerSpec.from_config(
        layers, size["num_heads"], pre_norm=False, activation=common_spec.Activation.RELU
    )

    def normal(*shape):
        return (0.08 * random.standard_normal(shape)).astype("float32")

    def linear(layer, outputs, inputs):
        layer.weight, layer.bias = normal(outputs, inputs), normal(outputs)

    def norm(layer):
        layer.gamma, layer.beta = np.ones(d_model, "float32"), np.zeros(d_model, "float32")

    angles = np.arange(512)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    positions = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(512, d_model)
    embedding = normal(len(vocabulary), d_model)
    sides = [
        (spec.encoder, spec.encoder.embeddings[0]),
        (spec.decoder, spec.decoder.embeddings),
    ]
    for side, embeddings in sides:
        embeddings.weight = embedding
        embeddings.multiply_by_sqrt_depth = True
        side.scale_embeddings = True
        side.position_encodings.encodings = positions.astype("float32")
        for layer in side.layer:
            linear(layer.self_attention.linear[0], 3 * d_model, d_model)  # queries, keys, values
            linear(layer.self_attention.linear[1], d_model, d_model)
            norm(layer.self_attention.layer_norm)
            if side is spec.decoder:
                linear(layer.attention.linear[0], d_model, d_model)
                linear(layer.attention.linear[1], 2 * d_model, d_model)  # keys, values
                linear(layer.attention.linear[2], d_model, d_model)
                norm(layer.attention.layer_norm)
            linear(layer.ffn.linear_0, d_ff, d_model)
            linear(layer.ffn.linear_1, d_model, d_ff)
            norm(layer.ffn.layer_norm)
    linear(spec.decoder.projection, len(vocabulary), d_model)
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.add_source_eos = False  # the rows have theirs
    spec.validate()
    return spec


if __name__ == "__main__":
    serve(load)
