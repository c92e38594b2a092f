"""Exports a model of KerasHub: `tfformer export-keras-hub PRESET DIRECTORY`.

    tfformer export-keras-hub presets/summaries exported/summaries --beam-width 5

PRESET is a folder written by `model.save_to_preset(...)`, or the name of a preset of KerasHub. An
export of a `T5Seq2SeqLM`, a `T5GemmaSeq2SeqLM` or a `BartSeq2SeqLM` translates. An export of a
`GemmaCausalLM`, a `Gemma3CausalLM` without images, a `LlamaCausalLM` or a `MistralCausalLM`
continues a prompt; these need a SentencePiece vocabulary.

The model is not converted: tfformer's searches use its layers and their caches. The result is that
of `tfformer export`: the next version for a stock TensorFlow Serving in DIRECTORY, text in and text
out, with its report and the files of a deployment.

Verification has three parts. Each signature answers in a fresh process, through the C API, without
Python TensorFlow and with XLA off, and the answers are those of the model here. `beam_search_ids`
finds what a plain beam search in NumPy finds over the model's uncached forward pass; for a
decoder-only model, the log-probabilities of the results are compared with that pass. Texts have
the ids of KerasHub's tokenizer.

The cached decoder of KerasHub returns no attention weights, so `align`, `alignment` and the
coverage penalty are missing. Everything is computed in float32. It needs keras-nlp:
pip install 'tfformer[keras-nlp]'.

Exit codes: 0 exported; 1 an error of the preset or the disk, keras-nlp is missing, or verification
failed: nothing is published; 2 wrong usage; 130 or 143 interrupted.
"""

import importlib.util
import sys
import warnings
from pathlib import Path

from tfformer.config.search_options import OPTIONS, SAMPLING
from tfformer.terminal.command import Parser, count, main_of

from .saved_model import (
    add_batching,
    add_option,
    add_quick,
    check_name,
    export_service,
    run_export,
)

SENTENCES = 32  # number of random texts for measurements
KNOWN = [option for option in OPTIONS.values() if option.name != "coverage_penalty"]
# For a decoder-only model.
DRAWN = [*SAMPLING.values()]


class PresetError(ValueError):
    """A preset cannot be exported. The message is one line."""


def parser():
    """The command's arguments."""
    parser = Parser("export.keras_hub", __doc__)
    parser.add_argument("preset", help="the folder of a preset, or the name of one in KerasHub")
    parser.add_argument("directory", type=Path, help="the base directory of the versions")
    for option in KNOWN:
        add_option(parser, option, option.default)
    for option in DRAWN:
        add_option(parser, option, f"{option.default}. For serving_default of decoder-only models")
    for name, what in (
        (
            "source-length",
            "maximum tokens of a source or a prompt; default: 256, or the model's maximum",
        ),
        ("target-length", "maximum tokens of a target; default: the same"),
        ("batch-size", "maximum rows of a request; default: 256"),
    ):
        parser.add_argument(f"--max-{name}", type=count(), metavar="INT", help=what)
    add_batching(parser)
    add_quick(parser)
    return parser


def load(preset):
    """Loads the model of a preset, a `Seq2SeqLM` or a `CausalLM` of KerasHub, in float32.

    Raises:
        PresetError: it does not exist or does not load, or keras-nlp is not installed.
    """
    if importlib.util.find_spec("keras_nlp") is None:
        raise PresetError("keras-nlp is not installed: pip install 'tfformer[keras-nlp]'")
    import keras

    if keras.backend.backend() != "tensorflow":
        raise PresetError(
            f"KERAS_BACKEND must be tensorflow to write a SavedModel, got {keras.backend.backend()}"
        )
    from keras_nlp import models

    from tfformer.inference import keras_hub, keras_hub_causal

    kinds = *keras_hub.KINDS, *keras_hub_causal.KINDS
    known = any(preset in getattr(models, name).presets for name in kinds)
    if not Path(preset).is_dir() and "://" not in preset and not known:
        raise PresetError(
            f"PRESET must be a folder, or a preset in KerasHub of {', '.join(kinds)}, got "
            f"{preset!r}"
        )
    faults = []
    for task in (models.Seq2SeqLM, models.CausalLM):
        try:
            return task.from_preset(preset, dtype="float32")
        except Exception as error:  # any error means that it does not load
            faults.append(" ".join(str(error).split())[:200] or type(error).__name__)
            if mode := _quantization(task, preset):
                raise PresetError(
                    f"{preset} must have float weights, got {mode}: export the preset that it was "
                    "quantized from"
                ) from error
    # One of the errors only says that the preset has the other task.
    told = [said for said in faults if "find a subclass" not in said] or faults
    raise PresetError(f"{preset} does not load as a Seq2SeqLM or CausalLM of KerasHub: {told[0]}")


def service_of(model, **options):
    """The service of a model of KerasHub. Raises a ValueError for another model, or an option."""
    from tfformer.inference import keras_hub, keras_hub_causal
    from tfformer.service.keras_hub import KerasHubTranslator
    from tfformer.service.keras_hub_generator import KerasHubGenerator

    names = {cls.__name__ for cls in type(model).__mro__}
    services = {KerasHubTranslator: keras_hub.KINDS, KerasHubGenerator: keras_hub_causal.KINDS}
    for service, kinds in services.items():
        if not names.isdisjoint(kinds):
            try:
                return service(model, **options)
            except TypeError as error:
                raise PresetError(f"for a {type(model).__name__}, {error}") from error
    kinds = ", ".join(name for kinds in services.values() for name in kinds)
    raise PresetError(f"PRESET must be of {kinds}, got one of {type(model).__name__}")


def export(preset, directory, progress=print, batching=False, quick=False, **options):
    """Writes and verifies the next version of a model of KerasHub; see `export.saved_model.export`.

    `options` are those of a `KerasHubTranslator` or a `KerasHubGenerator`.

    Raises:
        UsageError: the directory's name cannot be a model's.
        PresetError, ValueError, OSError, tf.errors.OpError: nothing is published.
    """
    from tfformer.service.keras_hub import KerasHubTranslator

    from .verification.language_model import compare_whole
    from .verification.translation import compare_reference

    check_name(Path(directory))
    progress("loading the preset ...")
    service = service_of(load(preset), **options)

    def compare(requests, report):
        progress("comparing with KerasHub's tokenizer ...")
        compare_ids(service, requests, report)
        if isinstance(service, KerasHubTranslator):
            progress("comparing with a plain beam search in NumPy ...")
            compare_reference(service, requests, report)
        else:
            progress("comparing with the whole model, token by token ...")
            compare_whole(service, requests, report)

    texts = [service.tokenizer.sample_text(16, seed=n) for n in range(SENTENCES)]
    known = texts, texts[0]
    return export_service(service, directory, compare, known, progress, batching, quick)


def compare_ids(service, requests, report):
    """Adds to the report whether texts have the ids of KerasHub's tokenizer."""
    import tensorflow as tf

    texts = [text for asked in requests["serving_default"] for text in asked["text"]]
    special = service.kind.special_ids
    ours = service.tokenizer.encode_source(tf.constant(texts)).to_list()
    theirs = service.model.preprocessor.tokenizer(texts)
    faults = []
    for text, found, expected in zip(texts, ours, theirs, strict=True):
        expected = tf.constant([int(one) for one in expected], tf.int32)
        expected = special.to_search(expected).numpy().tolist()
        if found[:-1] != expected:  # ours ends with eos
            faults.append(f"{text!r} must be {expected}, as in KerasHub, got {found[:-1]}")
    report.add("KerasHub's tokenizer", faults, f"{len(texts)} texts")


def _quantization(task, preset):
    """The quantization mode of a preset's layers, or None."""
    try:
        layers = task.from_preset(preset)._flatten_layers()
    except Exception:  # another task, or damaged: the first error is reported
        return None
    return next((layer.quantization_mode for layer in layers if layer.quantization_mode), None)


def _run(command, arguments):
    preset = arguments.preset
    if "/" in preset and "://" not in preset and not Path(preset).is_dir():
        error = f"PRESET must be a folder, or a preset in KerasHub, got {preset!r}"
        return command.fail(error)
    with warnings.catch_warnings():
        # Keras warns about masks that its layers do not use, and about attention to one position.
        warnings.filterwarnings("ignore", module="keras")
        return run_export(command, arguments, export)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
