"""The site: its settings name every page, its pictures are those that the script draws."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import catalogue
import make_pictures
import make_report_picture
import notebooks
import pytest
import yaml
from cases import best, capped
from outer import LINK, OUTER, REMOTE, site_place, with_site_links

from ppsolve.solver.api.registry import all_heuristics
from tests.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent != DOCS / "making")
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


def named_pages(nav: list[object]) -> list[str]:
    """Return the pages that the navigation of the site names."""
    found: list[str] = []
    for entry in nav:
        values = list(entry.values()) if isinstance(entry, dict) else [entry]
        for value in values:
            found += named_pages(value) if isinstance(value, list) else [str(value)]
    return found


def test_the_navigation_names_every_page_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    own = [str(page.relative_to(DOCS)) for page in PAGES]
    assert sorted(named_pages(settings["nav"])) == sorted(
        [*own, *OUTER.values(), "catalogue/index.md", *notebooks.notebook_pages()]
    )


def test_every_picture_of_a_page_is_made_by_a_script_and_small() -> None:
    kept = {path.stem: path for path in (DOCS / "pictures").iterdir()}
    photographs = {picture.name for picture in make_report_picture.PICTURES} | {
        "bench-report",
        "explore",
        "explore-dark",
        "explore-narrow",
    }
    assert kept.keys() == make_pictures.PICTURES.keys() | photographs
    assert {
        name: path.stat().st_size < 61_440 for name, path in kept.items()
    } == dict.fromkeys(kept, True)
    shown = {
        (page.parent / target).resolve()
        for page in [ROOT / "README.md", *PAGES]
        for target in PICTURE.findall(page.read_text(encoding="utf-8"))
    }
    assert {path for path in shown if path.parent.name == "pictures"} == set(
        kept.values()
    )
    assert [path for path in shown if not path.exists()] == []


def test_the_picture_of_idle_time_is_the_same_again() -> None:
    """Of the quickest one: what is drawn depends on nothing but the schedule."""
    first, second = (make_pictures.svg(make_pictures.bubble) for _ in range(2))
    assert first == second
    assert first.count("<text") > 64
    assert "Date" not in first


def test_what_is_not_proved_is_never_called_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = best(capped(9)).model_copy(update={"status": "FEASIBLE"})
    monkeypatch.setattr("ppsolve.optimize", lambda *_, **__: stopped, raising=False)
    with pytest.raises(ValueError, match="capped-9 is not proved"):
        best(capped(9))


def test_links_of_pages_lead_to_files_of_a_clone() -> None:
    """The catalogue is made with the site, so no page may link to it."""
    pages = [ROOT / "README.md", *(ROOT / path for path in OUTER), *PAGES]
    links = [
        (page, target)
        for page in pages
        for _, target, _, _ in LINK.findall(page.read_text(encoding="utf-8"))
        if target and not REMOTE.match(target)
    ]
    assert [
        (str(page.relative_to(ROOT)), target)
        for page, target in links
        if not (page.parent / target).exists()
    ] == []


@pytest.mark.parametrize("module", ["ppsolve", "ppsolve.torch"])
def test_the_reference_has_every_public_name_once(module: str) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (DOCS / "api").iterdir()]
    named = re.findall(
        rf"^::: {re.escape(module)}\.(\w+)$", "\n".join(pages), re.MULTILINE
    )
    assert sorted(named) == sorted(set(import_module(module).__all__) - {"__version__"})


@pytest.mark.docs
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, tmp_path: Path) -> None:
    shown = notebooks.read(path)
    assert notebooks.printed(notebooks.executed(shown, tmp_path)) == notebooks.printed(
        shown
    )


@pytest.mark.docs
def test_the_site_has_a_page_and_a_picture_for_every_heuristic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built in this process, so that the catalogue is made once for the site and the test.

    Each instance is drawn once here, and with a shorter search than on the site.
    """
    pytest.importorskip("mkdocs", reason="needs ppsolve[docs]")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    draw, drawn = catalogue.Shown.picture, dict[str | None, str]()

    def picture(shown: catalogue.Shown) -> str:
        name = shown.instance.name
        if name not in drawn:
            drawn[name] = draw(shown)
        return drawn[name]

    monkeypatch.setattr(catalogue.Shown, "picture", picture)
    monkeypatch.setattr(catalogue, "SECONDS", 0.2)
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.html")}
    assert {"index.html", "concepts/index.html", "api/torch/index.html"} <= made
    files = catalogue.catalogue_files()
    names = [
        f"catalogue/{name}.{end}" for name in all_heuristics() for end in ("md", "svg")
    ]
    assert sorted(files) == sorted(["catalogue/index.md", *names])
    for name, one in all_heuristics().items():
        assert f"catalogue/{name}/index.html" in made
        assert (catalogue.shown(name).entry.status == "feasible") is (
            name != "pipefisher"
        )
        page = files[f"catalogue/{name}.md"]
        assert page.startswith(
            f"# {name}\n\n{one.summary[0].upper()}{one.summary[1:]}.\n"
        )
        assert all(need.words in page for need in one.requirements)
        assert one.source == "ppsolve" or one.source in page
        assert f"![A schedule of {name} above, the best one below]({name}.svg)" in page
        assert files[f"catalogue/{name}.svg"].startswith("<?xml")


def test_links_lead_to_where_pages_stand_on_the_site() -> None:
    text = (
        "[a](../ARCHITECTURE.md#kinds) [b](solver.md) [c](https://a.b/c.md) [d](#here)"
    )
    assert with_site_links(text, "docs/gaps.md") == (
        "[a](project/ARCHITECTURE.md#kinds) [b](solver.md) [c](https://a.b/c.md) [d](#here)"
    )
    text = "[a](docs/gaps.md) [b](README.md#start) [tests](tests/README.md)"
    assert with_site_links(text, "CONTRIBUTING.md") == (
        "[a](../gaps.md) [b](../index.md#start) [tests](tests.md)"
    )


def test_links_to_what_is_no_page_become_names() -> None:
    text = "[the plans](../instances/plans) [`gaps`](../solver/kinds/graph.py) ![p](pictures/a.svg)"
    assert with_site_links(text, "docs/planning.md") == (
        "the plans (`instances/plans`) `gaps` (`solver/kinds/graph.py`) ![p](pictures/a.svg)"
    )


def test_folders_lead_to_their_readme() -> None:
    assert (
        site_place("examples")
        == site_place("examples/README.md")
        == "project/examples.md"
    )
    assert site_place("solver/kinds/graph.py") is None
    assert site_place("docs/making/experiments.md") is None


def test_outer_pages_exist() -> None:
    assert [path for path in OUTER if not Path(ROOT / path).is_file()] == []
