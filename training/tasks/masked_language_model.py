"""Masked language modelling: which word stood in a gap, of plain text; the lower perplexity there
is the better model."""

import math

import tensorflow as tf

from tfformer.config import PAD, MaskedLanguageModelConfig
from tfformer.loss import SmoothedCrossEntropy
from tfformer.metrics import Perplexity, TokenAccuracy
from tfformer.models import MASKED_LANGUAGE_MODEL
from training.data.joined import JoinedBatches, JoinedCorpus
from training.data.masking import Masking
from training.data.reader import clean_texts
from training.tasks.task import Task, require_defaults, source_tokenizer

# Of the first texts one word each becomes a gap, for what a validation shows.
ASKED, ASKED_WORDS = 32, 24
# Settings that are of two sides, of what is generated, or draw segmentations; and of words that
# are hidden, of which masking hides its own.
UNUSED = (
    *("both_ways", "new_pieces", "subword_sampling", "shared_vocabulary", "word_dropout"),
    *("beam_width", "length_penalty"),
)


class MaskedLanguageModelling(Task):
    """The task of a `MaskedLanguageModel` and of its `GapFiller`."""

    family = MASKED_LANGUAGE_MODEL
    figure, figure_name, figure_most = "val_perplexity", "perplexity of masked places", math.inf
    by_metrics = True
    pipeline_tag = "fill-mask"
    description = "A masked language model, the encoder of a Transformer (Devlin et al. 2019)"
    columns = {
        "val_accuracy": ("accuracy of masked places", "{:.3f}"),
        "val_perplexity": ("perplexity of masked places", "{:.3f}"),
    }
    parts, unit = ("encoder", "embeddings"), "text"
    corpus, write_corpus = JoinedCorpus, staticmethod(JoinedCorpus.write)

    def clean(self, pairs, report, recipe):
        return clean_texts(pairs, report)

    def batches(self, corpus, tokenizer, batch_tokens, max_tokens, **options):
        """Rows are full, and a text has no other side: `packed` and `both_ways` say nothing, nor
        does noise, for masking is all there is. Where nothing is shuffled, every pass hides the
        same words, so that validations compare."""
        known = {name: options[name] for name in ("seed", "shuffle", "parts") if name in options}
        hiding = Masking(tokenizer)
        return JoinedBatches(hiding, corpus, batch_tokens, row_length=max_tokens, **known)

    def vocabulary(self, sources, targets, recipe):
        return source_tokenizer(sources, recipe)

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        require_defaults(self, recipe, UNUSED)
        try:
            return MaskedLanguageModelConfig.preset(
                recipe.preset, source_size, **recipe.model_changes
            )
        except TypeError as error:
            raise ValueError(f"model_changes: {error}") from error

    def example(self, source, target, padded, seed=(0, 0)):
        """Texts that are no rows of a corpus, each in a row of its own, with nothing hidden."""
        ids = padded(source)
        return {"ids": ids, "texts": tf.where(ids == PAD, PAD, 1)}, ids

    def loss(self, recipe, corpus=None):
        return SmoothedCrossEntropy(recipe.smoothing)

    def metrics(self, recipe):
        return [TokenAccuracy(), Perplexity()]

    def search(self, recipe):
        return {"max_source_length": recipe.max_tokens}

    def served(self, model, tokenizer, search):
        from tfformer.service.gap_filler import GapFiller

        return GapFiller(model, tokenizer, **search)

    def asked(self, corpus, tokenizer):
        """The beginnings of the first texts with a gap in the middle, and as they were."""
        asked, expected = [], []
        for n in range(min(ASKED, len(corpus))):
            ids = tf.constant([corpus.text_ids(n)])
            words = tokenizer.decode(ids).numpy()[0].decode().split()[:ASKED_WORDS]
            gap = len(words) // 2
            asked.append(" ".join([*words[:gap], "[MASK]", *words[gap + 1 :]]))
            expected.append(" ".join(words))
        return asked, expected

    def shown(self, served, sources):
        return served.answer(sources)

    def better(self, score, than):
        return score < than

    def sizes(self, config, settings):
        model = config["model"]
        kind = f"SentencePiece {settings.get('vocabulary_kind', '')}".strip()
        yield "layers", str(model["num_layers"])
        yield "d_model, heads, d_ff", f"{model['d_model']}, {model['num_heads']}, {model['d_ff']}"
        yield "vocabulary", f"{kind}, {model['vocabulary_size']:,} pieces"

    def chosen(self, config, history):
        perplexity = config.get("training", {}).get(self.figure)
        return {} if perplexity is None else {"perplexity": perplexity}

    def usage(self, run, text):
        yield f"echo {text} | python -m training.translate {run}"
        yield f"python -m training.evaluate {run} --text TEXTS.txt"
