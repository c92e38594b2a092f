"""Makes more training pairs with trained models: `tfformer diversify`.

    tfformer diversify --source train.en --target train.de \\
        --forward runs/one runs/two --backward runs/back-one runs/back-two --out data/diverse
    tfformer train --source data/diverse/source.txt --target data/diverse/target.txt \\
        --val-source val.en --val-target val.de --run runs/final

Several models, trained on the same pairs with different seeds, translate the corpus. Forward models
translate the source; backward models, trained with source and target exchanged, translate the
target. Each translation is paired with the original sentence. A model trained on all of these pairs
learns what several models know (Nguyen et al. 2020, "Data Diversification"). Repeated pairs and
blank translations are left out.

The folder keeps each translation as soon as it is made. After an interruption, the same command
continues.

Exit codes: 0 written; 1 an error of a run, a file or the disk; 2 wrong usage; 130 or 143
interrupted.
"""

import hashlib
import os
import sys
from pathlib import Path

from tfformer.terminal.command import Parser, count, main_of
from tfformer.terminal.progress_bar import Bar

from .trainer.lock import alone

CHUNK = 1024  # texts between two writes


def parser():
    """The command's arguments."""
    runs, files = ["forward", "backward"], ["source", "target"]
    parser = Parser("training.diversify", __doc__, prints=True, reads=runs, files=files)
    parser.add_argument("--source", type=Path, required=True, help="a text file")
    parser.add_argument("--target", type=Path, required=True, help="its translation, line by line")
    for name, side in (("forward", "source"), ("backward", "target")):
        parser.add_argument(
            f"--{name}", type=Path, nargs="+", default=[], metavar="RUN",
            help=f"runs that translate the {side}",
        )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="the folder; created if missing")
    parser.add_argument("--batch-size", type=count(), default=64, help="texts at once; default 64")
    return parser


def diversify(pairs, forward, backward, translate):
    """The pairs (source, target), then those that the models make from them, without repetitions
    and blank texts. `translate(model, texts)` returns the translations.

    Raises:
        ValueError: each pair has a blank text.
    """
    if not any(source.strip() and target.strip() for source, target in pairs):
        raise ValueError("the corpus must have a pair without a blank text, got none")
    sources, targets = zip(*pairs, strict=True)
    found = dict.fromkeys(pairs)
    for model in forward:
        found |= dict.fromkeys(zip(sources, translate(model, sources), strict=True))
    for model in backward:
        found |= dict.fromkeys(zip(translate(model, targets), targets, strict=True))
    return [pair for pair in found if all(text.strip() for text in pair)]


def translated(run, texts, folder, batch_size):
    """The translations of texts by a run. The folder keeps them, and they are not made twice.

    The file's name is a hash of run and texts, so another run, or other texts, use another file.
    """
    from tfformer.files import RunError, open_own
    from tfformer.models import TRANSLATING
    from tfformer.run import load_service, read_config, require_family

    config = read_config(run)
    require_family(run, config, *TRANSLATING)
    made_of = [config["weights"], repr(sorted(config["search"].items())), *texts]
    name = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    path, part = folder / f"{name}.txt", folder / f"{name}.part"
    if not path.exists():
        service = load_service(run, max_batch_size=batch_size)
        if read_config(run) != config:
            raise RunError(f"{run} changed while it was read: is it being trained?")
        with open_own(part, "ab+") as file:
            done = _whole_lines(file)
            with Bar(str(run), len(texts), done) as bar:
                for start in range(done, len(texts), CHUNK):
                    chunk = texts[start : start + CHUNK]
                    lines = [" ".join(one.split()) for one in service.translate(chunk, batch_size)]
                    file.write("".join(f"{line}\n" for line in lines).encode())
                    file.flush()
                    os.fsync(file.fileno())
                    bar.advance(len(chunk))
        part.rename(path)
    lines = path.read_bytes().decode().split("\n")[:-1]
    if len(lines) != len(texts):
        raise RunError(f"{path} must have {len(texts)} lines, got {len(lines)}: remove it")
    return lines


def _whole_lines(file):
    """The number of complete lines of a file. A partial last line, of a writer that was killed, is
    removed."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    file.truncate(whole)
    return content.count(b"\n")


def _run(command, options):
    if not (options.forward or options.backward):
        return command.fail("give --forward, --backward or both", 2)

    from tfformer.files import write_lines

    from .data.reader import read_pairs

    written = [options.out / f"{side}.txt" for side in ("source", "target")]
    for path in (options.source, options.target):
        if path.resolve() in [one.resolve() for one in written]:
            return command.fail(f"--out must not be the corpus's folder, got that of {path}", 2)

    def translate(run, texts):
        return translated(run, texts, options.out, options.batch_size)

    try:
        pairs = [(pair.source, pair.target) for pair in read_pairs(options.source, options.target)]
        with alone(options.out, "use"):
            found = diversify(pairs, options.forward, options.backward, translate)
            for path, texts in zip(written, zip(*found, strict=True), strict=True):
                write_lines(path, texts)
    except (ValueError, OSError) as error:
        return command.fail(error)
    with command.remarks():
        print(f"{options.out}: {len(found):,} pairs, made from {len(pairs):,}")
    return 0


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
