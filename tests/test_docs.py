"""The documentation names only what exists: links, anchors, commands, folders, tests."""

import re
from pathlib import Path

import pytest
from blocks import anchors, prose_of

ROOT = next(path for path in Path(__file__).parents if (path / "pyproject.toml").is_file())
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
README_LINES = 120
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"python3? -m\s+((?:training|export|benchmarks)(?:\.\w+)+)")


def names(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


each_page = pytest.mark.parametrize("page", PAGES, ids=names(PAGES))


@each_page
def test_links_lead_somewhere(page):
    prose = prose_of(page.read_text(encoding="utf-8"))
    for link in LINK.findall(re.sub(r"`[^`]*`", "", prose)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT) and target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{page}: {link}"


@each_page
def test_fences_are_closed_and_not_indented(page):
    fences = re.findall(r"(?m)^( *)```", page.read_text(encoding="utf-8"))
    assert len(fences) % 2 == 0 and not any(fences), page


@each_page
def test_commands_are_modules(page):
    for module in COMMAND.findall(page.read_text(encoding="utf-8")):
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


@each_page
def test_tests_named_in_docs_exist(page):
    for name in re.findall(r"-k (test_\w+)", page.read_text(encoding="utf-8")):
        assert list((ROOT / "tests").rglob(f"{name}.py")), name


def test_every_page_of_docs_is_in_the_index_of_its_folder_or_of_the_one_above():
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "README.md":
            folders = (page.parent, page.parent.parent)
            folder = next(one for one in folders if (one / "README.md").is_file())
            index = (folder / "README.md").read_text(encoding="utf-8")
            assert f"]({page.relative_to(folder)})" in index, page


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def test_readme_has_six_rows_of_figures():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## Measured\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 6
    assert all("`" in row.split(" | ")[-1] for row in rows[2:]), "a row without its command"


def tree():
    """(path, comment) of each entry of the tree in the README, where two spaces are one level."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("\n## The tree\n")[1].split("```")[1]
    folders = []
    for line in block.strip("\n").splitlines():
        match = re.match(r"( *)(\S+)\s+(\S.*)", line)
        assert match, f"an entry without a comment: {line}"
        level = len(match[1]) // 2
        folders = [*folders[:level], match[2]]
        yield "".join(folders), match[3]


@pytest.mark.parametrize("path", [path for path, _ in tree()])
def test_folders_in_the_readme_tree_exist(path):
    assert (ROOT / path).is_dir()


def test_each_decision_has_at_most_five_lines():
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        for entry in page.read_text(encoding="utf-8").split("\n\n"):
            if entry.startswith("**"):
                lines = entry.strip().splitlines()
                assert len(lines) <= 5 and max(map(len, lines)) <= 100, entry


def test_a_word_of_the_glossary_has_one_short_sentence():
    page = (ROOT / "docs" / "reference" / "words.md").read_text(encoding="utf-8")
    glossary = page.partition("## A learner's glossary")[2]
    rows = re.findall(r"^\| (?!word)(.+?) \| (.+?) \|$", glossary, re.MULTILINE)
    assert len(rows) == len({word for word, _ in rows}) > 40
    for word, sentence in rows:
        assert re.fullmatch(r"[A-Z][^.]*\.", sentence) and len(sentence.split()) <= 25, word


def test_results_have_three_seeds_or_are_marked_one_seed():
    page = (ROOT / "docs" / "measured" / "methods.md").read_text(encoding="utf-8")
    sections = re.split(r"(?m)^## ", page)[1:]
    compared = [one for one in sections if re.search(r"(?m)^\|.*(BLEU|match|right)", one)]
    assert len(compared) > 10
    for section in compared:
        name, text = section.split("\n", 1)
        tables = re.findall(r"(?ms)^(\|[^\n]*)\n\|[-|: ]+\|\n(.*?)(?=\n\n|\Z)", text)
        for header, rows in tables:
            columns = [cell.strip() for cell in header.strip("|").split("|")]
            if "claim" in columns:
                for row in rows.splitlines():
                    if re.search(r"\b(one seed|two seeds)\b", row):
                        assert "not decided" in row, name
            elif "seeds" in columns:
                place = columns.index("seeds")
                counts = [row.strip("|").split("|")[place] for row in rows.splitlines()]
                assert min(map(int, counts)) >= 3, name
            else:
                assert "**One seed.**" in text, name


# Pages that compare no trainings: the index, single faults, and one model with and without a list.
NO_TRAININGS = {"README.md", "faults.md", "shortlist.md"}


def test_measured_page_with_scores_of_trainings_names_the_seeds():
    pages = [page for page in PAGES if page.parent.name == "measured"]
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    score = re.compile(r"(?m)^\|.*(BLEU|accuracy|exact match|perplexity|F1)")
    scored = {name for name, text in texts.items() if score.search(text)} - NO_TRAININGS
    assert len(scored) > 5
    for name in scored:
        assert re.search(r"(?i)(one|two|three|\d+) seeds?|seeds? \d|\| seeds \|", texts[name]), name
