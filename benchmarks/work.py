"""The work to decode: real sentences, a vocabulary of an exact size, a model of random weights."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

SIZES = {  # num_layers: of the encoder and of the decoder each
    "S": {"num_layers": 3, "d_model": 256, "d_ff": 1024, "num_heads": 4, "vocabulary": 8000},
    "B": {"num_layers": 6, "d_model": 512, "d_ff": 2048, "num_heads": 8, "vocabulary": 8000},
    "tiny": {"num_layers": 4, "d_model": 128, "d_ff": 256, "num_heads": 4, "vocabulary": 8000},
    "test": {"num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2, "vocabulary": 500},
}
EDGES = (8, 12, 16, 20, 24, 32, 56)  # lengths that a training batch is padded to
SENTENCES = 256  # for decoding
BESIDE = "beside-"  # prefix of the names of other checkouts


class Text(NamedTuple):
    """Sentences of a corpus.

    Attributes:
        name: the name of the corpus in the report.
        sources, targets: the texts for learning the vocabulary.
        decoded: the texts to decode, in this order.
    """

    name: str
    sources: list[str]
    targets: list[str]
    decoded: list[str]


def add_beside(parser):
    """The option that names checkouts to be measured in the same run."""
    parser.add_argument(
        "--beside", nargs="+", type=Path, default=[], metavar="CHECKOUT",
        help="of this project too, such as the code before a change, measured in the same run; "
        "given twice, it shows what two runs of one code differ by",
    )  # fmt: skip


def name_beside(checkouts):
    """{"beside-1": checkout, ...}

    Raises:
        ValueError: one is no checkout of this project.
    """
    for checkout in checkouts:
        if not (checkout / "benchmarks" / "work.py").is_file():
            raise ValueError(f"--beside must name checkouts of this project, got {checkout}")
    return {f"{BESIDE}{n}": checkout.resolve() for n, checkout in enumerate(checkouts, 1)}


def export_beside(checkout, directory, size, tokenizer, beam_width, steps):
    """Calls `export` of another checkout.

    Raises:
        ValueError: it fails.
    """
    job = {
        "model": tokenizer.source_model.hex(),
        "arguments": {"size": size, "beam_width": beam_width, "steps": steps},
        "directory": str(directory),
    }
    done = subprocess.run(
        [sys.executable, "-c", EXPORT], input=json.dumps(job), cwd=checkout, text=True,
        capture_output=True,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise ValueError(": ".join([f"{checkout} did not export", *last]))
    return json.loads(done.stdout.splitlines()[-1])


# Uses only names that every checkout has.
EXPORT = """
import json, sys
from pathlib import Path
from benchmarks import work
from tfformer import Tokenizer
job = json.load(sys.stdin)
tokenizer = Tokenizer(bytes.fromhex(job["model"]))
print(json.dumps(work.export(Path(job["directory"]), tokenizer=tokenizer, **job["arguments"])))
"""


def require_at_least(command, options, **minimum):
    """Ends the `Parser`'s command with an error if an option has a number below its minimum.

    Options left at None are accepted.
    """
    for name, bound in minimum.items():
        given = getattr(options, name)
        if given is not None and min(given if isinstance(given, list) else [given]) < bound:
            command.error(f"--{name} must be at least {bound}, got {given}")


def named(command, words, what):
    """Converts words such as NAME=RUN to {name: directory}.

    Ends the command with an error that mentions `what` unless all names are different."""
    found = dict(word.partition("=")[::2] for word in words)
    if len(found) < len(words) or not all(name and path for name, path in found.items()):
        command.error(f"{what} must be different names, got {words}")
    return found


def read_text(folder=None):
    """The `Text` of a folder with Multi30K's files, or dates of the embedded corpus without one.

    Raises:
        OSError, ValueError: a file is missing or has too few sentences.
    """
    if folder is None:
        from training import dates

        learned = list(dates.pairs("train", 5000))
        return Text(
            "dates in 16 languages, of the embedded corpus",
            [pair.source for pair in learned],
            [pair.target for pair in learned],
            [pair.source for pair in dates.pairs("test", SENTENCES)],
        )
    names = ("train.en", "train.de", "test_2016_flickr.en")
    sources, targets, decoded = (
        (Path(folder) / name).read_text(encoding="utf-8").rstrip("\n").split("\n") for name in names
    )
    if len(decoded) < SENTENCES:
        raise ValueError(f"{names[2]} must have {SENTENCES} lines, got {len(decoded)}")
    return Text("Multi30K, English, test_2016_flickr", sources, targets, decoded[:SENTENCES])


def learn_vocabulary(text, size):
    """A `Tokenizer` with exactly `size` ids for source and target, filled up if necessary."""
    from tfformer import Tokenizer

    return fill_up(Tokenizer.train(text.sources, text.targets, vocabulary_size=size), size)


def fill_up(tokenizer, size):
    """The same tokens in a larger vocabulary of `size` ids; the new pieces occur in no text.

    So a step costs as much as with `size` ids, and the texts keep their lengths.
    """
    return type(tokenizer)(tokenizer.source.filled_up(size))


def make_batches(texts, tokenizer, batch_size):
    """The first texts in their order, as the batches of a worker's job.

    There are 2 to 16 batches, with at least 32 sentences if possible.
    """
    count = batch_size * min(16, max(2, 32 // batch_size))
    ids = tokenizer.encode_source(texts[:count]).to_list()
    return [
        {"texts": texts[start : start + batch_size], "ids": ids[start : start + batch_size]}
        for start in range(0, count, batch_size)
    ]


def make_training_batches(text, tokenizer, count, rows=64):
    """Batches of `rows` pairs of similar length, in random order.

    The pairs of a batch fit into the same length of `EDGES`. Lengths are distributed as in the
    corpus: the full batches of all buckets are shuffled, and the first `count` are used. Pairs that
    are longer than the last edge are left out.

    Raises:
        ValueError: the text has too few pairs.
    """
    sides = [
        tokenizer.encode_source(text.sources).to_list(),
        tokenizer.encode_target(text.targets).to_list(),
    ]
    buckets = {edge: [] for edge in EDGES}
    for source, target in zip(*sides, strict=True):
        longer = max(len(source), len(target))
        if fitting := [edge for edge in EDGES if longer <= edge]:
            buckets[fitting[0]].append((source, target))
    shuffle = random.Random(0).shuffle
    batches = []
    for edge, pairs in buckets.items():
        shuffle(pairs)
        for start in range(0, len(pairs) - rows + 1, rows):
            source, target = map(list, zip(*pairs[start : start + rows], strict=True))
            batches.append({"source": source, "target": target, "length": edge})
    if len(batches) < count:
        raise ValueError(f"batches must be at most {len(batches)}, those of the text, got {count}")
    shuffle(batches)
    return batches[:count]


def export(directory, size, tokenizer, beam_width, steps, **options):
    """Writes a SavedModel of random weights that decodes exactly `steps` target tokens.

    Args:
        directory: must not exist.
        size: one of `SIZES` without its vocabulary. Optional "changes" are other fields of the
            configuration.
        tokenizer: has the vocabulary.
        beam_width: the beam width of `serving_default`.
        steps: the number of target tokens, including eos.
        options: other options of the `Translator`.

    Returns:
        The `options` of a worker's job.
    """
    from tfformer import Transformer, TransformerConfig, Translator

    layers = size["num_layers"]
    config = TransformerConfig(
        source_vocabulary_size=tokenizer.source_vocabulary_size,
        d_model=size["d_model"],
        d_ff=size["d_ff"],
        num_heads=size["num_heads"],
        tie_embeddings="all",
        **{"num_encoder_layers": layers, "num_decoder_layers": layers, **size.get("changes", {})},
    )
    translator = Translator(
        Transformer(config),
        tokenizer,
        beam_width=beam_width,
        max_target_length=steps,
        min_target_length=steps,
        **options,
    )
    return _saved(translator, directory)


def export_generator(directory, size, tokenizer, steps, **options):
    """Exports a language model with random weights, whose `serving_default` continues a prompt
    greedily by exactly `steps` tokens. For the arguments see `export`."""
    from tfformer import LanguageModel, LanguageModelConfig, TextGenerator

    config = LanguageModelConfig(
        tokenizer.source_vocabulary_size,
        num_layers=size["num_layers"],
        d_model=size["d_model"],
        d_ff=size["d_ff"],
        num_heads=size["num_heads"],
    )
    generator = TextGenerator(
        LanguageModel(config),
        tokenizer,
        top_k=1,
        max_target_length=steps,
        min_length=steps,
        **options,
    )
    return _saved(generator, directory)


def _saved(service, directory):
    from export.verification.graph import read_graph

    service.save(str(directory))
    signatures = read_graph(directory).to_dict()["signatures"]
    return {"directory": str(directory), "signatures": signatures, "xla": service.xla}


def make_prompts(texts, tokenizer, batch_size, length):
    """Batches of prompts, as in `make_batches`: the first `length` tokens of texts.

    A prompt is used only if decoding and encoding it gives the same tokens.

    Raises:
        ValueError: there are too few prompts for a batch.
    """
    import tensorflow as tf

    ids = [row[:length] for row in tokenizer.encode_source(texts).to_list() if len(row) > length]
    prompts = [text.numpy().decode() for text in tokenizer.decode(tf.constant(ids))]
    again = tokenizer.encode_source(prompts).to_list()
    kept = [
        {"text": text, "ids": row}
        for text, row, other in zip(prompts, ids, again, strict=True)
        if other[:-1] == row
    ]
    if len(kept) < batch_size:
        raise ValueError(f"prompts must be at least {batch_size}, got {len(kept)} in the text")
    kept = kept[: batch_size * min(16, max(2, 32 // batch_size), len(kept) // batch_size)]
    return [
        {"texts": [one["text"] for one in batch], "ids": [one["ids"] for one in batch]}
        for batch in (kept[n : n + batch_size] for n in range(0, len(kept), batch_size))
    ]
