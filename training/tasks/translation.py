"""Translation from text to text with an encoder-decoder; BLEU selects the best model."""

import tensorflow as tf

from tfformer.config import BOS
from tfformer.config.search_options import OPTIONS
from tfformer.distances import loss_of
from tfformer.layers.packing import without_padding
from tfformer.metrics import Perplexity, TokenAccuracy
from tfformer.models import ENCODER_DECODER
from tfformer.terminal.progress_bar import Bar

from ..methods.guided_attention import GuidedAttention
from ..methods.method import METHODS, Methods
from ..methods.reward import REWARD, Reward
from ..methods.scheduled_sampling import REPLACED, ScheduledSampling
from .task import Task, require_defaults

# Texts in a batch of translations.
BATCH = 128


class Translation(Task):
    """The task of a `Transformer` and of its `Translator`."""

    family = ENCODER_DECODER
    figure, figure_name, figure_how, figure_max = "val_bleu", "BLEU", "greedy", 100.0
    pipeline_tag = "translation"
    description = "An encoder-decoder Transformer (Vaswani et al. 2017), text in and text out"
    columns = {"val_perplexity": ("perplexity", "{:.3f}"), "val_bleu": ("greedy BLEU", "{:.2f}")}
    parts = ("encoder", "decoder", "embeddings")
    searched = tuple(OPTIONS)
    known_methods, taught = tuple(name for name in METHODS if name != "glancing"), True
    without_padding = staticmethod(without_padding)

    def vocabulary(self, sources, targets, recipe):
        from tfformer.text.tokenizer import Tokenizer

        kind = {"kind": recipe.vocabulary_kind, "split_digits": recipe.split_digits}
        size, shared = recipe.vocabulary_size, recipe.shared_vocabulary
        return Tokenizer.train(sources, targets, vocabulary_size=size, shared=shared, **kind)

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        # Two vocabularies cannot share a matrix.
        changes = {} if shared else {"tie_embeddings": "target"}
        config = self.preset(recipe, source_size, target_vocabulary_size=target_size, **changes)
        if config.one_vocabulary and not shared:
            raise ValueError(
                f"{config.one_vocabulary} needs one vocabulary for source and target, got two"
            )
        return config

    def example(self, source, target, padded, seed=(0, 0)):
        """target_ids = bos + y, labels = y + eos."""
        if self.config is not None and not self.config.source_eos:
            source = source[:, :-1]
        bos = tf.fill([target.nrows(out_type=tf.int32), 1], BOS)
        inputs = {
            "source_ids": padded(source),
            "target_ids": padded(tf.concat([bos, target[:, :-1]], axis=1)),
        }
        return inputs, padded(target)

    def require_methods(self, recipe):
        super().require_methods(recipe)
        for name, others in SECOND_TO.items():
            if not _asks(recipe, name):
                require_defaults(self, recipe, others, f"without {name}")
        heads = self.config.num_heads
        if recipe.guided_heads > heads:
            raise ValueError(
                f"guided_heads must be at most num_heads={heads}, got {recipe.guided_heads}"
            )
        twice = [name for name in ("scheduled_sampling", "reward") if _asks(recipe, name)]
        if twice and recipe.r_drop:
            raise ValueError(f"r_drop must be 0 with {twice[0]}, got {recipe.r_drop}")
        if len(twice) > 1:
            raise ValueError(
                f"scheduled_sampling must be 0 with reward, got {recipe.scheduled_sampling}"
            )
        if recipe.reward != "none" and recipe.objective != "cross-entropy":
            raise ValueError(
                f"objective must be 'cross-entropy' with reward, got {recipe.objective!r}"
            )
        if recipe.reward != "none" and recipe.strategy == "tpu":
            raise ValueError("strategy must not be 'tpu' with reward, for BLEU counts on the host")

    def methods(self, recipe, steps=1, tokenizer=None):
        first_pass = penalty = None
        notes = ()
        if recipe.scheduled_sampling:
            first_pass = ScheduledSampling(
                recipe.scheduled_sampling, recipe.scheduled_sampling_decay,
                recipe.scheduled_sampling_by, recipe.scheduled_sampling_passes, steps,
            )  # fmt: skip
            notes = (REPLACED,)
        if recipe.guided_attention:
            penalty = GuidedAttention(recipe.guided_attention, recipe.guided_heads)
        if recipe.reward != "none":
            known = recipe.reward_samples, tokenizer, recipe.max_tokens
            first_pass, notes = Reward(recipe.reward, *known), (REWARD,)
        # With dropout, the probability would differ from the one that a candidate was sampled with.
        return Methods(first_pass, penalty, notes, as_served=recipe.reward != "none")

    def loss(self, recipe, corpus=None):
        # The loss of a candidate is its own probability, without smoothing.
        smoothing = recipe.smoothing if recipe.reward == "none" else 0.0
        return loss_of(recipe.objective, smoothing)

    def metrics(self, recipe):
        return [TokenAccuracy(), Perplexity()]

    def search(self, recipe):
        return {
            **recipe.search,
            "beam_width": recipe.beam_width,
            "length_penalty": recipe.length_penalty,
            "max_source_length": recipe.max_tokens,
            "max_target_length": recipe.max_tokens,
        }

    def score(self, served, sources, references):
        """BLEU by greedy search, and its sacreBLEU signature."""
        from ..metrics.bleu import bleu

        return bleu(translations_of(served, sources, BATCH, True, "validation"), references)

    def shown(self, served, sources):
        return served.translate(sources, greedy=True)

    def sizes(self, config, settings):
        from tfformer.text.tokenizer import FILES

        model = config["model"]
        sizes = [model["source_vocabulary_size"], model["target_vocabulary_size"]]
        files = [name for name in FILES if name in config["sha256"]]
        if len(files) > 1:
            pieces = f"{sizes[0]:,} and {sizes[1]:,} pieces"
        else:
            pieces = f"{sizes[0]:,} pieces for both sides"
        kind = f"SentencePiece {settings.get('vocabulary_kind', '')}".strip()
        kinds = {kind if name.endswith(".model") else "a table" for name in files}
        layers = (model["num_encoder_layers"], model["num_decoder_layers"])
        yield "layers of encoder and decoder", "{} and {}".format(*layers)
        yield "d_model, heads, d_ff", f"{model['d_model']}, {model['num_heads']}, {model['d_ff']}"
        yield "vocabulary", f"{' and '.join(sorted(kinds))}, {pieces}"

    def chosen(self, config, history):
        training = config.get("training", {})
        if "val_bleu" not in training:
            return {}
        measures = {"bleu": training["val_bleu"]}
        for row in history:
            if row["epoch"] == training.get("epoch"):
                measures["perplexity"] = row["val_perplexity"]
        return measures | {"bleu_signature": training.get("val_bleu_signature")}


def translations_of(translator, texts, batch_size, greedy=False, title="translating"):
    """The translations of `translator.translate`, in batches of texts of similar length, with a
    bar."""
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    found = [""] * len(texts)
    with Bar(title, len(texts)) as bar:
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            chunk = [texts[n] for n in chosen]
            for n, text in zip(
                chosen, translator.translate(chunk, batch_size, greedy), strict=True
            ):
                found[n] = text
            bar.advance(len(chosen))
    return found


# Settings that have no meaning without another one.
SECOND_TO = {
    "scheduled_sampling": [f"scheduled_sampling_{name}" for name in ("decay", "by", "passes")],
    "guided_attention": ["guided_heads"],
    "reward": ["reward_samples"],
}


def _asks(recipe, name):
    """Whether a recipe uses a method."""
    return getattr(recipe, name) not in (0, "none")
