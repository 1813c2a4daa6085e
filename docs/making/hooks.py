"""Add other pages of the repository and the catalogue to the site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalogue import catalogue_files
from notebooks import notebook_pages
from outer import outer_pages, with_site_links

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of `docs/`.

    Parameters
    ----------
    files : Files
        Those of `docs/`.
    config : MkDocsConfig
        Settings of the site.

    Returns
    -------
    Files
        The same, with the others.
    """
    from mkdocs.structure.files import File

    for place, text in (outer_pages() | notebook_pages() | catalogue_files()).items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links that leave `docs/` to where their goals stand on the site.

    Parameters
    ----------
    markdown : str
        The page as it is written.
    page : Page
        Where it stands.

    Returns
    -------
    str
        The page with links of the site.
    """
    place = page.file.src_uri
    return (
        with_site_links(markdown, f"docs/{place}")
        if page.file.abs_src_path
        else markdown
    )
