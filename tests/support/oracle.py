"""The Transformer in plain float64 NumPy, from the weights of the Keras layers: the second route.

It is written for reading: one head at a time, a dense one-hot target, no cache. Masks are Boolean,
True = may be attended to.
"""

import math

import numpy as np
from oracle_places import array, location, place_bias, turned


def assert_close(actual, expected, tolerance=1e-5):
    """Compares to within `tolerance` of the largest expected value, or of 1. The error of a
    float32 sum grows with its largest terms, and depends on the processor."""
    assert np.isfinite(expected).all()
    largest = max(1.0, np.max(np.abs(expected), initial=0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * largest)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def attention_weights(query, key, mask=None, bias=0.0):
    """softmax(Q K^T / sqrt(d_k) + bias) over the allowed positions; a fully masked row is 0."""
    scores = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1]) + bias
    allowed = np.broadcast_to(True if mask is None else mask, scores.shape)
    weights = np.zeros(scores.shape)
    for row in np.ndindex(scores.shape[:-1]):
        if allowed[row].any():
            weights[row][allowed[row]] = softmax(scores[row][allowed[row]])
    return weights


def attention(query, key, value, mask=None):
    return attention_weights(query, key, mask) @ value


def dense(layer, x):
    y = x @ array(layer.kernel)
    return y + array(layer.bias) if layer.use_bias else y


def head_weights(layer, query, value=None, mask=None, causal=False, below=None):
    """The attention weights of each head, [B, H, T, S]; the mask broadcasts to [B, T, S]."""
    value = query if value is None else value
    queries, keys = dense(layer.query_projection, query), dense(layer.key_projection, value)
    size, found = layer.head_size, []
    where = 0.0
    if layer.location is not None:
        if below is None:
            shape = (len(query), layer.num_heads, query.shape[1], value.shape[1])
            real = np.broadcast_to(mask[:, None], shape).astype("float64")
            below = real / np.maximum(real.sum(axis=-1, keepdims=True), 1)
        where = location(layer, below, mask)
    for h in range(layer.num_heads):
        g = h * layer.key_value_heads // layer.num_heads
        q, k = queries[..., h * size : (h + 1) * size], keys[..., g * size : (g + 1) * size]
        if layer.query_key_norm:
            q, k = layer_norm(layer.query_norm, q), layer_norm(layer.key_norm, k)
        if layer.positions == "rotary":
            q, k = turned(q, **layer.rotary), turned(k, **layer.rotary)
        bias = 0.0
        if layer.positions in ("alibi", "relative"):
            bias = place_bias(layer, h, query.shape[1], causal)
        if layer.location is not None:
            bias = where[:, h]
        found.append(attention_weights(q, k, mask, bias))
    return np.stack(found, 1)


def multi_head_attention(layer, query, value=None, mask=None, causal=False, below=None):
    """Concat(head_1, ..., head_h) W_O."""
    weights = head_weights(layer, query, value, mask, causal, below)
    values = dense(layer.value_projection, query if value is None else value)
    size, heads = layer.head_size, []
    for h in range(layer.num_heads):
        g = h * layer.key_value_heads // layer.num_heads
        heads.append(weights[:, h] @ values[..., g * size : (g + 1) * size])
    return dense(layer.output_projection, np.concatenate(heads, axis=-1))


def layer_norm(layer, x):
    """LayerNorm or another norm, by the kind of the layer."""
    kind = type(layer).__name__
    if kind == "RMSNorm":
        return array(layer.gamma) * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + layer.epsilon)
    assert kind in ("LayerNorm", "SimpleNorm", "AdaNorm", "BatchNorm"), kind
    if kind == "BatchNorm":
        mean, variance = array(layer.moving_mean), array(layer.moving_variance)
    else:
        mean = x.mean(axis=-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    normed = (x - mean) / np.sqrt(variance + layer.epsilon)
    if kind == "SimpleNorm":
        return normed
    if kind == "AdaNorm":
        return (1 - normed / 10) * normed
    return array(layer.gamma) * normed + array(layer.beta)


def gelu(x):
    """x Phi(x) with the exact normal distribution, not its tanh approximation."""
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x * sigmoid(x)


def feed_forward(layer, x):
    inner, outer, activation = layer.inner, layer.outer, layer.activation
    hidden = dense(inner, x)
    if activation in ("swiglu", "geglu"):
        gated = {"swiglu": silu, "geglu": gelu_tanh}[activation](hidden)
        return dense(outer, gated * dense(layer.gate, x))
    act = {"relu": lambda x: np.maximum(x, 0), "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
    act = act[activation]
    return dense(outer, act(hidden))


def residual(layer, x, sublayer):
    kept = x if layer.residual else 0.0
    if layer.norm == "pre":
        return kept + sublayer(layer_norm(layer.layer_norm, x))
    return layer_norm(layer.layer_norm, kept + sublayer(x))


def self_mask(mask, length, causal):
    """Padding [B, T] and causality in one mask that broadcasts to [B, T, T]."""
    allowed = np.tri(length, dtype=bool) if causal else np.ones((length, length), bool)
    return allowed[None] if mask is None else allowed[None] & mask[:, None, :]


def encoder_layer(layer, x, mask=None, causal=False):
    allowed = self_mask(mask, x.shape[1], causal)
    x = residual(
        layer.attention_residual,
        x,
        lambda x: multi_head_attention(layer.self_attention, x, mask=allowed, causal=causal),
    )
    return residual(layer.feed_forward_residual, x, lambda x: feed_forward(layer.feed_forward, x))


def decoder_self_attention(layer, x, x_mask=None, causal=True):
    allowed = self_mask(x_mask, x.shape[1], causal)
    return residual(
        layer.self_residual,
        x,
        lambda x: multi_head_attention(layer.self_attention, x, mask=allowed, causal=causal),
    )


def decoder_layer(layer, x, memory, x_mask=None, memory_mask=None, causal=True, below=None):
    allowed = None if memory_mask is None else memory_mask[:, None, :]
    x = decoder_self_attention(layer, x, x_mask, causal)
    x = residual(
        layer.cross_residual,
        x,
        lambda x: multi_head_attention(layer.cross_attention, x, memory, allowed, below=below),
    )
    return residual(layer.feed_forward_residual, x, lambda x: feed_forward(layer.feed_forward, x))


def encoder(layer, x, mask=None, causal=False):
    for one in layer.layers:
        x = encoder_layer(one, x, mask, causal)
    return layer_norm(layer.final_norm, x) if layer.options.ends_with_norm else x


def decoder(layer, x, memory, x_mask=None, memory_mask=None, causal=True):
    below = None
    for one in layer.layers:
        known = memory, x_mask, memory_mask, causal, below
        below = attended(one, x, *known) if one.location_width else None
        x = decoder_layer(one, x, *known)
    return layer_norm(layer.final_norm, x) if layer.options.ends_with_norm else x


def attended(layer, x, memory, x_mask, memory_mask, causal, below):
    """The attention of a decoder layer to the memory, [B, H, T, S]."""
    queries = decoder_self_attention(layer, x, x_mask, causal)
    if layer.norm == "pre":
        queries = layer_norm(layer.cross_residual.layer_norm, queries)
    allowed = None if memory_mask is None else memory_mask[:, None, :]
    return head_weights(layer.cross_attention, queries, memory, allowed, below=below)


def sinusoid(position, d_model):
    """[sin(a_0), cos(a_0), sin(a_1), ...] with a_i = position / 10000^(2i / d_model)."""
    row = []
    for i in range(d_model // 2):
        angle = position / 10000 ** (2 * i / d_model)
        row += [math.sin(angle), math.cos(angle)]
    return np.array(row)


def sinusoids(length, d_model, start=0):
    return np.stack([sinusoid(start + position, d_model) for position in range(length)])


def embed(embedding, ids):
    """onehot(id) E sqrt(D)."""
    matrix = array(embedding.embeddings)
    return np.eye(len(matrix))[ids] @ matrix * math.sqrt(matrix.shape[1])


def embed_with_positions(embedding, positions, ids):
    x = embed(embedding, ids)
    if hasattr(positions, "embeddings"):
        return x + array(positions.embeddings)[: ids.shape[1]]
    if type(positions).__name__ == "NoPositions":
        return x
    return x + sinusoids(ids.shape[1], x.shape[-1])


def embedded(model, ids, side=""):
    """The input of a stack: embeddings with positions, and the norm after them if there is one."""
    layers = (getattr(model, f"{side}{name}") for name in ("embedding", "positions"))
    return normed(model, embed_with_positions(*layers, ids), side)


def normed(model, x, side=""):
    """The norm after the embeddings, if there is one."""
    norm = getattr(model, f"{side}embedding_norm")
    return x if norm is None else layer_norm(norm, x)


def seen(model, source_ids):
    """Which ids of a source the encoder sees: not padding, and in some models not eos."""
    return (source_ids != 0) & (model.config.source_eos | (source_ids != 3))


def transformer(model, source_ids, target_ids):
    source, target = seen(model, source_ids), target_ids != 0
    x = embedded(model, source_ids, "source_")
    memory = encoder(model.encoder, x, source)
    x = embedded(model, target_ids, "target_")
    x = decoder(model.decoder, x, memory, target, source)
    if model.config.tie_embeddings == "none":
        logits = dense(model.output_projection, x)
    else:
        logits = x @ array(model.target_embedding.embeddings).T
        if model.config.output_bias:
            logits = logits + array(model.output_projection.bias)
    if not model.config.copy:
        return logits
    gate = sigmoid(dense(model.output_projection.gate, x))
    attention = cross_attention_weights(model, source_ids, target_ids)[-1].mean(axis=1)
    return np.log(pointer_generator(gate, softmax(logits), attention, source_ids))


def non_autoregressive(model, source_ids, target_ids=None):
    """(logits [B, T, V] of the output, and for mask-predict the logits [B, 2 n + 1] of the
    lengths); without target ids, T = k S."""
    source = source_ids != 0
    x = embedded(model, source_ids, "source_")
    memory, lengths = encoder(model.encoder, x, source), None
    if model.length is not None:
        means = [row[real].mean(axis=0) for row, real in zip(memory, source, strict=True)]
        lengths = dense(model.length.projection, np.stack(means))
        target = target_ids != 0
        x = embedded(model, target_ids, "target_")
    else:
        places = model.upsampling.factor
        target = np.repeat(source, places, axis=1)
        x = dense(model.upsampling.projection, memory).reshape(len(source), -1, memory.shape[2])
        x = normed(model, x + sinusoids(x.shape[1], x.shape[2]), "target_")
    x = decoder(model.decoder, x, memory, target, source, causal=False)
    if model.config.tie_embeddings == "none":
        return dense(model.output_projection, x), lengths
    return x @ array(model.target_embedding.embeddings).T, lengths


def language_model(model, ids):
    x = embedded(model, ids)
    x = encoder(model.decoder, x, ids != 0, causal=True)
    tied = model.config.tie_embeddings == "all"
    kernel = array(model.embedding.embeddings).T if tied else array(model.output_projection.kernel)
    return x @ kernel + (array(model.output_projection.bias) if model.config.output_bias else 0)


def text_states(model, ids):
    """The states of the tokens of texts, by an encoder-only model, row by row. It includes the
    tokens that the model adds; padding has the state 0."""
    found = np.zeros((*ids.shape, model.config.d_model))
    for state, row in zip(found, ids, strict=True):
        read, places = _as_read(model.config, row[row != 0].tolist())
        state[: len(places)] = _states(model, read)[places]
    return found


def _as_read(config, row):
    """The ids that the encoder reads, and the position of each id of the row among them."""
    first = row.index(3) if 3 in row else len(row)
    question, text = row[: first + 1], row[first + 1 :]
    more = [3] * (getattr(config, "separators", 1) - 1)
    begins = [2] * (config.added - len(more))
    places = [len(begins) + n + (n > first) * len(more) for n in range(len(row))]
    return [*begins, *question, *more, *text], places


def _states(model, ids):
    """The states of one row of ids."""
    ids = np.array([ids])
    x = embed_with_positions(model.embedding, model.positions, ids)
    if getattr(model, "token_types", None) is not None:
        first = ids[0].tolist().index(3)
        x[:, : first + 1] += array(model.token_types.embeddings)[0]
        x[:, first + 1 :] += array(model.token_types.embeddings)[1]
    return encoder(model.encoder, normed(model, x))[0]


def piece_vectors(model, ids):
    """For each row, the mean over the tokens that are read, or the state of bos."""
    found = [_states(model, _as_read(model.config, row[row != 0].tolist())[0]) for row in ids]
    return np.stack([x[0] if model.config.pooling == "bos" else x.mean(axis=0) for x in found])


def windows(ids, length, overlap):
    """A text [n], cut into windows until one has its last token."""
    found = [ids[:length]]
    while (start := len(found) * (length - overlap)) + overlap < len(ids):
        found.append(ids[start : start + length])
    return found


def lstm(cell, xs):
    """The last state of Keras's LSTM cell, over a sequence of vectors."""
    kernel, recurrent, bias = (array(w) for w in (cell.kernel, cell.recurrent_kernel, cell.bias))
    h = c = np.zeros(recurrent.shape[0])
    for x in xs:
        i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h


def text_vectors(model, ids):
    """A vector for each text, read whole or in pieces whose vectors are combined."""
    config, found = model.config, []
    for row in ids:
        text = row[row != 0]
        if not config.piece_length:
            found.append(piece_vectors(model, text[None])[0])
            continue
        cut = windows(text, config.piece_length, config.piece_overlap)
        vectors = np.concatenate([piece_vectors(model, piece[None]) for piece in cut])
        if config.pieces == "lstm":
            found.append(lstm(model.combined.lstm.cell, vectors))
            continue
        if config.pieces == "transformer":
            x = vectors + sinusoids(len(vectors), config.d_model)
            vectors = encoder(model.combined, x[None])[0]
        found.append(vectors.mean(axis=0))
    return np.stack(found)


def classifier(model, ids):
    x = text_vectors(model, ids)
    if model.config.pooler != "none":
        x = dense(model.pooler, x)
        x = np.tanh(x) if model.config.pooler == "tanh" else np.maximum(x, 0)
    return dense(model.output_projection, x)


def embedder(model, ids):
    x = piece_vectors(model, ids)
    return x / np.linalg.norm(x, axis=1, keepdims=True) if model.config.normalize else x


def transform(layer, x):
    """The layer before the output of a masked language model."""
    act = {"relu": lambda x: np.maximum(x, 0), "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
    return layer_norm(layer.layer_norm, act[layer.activation](dense(layer.dense, x)))


def cross_attention_weights(model, source_ids, target_ids):
    """For each decoder layer, [B, H, T, S]."""
    source, target = seen(model, source_ids), target_ids != 0
    x = embedded(model, source_ids, "source_")
    memory = encoder(model.encoder, x, source)
    x = embedded(model, target_ids, "target_")
    found, below = [], None
    for layer in model.decoder.layers:
        known = memory, target, source, True, below
        found.append(attended(layer, x, *known))
        x = decoder_layer(layer, x, *known)
        below = found[-1] if layer.location_width else None
    return found


def pointer_generator(gate, generated, attention, source_ids):
    """g P_generated + (1 - g) times the sum of the attention to each id, position by position.

    Args:
        gate: g, [B, T, 1].
        generated: probabilities [B, T, V].
        attention: [B, T, S].
        source_ids: [B, S].
    """
    copied = np.zeros(generated.shape)
    for row, place in np.ndindex(source_ids.shape):
        copied[row, :, source_ids[row, place]] += attention[row, :, place]
    return gate * generated + (1 - gate) * copied


def smoothed_targets(labels, size, smoothing):
    """(1 - a) onehot(y) + a / V, dense [B, T, V]."""
    return (1 - smoothing) * np.eye(size)[labels] + smoothing / size


def smoothed_cross_entropy(labels, logits, smoothing, weights=1.0):
    """-sum q log p, the weighted mean over the tokens that are not padding."""
    targets = smoothed_targets(labels, logits.shape[-1], smoothing)
    loss = -(targets * np.log(softmax(logits))).sum(axis=-1)
    weights = (labels != 0) * weights
    return (loss * weights).sum() / weights.sum()
