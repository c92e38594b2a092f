"""The options of a search, in one table that all other places use.

A recipe's settings, a run's `config.json`, the arguments of `Translator`, the inputs of the served
signatures, the options of the commands and the pages of `docs/` all have these names, defaults and
bounds.
"""

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable
from typing import Any, TypeVar, cast

PENALTY_FORMS = ("gnmt", "power")
LARGEST_NGRAM = 8
# How an ensemble averages the predictions of its models.
ENSEMBLE_MEANS = ("probabilities", "log-probabilities")


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a search.

    Args:
        name: the same in commands, code and graph.
        default: its default value, whose type is the option's type.
        minimum, maximum: its minimum and maximum.
        help: a short description.
        off: the value that turns it off, so that it adds no operations. Default: always on.
        choices: the allowed words.
        second_names: older names, which still work.
        asked: whether a request may set it. False for a new option, because a new input of an
            existing signature breaks REST clients. Default True.
    """

    name: str
    default: int | float | str
    minimum: float = 0
    maximum: float = math.inf
    help: str = ""
    off: int | float | None = None
    choices: tuple = ()
    second_names: tuple = ()
    asked: bool = True

    @property
    def kind(self):
        """`int`, `float` or `str`."""
        return type(self.default)

    @property
    def flag(self):
        """The name of the option on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def second_flags(self):
        return ["--" + name.replace("_", "-") for name in self.second_names]

    def checked(self, value):
        """The value in the option's type; a ValueError if it breaks the rule."""
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"{self.name} must be one of {self.choices}, got {value!r}")
            return value
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not number or not self.minimum <= value <= self.maximum:
            raise ValueError(
                f"{self.name} must be in [{self.minimum}, {self.maximum}], got {value!r}"
            )
        if self.kind is int and value != int(value):
            raise ValueError(f"{self.name} must be an integer, got {value!r}")
        return self.kind(value)


OPTIONS = {
    option.name: option
    for option in (
        Option("beam_width", 4, 1, 64, "hypotheses of the beam search"),
        Option(
            "length_penalty", 0.6, 0, 10, "alpha, the exponent of the length penalty; 0 is none",
            second_names=("alpha",),
        ),
        Option(
            "length_penalty_form", "gnmt", help="penalty of the length n: gnmt, "
            "((5 + n) / 6)^alpha, or power, n^alpha", choices=PENALTY_FORMS,
            second_names=("penalty_form",), asked=False,
        ),
        Option(
            "min_length", 0, help="minimum target tokens, eos included",
            second_names=("min_target_length",),
        ),
        Option(
            "max_length_factor", 0.0, 0, 100, "maximum target tokens for each source token; 0 is "
            "no limit",
        ),
        Option(
            "coverage_penalty", 0.0, 0, 10, "beta of the coverage penalty; 0 is none", off=0.0,
            second_names=("coverage",),
        ),
        Option(
            "repetition_penalty", 1.0, 1, 100, "factor that makes repeated tokens less likely; 1 "
            "is none", off=1.0,
        ),
        Option(
            "no_repeat_ngram", 0, 0, LARGEST_NGRAM, "n: no n tokens in a row may repeat; 0 is no "
            "rule", off=0,
        ),
        Option(
            "attention_window", 0, 0, 1024, "source tokens that a step may attend to, in a window "
            "that only moves forward; 0 is all", off=0, asked=False,
        ),
    )
}  # fmt: skip
# The options of sampling, `sample_search`. A request may set them, and `seed`.
SAMPLING = {
    option.name: option
    for option in (
        Option("temperature", 1.0, 1e-3, 1e3, "below 1, likely tokens become more likely"),
        Option("top_k", 0, help="sample only from so many most likely tokens; 0 is all"),
        Option(
            "top_p",
            1.0,
            1e-6,
            1,
            "sample only from the most likely tokens with this total probability",
        ),
    )
}
# The options of decoding all tokens at once.
PARALLEL = {
    option.name: option
    for option in (
        Option(
            "passes",
            4,
            1,
            64,
            "for mask-predict: passes; each later one predicts the least certain tokens again",
        ),
        Option(
            "lengths",
            3,
            1,
            16,
            "for mask-predict: number of target lengths to try, the most likely ones",
        ),
    )
}
# The option of an ensemble.
ENSEMBLE_MEAN = Option(
    "ensemble_mean", ENSEMBLE_MEANS[0], help="what is averaged over the models at each step",
    choices=ENSEMBLE_MEANS, asked=False,
)  # fmt: skip
# The options that a run stores.
KEPT = {**OPTIONS, **PARALLEL}
SECOND_NAMES = {second: o.name for o in OPTIONS.values() for second in o.second_names}


def first_names(options):
    """The options under their first names.

    Raises:
        ValueError: an option is given by both of its names.
    """
    found = {}
    for name, value in options.items():
        first = SECOND_NAMES.get(name, name)
        if first in found:
            raise ValueError(f"{first} must be given once, got {found[first]!r} and {value!r}")
        found[first] = value
    return found


F = TypeVar("F", bound=Callable[..., Any])


def takes_second_names(function: F) -> F:
    """Decorator: a function with options by first names also accepts their second names.

    Type checkers and editors see the first names only.
    """

    @functools.wraps(function)
    def named(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **first_names(options))

    return cast(F, named)
