"""The sizes of a Transformer: every number of the paper's Table 3, and nothing else."""

import dataclasses

# The special ids of every vocabulary.
PAD, UNK, BOS, EOS = 0, 1, 2, 3

TIED = ("none", "target", "all")
NORMS = ("post", "pre")
POSITIONS = ("sinusoidal", "learned")
ACTIVATIONS = ("relu", "gelu", "silu", "swiglu")


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The configuration of a `Transformer`; frozen and validated.

    The defaults are the base model of "Attention Is All You Need" (Vaswani et al. 2017, Table 3).

    Args:
        source_vocabulary_size: number of source ids, the four special ones included.
        target_vocabulary_size: number of target ids. Defaults to the source's.
        num_encoder_layers, num_decoder_layers: N. They may differ. Default 6.
        d_model: the width of every layer's input and output. Default 512.
        num_heads: h; `d_model` is a multiple of it. Default 8.
        d_ff: the width between the two matrices of the feed-forward layer. Default 2048.
        dropout: P_drop, on the output of each sub-layer before it is added and on the sums of
            embeddings and positions (section 5.4). Default 0.1.
        activation: of the feed-forward layer: `"relu"` (the paper's), `"gelu"`, `"silu"` or
            `"swiglu"` (Shazeer 2020).
        norm: `"post"`, LayerNorm(x + Sublayer(x)), the paper's, or `"pre"`,
            x + Sublayer(LayerNorm(x)) with a last LayerNorm on each stack (Xiong et al. 2020).
        positions: `"sinusoidal"` (section 3.5, any length) or `"learned"`.
        max_positions: the longest sequence that learned positions can number. Default 512;
            sinusoidal positions ignore it.
        tie_embeddings: which matrices are one: `"none"`; `"target"`, the target embedding and the
            output projection; `"all"`, the source embedding too (Press and Wolf 2017; section
            3.4), for which both vocabularies must be one.

    Raises:
        ValueError: naming the argument, the rule and the value received.
    """

    source_vocabulary_size: int
    target_vocabulary_size: int | None = None
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    activation: str = "relu"
    norm: str = "post"
    positions: str = "sinusoidal"
    max_positions: int = 512
    tie_embeddings: str = "none"

    def __post_init__(self):
        if self.target_vocabulary_size is None:
            object.__setattr__(self, "target_vocabulary_size", self.source_vocabulary_size)
        for name, least in (
            ("source_vocabulary_size", 5),
            ("target_vocabulary_size", 5),
            ("num_encoder_layers", 1),
            ("num_decoder_layers", 1),
            ("d_model", 2),
            ("num_heads", 1),
            ("d_ff", 1),
            ("max_positions", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model must be a multiple of num_heads, got d_model={self.d_model} and "
                f"num_heads={self.num_heads}"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(
                f"d_model must be even for sinusoidal positions, got d_model={self.d_model}"
            )
        if not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be a number in [0, 1), got {self.dropout!r}")
        for name, allowed in (
            ("activation", ACTIVATIONS),
            ("norm", NORMS),
            ("positions", POSITIONS),
            ("tie_embeddings", TIED),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        if (
            self.tie_embeddings == "all"
            and self.source_vocabulary_size != self.target_vocabulary_size
        ):
            raise ValueError(
                "tie_embeddings='all' needs one vocabulary for both sides, got "
                f"source_vocabulary_size={self.source_vocabulary_size} and "
                f"target_vocabulary_size={self.target_vocabulary_size}"
            )

    def to_dict(self) -> dict:
        """All fields by name; `from_dict` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict) -> "TransformerConfig":
        """The configuration of `fields`; a name that is no field is a ValueError."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ValueError(f"fields must be among {sorted(known)}, got also {unknown}")
        return cls(**fields)

    @classmethod
    def preset(cls, name: str, source_vocabulary_size: int, **changes) -> "TransformerConfig":
        """A published size by its name; `changes` are fields that replace the preset's.

        | name | source |
        |---|---|
        | `base`, `big` | Vaswani et al. 2017, Table 3 |
        | `tiny` | Wu et al. 2021, "Good for Misconceived Reasons": text-only Multi30K |
        | `test` | none: small enough for a test, each size another prime where it can be |
        """
        if name not in PRESETS:
            raise ValueError(f"name must be one of {tuple(PRESETS)}, got {name!r}")
        return cls.from_dict(
            {"source_vocabulary_size": source_vocabulary_size, **PRESETS[name], **changes}
        )


PRESETS = {
    "base": dict(tie_embeddings="all"),
    "big": dict(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3, tie_embeddings="all"),
    "tiny": dict(
        num_encoder_layers=4,
        num_decoder_layers=4,
        d_model=128,
        d_ff=256,
        num_heads=4,
        dropout=0.3,
        tie_embeddings="all",
    ),
    "test": dict(
        num_encoder_layers=2, num_decoder_layers=3, d_model=14, d_ff=29, num_heads=2, dropout=0.1
    ),
}
