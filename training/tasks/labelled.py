"""What the tasks of labelled texts have in common: a text is read, and has labels."""

import abc
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from tfformer.config import EOS, PAD
from tfformer.loss import LabelCrossEntropy
from tfformer.metrics import LabelAccuracy, LabelPerplexity
from tfformer.text.sides import LabelTable
from training.data.batches import Batches
from training.data.corpus import Corpus, write_corpus
from training.data.noise import Noise
from training.data.reader import CorpusError, Pair, is_blank
from training.metrics import labels as measures
from training.tasks.task import Task, one_stack_sizes, require_defaults, source_tokenizer

# Texts that a validation asks for at once.
BATCH = 64
# More different labels than this are no labels: a file of translations, say.
MOST_LABELS = 4096
LABELS = "labels.npy"
CONTROLS = "[\x00-\x1f\x7f-\x9f]+"


class Reading(abc.ABC):
    """What a corpus and its batches ask of a tokenizer and of a task: how texts and labels become
    what a model of labelled texts reads.

    Args:
        tokenizer: a `Tokenizer`, whose target is a `LabelTable`.
        longest: tokens of a text at most, eos counted.
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
        """What `Task.example` says."""


class LabelledCorpus(Corpus):
    """The texts of a folder, and how often each label was there.

    Attributes:
        counts: int64 [C].
    """

    def __init__(self, folder):
        super().__init__(folder)
        self.counts = np.load(Path(folder) / LABELS)


class LabelledTask(Task):
    """A task of labelled texts; a subclass says what its `Reading` is.

    Attributes:
        reading: the class of its `Reading`.
        labelled: what has a label, in words.
    """

    reading, corpus, labelled = Reading, LabelledCorpus, "text"
    parts, unit = ("encoder", "embeddings"), "text"
    # Settings of two sides of text, of what is generated, or that draw segmentations.
    unused = (
        *("both_ways", "new_pieces", "subword_sampling", "shared_vocabulary"),
        *("beam_width", "length_penalty"),
    )

    @abc.abstractmethod
    def labels_of(self, line, model):
        """The labels that a line of the corpus has: a list of strings, as `label` gives them.

        Args:
            line: of the file of labels.
            model: {name: value} of fields of the model's configuration.
        """

    def clean(self, pairs, report, recipe):
        return self.cleaned(pairs, report, recipe.model_changes)

    def cleaned(self, pairs, report, model):
        """Yields the pairs that have a text and labels, these with tabs between, and counts all in
        `report`; a text may be as long as it is. `model` is that of `labels_of`."""
        for pair in pairs:
            labels = self.labels_of(pair.target, model)
            if is_blank(pair.source):
                report.blank += 1
            elif self.may_be(labels, pair, report):
                report.kept += 1
                yield Pair(pair.source, "\t".join(labels))

    def may_be(self, labels, pair, report):
        """Whether the text of a pair may have these labels; if not, `report` counts why."""
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
                f"labels must not be more different ones than {self.labelled}s, got "
                f"{len(table.labels):,} labels of {len(units):,} different {self.labelled}s: have "
                "texts and labels changed places? Of a TSV, --columns 2,1 exchanges them"
            )
        return Tokenizer(side, table)

    def units(self, text):
        """What of a text has a label."""
        return [text]

    def label_table(self, targets):
        found = set()
        for target in targets:
            found.update(filter(None, target.split("\t")))
            if len(found) > MOST_LABELS:
                raise CorpusError(
                    f"labels must be at most {MOST_LABELS:,} different ones, got more, of which "
                    f"one is {target[:40]!r}"
                )
        if not found:
            raise CorpusError("labels must be given, got none in the training corpus")
        return LabelTable(sorted(found), "labels")

    def write_corpus(self, folder, pairs, tokenizer, max_tokens, report, split="train"):
        """Writes the pairs; of validation those alone whose labels training has."""
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

    def batches(self, corpus, tokenizer, batch_tokens, max_tokens, noise=None, **options):
        """A model of labels takes texts padded, one way: `packed` and `both_ways` say nothing."""
        reading = self.reading(tokenizer, max_tokens)
        noise = Noise(reading, word_dropout=noise.word_dropout if noise else 0.0)
        known = {name: options[name] for name in options if name not in ("packed", "both_ways")}
        return Batches(reading, corpus, reading, batch_tokens, noise=noise, **known)

    def require_settings(self, recipe):
        """Raises a ValueError for settings and options of the search that say nothing here."""
        require_defaults(self, recipe, self.unused)

    def example(self, source, target, padded, seed=(0, 0)):
        return {"ids": padded(source)}, padded(target)

    @abc.abstractmethod
    def label_columns(self, columns):
        """How many labels a row of `columns` tokens has."""

    def is_of(self, model):
        """Whether a model with these fields of its configuration is trained by this task."""
        return True

    @abc.abstractmethod
    def judged(self, served, pairs, batch_size):
        """How good what is served is, on pairs as `cleaned` gives them.

        Returns:
            (scores, answers, confused): the deciding figure, without "val_", and others by name;
            an answer to each text, a string; and of how many texts with a label which label was
            predicted, [C, C], or None where there are no labels.
        """

    def score(self, served, sources, references):
        pairs = [Pair(*pair) for pair in zip(sources, references, strict=True)]
        return self.judged(served, pairs, BATCH)[0][self.figure.removeprefix("val_")], None

    def uniform(self, rows, columns, token):
        """Its labels are none."""
        ids = tf.fill([rows, columns], token)
        return {"ids": ids}, tf.fill([rows, self.label_columns(columns)], PAD)

    def loss(self, recipe, corpus=None):
        return LabelCrossEntropy(recipe.smoothing)

    def metrics(self, recipe):
        return [LabelAccuracy("accuracy"), LabelPerplexity("perplexity")]

    def search(self, recipe):
        return {"max_source_length": recipe.max_tokens}

    def shown(self, served, sources):
        return served.answer(sources)

    def sizes(self, config, settings):
        model = config["model"]
        yield from one_stack_sizes(model, settings)
        if "num_labels" in model:
            yield "labels", f"{model['num_labels']:,}"

    def chosen(self, config, history):
        training = config.get("training", {})
        if self.figure not in training:
            return {}
        return {self.figure.removeprefix("val_"): training[self.figure]}

    def usage(self, run, text):
        yield f"echo {text} | python -m training.translate {run}"
        yield f"python -m training.evaluate {run} --source TEXTS.txt --labels LABELS.txt"


def label(text):
    """A label as a table has it: control characters and runs of white space are a space each."""
    return " ".join(re.sub(CONTROLS, " ", text).split())


def configured(task, configuration, recipe, source_size, target_size, **changes):
    """The configuration of a model of labels; without a target's size, of two of them.

    Raises:
        ValueError: there is no such model, or a setting says nothing to the task.
    """
    task.require_settings(recipe)
    if target_size is None or target_size > EOS + 1:
        changes["num_labels"] = 2 if target_size is None else target_size - EOS - 1
    try:
        return configuration.preset(
            recipe.preset, source_size, **{**changes, **recipe.model_changes}
        )
    except TypeError as error:
        raise ValueError(f"model_changes: {error}") from error


def label_scores(names, true, predicted):
    """Macro F1, accuracy and the figures of each label; and the confusion matrix, [C, C].

    Args:
        names: the C labels.
        true, predicted: labels, as many; one that is not among `names` is a label of its own.
    """
    number = {name: n for n, name in enumerate(names)}
    rows = [[number.get(one, len(names)) for one in side] for side in (true, predicted)]
    # A label that training had not is never right.
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
    """RaggedTensor of ids, each row ending with eos -> of at most `longest` each, eos last: as the
    server cuts a text."""
    kept = ids[:, :-1][:, : longest - 1]
    return tf.concat([kept, tf.fill([ids.nrows(out_type=tf.int32), 1], EOS)], axis=1)


def numbers(ids):
    """Ids of a table of labels -> 1, 2, ... of its labels, and 0 of anything else."""
    return tf.maximum(ids - EOS, 0)
