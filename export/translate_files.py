"""Translates files of any size: `tfformer translate-files DIRECTORY OUTPUT FILE...`.

    tfformer translate-files exported/multi30k translated shards/*.txt
    tfformer translate-files exported/multi30k translated shards/*.txt --shard 2/8

FILE, text or .gz, becomes OUTPUT/FILE (without .gz), line for line. No more than a few thousand
lines are in memory. A file appears under its name when it is whole; until then it is FILE.partial,
and FILE.progress.json says how far it has come: so no FILE may have a name that ends like these.
Killed at any moment and started again with the same words, it goes on from there: no line is lost
and none is there twice. If the source or the model has other content by then, it refuses. A file
that is there already is left as it is.

On several machines give each its --shard, of as many as there are machines: it takes every so
many-th file. The same transform in a pipeline of Apache Beam is `export.beam`.

Exit codes: 0 all files are translated; 1 a file or the model is at fault, and what was translated
is kept; 2 wrong usage; 130 or 143 interrupted.
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

from tfformer.terminal.command import Parser, count

from .remote.lines import as_line, batches, read_lines

CHUNK = 2048  # lines between two records of the progress
LONGEST_RECORD = 10_000  # bytes
PARTIAL_SUFFIX, RECORD_SUFFIX = ".partial", ".progress.json"  # of the names of unfinished work


def parser():
    """The command's arguments."""
    parser = Parser("export.translate_files", __doc__)
    parser.add_argument("directory", help="a SavedModel, or a base directory of numbered versions")
    parser.add_argument("output", type=Path, help="the folder of the translations; made if missing")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text, or .gz of it")
    parser.add_argument(
        "--shard", default="1/1", metavar="I/N", help="every Nth file, from the Ith"
    )
    parser.add_argument("--document", action="store_true", help="a line is many sentences")
    size = count()
    parser.add_argument("--batch-size", type=size, default=32, help="lines a request; default 32")
    return parser


class ProgressError(Exception):
    """What is in the output folder does not belong to this work, in one line."""


def translate_file(source, target, translate, identity, say=lambda lines: None):
    """Translates a file, or the rest of it; returns the number of its lines.

    The `target` appears when it is whole. `translate` is a function of a list of lines that gives
    as many. `identity`, JSON, is what the translation depends on besides the source's content: work
    that was begun with something else is refused. `say` is called with the number of lines so far.

    Raises:
        ProgressError: another process is at it, or what was begun belongs to something else.
        OSError: what was translated is kept.
    """
    from tfformer.files import sync, write_json

    partial = target.with_name(f"{target.name}{PARTIAL_SUFFIX}")
    record = target.with_name(f"{target.name}{RECORD_SUFFIX}")
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(_locked(partial, target))
        raw = stack.enter_context(source.open("rb"))
        # Not its size and time: a file put in its place may have the same.
        identity = {**identity, "source": hashlib.file_digest(raw, "sha256").hexdigest()}
        file = stack.enter_context(_unpacked(raw))
        size = os.fstat(output.fileno()).st_size
        done = _read_record(record, identity)
        if done is None and size:
            raise ProgressError(f"{partial} is no work of this command: {record} is missing")
        if done is None or size < done["written"]:  # somebody has removed it
            done = {"lines": 0, "written": 0, "read": 0}
            write_json(record, {**done, "identity": identity}, checked=True)
        # What was written after the record may be half a chunk.
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
    """Removes the record of a finished file, and hidden files that kills have left of it."""
    from tfformer.files import sweep

    record = target.with_name(f"{target.name}{RECORD_SUFFIX}")
    try:
        _parsed(record)
    except (OSError, ValueError):  # there is none, or it is a file of the user
        return
    record.unlink()
    sweep(record)


@contextlib.contextmanager
def _locked(partial, target):
    """The partial file, to append to, for this process alone.

    Between opening and locking it, another process may have finished it: then it is the target.
    """
    from tfformer.files import open_own

    with open_own(partial, "ab") as output:
        # The system's lock of an open file: a process that is killed gives it up.
        if not lock_descriptor(output.fileno(), blocking=False):
            raise ProgressError(f"{partial} is being written by another process")
        if not partial.exists() or not os.path.samestat(partial.stat(), os.fstat(output.fileno())):
            raise ProgressError(f"{target} has just been finished by another process")
        yield output


def model_identity(path, document):
    """What a translation depends on: the model's files, and how it is asked."""
    digest = hashlib.sha256()
    for file in sorted(p for p in Path(path).rglob("*") if p.is_file()):
        if "assets.extra" not in file.parts:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return {"model": digest.hexdigest(), "document": document}


def _unpacked(file):
    """A binary file from its begin, unpacked if it is gzip."""
    file.seek(0)
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if packed else file


def _read_record(record, identity):
    """How far a file has come; None if there is no record."""
    partial = f"{record.name.removesuffix(RECORD_SUFFIX)}{PARTIAL_SUFFIX}"
    anew = f"to start again, remove it and {partial}"
    try:
        done = _parsed(record)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ProgressError(f"{record} is damaged, or of another version; {anew}") from error
    if done.pop("identity") != identity:
        raise ProgressError(f"{record} belongs to another model or another source; {anew}")
    return done


def _parsed(record):
    """The content of a record of this command. Raises a ValueError if it is none."""
    from tfformer.files import CHECKSUM, checksum, open_own

    with open_own(record, "rb") as file:
        content = file.read(LONGEST_RECORD)
    try:
        found = json.loads(content)
        if found.pop(CHECKSUM) != checksum(found):
            raise ValueError("its checksum differs")
        return {name: found[name] for name in ("lines", "written", "read", "identity")}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is no record: {error}") from error


def main(arguments=None):
    """The command; returns its exit code."""
    command = parser()
    return command.run(lambda options: _run(command, options), arguments)


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
                f"which are names of unfinished work, got {file}"
            )
        if target in targets:
            command.error(f"files must have names of their own, got {targets[target]} and {file}")
        if not file.is_file():
            command.error(f"FILE must be a file, got {file}")
        if target.exists() and target.samefile(file):
            command.error(f"OUTPUT must not be the folder of FILE, got {file}")
        if target.exists() and not target.is_file():
            command.error(f"OUTPUT/{name} must be a file or missing, got {target}")
        targets[target] = file
    mine = list(targets.items())[shard - 1 :: shards]
    open_ones = [(target, source) for target, source in mine if not target.exists()]
    print(f"{len(mine) - len(open_ones)} of {len(mine)} files are there", file=sys.stderr)
    try:
        for target, _ in mine:  # killed behind its rename, it has its record still
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
        from .serving.bulk import BulkTranslator  # brings TensorFlow with it

        options.output.mkdir(parents=True, exist_ok=True)
        with BulkTranslator(options.directory, options.batch_size, options.document) as model:
            identity = model_identity(model.path, options.document)
            for target, source in open_ones:
                if target.exists():  # by now: another machine's shard was this one
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
    """A function that is told how many lines there are, and says so on standard error."""
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


if __name__ == "__main__":
    sys.exit(main())
