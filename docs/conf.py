"""How Sphinx makes the documentation site of these pages: `make docs`.

The pages are those that are read in the repository, at the same places, so their links hold in
both. Two things are added when the site is built: each README gets its pages as a table of
contents, in the order in which it links to them; and each public name that `reference/api.md` lists
gets what its docstring says.
"""

import inspect
import re
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

project = "tfformer"
root_doc = "README"
include_patterns = ["*.md", "benchmarks/README.md", "docs/**"]
exclude_patterns = [".*", "build", "data", "exported", "runs", "tests", "docs/site", "docs/**/*.py"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath"]
# A heading has the anchor that it has in the repository.
myst_heading_anchors = 4
# Notebooks are kept with what they show.
nb_execution_mode = "off"

# Docstrings are in Google's style, with a section of our own.
napoleon_custom_sections = [("Call arguments", "params_style")]
napoleon_use_rtype = napoleon_use_param = False
# Types stay in the source: the pages show names and what they mean.
napoleon_attr_annotations = False
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "member-order": "bysource"}
default_role = "literal"

html_theme = "furo"
# Browsers draw MathML by themselves: no script, no network.
html_math_renderer = "mathml"
html_title = "tfformer"
html_extra_path = ["site/index.html"]
html_static_path = ["site/formulas.css"]
html_css_files = ["formulas.css"]
html_copy_source = False
html_show_sphinx = False

LINKED = re.compile(r"\]\(([\w./-]+?)(?:\.md|\.ipynb)[)#]")
LISTED = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
NAMES = "docs/reference/api"


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", escape_marks, priority=400)  # before napoleon
    app.add_html_math_renderer("mathml", (inline_formula, None), (formula, None))


def add_contents(app, page, source):
    """Adds to the text of a page, which is the one string in `source`, what the module says."""
    if page.rpartition("/")[2].startswith("README"):
        linked = [(ROOT / page).parent / link for link in LINKED.findall(source[0])]
        order = {link.resolve().relative_to(ROOT).as_posix(): n for n, link in enumerate(linked)}
        own = [other for other in app.env.found_docs if parent(other) == page]
        own.sort(key=lambda other: (order.get(other, len(order)), other))
        source[0] += directive("toctree", "", [":hidden:", "", *(f"/{other}" for other in own)])
    if page == NAMES:
        source[0] += autodoc_of(LISTED.findall(source[0]))


def parent(page):
    """The page whose table of contents a page is in: the README of its folder, or of one above; of
    a folder of `docs` the first page of all."""
    folder, _, name = page.rpartition("/")
    if page == root_doc:
        return None
    if name == "README":
        folder = folder.rpartition("/")[0]
    while folder and (folder == "docs" or not (ROOT / folder / "README.md").is_file()):
        folder = folder.rpartition("/")[0]
    return f"{folder}/README" if folder else root_doc


def autodoc_of(names):
    """What the docstrings of public names say, as Sphinx reads them."""
    import tfformer

    found = ""
    for name in names:
        kind = "class" if inspect.isclass(getattr(tfformer, name)) else "function"
        found += f"\n### {name}\n"
        found += directive("eval-rst", "", [f".. auto{kind}:: tfformer.{name}"])
    return found


def directive(kind, argument, lines):
    """A directive of MyST."""
    return "\n".join(["", f"```{{{kind}}} {argument}".rstrip(), *lines, "```", ""])


def skip_member(app, kind, name, member, skip, options):
    """What Keras defines for every layer is not described for each, nor is a class in a class."""
    module = getattr(member, "__module__", None) or ""
    return True if not module.startswith("tfformer") or isinstance(member, type) else skip


def escape_marks(app, kind, name, thing, options, lines):
    """Stars and bars of a docstring are no marks."""
    for n, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...", "|")):
            lines[n] = re.sub(r"(\*\*?|\|)(?=\S)", r"\\\1", line)


def inline_formula(translator, node):
    """A formula in a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def formula(translator, node):
    """A formula on a line of its own."""
    translator.body.append(convert(node.astext(), display="block"))
    raise nodes.SkipNode
