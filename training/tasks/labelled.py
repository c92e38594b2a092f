"""The common base of tasks with labelled texts: the model reads a text and predicts its labels."""

import abc
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.loss import LabelCrossEntropy
from tfformer.metrics import LabelAccuracy, LabelPerplexity
from tfformer.text.vocabularies import LabelTable

from ..data.batches import Batches
from ..data.corpus import Corpus, write_corpus
from ..data.noise import Noise
from ..data.reader import CorpusError, Pair, is_blank
from ..metrics import labels as measures
from .task import Task, require_defaults, source_tokenizer

# Texts in a batch of a validation.
BATCH = 64
# With more different labels than this, the file has no labels but, for example, translations.
MAX_LABELS = 4096
LABELS = "labels.npy"
CONTROLS = "[\x00-\x1f\x7f-\x9f]+"


class Reading(abc.ABC):
    """Converts texts and labels into the inputs and labels of a model.

    It has the methods that a corpus and its batches need from a tokenizer, whose target is a
    `LabelTable`, and from a task. A text has at most `longest` tokens, with eos.
    """

    without_padding = None

    def __init__(self, tokenizer, longest):
        self.tokenizer, self.longest = tokenizer, longest
        self.source, self.target = tokenizer.source, tokenizer.target

    def encode_source(self, texts):
        """string [B] -> RaggedTensor of int32 ids [B, (S)], each row ending with eos."""
        return self.tokenizer.encode_source(texts)

    def encode_target(self, texts):
        """string [B] -> RaggedTensor of int32 ids of labels [B, (T)], each row ending with eos."""
        return self.tokenizer.encode_target(texts)

    @abc.abstractmethod
    def example(self, source, target, padded, seed=(0, 0)):
        """See `Task.example`."""


class LabelledCorpus(Corpus):
    """The texts of a folder, and `counts`, int64 [C]: the number of occurrences of each label."""

    def __init__(self, folder):
        super().__init__(folder)
        self.counts = np.load(Path(folder) / LABELS)


class LabelledTask(Task):
    """A task of labelled texts. A subclass sets the class of its `reading`, and `labelled`, a word
    for the unit that has a label."""

    reading, corpus, labelled = Reading, LabelledCorpus, "text"
    figure, figure_name = "val_macro_f1", "macro F1"
    columns = {
        "val_accuracy": ("validation accuracy", "{:.3f}"),
        "val_macro_f1": ("macro F1", "{:.3f}"),
    }
    parts, unit = ("encoder", "embeddings"), "text"
    test_set = "--source TEXTS.txt --labels LABELS.txt"
    # Settings that need a source and a target text, generate text, or sample segmentations.
    unused = (
        *("both_ways", "new_pieces", "subword_sampling", "shared_vocabulary"),
        *("beam_width", "length_penalty"),
    )

    @abc.abstractmethod
    def labels_of(self, line, model):
        """The labels in a line of the corpus: a list of strings, as `label` returns them.

        `model` has fields of the model's configuration, by name.
        """

    def clean(self, pairs, report, recipe):
        return self.cleaned(pairs, report, recipe.model_changes)

    def cleaned(self, pairs, report, model):
        """Yields the pairs that have a text and labels, with tabs between the labels, and counts
        all pairs in `report`. Texts may have any length. `model` is the argument of `labels_of`."""
        for pair in pairs:
            labels = self.labels_of(pair.target, model)
            if is_blank(pair.source):
                report.blank += 1
            elif self.may_be(labels, pair, report):
                report.kept += 1
                yield Pair(pair.source, "\t".join(labels))

    def may_be(self, labels, pair, report):
        """Whether the text of a pair may have these labels; if not, `report` counts the reason."""
        report.blank += not labels
        return bool(labels)

    def vocabulary(self, sources, targets, recipe):
        from tfformer.text.tokenizer import Tokenizer

        units = set()

        def counted():
            for source in sources:
                units.update(map(hash, self.units(source)))
                yield source

        side, table = source_tokenizer(counted(), recipe).source, self.label_table(targets)
        if len(table.labels) > len(units):
            raise CorpusError(
                f"there must be at most as many different labels as {self.labelled}s, got "
                f"{len(table.labels):,} labels and {len(units):,} {self.labelled}s: are texts and "
                "labels exchanged? For a TSV, give --columns 2,1"
            )
        return Tokenizer(side, table)

    def units(self, text):
        """The units of a text that have a label."""
        return [text]

    def label_table(self, targets):
        found = set()
        for target in targets:
            found.update(filter(None, target.split("\t")))
            if len(found) > MAX_LABELS:
                raise CorpusError(
                    f"labels must be at most {MAX_LABELS:,} different ones, got more, of which "
                    f"one is {target[:40]!r}"
                )
        if not found:
            raise CorpusError("labels must be given, got none in the training corpus")
        return LabelTable(sorted(found), "labels")

    def write_corpus(self, folder, pairs, tokenizer, max_tokens, report, split="train"):
        """Writes the pairs; for validation, only those whose labels are in the training corpus."""
        numbers = {label: n for n, label in enumerate(tokenizer.target.labels)}
        counts = np.zeros(len(numbers), "int64")

        def with_known_labels():
            for pair in pairs:
                labels = [*filter(None, pair.target.split("\t"))]
                if numbers.keys() >= set(labels):
                    np.add.at(counts, [numbers[label] for label in labels], 1)
                    yield pair
                else:
                    report.kept -= 1
                    report.unknown_label += 1

        reading = self.reading(tokenizer, max_tokens)
        names = "--val-source, --val-labels"
        write_corpus(folder, with_known_labels(), reading, max_tokens, report, split, names)
        np.save(folder / LABELS, counts)
        return self.corpus(folder)

    def batches(
        self, corpus, tokenizer, batch_tokens, max_tokens, noise=None, packed=False, both_ways=0,
        **options,
    ):  # fmt: skip
        """A model of labels takes padded texts in one direction: it ignores `packed` and
        `both_ways`."""
        reading = self.reading(tokenizer, max_tokens)
        noise = Noise(reading, word_dropout=noise.word_dropout if noise else 0.0)
        return Batches(reading, corpus, reading, batch_tokens, noise=noise, **options)

    def configuration(self, recipe, source_size, target_size=None, shared=True, **changes):
        """See `Task.configuration`; without `target_size`, the model has two labels."""
        require_defaults(self, recipe, self.unused)
        if target_size is None or target_size > EOS + 1:
            changes["num_labels"] = 2 if target_size is None else target_size - EOS - 1
        return self.preset(recipe, source_size, **changes)

    def example(self, source, target, padded, seed=(0, 0)):
        return {"ids": padded(source)}, padded(target)

    @abc.abstractmethod
    def label_columns(self, columns):
        """The number of labels for a row of `columns` tokens."""

    def is_of(self, model):
        """Whether this task trains a model with these configuration fields."""
        return True

    @abc.abstractmethod
    def judged(self, served, pairs, batch_size):
        """Scores the served model on pairs from `cleaned`.

        Returns:
            (scores, answers, confused): the deciding figure, without "val_", and other scores by
            name; an answer string for each text; and the confusion matrix [C, C], the number of
            texts for each true and predicted label, or None if there are no labels.
        """

    def score(self, served, sources, references):
        pairs = [Pair(*pair) for pair in zip(sources, references, strict=True)]
        return self.judged(served, pairs, BATCH)[0][self.figure.removeprefix("val_")], None

    def uniform(self, rows, columns, token):
        """All labels are padding."""
        ids = tf.fill([rows, columns], token)
        return {"ids": ids}, tf.fill([rows, self.label_columns(columns)], PAD)

    def loss(self, recipe, corpus=None):
        return LabelCrossEntropy(recipe.smoothing)

    def metrics(self, recipe):
        return [LabelAccuracy("accuracy"), LabelPerplexity("perplexity")]

    def shown(self, served, sources):
        return served.answer(sources)

    def sizes(self, config, settings):
        yield from super().sizes(config, settings)
        if "num_labels" in config["model"]:
            yield "labels", f"{config['model']['num_labels']:,}"


def label(text):
    """A label as in the table: control characters and runs of white space become one space."""
    return " ".join(re.sub(CONTROLS, " ", text).split())


def label_scores(names, true, predicted):
    """Macro F1, accuracy and the figures of each label; and the confusion matrix, [C, C].

    `names` are the C labels; all other labels, `true` or `predicted`, count as one more.
    """
    number = {name: n for n, name in enumerate(names)}
    rows = [[number.get(one, len(names)) for one in side] for side in (true, predicted)]
    # A label that is not in the training corpus is never correct.
    confused = measures.confusion(*rows, len(names) + 1)
    hits, said, of = measures.label_counts(confused)
    hits[-1] = 0
    scores = {
        "macro_f1": measures.macro_f1(hits, said, of),
        "accuracy": float(hits.sum() / max(1, len(true))),
        "labels": measures.by_label(names, hits, said, of),
    }
    return scores, confused[:-1, :-1]


def cut(ids, longest):
    """Cuts each row of a RaggedTensor of ids to at most `longest`, with eos at the end, as the
    server cuts a text."""
    kept = ids[:, :-1][:, : longest - 1]
    return tf.concat([kept, tf.fill([ids.nrows(out_type=tf.int32), 1], EOS)], axis=1)


def numbers(ids):
    """Converts ids of a label table to label numbers 1, 2, ..., and every other id to 0."""
    return tf.maximum(ids - EOS, 0)
