"""The options of commands that use a run: of the search, of an ensemble, and of the choice among
several translations."""

from pathlib import Path

from tfformer.config import search_options as known
from tfformer.terminal.command import LARGEST, Number, count, option_number

# The search options that these commands accept.
SEARCHED = ("beam_width", "length_penalty", "passes", "lengths")
# The names in `training.evaluation.reranking.UTILITIES`, given here to avoid its imports.
UTILITIES = ("bleu", "chrf")
RERANKERS = {
    "backward": "that translates in the other direction",
    "right_to_left": "that was trained on targets with their words in reverse order",
}
# The languages of a multilingual model.
LANGUAGES = ("source_language", "target_language")
# The arguments of `add_search` that name runs.
SEARCHED_RUNS = ("ensemble", "backward", "right_to_left")
WEIGHT = 1.0  # default weight of a reranker


def add_search(parser):
    """Adds the options of a search or of parallel decoding. Their defaults are the run's own."""
    for name in SEARCHED:
        option = known.KEPT[name]
        text = f"{option.help}; default: the run's own"
        parser.add_argument(option.flag, type=option_number(option), help=text)
    for name in LANGUAGES:
        parser.add_argument(
            "--" + name.replace("_", "-"), metavar="CODE",
            help=f"for a multilingual model: the {name.replace('_', ' ')}; default: the run's own",
        )  # fmt: skip
    parser.add_argument(
        "--ensemble", type=Path, nargs="+", default=[], metavar="RUN",
        help="more runs with the same vocabulary, searched together with this one",
    )  # fmt: skip
    mean = known.ENSEMBLE_MEAN
    parser.add_argument(
        mean.flag, choices=mean.choices, help=f"{mean.help}; default: {mean.default}"
    )
    parser.add_argument(
        "--utility", choices=UTILITIES,
        help="minimum Bayes risk: choose the hypothesis of the beam that is most similar to all of "
        "them by this score",
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=count(), metavar="INT",
        help="with --utility: compare with so many sampled translations; default: with the beam",
    )  # fmt: skip
    for option, what in RERANKERS.items():
        name = option.replace("_", "-")
        parser.add_argument(
            f"--{name}", type=Path, metavar="RUN", help=f"rerank the hypotheses by a run {what}"
        )
        parser.add_argument(
            f"--{name}-weight", type=Number(float, 0, LARGEST), metavar="FLOAT",
            help=f"weight of its score; the search has weight 1; default {WEIGHT}",
        )  # fmt: skip


def search_options(arguments):
    """The options of `SEARCHED` and the languages that were given, by name. Raises a ValueError if
    they do not combine."""
    given = {name: getattr(arguments, name) for name in (*SEARCHED, *LANGUAGES)}
    if getattr(arguments, "recipe", None):
        del given["source_language"]  # that of the recipe
    given = {name: value for name, value in given.items() if value is not None}
    if arguments.greedy and {"beam_width", "length_penalty"} & set(given):
        raise ValueError("--beam-width and --length-penalty need beam search, got --greedy")
    if arguments.ensemble_mean and not arguments.ensemble:
        raise ValueError("--ensemble-mean needs --ensemble")
    rerankers = [name for name in RERANKERS if getattr(arguments, name)]
    if rerankers and arguments.utility:
        shown = rerankers[0].replace("_", "-")
        raise ValueError(f"--utility and --{shown} cannot be combined: give only one")
    if arguments.samples and not arguments.utility:
        raise ValueError("--samples needs --utility")
    for name in RERANKERS:
        if getattr(arguments, f"{name}_weight") is not None and name not in rerankers:
            raise ValueError(f"--{name}-weight needs --{name}".replace("_", "-"))
    if chooses(arguments) and arguments.greedy:
        raise ValueError("--greedy finds only one translation, so there is no choice")
    if chooses(arguments) and getattr(arguments, "picture", None):
        raise ValueError("--picture cannot be given with --utility or a reranker")
    return given


def chooses(arguments):
    """Whether the options ask to choose among several translations."""
    return bool(arguments.utility or any(getattr(arguments, name) for name in RERANKERS))


def others(arguments):
    """The other runs that take part: ensemble and rerankers."""
    return [*arguments.ensemble, *filter(None, (getattr(arguments, name) for name in RERANKERS))]


def load_searched(arguments, options):
    """The service of the run, of the ensemble, or a `BestOf`, as these options ask for."""
    from tfformer.models import ENCODER_DECODER
    from tfformer.run import load_service, load_translator, read_config, require_family

    if chooses(arguments) or arguments.ensemble:
        require_family(arguments.run, read_config(arguments.run), ENCODER_DECODER)
    if arguments.ensemble:
        options = {**options, "ensemble": [load_translator(run) for run in arguments.ensemble]}
        if arguments.ensemble_mean:
            options["ensemble_mean"] = arguments.ensemble_mean
    service = load_service(arguments.run, **options)
    if not chooses(arguments):
        return service

    from .reranking import BestOf, Choice

    asked = {"utility": arguments.utility, "samples": arguments.samples or 0}
    for name in RERANKERS:
        if run := getattr(arguments, name):
            weight = getattr(arguments, f"{name}_weight")
            asked[name] = _reranker(run, name, service)
            asked[f"{name}_weight"] = WEIGHT if weight is None else weight
    return BestOf(service, Choice(**asked))


def _reranker(run, name, service):
    """The translator that reranks. If both are multilingual, it has the languages of the service,
    exchanged for `backward`."""
    from tfformer.run import load_translator

    found = load_translator(run)
    mine, theirs = service.tokenizer.languages, found.tokenizer.languages
    if not mine or not theirs:
        return found
    source, target = (
        mine[key].default if key in mine else None for key in ("source_language", "target_language")
    )
    if name == "backward":
        source, target = target, source
    asked = {"source_language": source, "target_language": target}
    return load_translator(run, **{key: asked[key] for key in theirs})
