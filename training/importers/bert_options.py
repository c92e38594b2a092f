"""Reads the options of BERT, DistilBERT, RoBERTa and XLM-R, and converts them to configurations."""

from typing import NamedTuple

from tfformer.config import (
    ClassifierConfig,
    EmbedderConfig,
    MaskedLanguageModelConfig,
    SpanConfig,
    TaggerConfig,
)
from tfformer.models import CLASSIFIER, EMBEDDER, MASKED_LANGUAGE_MODEL, SPAN, TAGGER

from .options import (
    ACTIVATIONS,
    activation_of,
    read_json_object,
    require_fixed,
    require_flags,
    require_whole,
)

# The families: by the end of the name of the class in `architectures`.
HEADS = {
    "ForSequenceClassification": CLASSIFIER,
    "ForTokenClassification": TAGGER,
    "ForQuestionAnswering": SPAN,
    "ForMaskedLM": MASKED_LANGUAGE_MODEL,
    "ForPreTraining": MASKED_LANGUAGE_MODEL,
    "Model": EMBEDDER,
}
CONFIGURATIONS = {
    CLASSIFIER: ClassifierConfig,
    TAGGER: TaggerConfig,
    SPAN: SpanConfig,
    MASKED_LANGUAGE_MODEL: MaskedLanguageModelConfig,
    EMBEDDER: EmbedderConfig,
}
LARGEST_LABELS = 100_000


class Kind(NamedTuple):
    """What differs between these families of Hugging Face.

    names: {our name: the name of the option}.
    activation, dropout, attention_dropout: names of options.
    epsilon: the epsilon of LayerNorm where config.json has none.
    pooler: the activation of the layer before a classifier's output layer.
    types: whether question and text have embeddings of their own.
    before: the rows of the table of positions that no text uses.
    separators: the number of [SEP] between question and text.
    defaults: {option: the value of a missing option}.
    fixed: {option: (its only value, the value if it is missing)}.
    """

    names: dict
    activation: str
    dropout: str
    attention_dropout: str
    epsilon: float
    pooler: str
    types: bool
    before: int
    separators: int
    defaults: dict
    fixed: dict


_NAMES = {
    "vocabulary_size": "vocab_size",
    "d_model": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "positions": "max_position_embeddings",
}
_BASE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "pad_token_id": 0,
}
_FIXED = {
    "position_embedding_type": ("absolute", "absolute"),
    "is_decoder": (False, False),
    "add_cross_attention": (False, False),
    "is_encoder_decoder": (False, False),
}
_DROPOUTS = "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"
_ROBERTA = Kind(
    _NAMES, *_DROPOUTS, 1e-12, "tanh", False, 2, 2,
    {**_BASE, "vocab_size": 50265, "pad_token_id": 1},
    {**_FIXED, "pad_token_id": (1, 1)},
)  # fmt: skip
KINDS = {
    "bert": Kind(_NAMES, *_DROPOUTS, 1e-12, "tanh", True, 0, 1, _BASE, _FIXED),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "distilbert": Kind(
        {
            "vocabulary_size": "vocab_size",
            "d_model": "dim",
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "d_ff": "hidden_dim",
            "positions": "max_position_embeddings",
        },
        "activation", "dropout", "attention_dropout", 1e-12, "relu", False, 0, 1,
        {
            "vocab_size": 30522, "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072,
            "max_position_embeddings": 512, "activation": "gelu", "dropout": 0.1,
            "attention_dropout": 0.1, "pad_token_id": 0,
        },
        {},
    ),
}  # fmt: skip


class Options(NamedTuple):
    """The options of a folder.

    kind: its `Kind`; model_type: the key of it.
    found: the options of config.json by name, with defaults.
    family: our family, one of `CONFIGURATIONS`.
    labels: the names of the labels in the order of their numbers; empty if the family has none.
    """

    kind: Kind
    model_type: str
    found: dict
    family: str
    labels: list
    path: object

    def size(self, name):
        """A size by our name."""
        return self.found[self.kind.names[name]]


def read_options(path, embeds=False):
    """Reads the `Options` of a `config.json`. `embeds`: the folder is one of sentence-transformers,
    so the family is the embedder."""
    found = read_json_object(path)
    model_type = found.get("model_type")
    kind = KINDS[model_type]
    for name, value in kind.defaults.items():
        found.setdefault(name, value)
    require_fixed(found, path, kind.fixed)
    types = ["type_vocab_size"] if "type_vocab_size" in kind.defaults else []
    require_whole(found, path, [*kind.names.values(), *types, "pad_token_id"])
    require_flags(found, path, {"tie_word_embeddings": True})
    activation_of(found[kind.activation], path, kind.activation)
    if found[kind.names["positions"]] <= kind.before + 4:
        raise ValueError(
            f"{path}: max_position_embeddings must be over {kind.before + 4}, got "
            f"{found[kind.names['positions']]}"
        )
    family = EMBEDDER if embeds else _family(found, path)
    if family == SPAN and kind.types and found["type_vocab_size"] < 2:
        raise ValueError(
            f"{path}: type_vocab_size must be at least 2 for question and text, got "
            f"{found['type_vocab_size']}"
        )
    labels = _labels(found, path) if family in (CLASSIFIER, TAGGER) else []
    if family == CLASSIFIER:
        _require_classes(found, path, labels)
    return Options(kind, model_type, found, family, labels, path)


def _family(found, path):
    """Our family, from the class that the folder was saved by."""
    names = found.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else names
    for end, family in HEADS.items():
        if isinstance(name, str) and name.endswith(end):
            return family
    raise ValueError(
        f"{path}: architectures must name one class that ends with one of {list(HEADS)}, got "
        f"{names!r:.99}"
    )


def _labels(found, path):
    """The names of the labels, from `id2label`, or by number."""
    count = found.get("num_labels", 2)
    names = found.get("id2label")
    if names is None:
        if type(count) is not int or not 1 <= count <= LARGEST_LABELS:
            raise ValueError(f"{path}: num_labels must be a number of labels, got {count!r:.99}")
        names = {str(n): f"LABEL_{n}" for n in range(count)}
    keys = sorted(names, key=str) if isinstance(names, dict) else None
    if not keys or keys != sorted(str(n) for n in range(len(names))):
        raise ValueError(
            f"{path}: id2label must have a name for each of 0, 1, ..., got {names!r:.99}"
        )
    return [names[str(n)] for n in range(len(names))]


def _require_classes(found, path, labels):
    """Raises a ValueError unless the classifier chooses among labels."""
    problem = found.get("problem_type")
    known = (None, "single_label_classification", "multi_label_classification")
    if problem not in known:
        raise ValueError(f"{path}: problem_type must be one of {known}, got {problem!r:.99}")
    if len(labels) < 2 and problem != "multi_label_classification":
        raise ValueError(
            f"{path}: id2label must have at least 2 labels (one is a regression), got {labels!r}"
        )


def configuration(options, vocabulary_size, tied, pooling):
    """Converts the options to the configuration of our family.

    `tied`: whether the output layer of a masked language model is the embedding. `pooling` are
    options of an `EmbedderConfig`.
    """
    kind, found, family = options.kind, options.found, options.family
    own = {
        CLASSIFIER: {
            "num_labels": len(options.labels),
            "pooling": "bos",
            "pooler": kind.pooler,
            "multi_label": found.get("problem_type") == "multi_label_classification",
        },
        TAGGER: {"num_labels": len(options.labels)},
        SPAN: {"token_types": kind.types, "separators": kind.separators},
        MASKED_LANGUAGE_MODEL: {"transform": True, "tie_embeddings": "all" if tied else "none"},
        EMBEDDER: pooling,
    }[family]
    try:
        return CONFIGURATIONS[family](
            vocabulary_size,
            **{name: options.size(name) for name in ("d_model", "num_heads", "d_ff")},
            num_layers=options.size("num_layers"),
            max_positions=options.size("positions") - kind.before,
            positions="learned",
            embedding_norm=True,
            add_bos=True,
            activation=ACTIVATIONS[found[kind.activation]],
            dropout=found[kind.dropout],
            attention_dropout=found[kind.attention_dropout],
            epsilon=found.get("layer_norm_eps", kind.epsilon),
            **own,
        )
    except ValueError as error:
        raise ValueError(f"{options.path}: {error}") from error
