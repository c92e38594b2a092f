"""A recipe: all settings of a training. The file that sets a value gives the reason."""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path

from ..data.reader import Pair
from .families import TRANSLATION
from .rules import AUTO, check

RECIPES = Path(__file__).parents[1] / "recipes"
# Settings that an existing tokenizer decides, and settings that the run of --init decides.
VOCABULARY = {"vocabulary_size", "vocabulary_kind", "shared_vocabulary", "split_digits"}
SETTLED_BY_INIT = {"preset", "profile", "model_changes"} | VOCABULARY
# Values for a small corpus if neither recipe nor option sets them, see `training.recipe.plan`. They
# are nearly those of the recipe multi30k. `FOR_LARGE`, below, is for a large corpus.
FOR_SMALL = {
    "preset": "tiny",
    "batch_tokens": 2048,
    "optimizer": "muon",
    "weight_decay": 0.7,
    "cooldown": 0.2,
}
CHOSEN = (*FOR_SMALL, "warmup_steps", "learning_rate_scale")


# The groups of settings in the command's help.
CORPUS, TRAINING = "corpus and vocabulary", "training"
REGULARISATION, DEVICES, SEARCH = "regularisation", "devices and precision", "search"
METHODS = "training methods"


def setting(group, default, help, kind=None):
    """A field of a recipe that is also an option of the command, with the default's type."""
    metadata = {"group": group, "help": help, "kind": kind}
    return dataclasses.field(default=default, metadata=metadata)


# A function for each group that makes a setting of it.
corpus, training, regular, device, method, served = (
    functools.partial(setting, group)
    for group in (CORPUS, TRAINING, REGULARISATION, DEVICES, METHODS, SEARCH)
)


def tokens(text):
    """Parses a number of tokens, or `AUTO`."""
    return AUTO if text == AUTO else int(text)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of `tfformer train`.

    Args:
        pairs: a function of a split (`"train"`, `"val"` or `"test"`) and the folder given with
            `--data` (or None). It returns the pairs of the split. It may have more parameters:
            `source_language` and `language`, for a corpus of several languages; `report`, a
            `CorpusReport` or None, in which `read_pairs` counts. Default: the recipe has no corpus
            and uses the files of `--source` and `--target`.
        model_changes: fields of the model's configuration that replace the preset's.
        search: options of the search that the model is served with, by their names in
            `tfformer.config.search_options`, besides `beam_width` and `length_penalty`.
        origin: where the pairs are from, in words, for the model card.
        task: a name in `training.tasks.TASKS`.
        choose: names of settings that are chosen from the corpus when a run is prepared, see
            `training.recipe.plan`. It is not stored in a run.
    """

    pairs: Callable[[str, Path | None], Iterable[Pair]] | None = None
    model_changes: dict = dataclasses.field(default_factory=dict)
    search: dict = dataclasses.field(default_factory=dict)
    origin: str = ""
    task: str = TRANSLATION
    choose: tuple = ()
    preset: str = training("base", "the model's size: tiny, base or big")
    profile: str = training(
        "none",
        "none, or latency: twice the encoder layers that preset, recipe and options give, and one "
        "decoder layer, for fast translations; best with --distill",
    )
    vocabulary_size: int = corpus(8000, "maximum number of ids of a SentencePiece model")
    vocabulary_kind: str = corpus("unigram", "unigram, bpe or char")
    shared_vocabulary: bool = corpus(True, "one SentencePiece model for source and target")
    split_digits: bool = corpus(False, "each digit is a separate piece")
    max_characters: int = corpus(1000, "pairs with a longer source or target are dropped")
    max_tokens: int = corpus(128, "pairs with a longer source or target are dropped")
    max_length_ratio: float = corpus(
        9.0, "pairs with a larger ratio of lengths are dropped; inf: none"
    )
    batch_tokens: int | str = training(
        4096,
        "source or target tokens in a batch, padding included; auto: as many as fit on a GPU",
        tokens,
    )
    accumulate: int = device(
        1, "a device computes its rows in so many parts, one after the other, to need less memory"
    )
    cores: int = device(
        0,
        "a CPU computes a batch in so many parallel parts; 0: one for each core, up to 8, with at "
        "least 512 tokens each, or one part with a strategy",
    )
    strategy: str = device("none", "distribution over devices: none, mirrored, multiworker or tpu")
    epochs: int = training(20, "maximum passes over the corpus")
    max_minutes: float = training(
        0.0, "stop after the epoch that passes this time, earlier sessions included; 0 is no limit"
    )
    optimizer: str = training("adam", "adam (the paper's), or muon, which needs fewer steps")
    warmup_steps: int = training(4000, "steps in which the learning rate rises")
    warmup: bool = training(
        True, "the learning rate rises from zero; with --no-warmup, it begins at its peak"
    )
    learning_rate_scale: float = training(1.0, "factor of the paper's learning rate")
    cooldown: float = training(
        0.0, "share of the steps, at the end, in which the learning rate falls to zero"
    )
    source_language: str = corpus("", "source language: en, de, ...")
    language: str = corpus(
        "", "target language, for BLEU by the protocol of the Multi30K literature"
    )
    smoothing: float = regular(0.1, "label smoothing")
    class_weights: str = regular(
        "none", "weights of a classifier's labels: none, or balanced: rare labels weigh more"
    )
    r_drop: float = regular(0.0, "weight of R-Drop, which computes each pair twice; 0: no R-Drop")
    r_drop_from: int = regular(0, "number of first epochs without R-Drop")
    both_ways: int = regular(
        0, "number of first epochs in which half of the pairs have source and target exchanged"
    )
    subword_sampling: float = regular(
        0.0, "random segmentations: alpha of a unigram, dropout of a bpe vocabulary; 0: none"
    )
    subword_sampling_from: int = regular(0, "number of first epochs without subword sampling")
    word_dropout: float = regular(0.0, "share of source and target pieces replaced by unk")
    glancing: float = method(
        0.0,
        "for mask-predict: a second pass sees this share of the tokens that a first pass got "
        "wrong; 0: one pass, which sees a random number of tokens",
    )
    objective: str = method(
        "cross-entropy",
        "distance to the smoothed target: cross-entropy, kl (the same gradient) or squared",
    )
    scheduled_sampling: float = method(
        0.0,
        "final share of target tokens that the decoder reads from its own first pass; 0: none, "
        "teacher forcing",
    )
    scheduled_sampling_decay: str = method(
        "linear", "how the share rises: linear, exponential or inverse-sigmoid"
    )
    scheduled_sampling_by: str = method(
        "argmax", "the tokens of the first pass: argmax, sampled, or mixed embeddings of the best"
    )
    scheduled_sampling_passes: int = method(2, "passes over a batch; the model learns in the last")
    guided_attention: float = method(
        0.0,
        "weight of a penalty that pulls heads of the cross-attention to the diagonal, or to "
        "--alignments",
    )
    guided_heads: int = method(1, "number of first heads of each decoder layer to guide; 0: all")
    reward: str = method(
        "none",
        "BLEU of sampled translations as a reward, with --init, and without smoothing: "
        "minimum-risk or self-critical",
    )
    reward_samples: int = method(8, "translations that are sampled for each source")
    teacher_weight: float = method(
        0.5, "share of the loss for --teachers; the rest is for the targets"
    )
    weight_decay: float = regular(
        0.0, "share of a matrix that a step subtracts, as a multiple of the learning rate"
    )
    clip_norm: float = training(1.0, "maximum global norm of the gradient; 0: no clipping")
    dtype: str = device(
        "float32",
        "a Keras dtype policy: float32, mixed_bfloat16, mixed_float16; auto: mixed_bfloat16 if "
        "the machine has it",
    )
    seed: int = training(0, "seed of the weights, the dropout and the order of the data")
    validate_every: int = training(1, "epochs from one validation to the next")
    patience: int = training(0, "stop after so many validations without a better model; 0: never")
    average: int = training(5, "try the average of so many last checkpoints at the end")
    checkpoint_steps: int = training(500, "steps from one checkpoint to the next within an epoch")
    freeze: str = training("", "parts that do not learn: encoder, decoder, embeddings; with commas")
    new_pieces: int = training(0, "with --init: maximum number of pieces added to the vocabulary")
    beam_width: int = served(4, "beam width")
    length_penalty: float = served(0.6, "exponent of the length penalty")

    def __post_init__(self):
        check(self)

    def read(self, split, data, report=None):
        """The pairs of a split. `pairs` gets languages and report if it has such parameters."""
        if self.pairs is None:
            raise ValueError("the recipe has no corpus: give --source and --target too")
        known = {
            "source_language": self.source_language,
            "language": self.language,
            "report": report,
        }
        asked = known.keys() & inspect.signature(self.pairs).parameters.keys()
        return self.pairs(split, data, **{name: known[name] for name in asked})

    def frozen(self):
        """The names of the frozen parts."""
        return [part.strip() for part in self.freeze.split(",") if part.strip()]

    def settings(self):
        """{name: value} of the settings that a run is resumed with.

        The task is left out if it is translation, and the search options if there are none. Old
        runs lack these fields too.
        """
        fields = dataclasses.fields(self)
        others = ("pairs", "origin", "choose")
        found = {f.name: getattr(self, f.name) for f in fields if f.name not in others}
        if self.task == TRANSLATION:
            del found["task"]
        if not self.search:
            del found["search"]
        return found


def options():
    """Yields the fields that are options of the command: (name, type, help, default)."""
    for field in dataclasses.fields(Recipe):
        if "help" in field.metadata:
            kind = field.metadata["kind"] or type(field.default)
            yield field.name, kind, field.metadata["help"], field.default


# The defaults, which are the paper's.
FOR_LARGE = {name: default for name, *_, default in options() if name in FOR_SMALL}


def recipe_names():
    """The names of the recipes in `training/recipes`."""
    return sorted(path.stem for path in RECIPES.glob("[!_]*.py"))


def require_recipe(name):
    """Raises a ValueError if `name` is neither a recipe of this project nor a Python file."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise ValueError(f"recipe must be an existing Python file or a name, got {name}")
    elif name not in recipe_names():
        raise ValueError(f"recipe must be one of {recipe_names()} or a path, got {name!r}")


def load_recipe(name):
    """Loads the `RECIPE` of a recipe of this project by name, or of a Python file by path.

    Raises:
        ValueError: there is no such recipe, or it does not define a valid `RECIPE`.
    """
    require_recipe(name)
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location("recipe", name)
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            # The file of the user may raise any error.
            raise ValueError(f"recipe {name}: {type(error).__name__}: {error}") from error
    else:
        module = importlib.import_module(f"..recipes.{name}", __package__)
    if not isinstance(getattr(module, "RECIPE", None), Recipe):
        raise ValueError(f"recipe {name} must define RECIPE = Recipe(...)")
    return module.RECIPE
