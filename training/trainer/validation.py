"""Validation: what a model that is being trained makes of texts that it does not learn from."""

import keras

from training.terminal.bar import Bar, console

SHOWN = 3  # texts at each validation


class Validation:
    """The validation corpus, and how a model is measured on it.

    Args:
        task: a `Task`, which says what the figures are.
        corpus: of the task.
        model: the compiled model.
        tokenizer: its `Tokenizer`.
        served: what serves the model as it is, see `Task.served`.
        strategy: a `Strategy`: all workers compute the losses, the chief what is served.
        batch_tokens: tokens a side in a batch.
        max_tokens: of a text, or of a row.
        packed: whether padding is left out.

    Attributes:
        sources, references: its texts.
        signature: how the last score was computed; None before.
    """

    def __init__(
        self,
        task,
        corpus,
        model,
        tokenizer,
        served,
        strategy,
        batch_tokens,
        max_tokens,
        packed,
    ):
        self.task, self.model, self.served, self.strategy = task, model, served, strategy
        self.batches = task.batches(
            corpus, tokenizer, batch_tokens, max_tokens, shuffle=False, packed=packed
        )
        self.sources, self.references = task.asked(corpus, tokenizer)
        self.signature = None

    def figures(self):
        """What to log of the model as it is: the task's figures by name."""
        results = self._results()
        score = None if self.task.by_metrics else self.score()
        return self.task.validation(results, score, self.batches.corpus)

    def _results(self):
        """Of the model's metrics, over the whole corpus."""
        # Without R-Drop: without dropout the two would agree anyway.
        loss = self.model.loss
        weight, loss.r_drop = loss.r_drop, 0.0
        output = console(quiet=not self.strategy.is_chief)
        with Bar("validation: losses", len(self.batches), output=output) as bar:
            counting = keras.callbacks.LambdaCallback(
                on_test_batch_end=lambda batch, logs: bar.advance()
            )
            results = self.model.evaluate(
                self.strategy.dataset(self.batches),
                steps=len(self.batches),
                verbose=0,
                return_dict=True,
                callbacks=[counting] if bar.shown else None,
            )
        loss.r_drop = weight
        return results

    def shown(self):
        """Yields lines: the first texts, their references and what the model makes of them."""
        if self.strategy.is_chief:
            texts = zip(self.sources[:SHOWN], self.references, strict=False)
            made = self.task.shown(self.served, self.sources[:SHOWN])
            for (source, reference), answer in zip(texts, made, strict=False):
                yield f"  {source}\n    reference: {reference}\n    model:     {answer}"

    def score(self):
        """The deciding figure of the model as it is: the same number for all workers."""
        if self.task.by_metrics:
            return self.task.validation(self._results(), None, self.batches.corpus)[
                self.task.figure
            ]
        score = 0.0
        if self.strategy.is_chief:
            score, self.signature = self.task.score(self.served, self.sources, self.references)
        return self.strategy.chiefs(score)
