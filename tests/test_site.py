"""The documentation site builds without a warning, each link has a target, and no page uses the
network."""

import inspect
import re
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser

import pytest
from paths import ROOT

import tfformer

NAMES = ROOT / "docs" / "reference" / "api.md"


def test_public_names_are_listed_with_their_docstrings():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", NAMES.read_text(encoding="utf-8"), re.MULTILINE)
    said = {}
    for name in tfformer.__all__:
        first = inspect.getdoc(getattr(tfformer, name)).partition("\n\n")[0]
        said[name] = first.replace("\n", " ").replace("|", "\\|")
    assert dict(rows) == said
    assert len(rows) == len(said)


class Page(HTMLParser):
    """The links of a page, the files that it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.add(found["href"])
        elif tag in ("img", "script", "iframe", "source") and found.get("src"):
            self.loaded.add(found["src"])
        elif tag == "link" and found.get("href"):
            self.loaded.add(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-c", "docs"]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees"), ".", str(folder / "html")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.slow
def test_site_has_no_broken_links_and_loads_nothing_from_the_network(site):
    paths = sorted(site.rglob("*.html"))
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    assert len(pages) > 80
    for path, page in pages.items():
        for one in page.loaded:
            assert not re.match(r"(\w+:)?//", one), f"{path} loads {one}"
        for link in page.links | page.loaded:
            if re.match(r"(\w+:|//)", link):
                continue
            name, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (path.parent / name.partition("?")[0]).resolve() if name else path
            assert target.exists(), f"{path.relative_to(site)} links to {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors, f"{path.relative_to(site)}: {link}"


@pytest.mark.slow
def test_site_contains_notebooks_formulas_and_docstrings(site):
    notebook = (site / "docs/tutorial/1_attention.html").read_text(encoding="utf-8")
    assert "<math" in notebook and "data:image" not in notebook and "_images/" in notebook
    names = (site / "docs/reference/api.html").read_text(encoding="utf-8")
    assert 'id="tfformer.MultiHeadAttention"' in names
    assert "softmax" in (site / "searchindex.js").read_text(encoding="utf-8")
