"""Language modelling: what follows, of plain text; the lower perplexity is the better model."""

import math

import tensorflow as tf

from tfformer.config import PAD, LanguageModelConfig
from tfformer.loss import SmoothedCrossEntropy
from tfformer.metrics import Perplexity, TokenAccuracy
from tfformer.models import LANGUAGE_MODEL
from training.data.joined import JoinedBatches, JoinedCorpus
from training.data.reader import clean_texts
from training.tasks.task import Task, require_defaults, source_tokenizer

# Texts that a validation asks for, and tokens of each: what follows the first half of them.
ASKED, ASKED_TOKENS = 32, 40
# Settings that are of two sides, or draw segmentations.
UNUSED = ("both_ways", "new_pieces", "subword_sampling", "shared_vocabulary")


class LanguageModelling(Task):
    """The task of a `LanguageModel` and of its `TextGenerator`."""

    family = LANGUAGE_MODEL
    figure, figure_name, figure_most = "val_perplexity", "perplexity", math.inf
    by_metrics = True
    pipeline_tag = "text-generation"
    description = "A language model, the decoder of a Transformer (Radford et al. 2018)"
    columns = {
        "val_perplexity": ("perplexity", "{:.3f}"),
        "val_bits_per_byte": ("bits a byte", "{:.3f}"),
    }
    parts, unit = ("decoder", "embeddings"), "text"
    searched = ("min_length", "repetition_penalty", "no_repeat_ngram", "length_penalty_form")
    corpus, write_corpus = JoinedCorpus, staticmethod(JoinedCorpus.write)

    def clean(self, pairs, report, recipe):
        return clean_texts(pairs, report)

    def batches(self, corpus, tokenizer, batch_tokens, max_tokens, **options):
        """Rows are full, and a text has no other side: `packed` and `both_ways` say nothing."""
        known = {name: options[name] for name in options if name not in ("packed", "both_ways")}
        return JoinedBatches(self, corpus, batch_tokens, row_length=max_tokens, **known)

    def vocabulary(self, sources, targets, recipe):
        return source_tokenizer(sources, recipe)

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        require_defaults(self, recipe, UNUSED)
        try:
            return LanguageModelConfig.preset(recipe.preset, source_size, **recipe.model_changes)
        except TypeError as error:
            raise ValueError(f"model_changes: {error}") from error

    def joined(self, ids, labels, texts, seed):
        """A batch of full rows, int32 [B, T] each: what is read, what follows, and of which text
        each token is."""
        return {"ids": ids, "texts": texts}, labels

    def example(self, source, target, padded, seed=(0, 0)):
        """Texts that are no rows of a corpus: each in a row of its own."""
        labels = padded(source)
        return self.joined(labels, labels, tf.where(labels == PAD, PAD, 1), None)

    def loss(self, recipe, corpus=None):
        return SmoothedCrossEntropy(recipe.smoothing)

    def metrics(self, recipe):
        return [TokenAccuracy(), Perplexity()]

    def search(self, recipe):
        """A prompt and what follows it have together as many places as a row: others were never
        learned."""
        prompt = (recipe.max_tokens + 1) // 2
        return {
            **recipe.search,
            "beam_width": recipe.beam_width,
            "length_penalty": recipe.length_penalty,
            "max_source_length": prompt,
            "max_target_length": recipe.max_tokens + 1 - prompt,
        }

    def served(self, model, tokenizer, search):
        from tfformer.service.text_generator import TextGenerator

        return TextGenerator(model, tokenizer, **search)

    def asked(self, corpus, tokenizer):
        """The beginnings of the first texts, and how they go on."""
        count = min(ASKED, len(corpus))
        texts = [corpus.text_ids(n)[:ASKED_TOKENS].tolist() for n in range(count)]
        sides = [ids[: len(ids) // 2] for ids in texts], [ids[len(ids) // 2 :] for ids in texts]
        ragged = (tf.ragged.constant(side, tf.int32, ragged_rank=1) for side in sides)
        return [[text.decode() for text in tokenizer.decode(side).numpy()] for side in ragged]

    def shown(self, served, sources):
        return served.generate(sources, top_k=1)

    def validation(self, results, score, corpus):
        found = super().validation(results, score, corpus)
        bits = math.log2(found["val_perplexity"]) / corpus.bytes_per_token
        return found | {"val_bits_per_byte": bits}

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
