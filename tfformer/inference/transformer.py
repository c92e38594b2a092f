"""The Transformer for inference: the same equations in few TensorFlow operations.

A layer of Keras is written to be trained, on any backend and in any shape. A search runs the
decoder once a token, over four rows for a sentence, where each operation costs more than what it
computes. So the forward pass stands here once more, over rows [B * T, D], with the products that
share an input made one, and a cache that is written in place. `tests/inference/test_fuse.py` holds
it to the layers, to 1e-5.
"""

import functools

import tensorflow as tf

from tfformer.config import PAD
from tfformer.layers.positions import sinusoids
from tfformer.search import State, StepResult

# Added to a score that may not be attended to. (Where nothing may be, this attends to all alike,
# and the layers give zeros: no search asks for such a row.)
MASKED = -1e9


def _widened(size, parts=1):
    """With how many columns each of `parts` matrices of `size` columns is stored, side by side.

    Rows that lie a multiple of 512 float32 apart, 2 KiB, share the sets of a processor's caches,
    and such a product takes up to twice as long: 46 in place of 95 GFLOP/s, for 64 rows times
    [256, 1024].
    """
    return size + 16 if size * parts % 512 == 0 else size


def fused_weights(model, num_positions, dtype=None):
    """The weights of a `Transformer` as `Inference` wants them: a nest of dicts and lists.

    Queries, keys and values of an attention are one matrix [D, 3D], the queries already divided by
    sqrt(K); the memory's keys and values of all N decoder layers are one [D, 2ND]; an embedding
    that is the output projection too is transposed, [D, V]. A matrix of a multiple of 512 columns
    has 16 more, of zeros, which `Inference` cuts off.

    Args:
        model: the `Transformer`; its variables are read here, in the graph that is being traced.
        num_positions: rows of the table of positions.
        dtype: of what is multiplied; norms are float32. Default: the model's compute dtype.
    """
    config, dtype = model.config, dtype or model.compute_dtype
    scale = (config.d_model // config.num_heads) ** -0.5

    def widened(kernel, parts=1):
        size = kernel.shape[-1]
        more = _widened(size, parts) - size
        return tf.pad(kernel, [[0, 0]] * (kernel.shape.rank - 1) + [[0, more]])

    def dense(*layers, scales=None, parts=1):
        """The given Dense layers side by side; the result is one of `parts` of a matrix."""
        scales = scales or [1.0] * len(layers)
        pairs = list(zip(layers, scales, strict=True))
        kernel = tf.concat([tf.cast(layer.kernel, tf.float32) * s for layer, s in pairs], axis=1)
        bias = tf.concat([tf.cast(layer.bias, tf.float32) * s for layer, s in pairs], axis=0)
        both = {"kernel": tf.cast(kernel, dtype), "bias": tf.cast(bias, dtype)}
        return {name: widened(weight, parts) for name, weight in both.items()}

    def norm(layer):
        return {
            "gain": tf.cast(layer.gamma, tf.float32),
            "bias": tf.cast(layer.beta, tf.float32),
        }

    def self_attention(layer):
        projections = (layer.query_projection, layer.key_projection, layer.value_projection)
        return {
            "qkv": dense(*projections, scales=[scale, 1.0, 1.0]),
            "output": dense(layer.output_projection),
        }

    def feed_forward(layer):
        """Wider inside by zeros, which every activation leaves zeros."""
        layers = [layer.inner, layer.gate] if layer.gated else [layer.inner]
        first = [dense(part, parts=len(layers)) for part in layers]
        inner = {name: tf.concat([part[name] for part in first], axis=-1) for name in first[0]}
        outer = dense(layer.outer)
        missing = first[0]["kernel"].shape[1] - outer["kernel"].shape[0]
        return {
            "inner": inner,
            "outer": {**outer, "kernel": tf.pad(outer["kernel"], [[0, missing], [0, 0]])},
        }

    def encoder_layer(layer):
        return {
            "self": self_attention(layer.self_attention),
            "self_norm": norm(layer.attention_residual.layer_norm),
            "feed_forward": feed_forward(layer.feed_forward),
            "feed_forward_norm": norm(layer.feed_forward_residual.layer_norm),
        }

    def decoder_layer(layer):
        cross = layer.cross_attention
        return {
            "self": self_attention(layer.self_attention),
            "self_norm": norm(layer.self_residual.layer_norm),
            "query": dense(cross.query_projection, scales=[scale]),
            "cross_output": dense(cross.output_projection),
            "cross_norm": norm(layer.cross_residual.layer_norm),
            "feed_forward": feed_forward(layer.feed_forward),
            "feed_forward_norm": norm(layer.feed_forward_residual.layer_norm),
        }

    def positions(layer):
        if config.positions == "sinusoidal":
            return tf.cast(sinusoids(tf.range(num_positions), config.d_model), dtype)
        last = config.max_positions - 1
        table = tf.gather(layer.embeddings, tf.minimum(tf.range(num_positions), last))
        return tf.cast(table, dtype)

    memory = []
    for layer in model.decoder.layers:
        cross = layer.cross_attention
        memory += [cross.key_projection, cross.value_projection]
    embeddings = tf.cast(model.target_embedding.embeddings, dtype)
    weights = {
        "encoder": [encoder_layer(layer) for layer in model.encoder.layers],
        "memory": dense(*memory),
        "decoder": [decoder_layer(layer) for layer in model.decoder.layers],
        "source_positions": positions(model.source_positions),
    }
    if config.positions == "learned":
        weights["target_positions"] = positions(model.target_positions)
    if config.tie_embeddings == "none":
        weights["target_embedding"] = embeddings
        weights["output"] = widened(tf.cast(model.output_projection.kernel, dtype))
    else:
        weights["output"] = widened(tf.transpose(embeddings))
    if config.tie_embeddings != "all":
        weights["source_embedding"] = tf.cast(model.source_embedding.embeddings, dtype)
    if config.norm == "pre":
        weights["encoder_norm"] = norm(model.encoder.final_norm)
        weights["decoder_norm"] = norm(model.decoder.final_norm)
    return weights


class Inference:
    """The forward pass of a Transformer over fused weights.

    Args:
        config: the model's `TransformerConfig`.
        weights: from `fused_weights`, tensors or variables.

    Attributes:
        step: the step function of `tfformer.search`.
    """

    def __init__(self, config, weights):
        self.config = config
        self.weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
        self.dtype = self.weights["output"].dtype
        self.num_heads, self.head_size = config.num_heads, config.d_model // config.num_heads

    # The model's parts, over rows [R, D].

    def _dense(self, x, weights, size=None):
        """x W + b, without the columns behind the first `size`. Default: all."""
        x = tf.nn.bias_add(tf.matmul(x, weights["kernel"]), weights["bias"])
        return _columns(x, size)

    def _norm(self, x, weights):
        """LayerNorm, in float32."""
        x = tf.cast(x, tf.float32)
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        normed = centred * tf.math.rsqrt(variance + 1e-6)
        return tf.cast(normed * weights["gain"] + weights["bias"], self.dtype)

    def _residual(self, x, weights, sublayer):
        if self.config.norm == "pre":
            return x + sublayer(self._norm(x, weights))
        return self._norm(x + sublayer(x), weights)

    def _feed_forward(self, x, weights):
        hidden = self._dense(x, weights["inner"])
        kind = self.config.activation
        if kind == "swiglu":
            hidden, gate = tf.split(hidden, 2, axis=-1)
            hidden = tf.nn.silu(hidden) * gate
        else:
            act = {"relu": tf.nn.relu, "gelu": _gelu, "silu": tf.nn.silu}[kind]
            hidden = act(hidden)
        return self._dense(hidden, weights["outer"], self.config.d_model)

    def _heads(self, x, weights, batch, length, parts):
        """x W + b, [B * T, parts * D], as `parts` tensors [B, H, T, K]."""
        x = self._dense(x, weights, parts * self.config.d_model)
        x = tf.reshape(x, [batch, length, parts, self.num_heads, self.head_size])
        return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), num=parts)

    def _rows(self, heads):
        """[B, H, T, K] -> [B * T, D]."""
        return tf.reshape(tf.transpose(heads, [0, 2, 1, 3]), [-1, self.config.d_model])

    def _attention_weights(self, queries, keys, bias):
        """softmax(q k^T + bias) in float32, [B, H, T, S]; the queries are scaled already."""
        scores = tf.matmul(queries, keys, transpose_b=True)
        return tf.nn.softmax(tf.cast(scores, tf.float32) + bias)

    def _attend(self, queries, keys, values, bias):
        weights = self._attention_weights(queries, keys, bias)
        return self._rows(tf.matmul(tf.cast(weights, self.dtype), values))

    def _self_attention(self, x, weights, batch, length, attend):
        """Rows to rows, `attend(queries, keys, values)` [B, H, T, K] giving rows between."""
        heads = self._heads(x, weights["qkv"], batch, length, 3)
        return self._dense(attend(*heads), weights["output"], self.config.d_model)

    def _embed(self, ids, side, positions):
        """ids [R] and positions that broadcast to [R, D] -> rows [R, D]."""
        if f"{side}_embedding" in self.weights:
            x = tf.gather(self.weights[f"{side}_embedding"], ids)
        else:
            x = tf.transpose(tf.gather(self.weights["output"], ids, axis=1))
        return x * tf.cast(self.config.d_model**0.5, self.dtype) + positions

    def _positions(self, side):
        """The table of positions [L, D]; sinusoids are the same on both sides."""
        return self.weights.get(f"{side}_positions", self.weights["source_positions"])

    def _embed_whole(self, ids, side):
        """ids [B, T] -> rows [B * T, D]."""
        batch, length = tf.unstack(tf.shape(ids))
        positions = tf.tile(self._positions(side)[:length], [batch, 1])
        return self._embed(tf.reshape(ids, [-1]), side, positions)

    # The encoder, and the decoder over a whole target.

    def memory(self, source_ids):
        """source_ids [B, S] -> what the decoder needs of the source, as `State.memory`.

        keys and values: N tensors [B, H, S, K] each. bias: float32 [B, 1, 1, S], added to the
        scores of an attention.
        """
        batch, length = tf.unstack(tf.shape(source_ids))
        bias = tf.where(source_ids == PAD, MASKED, 0.0)[:, None, None]
        x = self._embed_whole(source_ids, "source")

        def attend(queries, keys, values):
            return self._attend(queries, keys, values, bias)

        for layer in self.weights["encoder"]:

            def self_attention(x, layer=layer):
                return self._self_attention(x, layer["self"], batch, length, attend)

            x = self._residual(x, layer["self_norm"], self_attention)
            x = self._residual(
                x,
                layer["feed_forward_norm"],
                lambda x, layer=layer: self._feed_forward(x, layer["feed_forward"]),
            )
        if self.config.norm == "pre":
            x = self._norm(x, self.weights["encoder_norm"])
        num_layers = len(self.weights["decoder"])
        projected = self._heads(x, self.weights["memory"], batch, length, 2 * num_layers)
        return {
            "keys": projected[0::2],
            "values": projected[1::2],
            "bias": bias,
        }

    def decode(self, target_ids, memory):
        """All positions at once: target_ids [B, T] -> logits float32 [B, T, V], and the mean over
        the heads of the last layer's attention to the source, float32 [B, T, S]."""
        x, attention = self._decode(target_ids, memory)
        shape = tf.concat([tf.shape(target_ids), [self.vocabulary_size]], axis=0)
        return tf.reshape(self._logits(x), shape), attention

    def log_probs(self, target_ids, labels, memory, block=1024):
        """log P(label) at all positions of target_ids [B, T], float32 [B, T].

        The logits of `block` positions at a time: [B, T, V] of them would be gigabytes.
        """
        x, _ = self._decode(target_ids, memory)
        count = tf.size(labels)
        block = tf.clip_by_value(count, 1, block)
        blocks = tf.maximum(1, (count + block - 1) // block)
        missing = blocks * block - count
        x = tf.reshape(tf.pad(x, [[0, missing], [0, 0]]), [blocks, block, self.config.d_model])
        padded = tf.reshape(tf.pad(tf.reshape(labels, [-1]), [[0, missing]]), [blocks, block])

        def log_probs(pair):
            logits = self._logits(pair[0])
            label = tf.gather(logits, pair[1], batch_dims=1)
            return label - tf.reduce_logsumexp(logits, axis=-1)

        found = tf.map_fn(
            log_probs, (x, padded), parallel_iterations=1, fn_output_signature=tf.float32
        )
        return tf.reshape(tf.reshape(found, [-1])[:count], tf.shape(labels))

    def _decode(self, target_ids, memory):
        """All positions at once, up to the output layer: rows [B * T, D], and the attention."""
        batch, length = tf.unstack(tf.shape(target_ids))
        places = tf.range(length)
        seen = (places[:, None] >= places) & (target_ids != PAD)[:, None, None]
        bias = tf.where(seen, 0.0, MASKED)
        x = self._embed_whole(target_ids, "target")

        def past(queries, keys, values, n):
            return self._attend(queries, keys, values, bias)

        return self._decoder(x, batch, length, past, memory)

    # The decoder one position at a time.

    def start(self, source_ids, width):
        """The `State` of a search with W = `width` places, before the first step."""
        batch = tf.shape(source_ids)[0]
        shape = tf.stack([batch, self.num_heads, 1, width * self.head_size])

        def cache(number):
            """A buffer of its own: two tensors of the same zeros would be one in a graph."""
            return tf.fill(shape, tf.cast(number, self.dtype))

        caches = [(cache(2 * n), cache(2 * n + 1)) for n in range(len(self.weights["decoder"]))]
        return State(self.memory(source_ids), caches)

    def step(self, ids, position, visible, state):
        """The step function of `tfformer.search`; its cache is [B, H, C, W * K] for keys and
        values of each layer, in which a position is one slice for all places.
        """
        batch, width = tf.shape(ids)[0], ids.shape[1] or tf.shape(ids)[1]
        memory, caches = state.memory, []
        bias = tf.where(visible, 0.0, MASKED)
        # Where the position stands in every head of every sentence, in rows [B * H * C, W * K].
        capacity, row = tf.shape(visible)[2], width * self.head_size
        index = tf.range(batch * self.num_heads) * capacity + position
        as_cache = tf.stack([batch, self.num_heads, capacity, row])
        as_keys = tf.stack([batch, self.num_heads, capacity * width, self.head_size])
        bias = tf.reshape(bias, tf.stack([batch, 1, width, capacity * width]))
        ids = tf.reshape(self.whole_ids(ids), [-1])
        x = self._embed(ids, "target", self._positions("target")[position])

        def past(queries, keys, values, n):
            written = [
                self._write(tf.reshape(cache, [-1, row]), index, tf.reshape(new, [-1, row]))
                for cache, new in zip(state.cache[n], (keys, values), strict=True)
            ]
            caches.append(tuple(tf.reshape(rows, as_cache) for rows in written))
            keys, values = (tf.reshape(rows, as_keys) for rows in written)
            # k q^T and not q k^T: there are many keys for a few queries, and the product of the
            # longer matrix with the shorter takes a third of the time.
            scores = tf.transpose(tf.matmul(keys, queries, transpose_b=True), [0, 1, 3, 2])
            weights = tf.nn.softmax(tf.cast(scores, tf.float32) + bias)
            return self._rows(tf.matmul(tf.cast(weights, self.dtype), values))

        x, attention = self._decoder(x, batch, width, past, memory)
        logits = self._step_logits(x, batch, width, memory)
        return StepResult(logits, caches, attention)

    def whole_ids(self, ids):
        """The ids of a search as ids of the vocabulary: the same, but with a shortlist."""
        return ids

    def _step_logits(self, x, batch, width, memory):
        """Rows [B * W, D] -> float32 [B, W, V]; with a shortlist fewer."""
        return tf.reshape(self._logits(x), tf.stack([batch, width, self.vocabulary_size]))

    @staticmethod
    def _write(rows, index, new):
        """Rows with `new` at `index`, written in place; `tensor_scatter_nd_update` would copy them
        all."""
        return tf.raw_ops.InplaceUpdate(x=rows, i=index, v=new)

    def _decoder(self, x, batch, length, past, memory):
        """The decoder's layers over rows [B * T, D].

        `past(queries, keys, values, n)` is the self-attention of layer n. Returns the rows and the
        mean over the heads of the last attention to the source, [B, T, S].
        """
        for n, layer in enumerate(self.weights["decoder"]):

            def self_attention(x, n=n, layer=layer):
                attend = functools.partial(past, n=n)
                return self._self_attention(x, layer["self"], batch, length, attend)

            def cross_attention(x, n=n, layer=layer):
                nonlocal attention
                (queries,) = self._heads(x, layer["query"], batch, length, 1)
                attention = self._attention_weights(queries, memory["keys"][n], memory["bias"])
                heads = tf.matmul(tf.cast(attention, self.dtype), memory["values"][n])
                return self._dense(self._rows(heads), layer["cross_output"], self.config.d_model)

            def feed_forward(x, layer=layer):
                return self._feed_forward(x, layer["feed_forward"])

            attention = None
            x = self._residual(x, layer["self_norm"], self_attention)
            x = self._residual(x, layer["cross_norm"], cross_attention)
            x = self._residual(x, layer["feed_forward_norm"], feed_forward)
        if self.config.norm == "pre":
            x = self._norm(x, self.weights["decoder_norm"])
        return x, tf.reduce_mean(attention, axis=1)

    @property
    def vocabulary_size(self):
        return self.config.target_vocabulary_size

    def _logits(self, x):
        """Rows [R, D] -> float32 [R, V]."""
        logits = _columns(tf.matmul(x, self.weights["output"]), self.vocabulary_size)
        return tf.cast(logits, tf.float32)


def _gelu(x):
    return tf.nn.gelu(x, approximate=False)


def _columns(x, size):
    """The first `size` columns of x [R, N]."""
    return x if size in (None, x.shape[1]) else x[:, :size]
