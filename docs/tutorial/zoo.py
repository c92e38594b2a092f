"""The zoo of notebook 15: a small Transformer, bugs of one line each, and the checks that catch
them.

`Healthy` is a Transformer whose lines are methods. A bug is a subclass that replaces one of them.
"""

import inspect
import random

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import tfformer
from tfformer.config import BOS, EOS, PAD
from tfformer.layers.positions import sinusoids

# The language of notebook 4, and the same sentences without a reason, so that lengths differ.
ANIMALS = {
    "dog": ("der Hund", "er"), "bear": ("der Bär", "er"), "cat": ("die Katze", "sie"),
    "mouse": ("die Maus", "sie"), "horse": ("das Pferd", "es"), "animal": ("das Tier", "es"),
}  # fmt: skip
PLACES = {
    "river": ("den Fluss", "er"), "park": ("den Park", "er"), "street": ("die Straße", "sie"),
    "bridge": ("die Brücke", "sie"), "field": ("das Feld", "es"), "ice": ("das Eis", "es"),
}  # fmt: skip
TIRED = {"tired": "müde", "hungry": "hungrig", "old": "alt", "afraid": "ängstlich"}  # of animals
WIDE = {"wide": "breit", "dark": "dunkel", "wet": "nass", "cold": "kalt"}  # of places
VERBS = {"cross": "überquerte", "reach": "erreichte", "leave": "verließ"}


def all_pairs():
    """864 pairs with a reason and 108 without, shuffled."""
    pairs = []
    for animal, (tier, of_animal) in ANIMALS.items():
        for place, (ort, of_place) in PLACES.items():
            for verb, verb_de in VERBS.items():
                source = f"the {animal} did not {verb} the {place}"
                target = f"{tier} {verb_de} {ort} nicht"
                pairs.append((f"{source} .", f"{target} ."))
                for adjectives, it in ((TIRED, of_animal), (WIDE, of_place)):
                    for word, wort in adjectives.items():
                        reason, grund = f"it was too {word}", f"{it} zu {wort} war"
                        pairs.append((f"{source} because {reason} .", f"{target} , weil {grund} ."))
    random.Random(1).shuffle(pairs)
    return pairs


PAIRS = all_pairs()
LEARNED, UNSEEN = PAIRS[:800], PAIRS[800:]
WORDS = sorted({word for pair in PAIRS for text in pair for word in text.split()})
IDS = {word: 4 + n for n, word in enumerate(WORDS)}  # 0 to 3 are padding, unknown, begin and end
VOCABULARY_SIZE = 4 + len(WORDS)
LONGEST = 1 + max(len(text.split()) for pair in PAIRS for text in pair)  # with the end


def to_ids(texts):
    """Rows of ids, each with its end, padded to the longest: [B, S]."""
    rows = [[*(IDS[word] for word in text.split()), EOS] for text in texts]
    longest = max(map(len, rows))
    return np.array([row + [PAD] * (longest - len(row)) for row in rows], "int32")


def to_text(ids):
    """The words of a row of ids before its end."""
    row = [*ids, EOS]
    return " ".join(WORDS[n - 4] if n > EOS else "?" for n in row[: row.index(EOS)])


def standardised(x, axis):
    """(x - mean) / deviation, over an axis."""
    x = x - ops.mean(x, axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.mean(ops.square(x), axis=axis, keepdims=True) + 1e-6)


def dense(inputs, outputs, activation=None):
    """x W + b, whose weights exist at once."""
    layer = keras.layers.Dense(outputs, activation)
    layer.build((None, inputs))
    return layer


class Healthy(keras.Model):
    """A Transformer of one encoder layer and one decoder layer, post-norm. The norms have no gain
    and no bias; one matrix E embeds sources and targets, and makes the logits."""

    alpha = 0.0  # label smoothing

    def __init__(self, d_model=64, num_heads=4):
        super().__init__()
        self.d_model, self.num_heads, self.d_k = d_model, num_heads, d_model // num_heads
        start = keras.initializers.RandomNormal(stddev=d_model**-0.5)
        self.E = keras.layers.Embedding(VOCABULARY_SIZE, d_model, embeddings_initializer=start)
        self.E.build()
        self.encoder_attention, self.self_attention, self.cross_attention = (
            {name: dense(d_model, d_model) for name in ("Q", "K", "V", "O")} for _ in range(3)
        )
        d_ff = 4 * d_model
        self.encoder_feed_forward, self.decoder_feed_forward = (
            [dense(d_model, d_ff, "relu"), dense(d_ff, d_model)] for _ in range(2)
        )

    # The lines. Each bug replaces one.

    def embedded(self, ids):
        return self.E(ids) * self.d_model**0.5

    def numbered(self, x):
        return x + sinusoids(ops.arange(ops.shape(x)[1]), self.d_model)

    def padding(self, ids):
        return ids != PAD

    def causal(self, t, s):
        return s <= t

    def both(self, causal, padding):
        return causal & padding

    def keys(self, W, x):
        return W["K"](x)

    def scores(self, q, k):
        return q @ ops.swapaxes(k, -1, -2) / self.d_k**0.5

    def weights_of(self, scores, mask):
        return ops.softmax(ops.where(mask, scores, -1e9))

    def mixed(self, W, heads):
        return W["O"](heads)

    def attended(self, own, memory):
        return memory

    def norm(self, x):
        return standardised(x, axis=-1)

    def residual(self, x, sublayer):
        return x + sublayer

    def read(self, labels):
        return ops.concatenate([ops.full_like(labels[:, :1], BOS), labels[:, :-1]], axis=1)

    def smoothed(self, labels, K, alpha):
        return (1 - alpha) * ops.one_hot(labels, K) + alpha / K

    # The rest puts them together.

    def attention(self, W, x, y, mask):
        """MultiHead with the queries of x and the keys and values of y."""
        q, k, v = map(self.split, (W["Q"](x), self.keys(W, y), W["V"](y)))
        heads = self.weights_of(self.scores(q, k), mask) @ v  # [B, H, T, K]
        return self.mixed(W, ops.reshape(ops.swapaxes(heads, 1, 2), ops.shape(x)))

    def split(self, x):
        """[B, T, D] -> [B, H, T, K]."""
        shape = (*ops.shape(x)[:2], self.num_heads, self.d_k)
        return ops.swapaxes(ops.reshape(x, shape), 1, 2)

    def add(self, x, sublayer):
        return self.norm(self.residual(x, sublayer))

    def feed_forward(self, layers, x):
        inner, outer = layers
        return outer(inner(x))

    def source_mask(self, source_ids):
        return self.padding(source_ids)[:, None, None, :]  # [B, 1, 1, S]

    def target_mask(self, target_ids):
        at = ops.arange(ops.shape(target_ids)[1])
        causal = self.causal(at[:, None], at)  # [T, T]
        return self.both(causal, self.padding(target_ids)[:, None, None, :])  # [B, 1, T, T]

    def encode(self, source_ids):
        x, mask = self.numbered(self.embedded(source_ids)), self.source_mask(source_ids)
        x = self.add(x, self.attention(self.encoder_attention, x, x, mask))
        return self.add(x, self.feed_forward(self.encoder_feed_forward, x))

    def decode(self, source_ids, target_ids):
        """The logits of the word after each target id."""
        memory = self.encode(source_ids), self.source_mask(source_ids)
        x, mask = self.numbered(self.embedded(target_ids)), self.target_mask(target_ids)
        x = self.add(x, self.attention(self.self_attention, x, x, mask))
        y, mask = self.attended((x, mask), memory)
        x = self.add(x, self.attention(self.cross_attention, x, y, mask))
        x = self.add(x, self.feed_forward(self.decoder_feed_forward, x))
        return x @ ops.transpose(self.E.embeddings)

    def call(self, inputs):
        """The logits of labels, as in training."""
        source_ids, labels = inputs
        return self.decode(source_ids, self.read(labels))

    def cross_entropy(self, labels, logits):
        """-sum q log p, the mean over the labels that are not padding."""
        q = self.smoothed(labels, VOCABULARY_SIZE, self.alpha)
        losses = -ops.sum(q * ops.log_softmax(logits), axis=-1)  # [B, T]
        real = ops.cast(labels != PAD, "float32")
        return ops.sum(losses * real) / ops.sum(real)


def of_the_library(model):
    """The library's Transformer with the weights of a `Healthy` model."""
    config = tfformer.TransformerConfig(
        VOCABULARY_SIZE, num_encoder_layers=1, num_decoder_layers=1, d_model=model.d_model,
        num_heads=model.num_heads, d_ff=4 * model.d_model, dropout=0.0, normalization="simple",
        tie_embeddings="all",
    )  # fmt: skip
    library = tfformer.Transformer(config)
    [encoder], [decoder] = library.encoder.layers, library.decoder.layers
    library.target_embedding.set_weights(model.E.get_weights())
    for ours, theirs in (
        (model.encoder_attention, encoder.self_attention),
        (model.self_attention, decoder.self_attention),
        (model.cross_attention, decoder.cross_attention),
    ):
        for name in ("query", "key", "value", "output"):
            weights = ours[name[0].upper()].get_weights()
            getattr(theirs, f"{name}_projection").set_weights(weights)
    for (inner, outer), theirs in (
        (model.encoder_feed_forward, encoder.feed_forward),
        (model.decoder_feed_forward, decoder.feed_forward),
    ):
        theirs.inner.set_weights(inner.get_weights())
        theirs.outer.set_weights(outer.get_weights())
    return library


class MultipliedMask(Healthy):
    """The scores are multiplied by a mask of 0 and 1"""

    def weights_of(self, scores, mask):
        return ops.softmax(scores * ops.cast(mask, "float32"))


class MaskedAfter(Healthy):
    """The mask is put on after the softmax, and the rest is not divided by its sum"""

    def weights_of(self, scores, mask):
        return ops.softmax(scores) * ops.cast(mask, "float32")


class SeesNext(Healthy):
    """The causal mask is off by one: each word sees the next"""

    def causal(self, t, s):
        return s <= t + 1


class BlindToItself(Healthy):
    """The causal mask is off by one: no word sees itself"""

    def causal(self, t, s):
        return s < t


class EitherMask(Healthy):
    """Padding and causal masks are joined by OR"""

    def both(self, causal, padding):
        return causal | padding


class SeesPadding(Healthy):
    """Padding is not masked"""

    def padding(self, ids):
        return ops.ones_like(ids, "bool")


class KeysOfQueries(Healthy):
    """K = Q W_K and V = Q W_V: the decoder attends to itself once more"""

    def attended(self, own, memory):
        return own


class QueriesAsKeys(Healthy):
    """The scores are q·q: keys are made by W_Q"""

    def keys(self, W, x):
        return W["Q"](x)


class NoRootOfKeys(Healthy):
    """The scores are not divided by √d_k"""

    def scores(self, q, k):
        return q @ ops.swapaxes(k, -1, -2)


class NoOutputMatrix(Healthy):
    """The heads are not mixed by W_O"""

    def mixed(self, W, heads):
        return heads


class NormOverSentence(Healthy):
    """LayerNorm is over the sentence, not over d_model"""

    def norm(self, x):
        return standardised(x, axis=1)


class NoResidual(Healthy):
    """There are no residual connections"""

    def residual(self, x, sublayer):
        return sublayer


class NoRootOfModel(Healthy):
    """Embeddings are not multiplied by √d_model"""

    def embedded(self, ids):
        return self.E(ids)


class NoPositions(Healthy):
    """No positions are added"""

    def numbered(self, x):
        return x


class NotShifted(Healthy):
    """The decoder reads the labels themselves, not shifted"""

    def read(self, labels):
        return labels


class WrongSmoothing(Healthy):
    """Smoothing takes α for each other word, not α for all together"""

    alpha = 0.1

    def smoothed(self, labels, K, alpha):
        return (1 - K * alpha) * ops.one_hot(labels, K) + alpha


BUGS = Healthy.__subclasses__()


def lines_of(bug):
    """The right line, and the wrong one that replaces it."""
    [name] = [name for name, value in vars(bug).items() if inspect.isfunction(value)]
    found = []
    for kind in (Healthy, bug):
        _, line = inspect.getsource(getattr(kind, name)).splitlines()
        found.append(line.strip())
    return found


def trained(kind, seed=1):
    """A model of this kind that has learned, and its loss in each epoch."""
    keras.utils.set_random_seed(seed)
    model = kind()
    source_ids, labels = map(to_ids, zip(*LEARNED, strict=True))
    model.compile(keras.optimizers.Adam(0.003), model.cross_entropy, jit_compile=False)
    known = {"batch_size": 32, "epochs": 8, "verbose": 0}
    return model, model.fit((source_ids, labels), labels, **known).history["loss"]


def translated(model):
    """The greedy translations of the unseen sources, word by word. Sources of one length go
    together, without padding."""
    sources, found = [source for source, _ in UNSEEN], {}
    for length in sorted({len(source.split()) for source in sources}):
        texts = [source for source in sources if len(source.split()) == length]
        source_ids, written = to_ids(texts), np.full((len(texts), 1), BOS, "int32")
        for _ in range(LONGEST):
            logits = ops.convert_to_numpy(model.decode(source_ids, written))
            following = logits[:, -1:].argmax(axis=-1).astype("int32")
            written = np.concatenate([written, following], axis=1)
        found |= zip(texts, map(to_text, written[:, 1:]), strict=True)
    return [found[source] for source in sources]


def right_of(texts):
    """The share of these translations of the unseen sources that have every word right."""
    return np.mean([text == target for text, (_, target) in zip(texts, UNSEEN, strict=True)])


# The checks. They need no training: a model with random weights passes or fails.

SOURCE = to_ids(["the animal did not cross the street because it was too tired ."])
LABELS = to_ids(["das Tier überquerte die Straße nicht , weil es zu müde war ."])


def logits_of(model, source_ids=SOURCE, labels=LABELS):
    """The logits of one sentence, [T, V]."""
    return ops.convert_to_numpy(model((source_ids, labels)))[0]


def same(one, other):
    """Whether two arrays differ by rounding at most."""
    return bool(np.allclose(one, other, atol=1e-4))


def hides_the_answer(model):
    """Other words from position 5 on change no logits up to it"""
    other = LABELS.copy()
    other[:, 5:-1] = IDS["Hund"]
    return same(logits_of(model)[:6], logits_of(model, labels=other)[:6])


def sees_what_is_before(model):
    """If all scores are equal, word t attends evenly to the t + 1 words up to itself"""
    length = LABELS.shape[1]
    weights = model.weights_of(np.zeros((length, length), "float32"), model.target_mask(LABELS))
    return same(weights, np.tri(length) / np.arange(1, length + 1)[:, None])


def ignores_padding(model):
    """More padding changes no logits"""
    more = ((0, 0), (0, 3))
    padded = logits_of(model, np.pad(SOURCE, more), np.pad(LABELS, more))
    return same(padded[: LABELS.shape[1]], logits_of(model))


def reads_the_source(model):
    """Another source changes the logits"""
    other = SOURCE.copy()
    other[:, 1] = IDS["horse"]
    return not same(logits_of(model, source_ids=other), logits_of(model))


def reads_the_order(model):
    """The words of the source in another order change the logits"""
    return not same(logits_of(model, source_ids=SOURCE[:, ::-1]), logits_of(model))


def learns_with_each_matrix(model):
    """Each matrix has a gradient"""
    with tf.GradientTape() as tape:
        loss = model.cross_entropy(LABELS, model((SOURCE, LABELS)))
    matrices = [weight for weight in model.trainable_weights if len(weight.shape) == 2]
    gradients = tape.gradient(loss, [matrix.value for matrix in matrices])
    return all(gradient is not None for gradient in gradients)


def scales_the_scores(model):
    """The scores of random queries and keys have deviation 1"""
    q, k = np.random.default_rng(1).normal(size=(2, 100, model.d_k)).astype("float32")
    return abs(np.std(model.scores(q, k)) - 1) < 0.1


def scales_the_embeddings(model):
    """Embeddings have deviation 1 before training"""
    return abs(np.std(model.embedded(np.arange(VOCABULARY_SIZE))) - 1) < 0.1


def keeps_its_input(model):
    """A sub-layer that returns 0 changes nothing"""
    x = model.embedded(SOURCE)
    return same(model.add(x, ops.zeros_like(x)), model.norm(x))


def smooths_by_hand(model):
    """α = 0.1 over 4 words gives 0.925 and 0.025"""
    return same(model.smoothed(np.array([3]), 4, 0.1), [[0.025, 0.025, 0.025, 0.925]])


CHECKS = [
    hides_the_answer, sees_what_is_before, ignores_padding, reads_the_source, reads_the_order,
    learns_with_each_matrix, scales_the_scores, scales_the_embeddings, keeps_its_input,
    smooths_by_hand,
]  # fmt: skip


def failed(kind):
    """The checks that an untrained model of this kind fails."""
    keras.utils.set_random_seed(1)
    model = kind()
    return [check for check in CHECKS if not check(model)]
