"""The page in a frame of a notebook, behind a service on a thread of the notebook's process."""

from __future__ import annotations

import json
import threading
from functools import cache
from html import escape
from urllib.parse import quote

from ppsolve.models.documents.base import describe
from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.text import instance_data
from ppsolve.models.instances import Instance
from ppsolve.solver.service.settings import ServiceSettings, expect_installed


class ExplorerFrame:
    """A page of the service that a notebook shows in a frame.

    `url`: its address, which other windows of the same machine can open too.
    """

    def __init__(self, url: str, height: int) -> None:
        self.url, self._height = url, height

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{escape(self.url)}" title="ppsolve explore" '
            f'width="100%" height="{self._height}"></iframe>'
        )


def explore(instance: Instance | None = None, *, height: int = 800) -> ExplorerFrame:
    """Show the page of ``ppsolve explore`` in a notebook.

    The notebook and the browser must run on the same machine. All frames share a service, which
    ends with the notebook's process.

    Parameters
    ----------
    instance : PipelineInstance or None
        The pipeline that the page shows first.
    height : int
        Height of the frame in pixels.

    Returns
    -------
    ExplorerFrame
        Notebooks show it; ``url`` is the address of the page.

    Raises
    ------
    InputError
        The instance is no pipeline, or ``ppsolve[serve]`` is not installed.
    """
    expect_installed()
    pipeline = ""
    if instance is not None:
        if instance.kind != "pipeline":
            text = f'expected "pipeline", got {describe(instance.kind)}'
            raise InputError(text, field="kind", expected="pipeline")
        # The address holds the pipeline, as that of a page that is shared.
        pipeline = f"#pipeline={quote(json.dumps(instance_data(instance)))}"
    return ExplorerFrame(_shared_service() + pipeline, height)


@cache
def _shared_service() -> str:
    from ppsolve.solver.service.app import build_app
    from ppsolve.solver.service.server import address_of, listening, server_of

    settings = ServiceSettings(port=0)
    listener, server = listening(settings), server_of(build_app(settings), settings)
    threading.Thread(
        target=server.run, args=([listener],), name="ppsolve-explore", daemon=True
    ).start()
    return address_of(listener)
