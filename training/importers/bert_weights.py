"""Converts the weights of BERT, DistilBERT, RoBERTa and XLM-R to our variables.

The embedding is divided by sqrt(D), because our models multiply it by that. If the output layer
uses the same matrix, the LayerNorm before it, which only the output layer reads, is multiplied by
sqrt(D). A text alone has tokens of type 0 only, so their vector is added to the table of positions.
"""

import math

from tfformer.models import CLASSIFIER, MASKED_LANGUAGE_MODEL, SPAN

from .id_mapping import NEVER, Numbering

# The name of the encoder before those of its weights; a bare encoder has none.
PREFIXES = {"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta.",
            "distilbert": "distilbert."}  # fmt: skip
# The parts of a layer: {theirs: ours}, by the name before the number of the layer.
BERT_LAYER = {
    "attention.self.query": "self_attention/query",
    "attention.self.key": "self_attention/key",
    "attention.self.value": "self_attention/value",
    "attention.output.dense": "self_attention/output",
    "attention.output.LayerNorm": "attention_residual/layer_norm",
    "intermediate.dense": "feed_forward/inner",
    "output.dense": "feed_forward/outer",
    "output.LayerNorm": "feed_forward_residual/layer_norm",
}
DISTIL_LAYER = {
    "attention.q_lin": "self_attention/query",
    "attention.k_lin": "self_attention/key",
    "attention.v_lin": "self_attention/value",
    "attention.out_lin": "self_attention/output",
    "sa_layer_norm": "attention_residual/layer_norm",
    "ffn.lin1": "feed_forward/inner",
    "ffn.lin2": "feed_forward/outer",
    "output_layer_norm": "feed_forward_residual/layer_norm",
}
LAYERS = {"distilbert": ("transformer.layer", DISTIL_LAYER)}
# The head of a masked language model: dense layer, norm, output matrix, its bias.
MASKED = {
    "bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
             "cls.predictions.decoder.weight", "cls.predictions.bias"),
    "roberta": ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder.weight", "lm_head.bias"),
    "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector.weight",
                   "vocab_projector.bias"),
}  # fmt: skip
MASKED["xlm-roberta"] = MASKED["roberta"]
# The two layers of a classifier.
CLASSIFIERS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "xlm-roberta": ("classifier.dense", "classifier.out_proj"),
    "distilbert": ("pre_classifier", "classifier"),
}
# Weights that no model here needs: heads of other tasks, and numbers that are known.
LEFT_OUT = (
    "cls.seq_relationship.weight", "cls.seq_relationship.bias", "cls.predictions.decoder.bias",
    "lm_head.decoder.bias",
)  # fmt: skip


def read_weights(weights, options, old):
    """Whether the output layer is the embedding, and {our name: array} of the weights.

    `old` are the original's ids in the order of ours; None: a piece that it lacks. A weight that is
    missing, has another shape, is not finite or is not used is a ValueError.
    """
    return _Reading(weights, options, old).read()


class _Reading:
    def __init__(self, weights, options, old):
        self.weights, self.options, self.old = weights, options, old
        self._rows = Numbering(old, unknown=[]).rows
        self.width, self.found = options.size("d_model"), {}
        prefix = PREFIXES[options.model_type]
        has_prefix = f"{prefix}embeddings.word_embeddings.weight" in weights
        self.prefix = prefix if has_prefix else ""

    def read(self):
        tied = self._head()
        self._embeddings(tied)
        self._layers()
        self.weights.pass_over(*LEFT_OUT)
        for name in ("position_ids", "token_type_ids"):
            self.weights.pass_over(f"{self.prefix}embeddings.{name}")
        if self.options.model_type != "distilbert":
            for name in ("weight", "bias"):  # of a task that this family does not have
                self.weights.pass_over(f"{self.prefix}pooler.dense.{name}")
        self.weights.require_all_taken()
        return tied, self.found

    def _embeddings(self, tied):
        options, take = self.options, self.weights.take
        name = f"{self.prefix}embeddings"
        table = take(f"{name}.word_embeddings.weight", options.size("vocabulary_size"), self.width)
        self.found["embedding/embeddings"] = self._rows(table) / math.sqrt(self.width)
        if tied:
            for part in ("gamma", "beta"):
                norm = f"transform/layer_norm/{part}"
                self.found[norm] = self.found[norm] * math.sqrt(self.width)
        places = take(f"{name}.position_embeddings.weight", options.size("positions"), self.width)
        places = places[options.kind.before :]
        if options.model_type != "distilbert":
            count = options.found["type_vocab_size"]
            types = take(f"{name}.token_type_embeddings.weight", count, self.width)
            if options.family == SPAN and options.kind.types:
                self.found["token_types/embeddings"] = types[:2]
            else:
                places = places + types[0]
        self.found["positions/embeddings"] = places
        self._norm(f"{name}.LayerNorm", "embedding_norm")

    def _layers(self):
        default = "encoder.layer", BERT_LAYER
        name, parts = LAYERS.get(self.options.model_type, default)
        inner = self.options.size("d_ff")
        for n in range(self.options.size("num_layers")):
            for theirs, ours in parts.items():
                theirs, ours = f"{self.prefix}{name}.{n}.{theirs}", f"encoder/layer_{n}/{ours}"
                if ours.endswith("norm"):
                    self._norm(theirs, ours)
                else:
                    inputs = inner if ours.endswith("outer") else self.width
                    outputs = inner if ours.endswith("inner") else self.width
                    self._dense(theirs, ours, inputs, outputs)

    def _head(self):
        """Reads the head; whether the output layer is the embedding."""
        options = self.options
        if options.family == MASKED_LANGUAGE_MODEL:
            return self._masked()
        if options.labels:
            name = "classifier"
            if options.family == CLASSIFIER:
                pooler, name = CLASSIFIERS[options.model_type]
                self._dense(pooler, "pooler", self.width, self.width)
            self._dense(name, "output_projection", self.width, len(options.labels))
        if options.family == SPAN:
            self._dense("qa_outputs", "output_projection", self.width, 2)
        return False

    def _masked(self):
        dense, norm, output, bias = MASKED[self.options.model_type]
        size, table = (
            self.options.size("vocabulary_size"),
            f"{self.prefix}embeddings.word_embeddings.weight",
        )
        self._dense(dense, "transform/dense", self.width, self.width)
        self._norm(norm, "transform/layer_norm")
        found = self._rows(self.weights.take(bias, size))
        found[[one is None for one in self.old]] = NEVER
        self.found["output_projection/bias"] = found
        if self.options.found["tie_word_embeddings"]:
            self.weights.require_same(table, output)
            self.weights.pass_over(output)
            return True
        kernel = self._rows(self.weights.take(output, size, self.width)).T
        self.found["output_projection/kernel"] = kernel
        return False

    def _dense(self, theirs, ours, inputs, outputs):
        self.found[f"{ours}/kernel"] = self.weights.take(f"{theirs}.weight", outputs, inputs).T
        self.found[f"{ours}/bias"] = self.weights.take(f"{theirs}.bias", outputs)

    def _norm(self, theirs, ours):
        # The first files of BERT have the names of TensorFlow.
        older = f"{theirs}.gamma" in self.weights
        names = ("gamma", "beta") if older else ("weight", "bias")
        for their_name, our_name in zip(names, ("gamma", "beta"), strict=True):
            self.found[f"{ours}/{our_name}"] = self.weights.take(
                f"{theirs}.{their_name}", self.width
            )


def require_sizes(weights, options):
    """Raises a ValueError if the table of pieces has other sizes, before any is allocated."""
    prefix = PREFIXES[options.model_type]
    for name in (prefix, ""):
        table = f"{name}embeddings.word_embeddings.weight"
        if table in weights:
            wanted = options.size("vocabulary_size"), options.size("d_model")
            if weights.shape(table) != wanted:
                raise ValueError(
                    f"{weights.path}: {table} must be of shape {wanted}, got {weights.shape(table)}"
                )
            return
    raise ValueError(f"{weights.path} must have a weight {table}, got none")
