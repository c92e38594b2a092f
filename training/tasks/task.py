"""The interface of a task: everything in a training that is specific to its task."""

import abc
import copy
import dataclasses
import math
from collections.abc import Mapping

import tensorflow as tf

from tfformer.config import PAD
from tfformer.models import FAMILIES

from ..data.batches import Batches
from ..data.corpus import Corpus, write_corpus
from ..data.reader import clean_pairs
from ..methods.method import METHODS, Methods


class Task(abc.ABC):
    """A task defines what is learned, with which model, and which of two results is better.

    A corpus has a source and a target, both texts. The task defines the meaning of the target (for
    plain text, there is none). A subclass sets the attributes and implements the abstract methods.

    Attributes:
        family: the name of the trained model in `tfformer.models.FAMILIES`.
        figure: the figure that decides which model is published, by its name in `log.csv`:
            "val_...".
        figure_name, figure_how: that figure in words, and the search or decision behind it.
        figure_max: its maximum value.
        pipeline_tag: of the Hugging Face Hub, for the model card.
        description: a sentence about the model, for the model card.
        columns: {name: (title, format)} of the deciding figure, and of other validation figures in
            the card's table.
        parts: the model's `parts` that `--freeze` may name, but not all of them together.
        unit: a word for one item of the corpus.
        searched: the options of `tfformer.config.search_options` that apply when a run is served.
        class_weights: the allowed values of `Recipe.class_weights`.
        known_methods: the methods of `training.methods.method.METHODS` that it supports.
        taught: whether it supports `--teachers`.
        test_set: the options of `training.evaluate` for a test set, for the model card.
        config: the configuration of its model, see `of`; None for the tasks in `TASKS`.
    """

    parts, unit, searched, class_weights, config = (), "pair", (), ("none",), None
    known_methods, taught = (), False
    # Whether the service of its model can be exported.
    exported = True

    family = figure = figure_name = figure_how = pipeline_tag = description = ""
    figure_max = 1.0
    columns: Mapping = {}
    test_set = "--source SOURCES.txt --target REFERENCES.txt"

    # Preparation.

    # The format of its corpus on disk: a class that reads it, and a function that writes it. The
    # function takes a folder, pairs, tokenizer, `max_tokens`, a `CorpusReport` and the split's
    # name.
    corpus, write_corpus = Corpus, staticmethod(write_corpus)

    def clean(self, pairs, report, recipe):
        """Yields the pairs that are usable for training, and counts all others in `report`."""
        limits = recipe.max_characters, recipe.max_length_ratio
        return clean_pairs(pairs, report, max_characters=limits[0], max_length_ratio=limits[1])

    def batches(self, corpus, tokenizer, batch_tokens, max_tokens, **options):
        """The `Batches` of a corpus, or an object with the same methods."""
        return Batches(self, corpus, tokenizer, batch_tokens, **options)

    @abc.abstractmethod
    def vocabulary(self, sources, targets, recipe):
        """The `Tokenizer` of source and target, whose texts can each be iterated once."""

    def label_table(self, targets):
        """The target side of the tokenizer if targets are labels, or None if they are texts.
        `targets` are those of the corpus."""
        return None

    @abc.abstractmethod
    def configuration(self, recipe, source_size, target_size=None, shared=True):
        """The configuration of the model that a recipe requests.

        Args:
            source_size, target_size: number of ids of source and target; the target's default is
                the source's.
            shared: whether source and target share one vocabulary.

        Raises:
            ValueError: there is no such model.
        """

    def preset(self, recipe, *sizes, **changes):
        """The configuration, of the task's `Family`, for the recipe's preset. The recipe's
        `model_changes` override these changes, and its profile changes the numbers of layers."""
        kind = FAMILIES[self.family].configuration
        try:
            config = kind.preset(recipe.preset, *sizes, **{**changes, **recipe.model_changes})
        except TypeError as error:
            raise ValueError(f"model_changes: {error}") from error
        if recipe.profile == "latency":
            layers = 2 * config.num_encoder_layers
            return dataclasses.replace(config, num_encoder_layers=layers, num_decoder_layers=1)
        return config

    # The training step.

    def of(self, config):
        """A copy of the task for a model with this configuration."""
        task = copy.copy(self)
        task.config = config
        return task

    @abc.abstractmethod
    def example(self, source, target, padded, seed=(0, 0)):
        """A batch in the form of the model's inputs and the loss's labels.

        Args:
            source, target: RaggedTensors of ids [B, (S)] and [B, (T)], each row ending with eos.
            padded: a function that converts such a tensor to ids [B, S], with padding (id 0) after
                them and rows of padding if a batch is not full. `padded(ids, columns)` returns
                [B, columns].
            seed: integers [2] for random choices, different for each batch.

        Returns:
            (inputs, labels): ids by the name of the model's input, and the ids [B, ...] to learn;
            padding in the labels is ignored.
        """

    def uniform(self, rows, columns, token):
        """A batch whose texts have only this token, for a step that is not for learning."""
        ids = tf.RaggedTensor.from_tensor(tf.fill([rows, columns], token))
        return self.example(
            ids, ids, lambda ids, columns=columns: ids.to_tensor(PAD, shape=[rows, columns])
        )

    # A function of (inputs, labels, passes) that returns them without padding, such as
    # `tfformer.layers.packing.without_padding`; None if the model only takes padded inputs.
    without_padding = None

    def require_methods(self, recipe):
        """Raises a ValueError if the recipe uses a training method that the task, or the model of
        its configuration, does not support."""
        require_defaults(self, recipe, [name for name in METHODS if name not in self.known_methods])

    def methods(self, recipe, steps=1, tokenizer=None):
        """The `Methods` of a training of `steps` steps."""
        return Methods()

    @abc.abstractmethod
    def loss(self, recipe, corpus=None):
        """A Keras loss whose `call` returns the loss of each label; `corpus` is that of training.

        Its attribute `r_drop` is the weight of R-Drop, which the training sets.
        """

    @abc.abstractmethod
    def metrics(self, recipe):
        """Keras metrics whose variables are sums. "accuracy" and "perplexity" are among them,
        unless the task overrides `figures`, `validation` and `sentence`."""

    def figures(self, results):
        """The "loss" in nats per label and "accuracy", from the metrics' results by name.

        The loss is the mean over all labels, without smoothing. Keras's own running loss weights a
        batch by its number of rows, which is higher for short texts.
        """
        return {"loss": math.log(results["perplexity"]), "accuracy": results["accuracy"]}

    # Validation and publication.

    def search(self, recipe):
        """Keyword arguments of the model's service, stored in `config.json` of the run."""
        return {"max_source_length": recipe.max_tokens}

    def served(self, model, tokenizer, search):
        """The service of the model, which always uses its current weights."""
        from tfformer.service.families import SERVICES

        return SERVICES[self.family](model, tokenizer, **search)

    # Whether the deciding figure is one of the metrics instead of a score of the served model.
    by_metrics = False

    def score(self, served, sources, references):
        """(the deciding figure, how it was computed) for the served model."""
        # Not abstract, because a task with `by_metrics` has no such score: nothing calls it there.
        raise NotImplementedError(f"{type(self).__name__} is chosen by its metrics")

    def asked(self, corpus, tokenizer):
        """The requests of a validation and the expected answers: two lists of texts."""
        return [[text.decode() for text in side] for side in corpus.texts(slice(None))]

    def shown(self, served, sources):
        """The outputs for these texts that each validation shows: one for each text, or none."""
        return []

    def validation(self, results, score, corpus):
        """The figures of a validation for `log.csv`, from the metrics' results and the score."""
        found = self.figures(results) | {"perplexity": results["perplexity"]}
        found = {f"val_{name}": value for name, value in found.items()}
        return found if self.by_metrics else found | {self.figure: score}

    def better(self, score, than):
        """Whether the score is better than the other, `than`."""
        return score > than

    def sentence(self, figures):
        """The figures of a validation in one line."""
        shown = {**self.columns, "val_perplexity": ("perplexity", "{:.2f}")}
        shown = [f"{title} {form.format(figures[name])}" for name, (title, form) in shown.items()]
        return ", ".join([f"loss {figures['val_loss']:.3f}", *shown])

    # The description of a run, from its files alone.

    def sizes(self, config, settings):
        """Yields (what, words) about the model in `config.json`, for its card."""
        model, kind = config["model"], f"SentencePiece {settings.get('vocabulary_kind', '')}"
        yield "layers", str(model["num_layers"])
        yield "d_model, heads, d_ff", f"{model['d_model']}, {model['num_heads']}, {model['d_ff']}"
        yield "vocabulary", f"{kind.strip()}, {model['vocabulary_size']:,} pieces"

    def chosen(self, config, history):
        """The measures that selected the published model; {} if they are not known.

        `config` is `config.json` of the run, `history` the rows of `log.csv`.
        """
        score = config.get("training", {}).get(self.figure)
        return {} if score is None else {self.figure.removeprefix("val_"): score}

    def usage(self, run, text):
        """Yields the commands that use the model, for its card: run and text are quoted."""
        yield f"echo {text} | tfformer translate {run}"
        yield f"tfformer evaluate {run} {self.test_set}"

    # The same for all tasks.

    def figure_words(self, score=None):
        """The deciding figure in words: "BLEU (greedy)"; with a score, "BLEU 37.92 (greedy)"."""
        words = [self.figure_name]
        if score is not None:
            words.append(self.columns[self.figure][1].format(score))
        if self.figure_how:
            words.append(f"({self.figure_how})")
        return " ".join(words)

    def best(self, scores):
        """The index of the best of these scores; of equal ones, the first."""
        found = 0
        for number, score in enumerate(scores):
            if self.better(score, scores[found]):
                found = number
        return found

    def read_configuration(self, fields):
        """The configuration with these fields. Raises ValueError or TypeError."""
        return FAMILIES[self.family].read_configuration(fields)


# Characters in a text for SentencePiece's training: it leaves out texts over 16 KB.
LEARNED = 4096


def source_tokenizer(texts, recipe):
    """The `Tokenizer` that a recipe learns from texts of any length, for source and target."""
    from tfformer.text.tokenizer import Tokenizer

    pieces = (
        text[start : start + LEARNED] for text in texts for start in range(0, len(text), LEARNED)
    )
    return Tokenizer.train(
        pieces,
        vocabulary_size=recipe.vocabulary_size,
        kind=recipe.vocabulary_kind,
        split_digits=recipe.split_digits,
    )


def require_defaults(task, recipe, names, why=None):
    """Raises a ValueError unless these settings of a recipe, which mean nothing for the task, have
    their defaults; `why` gives the reason in words. Default: the task's family."""
    defaults = {field.name: field.default for field in dataclasses.fields(recipe)}
    for name in names:
        if (value := getattr(recipe, name)) != defaults[name]:
            raise ValueError(
                f"{name} must be {defaults[name]} {why or f'for the family {task.family}'}, got "
                f"{value}"
            )
