"""The common base of tasks on plain text: texts are joined into full rows, and the perplexity
decides which model is best."""

import math

from tfformer.loss import SmoothedCrossEntropy
from tfformer.metrics import Perplexity, TokenAccuracy

from ..data.packed_text import JoinedCorpus
from ..data.reader import clean_texts
from .task import Task, require_defaults, source_tokenizer


class PlainTextTask(Task):
    """A task on plain text; the model with the lowest perplexity is the best.

    Its `unused` settings have no meaning for the task.
    """

    figure, figure_name, figure_max = "val_perplexity", "perplexity", math.inf
    by_metrics, unit = True, "text"
    corpus, write_corpus = JoinedCorpus, staticmethod(JoinedCorpus.write)
    # Settings that need a source and a target, or sample segmentations.
    unused = ("both_ways", "new_pieces", "subword_sampling", "shared_vocabulary")
    test_set = "--text TEXTS.txt"

    def clean(self, pairs, report, recipe):
        return clean_texts(pairs, report)

    def vocabulary(self, sources, targets, recipe):
        return source_tokenizer(sources, recipe)

    def configuration(self, recipe, source_size, target_size=None, shared=True):
        require_defaults(self, recipe, self.unused)
        return self.preset(recipe, source_size)

    def loss(self, recipe, corpus=None):
        return SmoothedCrossEntropy(recipe.smoothing)

    def metrics(self, recipe):
        return [TokenAccuracy(), Perplexity()]

    def better(self, score, than):
        return score < than
