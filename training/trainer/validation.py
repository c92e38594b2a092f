"""Validation: measures a model during training on texts that it does not learn from."""

import keras

from tfformer.terminal.progress_bar import Bar, console

from ..report.progress import shortened

SHOWN = 3  # texts at each validation


class Validation:
    """Measures a model on the validation corpus.

    All workers compute the losses, the chief scores the service of the model, `served`. The
    `signature` says how the last score was computed.
    """

    def __init__(
        self, task, corpus, model, tokenizer, served, strategy, batch_tokens, max_tokens, packed
    ):
        self.task, self.model, self.served, self.strategy = task, model, served, strategy
        self.batches = task.batches(
            corpus, tokenizer, batch_tokens, max_tokens, shuffle=False, packed=packed
        )
        self.sources, self.references = task.asked(corpus, tokenizer)
        self.signature = None

    def figures(self):
        """The task's figures for the current model, by name, for the log."""
        results = self._results()
        score = None if self.task.by_metrics else self.score()
        return self.task.validation(results, score, self.batches.corpus)

    def _results(self):
        """The results of the model's metrics over the whole corpus."""
        # Without R-Drop: without dropout, both copies would be the same anyway.
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
        """Yields the first texts with their references and the model's outputs, `shortened`."""
        if self.strategy.is_chief:
            texts = zip(self.sources[:SHOWN], self.references, strict=False)
            made = self.task.shown(self.served, self.sources[:SHOWN])
            for (source, reference), answer in zip(texts, made, strict=False):
                source, reference, answer = map(shortened, (source, reference, answer))
                yield f"  {source}\n    reference: {reference}\n    model:     {answer}"

    def score(self):
        """The deciding figure of the current model: the same number in all workers."""
        if self.task.by_metrics:
            return self.figures()[self.task.figure]
        score = 0.0
        if self.strategy.is_chief:
            score, self.signature = self.task.score(self.served, self.sources, self.references)
        return self.strategy.chiefs(score)
