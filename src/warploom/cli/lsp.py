"""`lsp`: the PTX language server, started by an editor."""

from __future__ import annotations

from ..errors import ArgumentError


def lsp() -> None:
    """Serve PTX to an editor (Language Server Protocol).

    It speaks over stdin and stdout; the editor starts it.

    Needs pygls: pip install 'warploom[lsp]'

    Example: warploom lsp
    """
    try:
        from ..editor import server
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise ArgumentError(
            "the language server needs pygls, which is not installed", hint="pip install 'warploom[lsp]'"
        ) from None
    server.serve()
