"""The common base of tasks on plain text: texts are joined into full rows, and the perplexity
decides which model is best."""

import math

from tfformer.loss import SmoothedCrossEntropy
from tfformer.metrics import Perplexity, TokenAccuracy

from ..data.joined import JoinedCorpus
from ..data.reader import clean_texts
from .task import Task, one_stack_sizes, require_defaults, source_tokenizer


class PlainTextTask(Task):
    """A task on plain text; the model with the lowest perplexity is the best.

    Attributes:
        configuration_class: the configuration class of its model.
        unused: the settings without a meaning for the task.
    """

    figure, figure_name, figure_most = "val_perplexity", "perplexity", math.inf
    by_metrics, unit = True, "text"
    corpus, write_corpus = JoinedCorpus, staticmethod(JoinedCorpus.write)
    # Settings that need a source and a target, or sample segmentations.
    unused = ("both_ways", "new_pieces", "subword_sampling", "shared_vocabulary")
    configuration_class = None

    def clean(self, pairs, report, recipe):
        return clean_texts(pairs, report)

    def vocabulary(self, sources, targets, recipe):
        return source_tokenizer(sources, recipe)

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        require_defaults(self, recipe, self.unused)
        kind = self.configuration_class
        try:
            return kind.preset(recipe.preset, source_size, **recipe.model_changes)
        except TypeError as error:
            raise ValueError(f"model_changes: {error}") from error

    def loss(self, recipe, corpus=None):
        return SmoothedCrossEntropy(recipe.smoothing)

    def metrics(self, recipe):
        return [TokenAccuracy(), Perplexity()]

    def better(self, score, than):
        return score < than

    def sizes(self, config, settings):
        yield from one_stack_sizes(config["model"], settings)

    def chosen(self, config, history):
        perplexity = config.get("training", {}).get(self.figure)
        return {} if perplexity is None else {"perplexity": perplexity}

    def usage(self, run, text):
        yield f"echo {text} | tfformer translate {run}"
        yield f"tfformer evaluate {run} --text TEXTS.txt"
