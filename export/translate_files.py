"""Translates files of any size: `tfformer translate-files DIRECTORY OUTPUT FILE...`.

    tfformer translate-files exported/multi30k translated shards/*.txt
    tfformer translate-files exported/multi30k translated shards/*.txt --shard 2/8

FILE, a text file or .gz, becomes OUTPUT/FILE (without .gz), line by line. At most a few thousand
lines are in memory. A file gets its name when it is complete. Until then it is FILE.partial, and
FILE.progress.json records the progress, so the name of a FILE must not end like these.

If the command is killed at any moment, the same command continues: no line is lost or repeated. If
the source or the model has changed meanwhile, it refuses to continue. Existing files are not
changed.

On several machines, give each machine its --shard I/N, where N is the number of machines: it takes
every Nth file. `export.beam` does the same in a pipeline of Apache Beam.

Exit codes: 0 all files are translated; 1 an error of a file or the model, finished translations are
kept; 2 wrong usage; 130 or 143 interrupted.
"""

import contextlib
import gzip
import hashlib
import json
import os
import re
import sys
import time
import zlib
from pathlib import Path

from filelock import lock_descriptor

from tfformer.terminal.command import Parser, count, main_of

from .remote.lines import as_line, batches, read_lines

CHUNK = 2048  # lines between two records of the progress
LONGEST_RECORD = 10_000  # bytes
PARTIAL_SUFFIX, RECORD_SUFFIX = ".partial", ".progress.json"  # of the names of unfinished work


def parser():
    """The command's arguments."""
    parser = Parser("export.translate_files", __doc__)
    parser.add_argument("directory", help="a SavedModel, or a base directory of numbered versions")
    parser.add_argument(
        "output", type=Path, help="the folder of the translations; created if missing"
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a text file, or .gz")
    parser.add_argument(
        "--shard", default="1/1", metavar="I/N", help="every Nth file, from the Ith"
    )
    parser.add_argument("--document", action="store_true", help="a line may contain many sentences")
    size = count()
    parser.add_argument("--batch-size", type=size, default=32, help="lines a request; default 32")
    return parser


class ProgressError(Exception):
    """A file in the output folder does not belong to this work. The message is one line."""


def translate_file(source, target, translate, identity, say=lambda lines: None):
    """Translates a file, or the rest of it. Returns the number of its lines.

    `target` appears when it is complete. `translate` converts a list of lines to as many
    translations. `identity`, JSON, is what the translation depends on besides the source's content;
    work begun with another identity is refused. `say` is called with the number of lines so far.

    Raises:
        ProgressError: another process translates the file, or the existing work has another
            identity.
        OSError: finished translations are kept.
    """
    from tfformer.files import sync, write_json

    partial = target.with_name(f"{target.name}{PARTIAL_SUFFIX}")
    record = target.with_name(f"{target.name}{RECORD_SUFFIX}")
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(_locked(partial, target))
        raw = stack.enter_context(source.open("rb"))
        # The content, because another file may have the same size and time.
        identity = {**identity, "source": hashlib.file_digest(raw, "sha256").hexdigest()}
        file = stack.enter_context(_unpacked(raw))
        size = os.fstat(output.fileno()).st_size
        done = _read_record(record, identity)
        if done is None and size:
            raise ProgressError(f"{partial} is not from this command: {record} is missing")
        if done is None or size < done["written"]:  # the partial file was removed
            done = {"lines": 0, "written": 0, "read": 0}
            write_json(record, {**done, "identity": identity}, checked=True)
        # Text after the recorded position may be an incomplete chunk.
        output.truncate(done["written"])
        file.seek(done["read"])
        lines = read_lines(file)
        for chunk in batches(lines, CHUNK):
            translations = translate(chunk)
            text = "".join(f"{as_line(line)}\n" for line in translations).encode()
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
            done["lines"] += len(chunk)
            done["written"] += len(text)
            done["read"] = file.tell()
            write_json(record, {**done, "identity": identity}, checked=True)
            say(done["lines"])
        partial.rename(target)
        sync(target.parent)
        _forget(target)
    return done["lines"]


def _forget(target):
    """Removes the record of a finished file, and its hidden files that killed processes left."""
    from tfformer.files import sweep

    record = target.with_name(f"{target.name}{RECORD_SUFFIX}")
    try:
        _parsed(record)
    except (OSError, ValueError):  # it does not exist, or it is the user's file
        return
    record.unlink()
    sweep(record)


@contextlib.contextmanager
def _locked(partial, target):
    """Opens the partial file to append to it, and locks it for this process.

    Another process may finish and rename the file between opening and locking.
    """
    from tfformer.files import open_own

    with open_own(partial, "ab") as output:
        # A lock of the system: it ends when the process is killed.
        if not lock_descriptor(output.fileno(), blocking=False):
            raise ProgressError(f"{partial} is being written by another process")
        if not partial.exists() or not os.path.samestat(partial.stat(), os.fstat(output.fileno())):
            raise ProgressError(f"{target} has just been finished by another process")
        yield output


def model_identity(path, document):
    """What a translation depends on: the model's files and `document`."""
    digest = hashlib.sha256()
    for file in sorted(p for p in Path(path).rglob("*") if p.is_file()):
        if "assets.extra" not in file.parts:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return {"model": digest.hexdigest(), "document": document}


def _unpacked(file):
    """A binary file from its beginning, unpacked if it is gzip."""
    file.seek(0)
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if packed else file


def _read_record(record, identity):
    """The recorded progress of a file, or None if there is no record."""
    partial = f"{record.name.removesuffix(RECORD_SUFFIX)}{PARTIAL_SUFFIX}"
    anew = f"to start again, remove it and {partial}"
    try:
        done = _parsed(record)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ProgressError(f"{record} is damaged, or from another version; {anew}") from error
    if done.pop("identity") != identity:
        raise ProgressError(f"{record} belongs to another model or another source; {anew}")
    return done


def _parsed(record):
    """The content of a record. Raises a ValueError if it is not a record of this command."""
    from tfformer.files import CHECKSUM, checksum, open_own

    with open_own(record, "rb") as file:
        content = file.read(LONGEST_RECORD)
    try:
        found = json.loads(content)
        if found.pop(CHECKSUM) != checksum(found):
            raise ValueError("its checksum differs")
        return {name: found[name] for name in ("lines", "written", "read", "identity")}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a record: {error}") from error


def _run(command, options):
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", options.shard)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        command.error(f"--shard must be I/N with 1 <= I <= N, got {options.shard[:40]}")
    shard, shards = int(match[1]), int(match[2])
    targets = {}
    for file in options.files:
        name = file.name.removesuffix(".gz")
        target = options.output / name
        if not name or name.endswith((PARTIAL_SUFFIX, RECORD_SUFFIX)):
            command.error(
                f"FILE must have a name that does not end in {PARTIAL_SUFFIX} or {RECORD_SUFFIX}, "
                f"the names of unfinished files, got {file}"
            )
        if target in targets:
            command.error(f"files must have different names, got {targets[target]} and {file}")
        if not file.is_file():
            command.error(f"FILE must be a file, got {file}")
        if target.exists() and target.samefile(file):
            command.error(f"OUTPUT must not be the folder of FILE, got {file}")
        if target.exists() and not target.is_file():
            command.error(f"OUTPUT/{name} must be a file or missing, got {target}")
        targets[target] = file
    mine = list(targets.items())[shard - 1 :: shards]
    open_ones = [(target, source) for target, source in mine if not target.exists()]
    print(f"{len(mine) - len(open_ones)} of {len(mine)} files exist already", file=sys.stderr)
    try:
        for target, _ in mine:  # if it was killed after the rename, the record still exists
            if target.exists() and not target.with_name(f"{target.name}{PARTIAL_SUFFIX}").exists():
                _forget(target)
    except OSError as error:
        return command.fail(error)
    if not open_ones:
        return 0

    from .capi.library import ServingError
    from .verification.errors import BrokenModel, UsageError
    from .verification.paths import find_saved_model

    try:
        find_saved_model(options.directory)
        from .serving.bulk import BulkTranslator  # imports TensorFlow

        options.output.mkdir(parents=True, exist_ok=True)
        with BulkTranslator(options.directory, options.batch_size, options.document) as model:
            identity = model_identity(model.path, options.document)
            for target, source in open_ones:
                if target.exists():  # another machine had the same shard
                    continue
                with _progress(source) as say:
                    translate_file(source, target, model.translate, identity, say)
    except UsageError as error:
        return command.fail(error, 2)
    except (BrokenModel, ServingError, ProgressError, OSError, EOFError, zlib.error) as error:
        return command.fail(error)
    return 0


@contextlib.contextmanager
def _progress(source):
    """A function that gets the number of lines so far and shows it on standard error."""
    from tfformer.terminal.progress_bar import Bar

    start, first, last = time.monotonic(), None, 0

    def say(lines):
        nonlocal first, last
        first, last = lines if first is None else first, lines
        seconds = time.monotonic() - start
        rate = (lines - first) / seconds if lines > first else lines / max(seconds, 1e-9)
        bar.to(lines, [f"{rate:,.0f} a second"])
        if not bar.shown:
            print(f"{source.name}: {lines:,} lines, {rate:,.0f} a second", file=sys.stderr)

    with Bar(source.name, unit="lines") as bar:
        yield say
    print(f"{source.name}: {last:,} lines, done", file=sys.stderr)


main = main_of(parser, _run)

if __name__ == "__main__":
    sys.exit(main())
