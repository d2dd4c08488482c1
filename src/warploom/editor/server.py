"""The language server: maps the protocol to the other files of this folder. Needs pygls.

Responses are computed from the current text. Problems follow a pause in typing: first those of the package, then, after
a longer pause, those of ptxas, which runs as a separate process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from ..errors import ToolchainError, WarploomError
from ..version import __version__
from .completion import complete
from .hover import hover
from .names import Definition, Names, names_of
from .problems import merged, problems_of, ptxas_problems
from .reading import Problem, Reading, read

SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}
COMPLETION = {
    "opcode": lsp.CompletionItemKind.Function,
    "modifier": lsp.CompletionItemKind.EnumMember,
    "register": lsp.CompletionItemKind.Variable,
    "variable": lsp.CompletionItemKind.Variable,
    "parameter": lsp.CompletionItemKind.Variable,
    "label": lsp.CompletionItemKind.Reference,
    "func": lsp.CompletionItemKind.Function,
    "directive": lsp.CompletionItemKind.Keyword,
}
SYMBOL = {
    "entry": lsp.SymbolKind.Function,
    "func": lsp.SymbolKind.Function,
    "parameter": lsp.SymbolKind.TypeParameter,
    "variable": lsp.SymbolKind.Array,
    "register": lsp.SymbolKind.Variable,
    "label": lsp.SymbolKind.Key,
}


@dataclass
class _Pending:
    """The pending reports for a document."""

    task: asyncio.Task[None]


class PtxServer(LanguageServer):
    """A server with the texts it has read. pause_s, ptxas_pause_s: pauses in typing before problems are reported."""

    def __init__(self, pause_s: float = 0.15, ptxas_pause_s: float = 0.7) -> None:
        super().__init__("warploom", __version__)
        self.pause_s, self.ptxas_pause_s = pause_s, ptxas_pause_s
        self._readings: dict[str, tuple[str, Reading, Names]] = {}
        self._pending: dict[str, _Pending] = {}

    def reading(self, document: TextDocument) -> tuple[Reading, Names]:
        """The readable part of a document, computed once for each text."""
        text = document.source
        known = self._readings.get(document.uri)
        if known is None or known[0] != text:
            made = read(text)
            known = (text, made, names_of(made.tokens))
            self._readings[document.uri] = known
        return known[1], known[2]

    def watch(self, uri: str) -> None:
        """Report the problems of a document when typing pauses."""
        self.forget(uri)
        self._pending[uri] = _Pending(asyncio.get_running_loop().create_task(self._tell(uri)))

    def forget(self, uri: str) -> None:
        """Stop reporting for a document."""
        pending = self._pending.pop(uri, None)
        if pending is not None:
            pending.task.cancel()

    async def _tell(self, uri: str) -> None:
        await asyncio.sleep(self.pause_s)
        document = self.workspace.get_text_document(uri)
        version = document.version
        reading, _ = self.reading(document)
        own = await asyncio.to_thread(problems_of, reading)
        self._publish(document, version, own)
        await asyncio.sleep(self.ptxas_pause_s)
        try:
            of_ptxas = await asyncio.to_thread(ptxas_problems, reading)
        except ToolchainError:
            return
        except WarploomError:  # a text without a target
            return
        if of_ptxas:
            self._publish(document, version, merged(reading, own, of_ptxas))

    def _publish(self, document: TextDocument, version: int | None, problems: list[Problem]) -> None:
        items = [
            lsp.Diagnostic(
                range=_range(document, problem.start, problem.end),
                message=problem.what,
                severity=SEVERITY[problem.severity],
                code=problem.code or None,
                source=problem.source,
            )
            for problem in sorted(problems, key=lambda each: each.start)
        ]
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=document.uri, version=version, diagnostics=items)
        )


def make(**options: float) -> PtxServer:
    """A server with all its handlers. Options: see PtxServer."""
    server = PtxServer(**options)
    feature: Any = server.feature

    @feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.watch(params.text_document.uri)

    @feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.watch(params.text_document.uri)

    @feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)
        server._readings.pop(params.text_document.uri, None)

    @feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(params: lsp.HoverParams) -> lsp.Hover | None:
        document, reading, names, offset = _place(server, params)
        found = hover(reading, names, offset)
        if found is None:
            return None
        start, end, said = found
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, said), _range(document, start, end))

    @feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        document, _, names, offset = _place(server, params)
        found = names.at(offset)
        return None if found is None else _location(document, names, found.token)

    @feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        document, _, names, offset = _place(server, params)
        token, found = names.token_at(offset), names.at(offset)
        if found is None or token is None:
            return []
        uses = found.uses
        if found.count is not None and token != found.token:  # for `%r5`, not for all of `%r<16>`
            uses = [use for use in uses if names.tokens.texts[use] == names.tokens.texts[token]]
        own = [found.token] if params.context.include_declaration else []
        return [_location(document, names, each) for each in sorted(own + uses)]

    @feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        document = server.workspace.get_text_document(params.text_document.uri)
        _, names = server.reading(document)
        return _symbols(document, names)

    @feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "%", "@"]))
    def completion(params: lsp.CompletionParams) -> lsp.CompletionList:
        document, reading, names, offset = _place(server, params)
        items = [
            lsp.CompletionItem(
                label=each.text,
                kind=COMPLETION[each.kind],
                detail=each.detail or None,
                text_edit=lsp.TextEdit(_range(document, offset - each.typed, offset), each.text),
            )
            for each in complete(reading.text, names, offset)
        ]
        return lsp.CompletionList(is_incomplete=False, items=items)

    return server


def serve() -> None:
    """Serve stdin and stdout until the editor disconnects."""
    make().start_io()


# -- places ------------------------------------------------------------------------------------------------------


def _place(server: PtxServer, params: Any) -> tuple[TextDocument, Reading, Names, int]:
    document = server.workspace.get_text_document(params.text_document.uri)
    reading, names = server.reading(document)
    return document, reading, names, document.offset_at_position(params.position)


def _range(document: TextDocument, start: int, end: int) -> lsp.Range:
    return lsp.Range(_position(document, start), _position(document, end))


def _position(document: TextDocument, offset: int) -> lsp.Position:
    """An offset in the client's units."""
    source = document.source
    line = source.count("\n", 0, offset)
    begins = source.rfind("\n", 0, offset) + 1
    return lsp.Position(line, document.position_codec.client_num_units(source[begins:offset]))


def _location(document: TextDocument, names: Names, token: int) -> lsp.Location:
    tokens = names.tokens
    return lsp.Location(document.uri, _range(document, tokens.starts[token], tokens.end(token)))


def _symbols(document: TextDocument, names: Names) -> list[lsp.DocumentSymbol]:
    """Functions with what they declare inside, and what the module declares."""
    tokens = names.tokens

    def symbol(each: Definition, inside: list[lsp.DocumentSymbol]) -> lsp.DocumentSymbol:
        start, end = tokens.starts[each.token], tokens.end(each.token)
        return lsp.DocumentSymbol(
            name=each.name or "?",
            kind=SYMBOL[each.kind],
            range=_range(document, start, max(each.end, end)),
            selection_range=_range(document, start, end),
            detail=each.text,
            children=inside,
        )

    functions = [each for each in names.definitions if each.kind in ("entry", "func")]
    rest = [each for each in names.definitions if each.kind not in ("entry", "func")]
    found = []
    for function in functions:
        first, end = function.token, function.end
        inside = [each for each in rest if each.token > first and tokens.starts[each.token] < end]
        rest = [each for each in rest if each not in inside]
        found.append(symbol(function, [symbol(each, []) for each in inside]))
    made = found + [symbol(each, []) for each in rest]
    return sorted(made, key=lambda each: (each.range.start.line, each.range.start.character))
