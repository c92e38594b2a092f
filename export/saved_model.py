"""Exports a run as a SavedModel: `tfformer export RUN DIRECTORY`.

    tfformer export runs/dates exported/dates
    tfformer export runs/one exported/three --ensemble runs/two runs/three

It writes the next version into DIRECTORY, where TensorFlow Serving looks for new versions. First it
verifies the model in the way in which the server will run it. Every signature answers in a fresh
process, through the C API, without Python TensorFlow and with XLA off. The answers must be those of
the translator in this process. For a few sentences, `beam_search_ids` must find what a plain beam
search in NumPy finds over the uncached model. With a shortlist, the plain search has the same
candidates. With bfloat16 or int8, which change the model, the report shows how many translations
differ from those in float32. What XLA compiles is compared with the stock operations. At the end,
one rename makes the version visible, and DIRECTORY/N.report.json lists all checks and measurements.

It also writes the files of a deployment: README.md for this model, with commands that work,
docker-compose.yml, models.config and monitoring.config. Your changes to them are kept.

--quick is for a machine that repeatedly exports a model that was verified before. Nothing is
compared: graph and weights are read, every signature answers once as on the server, and so do the
warm-up requests. The report and README.md list what was not compared.

With --xla, the server compiles `serving_default` by XLA, and the export is verified with XLA on. A
stock TensorFlow Serving refuses such requests, on a GPU too, unless it is started with
`--xla_cpu_compilation_enabled`; so this is for your own server. The first request of each shape
waits some seconds for the compilation. The other signatures need no XLA.

With --low-latency, a translator's `serving_default` has a separate graph for requests of one text.
They take less time on processors on which TensorFlow uses oneDNN (with AVX512_VNNI or AMX), also on
a stock server, and most of all without thread flags. The server needs more memory. This is the
default if the matrices of a search step that are not in int8 have at most 32 MiB. It gains nothing
with --batching, because the server joins requests, which then contain several texts.

The gain depends on the processor: --compare-forms measures all forms on this machine and prints
which is fastest.

Exit codes: 0 exported; 1 an error of the run or the disk, or verification failed: nothing is
published; 2 wrong usage; 130 or 143 interrupted.
"""

import argparse
import functools
import re
import sys
from pathlib import Path

from tfformer.config import search_options as search
from tfformer.terminal.command import Parser, count, main_of, option_number, unreadable

from .artifacts.forms import FORMS, compared, measured, other_forms
from .verification.errors import UsageError, one_line

# What `--quick` leaves out here; `export.verify` names its own part.
NOT_COMPARED = (
    "the served answers with those of the model in this process",
    "the served results with the reference of their family (for a translator, a plain beam search "
    "in NumPy)",
)


def parser():
    """The command's arguments."""
    parser = Parser("export.saved_model", __doc__, reads=["run", "rerank", "ensemble"])
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("directory", type=Path, help="the base directory of the versions")
    for option in search.KEPT.values():
        add_option(parser, option, f"the run's own, or {option.default}")
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language", metavar="CODE",
            help=f"for a multilingual model: the {side} language if a request names none; default: "
            "the run's",
        )  # fmt: skip
    for side, what in (("source", "a source or a prompt"), ("target", "a target or an answer")):
        parser.add_argument(
            f"--max-{side}-length", type=count(), metavar="INT",
            help=f"maximum tokens of {what}; default: the run's",
        )  # fmt: skip
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16", "int8"],
        help="dtype of matrix products. int8 is for translators on a processor with VNNI and a "
        "server from 2.17 on, bfloat16 for batches on a processor with AMX; both change some "
        "translations. Default: float32",
    )  # fmt: skip
    parser.add_argument(
        "--max-batch-size", type=count(), help="maximum rows of a request; default: 256"
    )
    add_batching(parser)
    parser.add_argument(
        "--signatures", nargs="+", metavar="NAME",
        help="write only these signatures, and serving_default; the server then loads faster and "
        "needs less memory. Default: all",
    )  # fmt: skip
    parser.add_argument(
        "--shortlist", type=Path, metavar="FILE",
        help="written by `tfformer shortlist`: search only among the candidates of a text, for "
        "large vocabularies; changes some translations. Default: search among all pieces",
    )  # fmt: skip
    parser.add_argument(
        "--rerank", type=Path, metavar="RUN",
        help="for a model that writes several lengths at once: this translator with the same "
        "vocabulary chooses among them; it is written into the same SavedModel",
    )  # fmt: skip
    parser.add_argument(
        "--ensemble", type=Path, nargs="+", metavar="RUN",
        help="more runs with the same vocabulary, searched together with this one and written into "
        "the same SavedModel",
    )  # fmt: skip
    add_option(parser, search.ENSEMBLE_MEAN, search.ENSEMBLE_MEAN.default)
    _add_form(parser)
    return parser


def _add_form(parser):
    """Adds the options for the form of the export, and for comparisons and measurements."""
    parser.add_argument(
        "--xla", action="store_true",
        help="compile serving_default by XLA, for a server with --xla_cpu_compilation_enabled; a "
        "stock server refuses it",
    )  # fmt: skip
    parser.add_argument(
        "--low-latency", action=argparse.BooleanOptionalAction,
        help="a separate graph for requests of one text: faster if TensorFlow uses oneDNN, and "
        "needs more memory. Default: for a translator with matrices of at most 32 MiB, without "
        "--batching",
    )  # fmt: skip
    parser.add_argument(
        "--compare-forms", action="store_true",
        help="also measure serving_default with --xla and with or without --low-latency, and "
        "print which is fastest here",
    )  # fmt: skip
    parser.add_argument(
        "--explain", action="store_true",
        help="add the signature explain: attention of each layer and head, the steps of the "
        "search, probabilities",
    )  # fmt: skip
    add_quick(parser)


def add_batching(parser):
    """Adds the option --batching."""
    parser.add_argument(
        "--batching", action="store_true",
        help="for a server that joins requests of several clients: write only signatures whose "
        "inputs are all texts, and a batching_parameters.txt",
    )  # fmt: skip


def add_quick(parser):
    """Adds the option --quick."""
    parser.add_argument(
        "--quick", action="store_true",
        help="compare no answers: only load the model and call each signature once",
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
    run, directory, progress=print, batching=False, signatures=None, quick=False,
    compare_forms=False, **options,
):  # fmt: skip
    """Writes and verifies the next version.

    Args:
        run: a run directory.
        directory: the base directory of the versions; created if missing. Its name is the model's.
        progress: called with a line for each step.
        batching: whether to write only the signatures that a server can batch. Default False.
        signatures: the names of the signatures to write besides `serving_default`. Default: all.
        quick: whether to compare no answers. Default False.
        compare_forms: whether to measure the other forms of `FORMS` too. Default False.
        options: options of the `Service` that replace the run's own. Without `low_latency`, the
            service chooses it.

    Returns:
        (the directory of the version or None, the report). If verification fails, it is None and
        nothing is published.

    Raises:
        UsageError: the directory's name cannot be a model's, or a signature is unknown or cannot
            be batched.
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
    if "low_latency" not in options and not batching:
        service.choose_form()
    others = None
    if compare_forms:
        common = {name: value for name, value in options.items() if name not in FORMS}

        def load(**form):
            return load_service(run, **common, **form)

        others = functools.partial(measured, other_forms(service), load)

    def compare(requests, report):
        comparison = COMPARISONS[family_of(service.model)]
        comparison(service, requests, report, run, options, progress)

    texts = typical_texts(run, service)
    known = service, directory, compare, texts, progress, batching, quick
    return export_service(*known, others, signatures)


def export_service(
    service, directory, compare, texts, progress, batching=False, quick=False, others=None,
    signatures=None,
):  # fmt: skip
    """Writes and verifies the next version of a `Service` with any model, see `export`.

    Args:
        compare: a function of the example requests and the `Report`, to which it adds checks.
        texts: a result of `typical_texts`.
        others: a function of a folder, texts and `progress` that measures other forms. Default:
            none.
        signatures: see `export`.
    """
    from .artifacts.deployment import facts
    from .artifacts.publish import scratch

    directory, served = Path(directory), service.signatures
    names = [name for name in served if served[name].is_batchable or not batching]
    if signatures is not None:
        if unknown := [name for name in signatures if name not in names]:
            raise UsageError(f"--signatures must be of {', '.join(names)}, got {unknown[0]}")
        names = [name for name in names if name in ("serving_default", *signatures)]
    directory.mkdir(parents=True, exist_ok=True)
    with scratch(directory) as partial:
        model = Path(partial, "model")
        progress("writing the SavedModel ...")
        write(service, names, model)
        report = check(service, names, model, compare, progress, quick)
        if not report.passed:
            return None, report
        progress("measuring the latency ...")
        report.deployment = facts(service, model, *texts)
        asked = {"--dtype": [service.dtype] if service.dtype else [], "--signatures": signatures}
        words = [word for option, given in asked.items() if given for word in (option, *given)]
        report.deployment["page"]["command"] += "".join(f" {word}" for word in words)
        if others:
            found = others(partial, texts[0], progress)
            report.deployment["other_forms_milliseconds"] = found
        return release(model, report, directory, batching, service.xla, progress), report


def check_name(directory):
    """Raises a UsageError if the last part of the directory cannot be a model's name, and an
    OSError if it is a file."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", directory.resolve().name):
        raise UsageError(
            f"directory must have a name of letters, digits, '.', '_' and '-', which becomes the "
            f"model's name, got {directory.resolve().name!r}"
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
    """Verifies the SavedModel and, unless `quick`, compares its answers. Returns the report."""
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
    """Texts for measurements, and the reference of the first. They are the run's validation texts,
    or random texts without a reference of their own."""
    from tfformer.run import read_config

    training = read_config(run).get("training", {})
    texts = training.get("examples")
    if not texts:
        texts = [service.tokenizer.sample_text(16, seed=n) for n in range(32)]
    return texts, (training.get("references") or texts)[0]


def release(model, report, directory, batching, xla, progress):
    """Publishes the SavedModel and writes the files of its deployment. Returns the version."""
    from tfformer.files import sync

    from .artifacts.deployment import write_deployment
    from .artifacts.publish import publish

    sync(*model.rglob("*"), model)
    version = publish(model, report, directory, progress)
    try:
        for line in write_deployment(directory, report.to_dict(), batching, xla, model.parent):
            progress(f"warning: {line}")
    except OSError as error:  # the model is already served
        progress(f"warning: {version} is published, but deployment files are missing: {error}")
    return version


def _run(command, arguments):
    shortlist = arguments.shortlist
    if shortlist is not None and (reason := unreadable(shortlist)):
        return command.fail(f"cannot read {shortlist}: {reason}")
    return run_export(command, arguments, lambda **options: export(**_loaded(options)))


def run_export(command, arguments, work):
    """Calls `work` with the given arguments and `progress`, and prints its report. Returns the exit
    code."""
    try:
        check_name(arguments.directory)
    except (UsageError, OSError) as error:
        return command.fail(error, 2 if isinstance(error, UsageError) else 1)

    import tensorflow as tf

    from tfformer.terminal.progress_bar import Bar

    from .capi.library import ServingError

    try:
        with Bar("exporting", unit="steps") as bar:
            version, report = work(progress=bar.step, **given(command, arguments))
    except UsageError as error:
        return command.fail(error, 2)
    except (ValueError, OSError, ServingError) as error:
        return command.fail(error)
    except tf.errors.OpError as error:
        return command.fail(one_line(error))
    return tell(command, version, report, getattr(arguments, "xla", False))


def given(command, arguments):
    """The options that differ from their defaults. Not every family accepts every other option."""
    return {n: value for n, value in vars(arguments).items() if value != command.get_default(n)}


def _loaded(options):
    """The arguments of `export`, with files and runs loaded."""
    from tfformer.run import load_translator
    from tfformer.shortlist import Shortlist

    if "compare_forms" in options and (own := [FORMS[one] for one in FORMS if options.get(one)]):
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
    """Prints the result. Returns the exit code."""
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
                "A stock TensorFlow Serving refuses its serving_default: start your server with "
                "--xla_cpu_compilation_enabled."
            )
    if version is None:
        faults = [check for check in report.checks if not check.passed]
        return command.fail(f"not exported: {faults[0].name}: {faults[0].detail}")
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
