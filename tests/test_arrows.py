"""The directions of imports: a table of the parts, and what each may import. Each file has a part.

A part is a folder or a single file. A file belongs to the part with the longest name that its path
begins with. Other packages are checked only for the parts that need Keras alone.
"""

import ast
from pathlib import Path

import pytest
from paths import ROOT

# Part -> the parts that it may import. `tfformer` is the page of public names.
ARROWS = {
    # The library, from the bottom to the top.
    "tfformer/terminal": "",
    "tfformer/registry": "",
    "tfformer/annotations": "",
    "tfformer/checkout": "",
    "tfformer/commands": "tfformer/files tfformer/terminal",
    "tfformer/__main__": "tfformer/__init__ tfformer/terminal",
    "tfformer/config": "",
    "tfformer/files": "",
    "tfformer/schedule": "",
    "tfformer/backend": "",
    "tfformer/layers": "tfformer/config tfformer/backend",
    "tfformer/loss": "tfformer/config tfformer/backend",
    "tfformer/distances": "tfformer/loss",
    "tfformer/metrics": "tfformer/loss",
    "tfformer/ctc": "tfformer/backend tfformer/config tfformer/loss tfformer/metrics",
    "tfformer/models": "tfformer/config tfformer/layers",
    "tfformer/search": "tfformer/config",
    "tfformer/text": "tfformer/config",
    "tfformer/inference": "tfformer/config tfformer/layers tfformer/models tfformer/search",
    "tfformer/service": "tfformer/config tfformer/inference tfformer/models tfformer/search "
    "tfformer/shortlist tfformer/text",
    "tfformer/run": "tfformer/files tfformer/layers tfformer/models tfformer/text tfformer/service",
    "tfformer/shortlist": "tfformer/config tfformer/files tfformer/text",
    "tfformer/__init__": "tfformer/checkout tfformer/registry",
    # What trains models.
    "training/data": "tfformer",
    "training/metrics": "",
    "training/methods": "tfformer",
    "training/importers": "tfformer",
    "training/reader": "training/data",
    "training/corpora": "tfformer/terminal",
    "training/dates": "training/corpora",
    "training/names": "training/corpora",
    "training/facts": "training/corpora",
    "training/rooms": "training/corpora",
    "training/multi30k": "tfformer/files tfformer/terminal training/data",
    "training/tasks": "tfformer training/data training/methods training/metrics",
    "training/recipe": "tfformer training/data training/tasks",
    "training/recipes": "training/data training/dates training/facts training/multi30k "
    "training/names training/recipe training/rooms",
    "training/command_line": "tfformer/config tfformer/files tfformer/terminal training/data "
    "training/recipe",
    "training/preparation": "tfformer training/data training/recipe training/tasks",
    "training/step": "tfformer training/methods training/recipe",
    "training/report": "tfformer training/data training/methods training/preparation "
    "training/recipe training/step training/tasks",
    "training/pictures": "tfformer training/report",
    "training/evaluation": "tfformer training/data training/report training/tasks",
    "training/trainer": "tfformer training/data training/preparation training/recipe "
    "training/report training/step training/tasks",
    "training": "tfformer training/command_line training/data training/evaluation "
    "training/importers training/metrics training/pictures training/preparation training/recipe "
    "training/report training/step training/tasks training/trainer",
    # What makes and serves a service.
    "export/remote": "export/capi",
    "export/capi": "tfformer/checkout tfformer/terminal",
    "export/verification": "tfformer export/capi",
    "export/serving": "tfformer export/capi export/remote export/verification",
    "export/artifacts": "tfformer export/serving export/verification",
    "export": "tfformer export/artifacts export/capi export/remote export/serving "
    "export/verification",
    # What users build with it.
    "examples": "tfformer",
}
# The types for annotations, which each part may import.
FOR_ALL = {"tfformer/annotations"}
KERAS_ALONE = (
    "annotations config ctc files schedule backend layers loss metrics models __init__ run".split()
)
TENSORFLOW = {"tensorflow", "tensorflow_text", "sentencepiece"}
# The parts of a Keras-only part that need TensorFlow. Each says so, and is imported only if
# TensorFlow is the backend.
TENSORFLOW_ALONE = {"tfformer/backend/random_bytes.py", "tfformer/backend/replicas.py"}
# Only the text part handles ids and pieces. These other parts open a SentencePiece model, for the
# reasons given.
OPENED_BY = {
    "benchmarks/same_weights.py": "CTranslate2's own way from a text, which is compared",
    "benchmarks/wrapped.py": "a vocabulary with the special ids of a T5, for KerasHub's tokenizer",
}


def files() -> list[Path]:
    tops = ("tfformer", "training", "export", "examples")
    found = [path for top in tops for path in (ROOT / top).rglob("*.py")]
    assert len(found) > 50
    return sorted(path.relative_to(ROOT) for path in found)


def part(path: Path) -> str | None:
    """The part of a file, by its path, or None."""
    name = path.with_suffix("").as_posix()
    inside = [r for r in ARROWS if name == r or name.startswith(f"{r}/")]
    return max(inside, key=len, default=None)


def module_file(name: str) -> Path | None:
    """The file of a module of this project; None for a module of another package."""
    path = Path(*name.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if (ROOT / file).is_file():
            return file
    return None


def imported(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                folder = path.parts[: len(path.parts) - node.level]
                module = ".".join([*folder, module]).rstrip(".")
            for alias in node.names:
                inside = f"{module}.{alias.name}"
                found.add(inside if module_file(inside) else module)
    return found


def reached(path: Path) -> set[str]:
    """The other parts that a file imports from."""
    found = filter(None, map(module_file, imported(path)))
    return {part(file) for file in found} - {part(path)}


def allowed(name: str) -> set[str]:
    """What a part may import. Parts outside `tfformer` may import all of `tfformer`."""
    parts = set(ARROWS[name].split()) | FOR_ALL
    if "tfformer" in parts:
        parts |= {r for r in ARROWS if r.startswith("tfformer/")}
    return parts


def test_every_file_is_in_a_part_and_every_part_has_a_file():
    parts = [part(path) for path in files()]
    assert None not in parts, [str(p) for p in files() if part(p) is None]
    assert set(parts) == set(ARROWS)


@pytest.mark.parametrize("name", ARROWS)
def test_part_imports_only_parts_that_the_table_allows(name):
    for path in files():
        if part(path) == name:
            assert reached(path) <= allowed(name), path


def test_every_import_in_the_table_is_used():
    for name, text in ARROWS.items():
        drawn = set().union(*(reached(path) for path in files() if part(path) == name))
        for other in set(text.split()) - {"tfformer"}:
            assert other in drawn, f"{name} imports nothing of {other}"


def test_packages_import_only_tfformer_besides_themselves():
    for name in ARROWS:
        top = name.split("/")[0]
        for other in ARROWS[name].split():
            assert other.split("/")[0] in {top, "tfformer"}, f"{name} -> {other}"


def test_only_the_text_package_and_listed_files_open_sentencepiece():
    paths = [*files(), *(p.relative_to(ROOT) for p in (ROOT / "benchmarks").rglob("*.py"))]
    opening = {path.as_posix() for path in paths if opens_sentencepiece(path)}
    inside = {path for path in opening if path.startswith("tfformer/text/")}
    assert opening - inside == set(OPENED_BY)
    assert inside


def test_keras_hub_is_imported_by_its_own_command_alone():
    importing = {
        path.as_posix()
        for path in files()
        if {"keras_hub", "keras_nlp"} & {name.split(".")[0] for name in imported(path)}
    }
    assert importing == {"export/keras_hub.py"}


def opens_sentencepiece(path: Path) -> bool:
    """Whether a file imports SentencePiece, or tensorflow-text's functions for it."""
    tree = ast.walk(ast.parse((ROOT / path).read_text()))
    attributes = {node.attr for node in tree if isinstance(node, ast.Attribute)}
    packages = {name.split(".")[0] for name in imported(path)}
    return "sentencepiece" in packages or "SentencepieceTokenizer" in attributes


def test_keras_only_parts_import_no_tensorflow():
    for path in files():
        if (
            part(path).removeprefix("tfformer/") in KERAS_ALONE
            and str(path) not in TENSORFLOW_ALONE
        ):
            found = {name.split(".")[0] for name in imported(path)}
            assert not TENSORFLOW & found, path
