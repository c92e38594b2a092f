"""The Chinese pages have the content of the English ones: the same headings, code, numbers and
links."""

import ast
import re
from collections import Counter

import notebooks
import pytest
from blocks import anchors, blocks_of, prose_of
from IPython.core.inputtransformer2 import TransformerManager
from paths import ROOT

TUTORIAL = notebooks.TUTORIAL
DOCS = ROOT / "docs"
PAGES = [
    (ROOT / "README.md", ROOT / "README.zh.md"),
    (TUTORIAL / "README.md", TUTORIAL / "zh" / "README.md"),
]
# The README of the Chinese guide lists only pages that exist in Chinese.
OTHER_PAGES = [
    (DOCS / folder / path.name, path)
    for folder in ("guide", "measured")
    for path in sorted((DOCS / folder / "zh").glob("*.md"))
    if path.name != "README.md"
]
NOTEBOOKS = [(path, TUTORIAL / "zh" / path.name) for path in notebooks.paths()]
CODE = re.compile(r"`[^`\n]+`")
FORMULA = re.compile(r"\$\$.+?\$\$", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
CHINESE = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
# Cells that print times, or the version of an export, which differ from run to run.
DIFFER = ("perf_counter", "process_time", "exported/tutorial")
# The end of the first cell of each Chinese notebook, which chooses a font and the language.
FONT = """

import matplotlib.pyplot as plt

from training.report.fonts import families_for
from training.report.picture_language import choose

# 图里有汉字，所以要选一种有汉字的字体。
plt.rcParams["font.family"] = families_for(["训练、词嵌入、层归一化"])[0]
choose("zh")  # 库画的图也用中文"""
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
    """The pages that the links lead to, and the numbers of the headings there.

    A page and its translation count as one.
    """
    found = []
    for link in LINK.findall(text):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            name = target.relative_to(ROOT).as_posix().replace("/zh/", "/")
            headed = anchors(target.read_text(encoding="utf-8")).index(anchor) if anchor else None
            link = (name.replace(".zh.md", ".md"), headed)
        found.append(link)
    return Counter(found)


def numbers(text):
    """The numbers in the prose, without those that a language writes as words."""
    text = prose_of(text)
    for part in (CODE, FORMULA):
        text = part.sub(" ", text)
    return Counter(NUMBER.findall(LINK.sub("]", text)))


def parsed(source):
    """The syntax tree of a cell. A string with values keeps only its values, in one order for both
    languages."""
    tree = ast.parse(TransformerManager().transform_cell(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = (part for part in node.values if isinstance(part, ast.FormattedValue))
            node.values = sorted(values, key=ast.dump)
    return tree


def strings(tree):
    """The strings of a tree, which it replaces by "text" there."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
            node.value = "text"
    return found


def printed_numbers(cell):
    """The numbers in the output of a cell."""
    return Counter(NUMBER.findall("".join(out.get("text", "") for out in cell.outputs)))


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


@pytest.mark.parametrize("pages", OTHER_PAGES, ids=[path.stem for path, _ in OTHER_PAGES])
def test_chinese_page_of_the_guide_or_of_measurements_matches_the_english_page(pages):
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
        if one.cell_type == "markdown":
            assert differences(one.source, other.source, pages) == {}, other.source
            assert len(BOX.findall(one.source)) == len(BOX.findall(other.source))
            assert CHINESE.search(other.source)


@pytest.mark.parametrize("pages", NOTEBOOKS, ids=[path.stem for path, _ in NOTEBOOKS])
def test_code_of_a_chinese_notebook_differs_only_in_chinese_strings_and_comments(pages):
    (first, *english), (own_first, *chinese) = (notebooks.cells(page, "code") for page in pages)
    assert own_first.source == first.source + FONT
    for one, other in zip(english, chinese, strict=True):
        tree, own_tree = parsed(one.source), parsed(other.source)
        for text, own in zip(strings(tree), strings(own_tree), strict=True):
            assert own == text or CHINESE.search(own), own
        assert ast.dump(tree) == ast.dump(own_tree), other.source
        said, own_said = ([out.output_type for out in cell.outputs] for cell in (one, other))
        assert said == own_said, other.source
        if not any(word in one.source for word in DIFFER):
            assert printed_numbers(one) == printed_numbers(other), other.source


@pytest.mark.parametrize("path", [path for _, path in NOTEBOOKS], ids=lambda path: path.stem)
def test_link_leads_to_the_chinese_page_or_is_marked_english(path):
    for cell in notebooks.cells(path, "markdown"):
        for link in LINK.finditer(cell.source):
            target = (path.parent / link[1].partition("#")[0]).resolve()
            if re.match(r"[a-z]+:", link[1]) or target.parent.name == "zh":
                continue
            assert not (target.parent / "zh" / target.name).exists(), link[1]
            assert cell.source[link.end() :].startswith(("（英文）", "，英文）")), link[1]
