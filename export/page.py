"""Writes one HTML file that shows the inside of a translator: `tfformer page RUN FILE`.

    tfformer page runs/dates dates.html

The file contains the weights, the vocabulary and the forward pass in JavaScript. It needs no
installation, no server and no network: open it from a disk, or put it on any web host. A learner
types a text and sees its translation token by token, with the attention of every layer and head.
Heads and masks can be switched off, padding can be added, a token can be forced, and a beam search
runs step by step. The page is in English and Chinese.

RUN is a small encoder-decoder with a SentencePiece tokenizer. If the page does not support one of
its options, the command names the option and writes nothing. The weights are stored as float32, so
that the page computes the same logits: about 5.3 bytes of the file for each weight.

Exit codes: 0 written; 1 an error of the run, an option that is not supported, or the disk: nothing
is written; 2 wrong usage; 130 or 143 interrupted.
"""

import base64
import gzip
import json
import re
import sys
from pathlib import Path

from tfformer.terminal.command import Number, Parser, main_of

TEMPLATES = Path(__file__).with_name("templates")
# What page.html contains besides the data of the run.
PARTS = {"words": "page_words.json", "page_model": "page_model.js", "page": "page.js"}
# The values that the page supports of each option; it supports every value of all others.
SUPPORTED = {
    "normalization": ("layer", "rms"),
    "residual": (True,),
    "attention_positions": ("none",),
    "unique_layers": (None,),
    "share_halves": (False,),
    "location_width": (0,),
    "query_key_norm": (False,),
    "copy": (False,),
}
# The search options that the page reads. Any other must have its default.
SEARCH = (
    "beam_width", "length_penalty", "length_penalty_form", "max_source_length", "max_target_length",
)  # fmt: skip
EXAMPLES = 12


def parser():
    """The command's arguments."""
    parser = Parser("export.page", __doc__, reads=["run"])
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("file", type=Path, help="the HTML file; it is replaced if it exists")
    parser.add_argument(
        "--max-megabytes", type=Number(float, positive=True), default=16.0, metavar="N",
        help="the maximum size of the file; default 16, about 3 million weights",
    )  # fmt: skip
    return parser


def _run(command, options):
    path = options.file
    if not path.parent.is_dir():
        return command.fail(f"FILE must be in a folder that exists, got {path}")
    if path.is_dir():
        return command.fail(f"FILE must be a file, got the folder {path}")
    from tfformer.files import sweep, write_atomically

    try:
        page = page_of(options.run, options.max_megabytes)
        sweep(path)
        write_atomically(path, page)
    except (ValueError, OSError) as error:
        return command.fail(error)
    with command.remarks():
        print(f"{path}: {len(page) / 1e6:.1f} MB")
    return 0


def page_of(run, max_megabytes=16.0):
    """The HTML file of a run, as bytes.

    Raises:
        ValueError: the run is damaged, the page does not support one of its options, or the file
            would be larger than `max_megabytes`.
    """
    from tfformer.run import load_translator, model_weights, read_config

    config = read_config(run)
    require_supported(run, config)
    translator = load_translator(run)
    model, tokenizer = translator.model, translator.tokenizer
    require_size(run, model.count_params(), max_megabytes)
    data = {
        "config": model.config.to_dict(),
        "search": _search(run, translator),
        "examples": _examples(config),
        "source": _side(run, "source", tokenizer.source),
    }
    if not tokenizer.is_shared:
        data["target"] = _side(run, "target", tokenizer.target)
    weights = model_weights(model)
    data["shapes"] = {name: weight.shape for name, weight in weights.items()}
    content = b"".join(weight.astype("<f4").tobytes() for weight in weights.values())
    data["weights"] = base64.b64encode(content).decode()
    # A "<" could end the element that the data are in.
    parts = {"data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")}
    for part, name in PARTS.items():
        parts[part] = (TEMPLATES / name).read_text(encoding="utf-8").strip()
    template = (TEMPLATES / "page.html").read_text(encoding="utf-8")
    return re.sub(r"@(\w+)@", lambda match: parts[match[1]], template).encode()


def require_size(run, weights, max_megabytes):
    """Raises a ValueError if the weights alone are too many for the page."""
    megabytes = 4 / 3 * 4 * weights / 1e6  # float32, four characters for three bytes
    if megabytes > max_megabytes:
        raise ValueError(
            f"{run} has {weights:,} weights, {megabytes:,.1f} MB of a page: --max-megabytes must "
            f"be larger, got {max_megabytes:g}"
        )


def require_supported(run, config):
    """Raises a ValueError that names an option of the model which the page does not support."""
    from tfformer.models import ENCODER_DECODER
    from tfformer.run import read_sizes, require_family

    require_family(run, config, ENCODER_DECODER)
    sizes = read_sizes(run, config)
    for name, values in SUPPORTED.items():
        value = getattr(sizes, name)
        if value not in values:
            words = " or ".join(repr(one) for one in values)
            raise ValueError(f"{run}: a page supports {name}={words}, got {value!r}")


def _search(run, translator):
    """The search options that the page reads. All others must have their defaults."""
    from tfformer.config.search_options import OPTIONS

    for name, value in translator.options.items():
        if name not in SEARCH and value != OPTIONS[name].default:
            raise ValueError(f"{run}: a page does not support the search option {name}={value!r}")
    return {name: getattr(translator, name) for name in SEARCH}


def _examples(config):
    """Texts that the training has kept to show its progress."""
    training = config.get("training")
    found = training.get("examples") if isinstance(training, dict) else None
    texts = found if isinstance(found, list) else []
    return [text for text in texts if isinstance(text, str)][:EXAMPLES]


def _side(run, name, side):
    """The tokenizer of one side, as the page reads it."""
    from tfformer.text.segmentation import tables_of

    try:
        found = tables_of(side)
    except ValueError as error:
        raise ValueError(f"{run}: for a page, the {name} tokenizer {error}") from error
    # Compressed without the time, so that the same run gives the same file.
    rules = gzip.compress(found["normalizer"]["rules"], mtime=0)
    found["normalizer"]["rules"] = base64.b64encode(rules).decode()
    return found


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
