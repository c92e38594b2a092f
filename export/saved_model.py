"""Exports a run: `tfformer export RUN DIRECTORY`.

    tfformer export runs/dates exported/dates
    tfformer export runs/one exported/three --ensemble runs/two runs/three

It writes the next version into DIRECTORY, where TensorFlow Serving polls, but only after it has
been verified as the server will run it: every signature answers in a fresh process, through the C
API, without Python TensorFlow and with XLA off; the answers are those of the in-process
translator; and what `beam_search_ids` finds for a few sentences is what a plain beam search in
NumPy over the uncached model finds (in bfloat16, which is another model, the report says instead
how many translations differ from float32's; with a shortlist, the plain search has the same
candidates; what XLA compiles is compared with the stock operations). Then one rename makes it
visible, and DIRECTORY/N.report.json says what was checked and measured.

Beside the versions it writes what a deployment needs: README.md of this model, with commands that
work, docker-compose.yml, models.config and monitoring.config. What you change there stays.

With `--quick`, for a machine that exports again and again what was proved before, nothing is
compared: the graph and the weights are read, every signature answers once as the server runs it,
and so do the warm-up requests. The report and README.md say what was not compared.

With `--xla`, XLA compiles `serving_default` when it is served, and the export is verified with XLA
on. A stock TensorFlow Serving refuses such a request unless it is started with
`--xla_cpu_compilation_enabled`, on a GPU too: this is for a server of your own. The first request
of each shape waits some seconds until it is compiled. The other signatures need no XLA.

With `--low-latency`, `serving_default` of a translator has a graph of its own for requests of one
text: on processors where TensorFlow computes by oneDNN (those with AVX512_VNNI or AMX) these take
less time, on a stock server too, most of all on one without flags of threads. The server needs more
memory. With --batching, what the server joins are requests of several texts.

What either is worth depends on the processor: `--compare-forms` measures both beside what it
exports, and says which is fastest here.

Exit codes: 0 exported; 1 the run or the disk is at fault, or it did not verify: nothing is
published; 2 wrong usage; 130 or 143 interrupted.
"""

import functools
import re
import sys
from pathlib import Path

from tfformer.config import search_options as search
from tfformer.terminal.command import Parser, count, option_number, unreadable

from .artifacts.forms import FORMS, compared, measured, other_forms
from .verification.errors import UsageError, one_line

# What `--quick` leaves out here; `export.verify` names its own part.
NOT_COMPARED = (
    "the served answers with those of the model in this process",
    "the served results with the reference of their family; of a translator, with a plain beam "
    "search in NumPy",
)


def parser():
    """The command's arguments."""
    parser = Parser("export.saved_model", __doc__, reads=["run", "rerank", "ensemble"])
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("directory", type=Path, help="the base directory of the versions")
    for option in search.KEPT.values():
        add_option(parser, option, f"the run's own, else {option.default}")
    parser.add_argument(
        "--max-target-length", type=count(), metavar="INT",
        help="tokens at most; default: the run's",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"],
        help="of what is multiplied; bfloat16 is for batches on a processor with AMX, and changes "
        "some translations. Default: float32",
    )  # fmt: skip
    parser.add_argument("--max-batch-size", type=count(), help="rows of a request; default: 256")
    add_batching(parser)
    parser.add_argument(
        "--shortlist", type=Path, metavar="FILE",
        help="by training.shortlist: search among the candidates of a text alone, which is for "
        "large vocabularies, and changes some translations. Default: among all pieces",
    )  # fmt: skip
    parser.add_argument(
        "--rerank", type=Path, metavar="RUN",
        help="of a model that writes several lengths at once: this translator of the same "
        "vocabulary chooses among them, and is written into the same SavedModel",
    )  # fmt: skip
    parser.add_argument(
        "--ensemble", type=Path, nargs="+", metavar="RUN",
        help="more runs of the same vocabulary, searched with this one as one, and written into "
        "the same SavedModel",
    )  # fmt: skip
    add_option(parser, search.ENSEMBLE_MEAN, search.ENSEMBLE_MEAN.default)
    _add_form(parser)
    return parser


def _add_form(parser):
    """The options of what is written, and of what is compared and measured then."""
    parser.add_argument(
        "--xla", action="store_true",
        help="serving_default compiled by XLA: for a server with --xla_cpu_compilation_enabled; a "
        "stock server refuses it",
    )  # fmt: skip
    parser.add_argument(
        "--low-latency", action="store_true",
        help="a graph of its own for requests of one text: faster where TensorFlow computes by "
        "oneDNN, and needs more memory",
    )  # fmt: skip
    parser.add_argument(
        "--compare-forms", action="store_true",
        help="measure too how long serving_default would take with --xla and with --low-latency, "
        "and say which is fastest here",
    )  # fmt: skip
    parser.add_argument(
        "--explain", action="store_true",
        help="one signature more, explain: attention of each layer and head, the steps of the "
        "search, probabilities",
    )  # fmt: skip
    add_quick(parser)


def add_batching(parser):
    """The option --batching."""
    parser.add_argument(
        "--batching", action="store_true",
        help="for a server that joins the requests of several clients: only signatures whose "
        "inputs are all texts, and a batching_parameters.txt",
    )  # fmt: skip


def add_quick(parser):
    """The option --quick."""
    parser.add_argument(
        "--quick", action="store_true",
        help="compare no answers: only load it, and have each signature answer once",
    )  # fmt: skip


def add_option(parser, option, default):
    """Adds an option of the search to a command's arguments."""
    parser.add_argument(
        option.flag, *option.second_flags, dest=option.name, type=option_number(option),
        choices=option.choices or None,
        metavar=None if option.choices else option.kind.__name__.upper(),
        help=f"{option.help}; default: {default}",
    )  # fmt: skip


def export(
    run, directory, progress=print, batching=False, quick=False, compare_forms=False, **options
):
    """Writes and verifies the next version.

    Args:
        run: a run directory.
        directory: the base directory of the versions; made if missing. Its name is the model's.
        progress: called with a line for each step.
        batching: write only the signatures that a server can batch. Default False.
        quick: compare no answers. Default False.
        compare_forms: measure the other forms of `FORMS` too. Default False.
        options: of the `Service`, in place of the run's own.

    Returns:
        (the directory of the version or None, the report). None when it did not verify: then
        nothing is published.

    Raises:
        UsageError: the directory's name cannot be a model's.
        RunError, OSError, tf.errors.OpError: nothing is published.
    """
    from tfformer.files import RunError
    from tfformer.models import family_of
    from tfformer.run import load_service

    from .verification.families import COMPARISONS

    check_name(Path(directory))
    service = load_service(run, **options)
    if service.not_exported:
        raise RunError(f"{run}: {service.not_exported}")
    others = None
    if compare_forms:

        def load(**form):
            return load_service(run, **{**options, **form})

        others = functools.partial(measured, other_forms(service), load)

    def compare(requests, report):
        comparison = COMPARISONS[family_of(service.model)]
        comparison(service, requests, report, run, options, progress)

    texts = typical_texts(run, service)
    known = service, directory, compare, texts, progress, batching, quick
    return export_service(*known, others)


def export_service(
    service, directory, compare, texts, progress, batching=False, quick=False, others=None
):
    """Writes and verifies the next version of a `Service`, wherever its model is from; see
    `export`.

    Args:
        compare: a function of the example requests and the `Report`, to which it adds checks.
        texts: as from `typical_texts`.
        others: a function of a folder, texts and `progress` that measures other forms. Default:
            none.
    """
    from .artifacts.deployment import facts
    from .artifacts.publish import scratch

    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with scratch(directory) as partial:
        model = Path(partial, "model")
        served = service.signatures
        names = [name for name in served if served[name].is_batchable or not batching]
        progress("writing the SavedModel ...")
        write(service, names, model)
        report = check(service, names, model, compare, progress, quick)
        if not report.passed:
            return None, report
        progress("measuring how long it takes ...")
        report.deployment = facts(service, model, *texts)
        if others:
            found = others(partial, texts[0], progress)
            report.deployment["other_forms_milliseconds"] = found
        return release(model, report, directory, batching, service.xla, progress), report


def check_name(directory):
    """Raises a UsageError unless the last part of the directory can be a model's name, and an
    OSError for a file in its place."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", directory.resolve().name):
        raise UsageError(
            f"directory must have a name of letters, digits, '.', '_' and '-', which the model "
            f"takes, got {directory.resolve().name!r}"
        )
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"directory must be a folder, got the file {str(directory)!r}")


def write(service, names, model):
    """Writes the SavedModel of these signatures, with its warm-up requests."""
    from .artifacts.examples import warmup_requests
    from .verification.warmup import write_warmup

    service.save(str(model), names)
    requests = {name: some for name, some in warmup_requests(service).items() if name in names}
    write_warmup(model, requests, service.functions)


def check(service, names, model, compare, progress, quick=False):
    """The report of the SavedModel: that it serves, and unless `quick`, what its answers are."""
    from .artifacts.examples import sample_requests
    from .verification.compare import compare_in_process
    from .verify import verify

    requests = sample_requests(service)
    asked = {name: requests[name] for name in names}
    report = verify(
        model, asked, lambda line: progress(f"{line} ..."), xla=service.xla, quick=quick
    )
    if service.shortlist:
        report.add("shortlist", [], service.shortlist.describe())
    if not report.passed:
        return report
    if quick:
        report.not_compared += NOT_COMPARED
        return report
    progress("comparing with the model in this process ...")
    compare_in_process(service, asked, report)
    compare(requests, report)
    return report


def typical_texts(run, service):
    """Texts to measure with, and the reference of the first: of the run's validation, else made up,
    with itself for a reference."""
    from tfformer.run import read_config

    training = read_config(run).get("training", {})
    texts = training.get("examples")
    if not texts:
        texts = [service.tokenizer.sample_text(16, seed=n) for n in range(32)]
    return texts, (training.get("references") or texts)[0]


def release(model, report, directory, batching, xla, progress):
    """Publishes the SavedModel, and writes what its deployment needs; returns the version."""
    from tfformer.files import sync

    from .artifacts.deployment import write_deployment
    from .artifacts.publish import publish

    sync(*model.rglob("*"), model)
    version = publish(model, report, directory, progress)
    try:
        for line in write_deployment(directory, report.to_dict(), batching, xla, model.parent):
            progress(f"warning: {line}")
    except OSError as error:  # the model is served by now
        progress(f"warning: {version} is published, but not all that goes with it: {error}")
    return version


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda arguments: _run(command, arguments), arguments)


def _run(command, arguments):
    shortlist = arguments.shortlist
    if shortlist is not None and (reason := unreadable(shortlist)):
        return command.fail(f"{shortlist} cannot be read: {reason}")
    return run_export(command, arguments, lambda **options: export(**_loaded(options)))


def run_export(command, arguments, work):
    """Calls `work` with the given arguments and `progress`, prints its report; the exit code."""
    try:
        check_name(arguments.directory)
    except (UsageError, OSError) as error:
        return command.fail(error, 2 if isinstance(error, UsageError) else 1)

    import tensorflow as tf

    from tfformer.terminal.progress_bar import Bar

    from .capi.library import ServingError

    try:
        with Bar("exporting", unit="steps") as bar:
            version, report = work(progress=bar.step, **given(arguments))
    except UsageError as error:
        return command.fail(error, 2)
    except (ValueError, OSError, ServingError) as error:
        return command.fail(error)
    except tf.errors.OpError as error:
        return command.fail(one_line(error))
    return tell(command, version, report, getattr(arguments, "xla", False))


def given(arguments):
    """The arguments that were given. An option that is not there may be unknown to a family."""
    return {name: v for name, v in vars(arguments).items() if v is not None and v is not False}


def _loaded(options):
    """The arguments of `export`: files and runs are loaded."""
    from tfformer.run import load_translator
    from tfformer.shortlist import Shortlist

    if "compare_forms" in options and (own := [FORMS[form] for form in FORMS if form in options]):
        raise UsageError(f"--compare-forms cannot be given with {own[0]}")
    if "shortlist" in options:
        options["shortlist"] = Shortlist.load(options["shortlist"])
    if "rerank" in options:
        options["rerank"] = load_translator(options["rerank"])
    if "ensemble_mean" in options and "ensemble" not in options:
        raise UsageError("--ensemble-mean needs --ensemble")
    if "ensemble" in options:
        options["ensemble"] = [load_translator(run) for run in options["ensemble"]]
    return options


def tell(command, version, report, xla):
    """Prints how it went; returns the exit code."""
    from .verification.report import show

    with command.remarks():
        show(report)
        if version is not None and report.not_compared:
            print(f"exported, answers not compared (--quick): {version}")
        elif version is not None:
            print(f"exported and verified: {version}")
        if version is not None and report.deployment:
            for line in compared(report.deployment):
                print(line)
        if version is not None and xla:
            print(
                "A stock TensorFlow Serving refuses its serving_default: start a server of your "
                "own with --xla_cpu_compilation_enabled."
            )
    if version is None:
        faults = [check for check in report.checks if not check.passed]
        return command.fail(f"not exported: {faults[0].name}: {faults[0].detail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
