"""Runs the commands and the Python of each page, one after the other, in a folder with the files
they name.

Trainings, and commands that need a server or minutes, are not run: see `ONLY_PARSED`.
tests/test_blocks.py parses each command by its own parser.
"""

import ast
import importlib
import importlib.util
import io
import re
import shutil

import blocks
import blocks_programs
import blocks_world
import keras
import pytest
import tensorflow as tf
from paths import ROOT

from tfformer.service.translation import serving_default

# {a module or a package of modules: why its commands are not run here}
ONLY_PARSED = {
    "training.train": "trains for minutes; tests/test_blocks.py resolves its settings",
    "benchmarks": "measures for minutes to hours",
    "export.client": "asks a server; tests/export/test_client_command.py",
    "export.keras_hub": "takes a minute; tests/export/test_keras_hub.py",
    "export.local_server": "serves until it is stopped; tests/export/serving",
    "export.playground": "serves until it is stopped; tests/export/test_playground.py",
    "export.saved_model": "takes a minute; tests/export/test_quick.py and others",
}
# An import of a model by its name on the hub, which downloads it.
DOWNLOAD = re.compile(r"tfformer import(-marian)? [\w-]+/[\w.-]+ ")
# {a package: why a program that imports it may only be compiled if it is not installed}
ELSEWHERE = {"apache_beam": "has an environment of its own; tests/export/test_translate_files.py"}
# {a page: why its functions run eagerly}
EAGER = {"docs/guide/fit_your_own.md": "XLA would compile its two steps for half a minute"}
# {a page: why the SavedModels that it writes have only one signature}
FEW = {"README.md": "all are traced for a quarter of a minute; tests/service/test_save.py"}
PAGES = [
    page
    for page in blocks.PAGES
    if any(block.language in ("python", *blocks.SHELL) for block in blocks.page_blocks(page))
]
# tests/test_tfformer_command.py tests its functions one by one.
NIGHTLY = {"docs/guide/install.md"}
# Pages whose blocks take more than two seconds, mostly because they write a SavedModel.
SLOW = {
    "README.md",
    "docs/guide/better_translations.md",
    "docs/guide/bulk.md",
    "docs/guide/copy.md",
    "docs/guide/evaluate.md",
    "docs/guide/from_hugging_face.md",
    "docs/guide/from_keras_hub.md",
    "docs/guide/generate.md",
    "docs/guide/language_model.md",
    "docs/guide/long_text.md",
    "docs/guide/methods.md",
    "docs/guide/non_autoregressive.md",
    "docs/guide/pictures.md",
    "docs/guide/recipes.md",
    "docs/guide/translate.md",
}


def is_run(command):
    """Whether a command is run. An unknown module is run too, so it fails visibly."""
    module = command.module
    known = module in ONLY_PARSED or module.split(".")[0] in ONLY_PARSED
    return bool(module) and not known and not DOWNLOAD.match(str(command))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder with the files, made once; each page gets a copy."""
    folder = tmp_path_factory.mktemp("world")
    blocks_world.make_texts(folder)
    blocks_world.make_runs(folder)
    return folder


@pytest.fixture
def page():
    """The page whose blocks a test runs."""
    return ""


@pytest.fixture
def world(made, page, tmp_path, monkeypatch):
    """The folder that a page's blocks run in."""
    blocks_programs.prepare(page, made)
    folder = shutil.copytree(made, tmp_path / "world")
    monkeypatch.chdir(folder)
    return folder


def done(command, folder, monkeypatch, capfd):
    """Runs a command in this process in a folder; returns its exit code. Redirections are
    followed."""
    text = f"{' '.join(command.fed[1:])}\n"
    if command.reads:
        text = (folder / command.reads).read_text(encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    capfd.readouterr()
    arguments = blocks_world.with_files(command, folder)
    try:
        code = importlib.import_module(command.module).main(arguments)
    except SystemExit as ended:
        code = ended.code
    out = capfd.readouterr()
    if command.writes:
        (folder / command.writes).write_text(out.out, encoding="utf-8")
    assert code == 0, f"{command}: {out.err}"


def missing(program):
    """The packages that a program imports and that are not installed."""
    nodes = list(ast.walk(ast.parse(program)))
    names = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    tops = {name.split(".")[0] for name in names}
    return {name for name in tops if importlib.util.find_spec(name) is None}


def assert_names_are_there(program):
    """Checks that the modules of this project have the names that a program imports."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and (ROOT / node.module.split(".")[0]).is_dir():
            path = ROOT.joinpath(*node.module.split(".")).with_suffix(".py")
            kinds = ast.FunctionDef | ast.ClassDef
            defined = ast.parse(path.read_text(encoding="utf-8")).body
            names = {one.name for one in defined if isinstance(one, kinds)}
            assert {one.name for one in node.names} <= names


def earlier(page):
    """The pages before one. A block that an earlier page has too is run only once."""
    return blocks.PAGES[: blocks.PAGES.index(page)] if page in blocks.PAGES else []


def calls_before(page):
    """The expression statements of the programs of earlier pages."""
    found = [block for block in blocks.all_blocks("python") if block.page in earlier(page)]
    lines = [one for block in found for one in ast.parse(block.text).body]
    return {ast.unparse(one) for one in lines if isinstance(one, ast.Expr)}


def run_program(block, names, folder):
    """Runs a Python block in the namespace of its page."""
    if absent := missing(block.text):
        assert absent <= set(ELSEWHERE), f"{block.name} needs {absent}"
        compile(block.text, block.name, "exec")
        assert_names_are_there(block.text)
        return
    known = calls_before(block.page)
    for part in blocks.paragraphs(block.text):
        names.update(blocks_programs.names_of(block.page, part, folder))
        tree = ast.parse(part)
        tree.body = [one for one in tree.body if ast.unparse(one) not in known]
        exec(compile(tree, block.name, "exec"), names)


def commands_before(page):
    """The commands of the pages before one."""
    return {str(command) for one in earlier(page) for command in blocks.page_commands(one)}


def run_page(page_blocks, folder, monkeypatch, capfd):
    """Runs the blocks of a page in their order."""
    known = commands_before(page_blocks[0].page)
    names = {"__name__": "page"}
    for block in page_blocks:
        if block.language == "python":
            run_program(block, names, folder)
        elif blocks.is_shell(block):
            for command in filter(is_run, blocks.commands_of(block.text)):
                if str(command) not in known:
                    done(command, folder, monkeypatch, capfd)


def marks_of(page):
    if page in NIGHTLY:
        return [pytest.mark.nightly]
    return [pytest.mark.slow] if page in SLOW else []


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=marks_of(page)) for page in PAGES],
)
def test_the_blocks_of_a_page_run(page, world, monkeypatch, capfd):
    if page in FEW:
        monkeypatch.setattr("tfformer.service.translator.SIGNATURES", (serving_default,))
    tf.config.run_functions_eagerly(page in EAGER)
    try:
        run_page(blocks.page_blocks(page), world, monkeypatch, capfd)
    finally:
        tf.config.run_functions_eagerly(False)
        keras.distribution.set_distribution(None)
