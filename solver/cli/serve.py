"""``ppsolve serve`` and ``explore``: the library over HTTP, and its page for one person."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.solver.cli.options import argument, flag, value

if TYPE_CHECKING:
    from ppsolve.solver.service.settings import ServiceSettings


def serve_command(
    port: Annotated[
        int, value("N", "Port; 0 for any free one.", min=0, max=65535)
    ] = 8765,
    host: Annotated[
        str,
        value(
            "NAME",
            "Address to listen at; one that other machines can reach needs a token.",
        ),
    ] = "127.0.0.1",
    store: Annotated[
        Path | None, value("FILE", "Keep jobs here [they end with the service].")
    ] = None,
    workers: Annotated[
        int, value("N", "Processes that answer, and jobs side by side.", min=1, max=64)
    ] = 2,
    token_file: Annotated[
        Path | None, value("FILE", "File with the token that requests must carry.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        value("URL", "Let pages of this site send requests; repeatable."),
    ] = None,
    dask: Annotated[
        str | None, value("ADDRESS", "Run jobs on the cluster of this dask scheduler.")
    ] = None,
    max_seconds: Annotated[
        float, value("S", "Largest time limit of a job.", min=1)
    ] = 3600.0,
    memory_limit: Annotated[
        float | None,
        value("GIB", "Memory of a job in GiB [an equal share of 90%].", min=0.1),
    ] = None,
) -> None:
    """Answer questions and run jobs over HTTP, with a page to try them on.

    Needs the extra `serve`. Ctrl-C ends the service; with --store, unfinished jobs are run again by
    the next service with the same file.
    """
    settings = _settings()(
        host=host,
        port=port,
        store=store,
        workers=workers,
        token=None if token_file is None else _token(token_file),
        origins=tuple(origin or ()),
        dask=dask,
        job_seconds=max_seconds,
        job_memory=memory_limit,
    )
    if not settings.is_local and settings.token is None:
        text = f"{host} can be reached from other machines: give --token-file too"
        raise InputError(text, field="--host", code=ErrorCode.MISSING)
    _serve(settings, opens=False)


def explore_command(
    file: Annotated[
        Path | None,
        argument("[INSTANCE]", "Instance to begin with (JSON).", show_default=False),
    ] = None,
    no_browser: Annotated[
        bool, flag("Print the address and open no browser.", "--no-browser")
    ] = False,
) -> None:
    """Open a page that shows schedules while you change a pipeline.

    Needs the extra `serve`. The page asks a service on a free port of this machine, which ends with
    Ctrl-C.
    """
    instance = None
    if file is not None:
        from ppsolve.models.documents.text import instance_data
        from ppsolve.solver.api.kinds import load_instance

        instance = instance_data(load_instance(file))
    _serve(_settings()(port=0, instance=instance), opens=not no_browser)


def _settings() -> type[ServiceSettings]:
    from ppsolve.solver.service.settings import ServiceSettings, expect_installed

    expect_installed()
    return ServiceSettings


def _token(path: Path) -> str:
    from ppsolve.models.documents.files import read_text

    token = read_text(path).strip()
    if len(token) < 16 or not token.isascii():
        text = "expected a token of at least 16 ASCII characters"
        raise InputError(
            text, source=str(path), field="--token-file", code=ErrorCode.RANGE
        )
    return token


def _serve(settings: ServiceSettings, *, opens: bool) -> None:
    import webbrowser

    from ppsolve.solver.service.app import build_app
    from ppsolve.solver.service.server import address_of, listening, server_of

    app = build_app(settings)
    listener = listening(settings)
    address = address_of(listener)
    typer.echo(address)
    if opens:
        webbrowser.open(address)
    # Signals end it as they should: once it has ended, it raises them again.
    with listener, suppress(KeyboardInterrupt):
        server_of(app, settings).run(sockets=[listener])
