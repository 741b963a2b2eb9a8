"""The site: it is built without a warning, its links lead somewhere, its generated pages are so."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))


class Links(HTMLParser):
    """The addresses that a page names, what of it can be linked to, and what a reader loads."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.loaded = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.anchors |= {named[key] for key in ("id", "name") if named.get(key)}
        if tag == "a" and named.get("href"):
            self.links.append(named["href"])
        if tag in ("script", "img", "iframe") and named.get("src"):
            self.loaded.append(named["src"])
        if tag == "link" and named.get("rel") == "stylesheet":
            self.loaded.append(named["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as ``make docs`` builds it, where a warning is an error."""
    pytest.importorskip("sphinx", reason="the site needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(folder / "trees"), str(DOCS), str(folder / "html")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    built = (folder / "html").rglob("*.html")
    return {path: Links(path.read_text(encoding="utf-8")) for path in built}


def test_every_link_within_the_site_leads_to_what_it_names(site):
    broken = []
    for path, page in site.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / unquote(name)).resolve() if name else path
            known = site[target].anchors if target in site else ()
            if not target.exists() or (anchor and target in site and anchor not in known):
                broken.append((path.name, link))
    assert not broken
    assert sum(len(page.links) for page in site.values()) > 5000


def test_a_page_from_disk_asks_nobody(site):
    for path, page in site.items():
        for address in page.loaded:
            local = path.parent / address.partition("?")[0]
            assert local.exists(), (path.name, address)


def test_every_page_and_the_docstrings_are_on_the_site(site):
    names = {path.name for path in site}
    assert {path.with_suffix(".html").name for path in PAGES} <= names
    heads = next(page for path, page in site.items() if path.parts[-2:] == ("api", "heads.html"))
    assert {f"widemax.heads.{name}" for name in ("SampledHead", "FullHead")} <= heads.anchors


@pytest.mark.parametrize("name", ["benchmarks", "licences"])
def test_a_generated_page_is_up_to_date(name):
    written = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert written == runpy.run_path(str(DOCS / f"generate_{name}.py"))["page"](), (
        f"docs/{name}.md is out of date: run python docs/generate_{name}.py"
    )


def test_pages_of_the_api_are_up_to_date():
    script = runpy.run_path(str(DOCS / "generate_reference.py"))
    written = {path.name: path.read_text(encoding="utf-8") for path in script["API"].glob("*.md")}
    assert written == script["api_pages"](), "run python docs/generate_reference.py"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_python_on_a_page_is_executed(path):
    """Doctests are, wherever they stand; a block without a prompt would only be looked at."""
    tested = ROOT / "tests" / "stores" / "test_page.py"
    for block in re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.M | re.S):
        assert block.startswith(">>> ") or path.name in tested.read_text("utf-8"), block


def test_the_citation_is_of_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
