"""Draws the architecture of a model from its configuration, with the shape on every arrow."""

from typing import NamedTuple

from tfformer.config import (
    MASK_PREDICT,
    ClassifierConfig,
    EmbedderConfig,
    LanguageModelConfig,
    NonAutoregressiveConfig,
    SpanConfig,
    TaggerConfig,
    TwoSidedOptions,
)

from ..report.picture import pyplot
from ..report.picture_language import word
from ..report.picture_style import COLOURS

# The colour of each kind of box, pale enough for black text.
KINDS = {
    "embedding": 1, "norm": 7, "attention": 0, "cross": 4, "feed-forward": 2, "output": 5,
}  # fmt: skip
PALE = 0.35
INCH = 0.6  # inches of one unit of length
WIDTH, HEIGHT, STEP = 2.9, 0.66, 1.05  # of a box, and from one box to the next
SUM, GAP = 0.2, 0.3  # the radius of a sum, and the room below and above the layers
APART = 4.5  # between the middles of two columns
LETTERS, SHAPES = 9, 8  # the size of the text in a box, and of the shapes
NORMS = {"layer": "LayerNorm", "simple": "LayerNorm-simple", "ada": "AdaNorm", "rms": "RMSNorm",
         "batch": "BatchNorm"}  # fmt: skip


class Box(NamedTuple):
    """A step of the computation.

    text: what it computes. "+" is a residual sum.
    shape: of its output.
    kind: of `KINDS`; "" for ids and sums.
    skips: for a sum, how many boxes the residual connection passes. Default 0.
    """

    text: str
    shape: str
    kind: str = ""
    skips: int = 0


class Column(NamedTuple):
    """A column of boxes, from the input at the bottom to the output at the top.

    before, layer, after: the boxes before the layers, of one layer, and after the layers.
    num_layers: how often `layer` repeats.
    """

    before: list
    layer: list
    after: list
    num_layers: int


def columns_of(config):
    """The columns of a model with this configuration: encoder and decoder, or one stack.

    Shapes name B texts, S source and T target tokens.

    Raises:
        ValueError: the model is recurrent.
    """
    if not config.HAS_HEADS:
        raise ValueError(f"the model must be a Transformer, got a {type(config).__name__}")
    if isinstance(config, TwoSidedOptions):
        return [_encoder(config), _decoder(config)]
    return [_one_stack(config)]


def architecture_figure(config):
    """Draws the architecture of a model with this configuration.

    Raises:
        ValueError: see `columns_of`.
    """
    columns = columns_of(config)
    top = max(_heights(column)[-1] for column in columns)
    limits = (-2.1, APART * (len(columns) - 1) + 1.9), (-HEIGHT / 2, top)
    inches = [INCH * (high - low) for low, high in limits]
    figure, ax = pyplot().subplots(figsize=inches, layout="constrained")
    for n, column in enumerate(columns):
        _draw_column(ax, column, n * APART)
    if len(columns) == 2:
        _draw_memory(ax, *columns)
    ax.set(xlim=limits[0], ylim=limits[1])
    ax.set_aspect("equal")
    ax.axis("off")
    return figure


# What the columns contain.


def _shape(*sizes):
    return f"[{', '.join(f'{size:,}' if isinstance(size, int) else size for size in sizes)}]"


def _embedded(config, name, vocabulary_size, length):
    """From ids to the input of the first layer."""
    rows = _shape("B", length, config.d_model)
    boxes = [Box(word(f"{name} ids"), _shape("B", length))]
    boxes.append(Box(word("embedding of {:,} ids", vocabulary_size), rows, "embedding"))
    if getattr(config, "token_types", False):
        boxes.append(Box(word("+ type of each token"), rows, "embedding"))
    return boxes + _numbered(config, length)


def _numbered(config, length):
    """The positions, and the norm after them."""
    boxes, rows = [], _shape("B", length, config.d_model)
    if config.positions != "none":
        boxes.append(Box(word(f"+ {config.positions} positions"), rows, "embedding"))
    if config.embedding_norm:
        boxes.append(Box(NORMS[config.normalization], rows, "norm"))
    return boxes


def _layer(config, length, causal, crosses=False):
    """The boxes of one layer, in the order of its norms."""
    rows = _shape("B", length, config.d_model)
    heads = word("{} heads of {}", config.num_heads, config.heads_width // config.num_heads)
    own = word("masked self-attention" if causal else "self-attention") + "\n" + heads
    if config.key_value_heads != config.num_heads:
        own += word(", {} of keys", config.key_value_heads)
    if config.attention_positions != "none":
        own += word(f", {config.attention_positions}")
    if config.query_key_norm:
        own += "\n" + word("RMSNorm of queries and keys")
    parts = [(own, "attention")]
    if crosses:
        parts.append((word("cross-attention") + "\n" + heads, "cross"))
    inner = word("{}, {:,} wide", config.activation, config.d_ff)
    parts.append((word("feed-forward") + "\n" + inner, "feed-forward"))
    boxes, norm = [], Box(NORMS[config.normalization], rows, "norm")
    for text, kind in parts:
        boxes += [norm] if config.norm == "pre" else []
        boxes.append(Box(text, rows, kind))
        if config.residual:
            boxes.append(Box("+", rows, skips=2 if config.norm == "pre" else 1))
        boxes += [norm] if config.norm == "post" else []
    return boxes


def _ended(config, length):
    """The norm after the last layer, if there is one."""
    if not config.ends_with_norm:
        return []
    return [Box(NORMS[config.normalization], _shape("B", length, config.d_model), "norm")]


def _encoder(config):
    boxes = _embedded(config, "source", config.source_vocabulary_size, "S")
    layer = _layer(config, "S", causal=False)
    return Column(boxes, layer, _ended(config, "S"), config.num_encoder_layers)


def _decoder(config):
    size, causal = config.target_vocabulary_size, True
    boxes = _embedded(config, "target", size, "T")
    if isinstance(config, NonAutoregressiveConfig):
        causal = False
        if config.decoding != MASK_PREDICT:  # it reads the encoder's output
            rows = _shape("B", "T", config.d_model)
            boxes = [Box(word("memory"), _shape("B", "S", config.d_model))]
            boxes.append(Box(word("upsampling to T = {} S", config.upsampling), rows, "embedding"))
            boxes += _numbered(config, "T")
    layer = _layer(config, "T", causal, crosses=True)
    return Column(
        boxes, layer, [*_ended(config, "T"), *_softmax(size, "T")], config.num_decoder_layers
    )


def _softmax(size, length):
    return [
        Box(word("linear to {:,} logits", size), _shape("B", length, size), "output"),
        Box("softmax", _shape("B", length, size), "output"),
    ]


def _one_stack(config):
    name = "bos and text" if getattr(config, "add_bos", False) else "text"
    boxes = _embedded(config, name, config.vocabulary_size, "S")
    layer = _layer(config, "S", causal=config.HALF == "decoder")
    return Column(boxes, layer, [*_ended(config, "S"), *_head(config)], config.num_layers)


def _head(config):
    """The boxes after the last layer of a model with one stack."""
    rows, vector = _shape("B", "S", config.d_model), _shape("B", config.d_model)
    transform = [Box(word("dense layer and norm"), rows, "output")]
    if isinstance(config, LanguageModelConfig):  # of a masked one too
        first = transform if getattr(config, "transform", False) else []
        return [*first, *_softmax(config.vocabulary_size, "S")]
    if isinstance(config, EmbedderConfig):
        pooled = Box(word("pooling: {}", config.pooling), vector, "output")
        normed = [Box(word("divided by its length"), vector, "output")] if config.normalize else []
        return [pooled, *normed]
    if isinstance(config, ClassifierConfig):
        pooled = [Box(word("pooling: {}", config.pooling), vector, "output")]
        if config.pooler != "none":
            pooled.append(Box(word("dense layer, {}", config.pooler), vector, "output"))
        count = config.num_labels
        end = word("sigmoid of each label") if config.multi_label else "softmax"
        logits = Box(word("linear to {:,} labels", count), _shape("B", count), "output")
        return [*pooled, logits, Box(end, _shape("B", count), "output")]
    if isinstance(config, TaggerConfig):
        return _softmax(config.num_labels, "S")
    if isinstance(config, SpanConfig):
        logits = Box(word("linear to start and end"), _shape("B", 2, "S"), "output")
        return [logits, Box(word("softmax over positions"), _shape("B", 2, "S"), "output")]
    return []


# How they are drawn.


def _heights(column):
    """The height of each box, and of the arrow after the last one: more room around the layers."""
    begin, end = len(column.before), len(column.before) + len(column.layer)
    count = end + len(column.after) + 1
    return [n * STEP + GAP * (n >= begin) + GAP * (n >= end) for n in range(count)]


def _draw_column(ax, column, x):
    """Draws a column around `x`."""
    heights = _heights(column)
    _draw_frame(ax, column, x, heights)
    boxes = [*column.before, *column.layer, *column.after]
    for n, (box, y) in enumerate(zip(boxes, heights, strict=False)):
        _draw_box(ax, box, x, y)
        following = boxes[n + 1] if n + 1 < len(boxes) else None
        top, low = (SUM if one and one.text == "+" else HEIGHT / 2 for one in (box, following))
        _draw_arrow(ax, (x, y + top), (x, heights[n + 1] - low))
        middle = (y + top + heights[n + 1] - low) / 2
        # Outside the frame of the layers.
        middle += GAP / 2 * (n + 1 == len(column.before) + len(column.layer))
        middle -= GAP / 2 * (n + 1 == len(column.before))
        ax.text(x + 0.12, middle, box.shape, va="center", fontsize=SHAPES, color="#333333")
        if box.skips:
            start = heights[n - box.skips] - HEIGHT / 2 - 0.13
            left = x - WIDTH / 2 - 0.3
            ax.plot([x, left, left], [start, start, y], color="black", linewidth=0.9, zorder=1)
            _draw_arrow(ax, (left, y), (x - SUM, y))


def _draw_frame(ax, column, x, heights):
    """Draws the frame around one layer, with the number of layers."""
    first, last = len(column.before), len(column.before) + len(column.layer) - 1
    bottom, top = heights[first] - HEIGHT / 2 - GAP, heights[last] + HEIGHT / 2 + 0.2
    patch = pyplot().matplotlib.patches.FancyBboxPatch(
        (x - WIDTH / 2 - 0.55, bottom + 0.05), WIDTH + 0.85, top - bottom,
        boxstyle="round,pad=0,rounding_size=0.15", facecolor="#f4f4f4", edgecolor="#888888",
        zorder=0,
    )  # fmt: skip
    ax.add_patch(patch)
    ax.text(x - WIDTH / 2 - 0.5, top + 0.1, f"{column.num_layers} ×", fontsize=12)


def _draw_box(ax, box, x, y):
    patches = pyplot().matplotlib.patches
    if box.text == "+":
        ax.add_patch(patches.Circle((x, y), SUM, facecolor="white", edgecolor="black", zorder=2))
        ax.text(x, y, "+", ha="center", va="center", fontsize=11, zorder=3)
        return
    style = {"facecolor": "white", "edgecolor": "none"}
    if box.kind:
        rgb = pyplot().matplotlib.colors.to_rgb(COLOURS[KINDS[box.kind]])
        style = {"facecolor": [1 - PALE * (1 - part) for part in rgb], "edgecolor": rgb}
    corner, rounded = (x - WIDTH / 2, y - HEIGHT / 2), "round,pad=0,rounding_size=0.1"
    ax.add_patch(patches.FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle=rounded, zorder=2, **style))
    # A letter is a little wider than half its size, a Chinese one as wide; a line a quarter higher.
    lines = box.text.split("\n")
    longest = max(sum(0.6 if letter < "\u2e80" else 1 for letter in line) for line in lines)
    letters = WIDTH / longest, HEIGHT / (1.25 * len(lines))
    size = min(LETTERS, *(72 * INCH * share for share in letters))
    ax.text(x, y, box.text, ha="center", va="center", fontsize=size, zorder=3)


def _draw_arrow(ax, begin, end):
    style = {"arrowstyle": "-|>", "mutation_scale": 10, "color": "black", "linewidth": 0.9}
    ax.annotate("", end, begin, arrowprops={**style, "shrinkA": 0, "shrinkB": 0}, zorder=4)


def _draw_memory(ax, encoder, decoder):
    """Draws the arrow from the encoder's output to the cross-attention of the decoder."""
    top = _heights(encoder)[-1] - HEIGHT / 2
    boxes = [*decoder.before, *decoder.layer]
    [y] = [_heights(decoder)[n] for n, box in enumerate(boxes) if box.kind == "cross"]
    middle = APART / 2 - 0.15
    ax.plot([0, middle, middle], [top, top, y], color="black", linewidth=0.9, zorder=1)
    _draw_arrow(ax, (middle, y), (APART - WIDTH / 2, y))
    ax.text(0.12, top + 0.12, word("memory: keys, values"), fontsize=SHAPES, color="#333333")
