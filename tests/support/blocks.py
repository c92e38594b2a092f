"""The fenced blocks of the pages, and the commands in them and in the prose."""

import re
import shlex
from typing import NamedTuple

from paths import ROOT

from tfformer.__main__ import MODULES

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(
        path.relative_to(ROOT).as_posix()
        for folder in ("guide", "reference")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
SHELL = ("", "bash", "sh")
# (page, beginning) of the blocks without a language that are not shell: {...: what it is}
FIGURES = {
    ("README.md", "two text files"): "a drawing",
    ("README.md", "tfformer/"): "the tree of folders, which tests/test_docs.py reads",
    ("docs/guide/search.md", "position 0"): "a drawing",
    ("docs/guide/search.md", "hypothesis 0"): "a drawing",
    ("docs/reference/contract.md", "tensorflow_serving/apis/"): "names of files, which "
    "tests/export/test_contract.py reads",
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Characters that end a command or stand before one.
PUNCTUATION = "();<>|&\n"
KEYWORDS = ("do", "then", "else")


class Block(NamedTuple):
    """A fenced block: its page, its number there from 1, its language or "", its text."""

    page: str
    number: int
    language: str
    text: str

    @property
    def name(self):
        """Its name in a test."""
        return f"{self.page}-{self.number}"


class Command(NamedTuple):
    """One command of a line of shell.

    words: without variables before it, quotes, redirections.
    environment: the variables before it.
    fed: the words of the command whose output it reads, or ().
    reads, writes: the files of standard input and output, or "".
    """

    words: tuple
    environment: dict
    fed: tuple
    reads: str
    writes: str

    @property
    def module(self):
        """The module of `python -m` or of a tfformer command; "" for any other command."""
        if self.words[0] == "tfformer" and len(self.words) > 1:
            return MODULES.get(self.words[1], "")
        return self.words[2] if self.words[:2] == ("python", "-m") else ""

    @property
    def arguments(self):
        """The words after the module."""
        return list(self.words[2 if self.words[0] == "tfformer" else 3 :])

    def __str__(self):
        return shlex.join(self.words)


def blocks_of(page, text):
    """The blocks of a page's text."""
    found = FENCE.findall(text)
    assert text.count("```") == 2 * len(found), f"{page}: a fence that is not understood"
    return [Block(page, number, *one) for number, one in enumerate(found, 1)]


def page_blocks(page):
    """The blocks of a page, by its path from the root."""
    return blocks_of(page, read(page))


def all_blocks(*languages):
    """The blocks of all pages in one of some languages."""
    found = [block for page in PAGES for block in page_blocks(page)]
    return [block for block in found if block.language in languages]


def read(page):
    """The text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def prose_of(text):
    """The text of a page without its blocks."""
    return FENCE.sub("", text)


def anchors(text):
    """The anchors that GitHub gives to the headings of a page; a repeated heading gets a number."""
    found = []
    for heading in re.findall(r"^#+\s+(.*)", prose_of(text), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number, free = 0, name
        while free in found:
            number += 1
            free = f"{name}-{number}"
        found.append(free)
    return found


def inline_commands(text, words):
    """The commands between backticks in prose that begin with one of `words`."""
    found = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose_of(text))]
    found = [code for code in found if code.split()[0] in words and " " in code]
    return [command for code in found for command in commands_of(code)]


def commands_of(text):
    """The commands of a piece of shell, in their order.

    Raises:
        ValueError: a quote is not closed.
    """
    text = re.sub(r"(^|[ \t])#.*", "", text.replace("\\\n", " "), flags=re.MULTILINE)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=PUNCTUATION)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t", "", True
    found, words, files, fed = [], [], {"<": "", ">": ""}, ()
    tokens = [*lexer, "\n"]
    while tokens:
        token = tokens.pop(0)
        if token in files:
            files[token] = tokens.pop(0)
        elif not token.strip(PUNCTUATION):
            command = _command(words, fed, files)
            found += [command] if command else []
            fed = command.words if command and token.strip("\n") == "|" else ()
            words, files = [], {"<": "", ">": ""}
        else:
            words.append(token)
    return found


def _command(words, fed, files):
    """The `Command` of the words between two separators; None if there are none."""
    while words and words[0] in KEYWORDS:
        words = words[1:]
    environment = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, environment[name] = words[0].partition("=")
        words = words[1:]
    if not words or words[0] in ("for", "done"):
        return None
    return Command(tuple(words), environment, fed, files["<"], files[">"])


def is_figure(block):
    """Whether a block without a language is not shell, but one of `FIGURES`."""
    return block.language == "" and any(
        block.page == page and block.text.strip().startswith(words) for page, words in FIGURES
    )


def is_shell(block):
    """Whether a block is shell: it has no language and is no figure."""
    return block.language in SHELL and not is_figure(block)


def page_commands(page):
    """The commands of the blocks of a page, in their order."""
    return [c for block in page_blocks(page) if is_shell(block) for c in commands_of(block.text)]


def paragraphs(text):
    """The parts of a program: a new one begins after an empty line that is followed by a
    comment."""
    return re.split(r"\n\n(?=# )", text)
