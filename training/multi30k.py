"""Downloads Multi30K: 31,014 image descriptions in English, German, French and Czech.

    A group of men are loading cotton onto a truck
    Eine Gruppe von Männern lädt Baumwolle auf einen Lastwagen

The corpus is small and its sentences are simple, so a Transformer learns it in minutes. Many papers
report scores on it: it is the usual first test on a real language pair. The text is raw: cased, not
tokenised.

    split              pairs   use
    train              29,000  training, and the vocabulary
    val                1,014   choosing checkpoints and settings
    test_2016_flickr   1,000   reporting only

The data is for research and education, NOT for commercial use. So it is not part of this project:
`fetch` downloads it from its public home. Checksums of English and German are compared. Those of
French and Czech are unknown here, so their lines are counted instead.

    tfformer multi30k data/multi30k
    tfformer multi30k data/multi30k --languages en fr

Reference: D. Elliott, S. Frank, K. Sima'an, L. Specia, "Multi30K: Multilingual English-German Image
Descriptions", 2016, https://aclanthology.org/W16-3210; data: https://github.com/multi30k/dataset.
"""

import argparse
import gzip
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tfformer.files import write_atomically
from tfformer.terminal.command import Parser
from tfformer.terminal.progress_bar import Bar

from .data.reader import CorpusError

BASE_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"

LANGUAGES = ("en", "de", "fr", "cs")

SPLITS = {"train": 29_000, "val": 1_014, "test_2016_flickr": 1_000}  # pairs

# Of the unpacked files: a gzip file contains a date, so it differs after each compression.
SHA256 = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
}

CHUNK_SIZE = 1 << 14  # bytes

LARGEST = 1 << 24  # maximum bytes of a file, packed or not: eight times the largest file

TIMEOUT = 30.0  # seconds without a byte, not for the whole download


def files(languages: Iterable[str]) -> dict[str, str | None]:
    """{name of a file: its SHA-256, or None if it is not known}, for some of `LANGUAGES`."""
    names = [f"{split}.{language}" for split in SPLITS for language in languages]
    return {name: SHA256.get(name) for name in names}


def fetch(
    folder: str | os.PathLike,
    base_url: str = BASE_URL,
    *,
    checksums: Mapping[str, str | None] = SHA256,
    timeout: float = TIMEOUT,
) -> list[Path]:
    """Downloads and unpacks the files that `folder` lacks. Returns their paths.

    A file gets its name only when it is complete and its checksum is right, so an interrupted
    download leaves no partial file; call again to continue. Existing files are never changed.
    `checksums` are the result of `files`. After `timeout` seconds without a byte, the download
    fails.

    Raises:
        CorpusError: the folder cannot be written, a download fails, or a file, new or existing, has
            another checksum or number of lines.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [name for name in checksums if not (folder / name).exists()]
        for name, checksum in checksums.items():
            if name not in missing:
                _verify(folder / name, checksum)
        for name in missing:
            url = f"{base_url.rstrip('/')}/{name}.gz"
            content = _content(url, timeout)
            if fault := _fault(name, content, checksums[name]):
                raise CorpusError(f"{url} is refused and not kept: after unpacking, {fault}")
            # A file with this name is always complete.
            write_atomically(folder / name, content)
    except _DownloadFailed as error:
        still_missing = [f"{name}.gz" for name in checksums if not (folder / name).exists()]
        raise CorpusError(
            f"cannot download {error}. Try again, or download by hand {', '.join(still_missing)} "
            f"from {base_url} and unpack them into {folder}"
        ) from error
    except OSError as error:
        raise CorpusError(f"cannot write to {folder}: {error.strerror or error}") from error
    return [folder / name for name in missing]


def paths(
    folder: str | os.PathLike, split: str, source_language: str = "en", language: str = "de"
) -> tuple[Path, Path]:
    """The source and the target file of a split, whose checksums or numbers of lines are compared.

    Raises:
        ValueError: there is no such split or language, or the two are the same.
        CorpusError: a file is missing, or has another checksum or number of lines.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    for name, value in (("source_language", source_language), ("language", language)):
        if value not in LANGUAGES:
            raise ValueError(f"{name} must be one of {', '.join(LANGUAGES)}, got {value!r}")
    if source_language == language:
        raise ValueError(f"language must differ from source_language, got {language!r} for both")
    folder = Path(folder)
    found = tuple(folder / f"{split}.{side}" for side in (source_language, language))
    for path in found:
        if not path.is_file():
            raise CorpusError(
                f"{path} is missing: download it with `tfformer multi30k {folder} "
                f"--languages {source_language} {language}`"
            )
        _verify(path, SHA256.get(path.name))
    return found


class _DownloadFailed(Exception):
    """The URL and the reason."""


def _fault(name: str, content: bytes, checksum: str | None) -> str | None:
    """What is wrong with the unpacked bytes of a file, or None."""
    if checksum is None:
        # As in `training.data.reader`, a last line without a newline counts.
        lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
        expected = SPLITS[name.rpartition(".")[0]]
        return f"it has {lines:,} lines, expected {expected:,}" if lines != expected else None
    received = hashlib.sha256(content).hexdigest()
    return f"its SHA-256 is {received}, expected {checksum}" if received != checksum else None


def _verify(path: Path, checksum: str | None) -> None:
    """Raises a CorpusError if a file has other content. It may be the user's, so it is kept."""
    try:
        fault = _fault(path.name, path.read_bytes(), checksum)
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror or error}") from error
    if fault:
        raise CorpusError(
            f"{path} is not the file of Multi30K: {fault}. Move it away, or choose another folder"
        )


def _content(url: str, timeout: float) -> bytes:
    """The unpacked bytes of the gzip file at `url`. A truncated file is an error."""
    import requests
    import urllib3

    # Requests the bytes of the file: a server may add a compression for the transfer.
    as_it_is = {"Accept-Encoding": "identity"}
    try:
        with (
            Bar(url.rpartition("/")[2]),
            requests.get(url, stream=True, timeout=timeout, headers=as_it_is) as answer,
        ):
            answer.raise_for_status()
            packed = bytearray()
            for part in answer.raw.stream(CHUNK_SIZE, decode_content=False):
                packed += part
                if len(packed) > LARGEST:
                    raise ValueError(f"the file must have at most {LARGEST:,} bytes")
        with gzip.open(io.BytesIO(packed)) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(f"the unpacked file must have at most {LARGEST:,} bytes")
        return content
    # ValueError: no URL, or the file is too large. OSError: no network, HTTP errors, no gzip.
    except (ValueError, OSError, EOFError, zlib.error, urllib3.exceptions.HTTPError) as error:
        raise _DownloadFailed(f"{url}: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """The command, which downloads the corpus into a folder; returns its exit code."""
    parser = Parser(
        "training.multi30k",
        "Downloads the corpus Multi30K (2 MB a language). It is for research and education, not\n"
        "for commercial use. Existing files are verified and not downloaded again.\n\n"
        "    tfformer multi30k data/multi30k\n\n"
        "Exit codes: 0 all files exist; 1 an error of the network, the disk or a file; 2 wrong\n"
        "usage; 130 or 143 interrupted: run it again to continue.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where the files go")
    parser.add_argument(
        "--languages", nargs="+", default=LANGUAGES[:2], choices=LANGUAGES, metavar="LANGUAGE",
        help=f"some of {', '.join(LANGUAGES)}; default {' '.join(LANGUAGES[:2])}",
    )  # fmt: skip
    parser.add_argument(
        "--base-url", default=BASE_URL, metavar="URL", help="a mirror (default %(default)s)"
    )
    return parser.run(lambda options: _run(parser, options), arguments)


def _run(parser: Parser, options: argparse.Namespace) -> int:
    try:
        wanted = files(options.languages)
        fetched = fetch(options.folder, options.base_url, checksums=wanted)
    except CorpusError as error:
        return parser.fail(error)
    known = sum(checksum is not None for checksum in wanted.values())
    with parser.remarks():
        print(
            f"{options.folder}: {len(wanted)} files, {len(fetched)} of them downloaded now; "
            f"{known} verified by checksum, {len(wanted) - known} by number of lines"
        )
        print("Multi30K is for research and education, not for commercial use.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
