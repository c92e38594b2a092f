"""Validation: what a model that is being trained makes of texts that it does not learn from."""

import math

from training.data.batches import Batches
from training.report.bleu import bleu


class Validation:
    """The validation corpus, and how a model is measured on it.

    Args:
        corpus: a `Corpus`.
        model: the compiled model.
        translator: its `Translator`.
        strategy: a `Strategy`: all workers compute the losses, the chief translates.
        batch_tokens: tokens a side in a batch.
        packed: whether padding is left out.

    Attributes:
        sources, references: its texts.
        signature: what sacreBLEU says of how the last BLEU was computed; None before.
    """

    def __init__(self, corpus, model, translator, strategy, batch_tokens, packed):
        self.model, self.translator, self.strategy = model, translator, strategy
        self.batches = Batches(
            corpus, translator.tokenizer, batch_tokens, shuffle=False, packed=packed
        )
        self.sources, self.references = (
            [text.decode() for text in side] for side in corpus.texts(slice(None))
        )
        self.signature = None

    def figures(self):
        """What to log: loss, accuracy and perplexity a token, BLEU by greedy search."""
        # Without R-Drop: without dropout the two would agree anyway.
        loss = self.model.loss
        weight, loss.r_drop = loss.r_drop, 0.0
        losses = self.model.evaluate(
            self.strategy.dataset(self.batches),
            steps=len(self.batches),
            verbose=0,
            return_dict=True,
        )
        loss.r_drop = weight
        return {
            "val_loss": math.log(losses["perplexity"]),
            "val_accuracy": losses["accuracy"],
            "val_perplexity": losses["perplexity"],
            "val_bleu": self.bleu(),
        }

    def bleu(self):
        """BLEU of the model as it is, by greedy search: the same number for all workers."""
        score = 0.0
        if self.strategy.is_chief:
            translations = self.translator.translate(self.sources, 128, greedy=True)
            score, self.signature = bleu(translations, self.references)
        return self.strategy.chiefs(score)
