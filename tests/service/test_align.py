"""The source tokens that each target token attends to."""

import numpy as np
import oracle
from search_oracle import BOS


def test_attention_is_a_distribution_over_the_source_for_each_target_token(serve, tokenizer):
    sources, targets = ["ein kleines Haus am See", "a lake"], ["by", "der Garten blüht"]
    found = serve("align", sources, targets)
    encoded = zip(
        tokenizer.encode_source(sources).row_lengths().numpy(),
        tokenizer.encode_target(targets).row_lengths().numpy(),
        strict=True,
    )
    for b, (source_length, target_length) in enumerate(encoded):
        attention = found["attention"][b]
        np.testing.assert_allclose(attention[:target_length].sum(axis=1), 1, rtol=1e-5)
        assert (attention >= 0).all()
        assert not attention[target_length:].any()
        assert not attention[:, source_length:].any()
        for texts, key, length in (
            (sources, "source_tokens", source_length),
            (targets, "target_tokens", target_length),
        ):
            pieces = found[key][b]
            assert pieces[length - 1] == b"</s>"
            assert (pieces[length:] == b"").all()
            joined = b"".join(pieces[: length - 1]).decode()
            assert joined.replace("▁", " ").strip() == texts[b]


def test_attention_is_the_mean_over_the_heads_of_the_last_layer(serve, model, tokenizer):
    sources, targets = ["ein Haus", "a"], ["by the lake", "der"]
    found = serve("align", sources, targets)["attention"]
    for b in (0, 1):
        source_ids = tokenizer.encode_source(sources[b : b + 1]).to_tensor().numpy()
        labels = tokenizer.encode_target(targets[b : b + 1]).to_tensor().numpy()
        target_ids = np.concatenate([[[BOS]], labels[:, :-1]], axis=1)
        memory = oracle.encoder(
            model.encoder,
            oracle.embed_with_positions(model.source_embedding, model.source_positions, source_ids),
        )
        x = oracle.embed_with_positions(model.target_embedding, model.target_positions, target_ids)
        *others, last = model.decoder.layers
        for layer in others:
            x = oracle.decoder_layer(layer, x, memory)
        x = oracle.decoder_self_attention(last, x)
        expected = oracle.head_weights(last.cross_attention, x, memory).mean(axis=1)[0]
        part = found[b, : expected.shape[0], : expected.shape[1]]
        np.testing.assert_allclose(part, expected, rtol=1e-3, atol=1e-5)
