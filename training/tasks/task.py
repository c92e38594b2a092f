"""What a training has to know of its task, and of nothing else that is particular to it."""

import abc
import copy
import dataclasses
import math
from collections.abc import Mapping

import tensorflow as tf

from tfformer.config import PAD
from tfformer.models import FAMILIES
from training.data.batches import Batches
from training.data.corpus import Corpus, write_corpus
from training.data.reader import clean_pairs
from training.methods.method import METHODS, Methods


class Task(abc.ABC):
    """A task: what is learned, by which model, and which of two results is better.

    A corpus has two sides, source and target, texts both; what the target is, the task says (of
    plain texts, nothing). A subclass has the attributes and the abstract methods.

    Attributes:
        family: the name in `tfformer.models.FAMILIES` of the model that is trained.
        figure: what decides which model is published, by its name in `log.csv`: "val_...".
        figure_name, figure_how: that figure in words, and of what search or decision it is.
        figure_most: its largest value.
        pipeline_tag: of the Hugging Face Hub, for the model card.
        description: what the model is, a sentence for the model card.
        columns: {name: (title, format)} of the deciding figure, and of others of a validation
            that the card's table has.
        parts: those of the model's `parts` that `--freeze` may name, though not all of them.
        unit: what a corpus has many of.
        searched: the options of `tfformer.search.options` that a run is served with.
        class_weights: what `Recipe.class_weights` may be.
        known_methods: those of `training.methods.method.METHODS` that it has.
        taught: whether it can learn beside `--teachers`.
        config: the configuration of the model that it is for, see `of`; None of a table's.
    """

    parts, unit, searched, class_weights, config = (), "pair", (), ("none",), None
    known_methods, taught = (), False
    # Whether what serves its model can be exported.
    exported = True

    family = figure = figure_name = figure_how = pipeline_tag = description = ""
    figure_most = 1.0
    columns: Mapping = {}

    # What is prepared.

    # How its corpus lies on the disk: a class, and a function of its folder, pairs, tokenizer,
    # `max_tokens`, a `CorpusReport` and the split's name that writes one.
    corpus, write_corpus = Corpus, staticmethod(write_corpus)

    def clean(self, pairs, report, recipe):
        """Yields the pairs that are fit to be learned from, and counts in `report` all others."""
        limits = recipe.max_characters, recipe.max_length_ratio
        return clean_pairs(pairs, report, max_characters=limits[0], max_length_ratio=limits[1])

    def batches(self, corpus, tokenizer, batch_tokens, max_tokens, **options):
        """The `Batches` of a corpus, or what has their methods."""
        return Batches(self, corpus, tokenizer, batch_tokens, **options)

    @abc.abstractmethod
    def vocabulary(self, sources, targets, recipe):
        """The `Tokenizer` of both sides.

        Args:
            sources, targets: the texts of the corpus, each to be gone through once.
            recipe: a `Recipe`.
        """

    def label_table(self, targets):
        """The target's side of the tokenizer, of targets that are labels; None where they are
        texts. `targets` are those of the corpus."""
        return None

    @abc.abstractmethod
    def configuration(self, recipe, source_size, target_size=None, shared=True):
        """The configuration of the model that a recipe asks for.

        Args:
            recipe: a `Recipe`.
            source_size, target_size: ids of both sides. Of the target by default as many.
            shared: whether both sides have one vocabulary.

        Raises:
            ValueError: there is no such model.
        """

    # What a step is made of.

    def of(self, config):
        """The task as the model of this configuration learns it."""
        task = copy.copy(self)
        task.config = config
        return task

    @abc.abstractmethod
    def example(self, source, target, padded, seed=(0, 0)):
        """A batch as the model and its loss take it.

        Args:
            source, target: RaggedTensors of ids [B, (S)] and [B, (T)], each row ending with eos.
            padded: a function of such a tensor, that gives ids [B, S] with padding (id 0) after
                them, and rows of padding where a batch is not full. `padded(ids, columns)` gives
                [B, columns].
            seed: integers [2], of what is drawn: of each batch others.

        Returns:
            (inputs, labels): ids by the name of the model's input, and the ids [B, ...] to learn;
            what is padding there counts nothing.
        """

    def uniform(self, rows, columns, token):
        """A batch whose texts are this token alone: for a step that teaches nothing."""
        ids = tf.RaggedTensor.from_tensor(tf.fill([rows, columns], token))
        return self.example(
            ids, ids, lambda ids, columns=columns: ids.to_tensor(PAD, shape=[rows, columns])
        )

    # A function of (inputs, labels, passes) that gives them with padding left out, as
    # `tfformer.layers.rows.without_padding` does; None: the model takes them padded alone.
    without_padding = None

    def require_methods(self, recipe):
        """Raises a ValueError if the recipe asks for a training method that the task, or the model
        of its configuration, does not know."""
        require_defaults(self, recipe, [name for name in METHODS if name not in self.known_methods])

    def methods(self, recipe, steps=1, tokenizer=None):
        """The `Methods` of a training of so many steps."""
        return Methods()

    @abc.abstractmethod
    def loss(self, recipe, corpus=None):
        """A Keras loss whose `call` gives the loss of each label; `corpus` is that of training.

        Its attribute `r_drop` is the weight of R-Drop, which the training sets.
        """

    @abc.abstractmethod
    def metrics(self, recipe):
        """Keras metrics, "accuracy" and "perplexity" among them, whose variables are sums."""

    def figures(self, results):
        """The "loss" in nats a label and "accuracy", of the results of the metrics by name.

        The loss is the mean over all labels, without smoothing: Keras's own running loss weighs a
        batch by its rows, of which short texts have more.
        """
        return {"loss": math.log(results["perplexity"]), "accuracy": results["accuracy"]}

    # What is validated and published.

    @abc.abstractmethod
    def search(self, recipe):
        """How the model is served: keyword arguments, in `config.json` of the run."""

    @abc.abstractmethod
    def served(self, model, tokenizer, search):
        """What serves the model as it is at each moment."""

    # Whether the deciding figure is one of the metrics, and not a score of what is served.
    by_metrics = False

    def score(self, served, sources, references):
        """(the deciding figure, how it was computed) of what is served."""
        # Not abstract: a task `by_metrics` has no such figure, and is never asked for one.
        raise NotImplementedError(f"{type(self).__name__} is chosen by its metrics")

    def asked(self, corpus, tokenizer):
        """What a validation asks of what is served, and what it should answer: lists of texts."""
        return [[text.decode() for text in side] for side in corpus.texts(slice(None))]

    def shown(self, served, sources):
        """What is shown of these texts at each validation: a text for each, or nothing."""
        return []

    def validation(self, results, score, corpus):
        """The figures of a validation for `log.csv`: of the metrics' results and the score."""
        found = self.figures(results) | {"perplexity": results["perplexity"]}
        found = {f"val_{name}": value for name, value in found.items()}
        return found if self.by_metrics else found | {self.figure: score}

    def better(self, score, than):
        """Whether the first of two scores is the better one."""
        return score > than

    def sentence(self, figures):
        """The figures of a validation in a line."""
        shown = {**self.columns, "val_perplexity": ("perplexity", "{:.2f}")}
        shown = [f"{title} {form.format(figures[name])}" for name, (title, form) in shown.items()]
        return ", ".join([f"loss {figures['val_loss']:.3f}", *shown])

    # What a run is described by, from its files alone.

    @abc.abstractmethod
    def sizes(self, config, settings):
        """Yields (what, words) of the model that `config.json` describes, for its card."""

    @abc.abstractmethod
    def chosen(self, config, history):
        """The measures by which the published model was chosen; {} if that is not known.

        Args:
            config: `config.json` of the run.
            history: the rows of `log.csv`.
        """

    @abc.abstractmethod
    def usage(self, run, text):
        """Yields the commands that use the model, for its card.

        Args:
            run: the run directory, quoted for a shell.
            text: an example of a source, quoted too.
        """

    # What follows is the same for all.

    def figure_words(self, score=None):
        """The deciding figure in words: "BLEU (greedy)"; with a score, "BLEU 37.92 (greedy)"."""
        words = [self.figure_name]
        if score is not None:
            words.append(self.columns[self.figure][1].format(score))
        if self.figure_how:
            words.append(f"({self.figure_how})")
        return " ".join(words)

    def best(self, scores):
        """The number of the best of these scores, of equal ones the first."""
        found = 0
        for number, score in enumerate(scores):
            if self.better(score, scores[found]):
                found = number
        return found

    def read_configuration(self, fields):
        """The configuration of fields by name. Raises ValueError or TypeError."""
        return FAMILIES[self.family].read_configuration(fields)


# Characters of what SentencePiece learns from at once: it leaves out what has over 16 KB.
LEARNED = 4096


def source_tokenizer(texts, recipe):
    """The `Tokenizer` that a recipe learns from texts of any length, one for both sides."""
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


def one_stack_sizes(model, settings):
    """What `Task.sizes` yields of every model of one stack, of the fields of its configuration."""
    kind = f"SentencePiece {settings.get('vocabulary_kind', '')}".strip()
    yield "layers", str(model["num_layers"])
    yield "d_model, heads, d_ff", f"{model['d_model']}, {model['num_heads']}, {model['d_ff']}"
    yield "vocabulary", f"{kind}, {model['vocabulary_size']:,} pieces"


def require_defaults(task, recipe, names, why=None):
    """Raises a ValueError unless these settings of a recipe, which say nothing to the task, are
    what they are by default; `why` they say nothing, in words. Default: the task's family."""
    defaults = {field.name: field.default for field in dataclasses.fields(recipe)}
    for name in names:
        if (value := getattr(recipe, name)) != defaults[name]:
            raise ValueError(
                f"{name} must be {defaults[name]} {why or f'for the family {task.family}'}, got "
                f"{value}"
            )
