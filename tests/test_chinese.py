"""The Chinese pages have the content of the English ones: the same headings, code, numbers and
links."""

import re
from collections import Counter

import notebooks
import pytest
from blocks import blocks_of, prose_of
from paths import ROOT

TUTORIAL = notebooks.TUTORIAL
GUIDE = ROOT / "docs" / "guide"
PAGES = [
    (ROOT / "README.md", ROOT / "README.zh.md"),
    (TUTORIAL / "README.md", TUTORIAL / "zh" / "README.md"),
]
# The README of the Chinese guide lists only pages that exist in Chinese.
GUIDE_PAGES = [
    (GUIDE / path.name, path)
    for path in sorted((GUIDE / "zh").glob("*.md"))
    if path.name != "README.md"
]
NOTEBOOKS = [(path, TUTORIAL / "zh" / path.name) for path in notebooks.paths()]
CODE = re.compile(r"`[^`\n]+`")
FORMULA = re.compile(r"\$\$.+?\$\$", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
BOX = re.compile(r"\*\*Notes often .*?\(\d+\):\*\*|\*\*笔记常.*?\(\d+\)：\*\*")


def headings(text):
    """The levels of the headings."""
    return [len(match) for match in re.findall(r"^(#+) ", prose_of(text), re.MULTILINE)]


def rows(text):
    """The number of cells of each row of the tables."""
    return [line.count(" | ") for line in text.splitlines() if line.startswith("| ")]


def table_numbers(text):
    """The numbers in each row of the tables."""
    return [numbers(line) for line in text.splitlines() if line.startswith("| ")]


def fenced(text):
    """The fenced blocks, with their languages."""
    return [(block.language, without_prose(block.text)) for block in blocks_of("a page", text)]


def without_prose(block):
    """A block as it is. The comments in the tree of folders are prose, so only its folders are
    kept."""
    if "tfformer/  " not in block:
        return block
    return [line.split()[0] for line in block.splitlines()]


def links(text, page):
    """The pages that the links lead to. A page and its translation count as one."""
    found = []
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if not re.match(r"[a-z]+:", link) and path:
            target = (page.parent / path).resolve().relative_to(ROOT).as_posix()
            link = f"{target.replace('/zh/', '/').replace('.zh.md', '.md')}#{anchor}"
        found.append(link)
    return Counter(found)


def numbers(text):
    """The numbers in the prose, without those that a language writes as words."""
    text = prose_of(text)
    for part in (CODE, FORMULA):
        text = part.sub(" ", text)
    return Counter(NUMBER.findall(LINK.sub("]", text)))


def differences(english, chinese, pages):
    """What only one of two texts has, by kind."""
    kinds = {
        "headings": headings,
        "rows": rows,
        "blocks": fenced,
        "code": lambda text: Counter(CODE.findall(prose_of(text))),
        "formulas": FORMULA.findall,
        "numbers": numbers,
    }
    found = {name: (of(english), of(chinese)) for name, of in kinds.items()}
    found["links"] = tuple(map(links, (english, chinese), pages))
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("pages", PAGES, ids=["readme", "tutorial"])
def test_chinese_page_matches_the_english_page(pages):
    english, chinese = (page.read_text(encoding="utf-8") for page in pages)
    assert differences(english, chinese, pages) == {}


@pytest.mark.parametrize("pages", GUIDE_PAGES, ids=[path.stem for path, _ in GUIDE_PAGES])
def test_chinese_guide_page_matches_the_english_page(pages):
    english, chinese = (page.read_text(encoding="utf-8") for page in pages)
    assert differences(english, chinese, pages) == {}
    assert table_numbers(english) == table_numbers(chinese)
    assert f"\n[中文](zh/{pages[0].name})\n" in english
    assert f"\n[English](../{pages[0].name})\n" in chinese


@pytest.mark.parametrize("pages", NOTEBOOKS, ids=[path.stem for path, _ in NOTEBOOKS])
def test_chinese_notebook_matches_the_english_one_in_each_cell(pages):
    english, chinese = (notebooks.cells(page) for page in pages)
    for one, other in zip(english, chinese, strict=True):
        assert one.cell_type == other.cell_type
        if one.cell_type == "code":
            assert (one.source, one.outputs) == (other.source, other.outputs)
        else:
            assert differences(one.source, other.source, pages) == {}, other.source
            assert len(BOX.findall(one.source)) == len(BOX.findall(other.source))
            assert re.search("[\u4e00-\u9fff]", other.source)


@pytest.mark.parametrize("path", [path for _, path in NOTEBOOKS], ids=lambda path: path.stem)
def test_link_leads_to_the_chinese_page_or_is_marked_english(path):
    for cell in notebooks.cells(path, "markdown"):
        for link in LINK.finditer(cell.source):
            target = (path.parent / link[1].partition("#")[0]).resolve()
            if re.match(r"[a-z]+:", link[1]) or target.parent.name == "zh":
                continue
            assert not (target.parent / "zh" / target.name).exists(), link[1]
            assert cell.source[link.end() :].startswith(("（英文）", "，英文）")), link[1]
