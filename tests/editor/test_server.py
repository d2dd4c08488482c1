"""`warploom lsp` answers a client over stdin and stdout, as it would an editor."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("pygls")

from lsprotocol import types as lsp  # noqa: E402
from pygls.lsp.client import LanguageClient  # noqa: E402

from warploom.driver import toolchain  # noqa: E402

URI = "file:///kernel.ptx"
TEXT = """.version 8.0
.target sm_90a
.address_size 64
// π comes before the names
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  /* π */ mov.u32 %r1, %tid.x;
LOOP:
  add.u32 %r2, %r1, 1;
  st.global.u32 [%rd1], %r2;
  bra LOOP;
}
"""


class Editor:
    """A client with the diagnostics it was sent last, by document."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.sent: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: lsp.PublishDiagnosticsParams) -> None:
            self.sent.put_nowait(params)

    async def problems(self, wanted: Callable[[list[lsp.Diagnostic]], bool]) -> list[lsp.Diagnostic]:
        """The first diagnostics that are as wanted."""
        while True:
            found = (await asyncio.wait_for(self.sent.get(), 60)).diagnostics
            if wanted(list(found)):
                return list(found)

    def open(self, text: str) -> None:
        item = lsp.TextDocumentItem(uri=URI, language_id="ptx", version=1, text=text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def type(self, line: int, character: int, text: str, version: int) -> None:
        place = lsp.Position(line, character)
        change = lsp.TextDocumentContentChangePartial(range=lsp.Range(place, place), text=text)
        document = lsp.VersionedTextDocumentIdentifier(uri=URI, version=version)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))


@asynccontextmanager
async def editor() -> AsyncIterator[Editor]:
    client = LanguageClient("test", "1")
    made = Editor(client)
    await client.start_io(sys.executable, "-m", "warploom", "lsp")
    await client.initialize_async(lsp.InitializeParams(capabilities=lsp.ClientCapabilities()))
    client.initialized(lsp.InitializedParams())
    try:
        yield made
    finally:
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()


def session(steps: Callable[[Editor], Awaitable[None]]) -> None:
    async def run() -> None:
        async with editor() as made:
            await steps(made)

    asyncio.run(asyncio.wait_for(run(), 120))


def at(line: int, character: int) -> dict[str, Any]:
    return {"text_document": lsp.TextDocumentIdentifier(URI), "position": lsp.Position(line, character)}


def places(found: Any) -> list[tuple[int, int]]:
    listed = [found] if isinstance(found, lsp.Location) else found
    return [(each.range.start.line, each.range.start.character) for each in listed]


def test_a_session_of_an_editor_is_answered() -> None:
    async def steps(editor: Editor) -> None:
        client = editor.client
        editor.open(TEXT)
        assert await editor.problems(lambda _: True) == []

        hover = await client.text_document_hover_async(lsp.HoverParams(**at(11, 4)))
        assert hover is not None and "PTX ISA 9.7.1.1" in hover.contents.value
        assert (hover.range.start.character, hover.range.end.character) == (2, 9)

        definition = await client.text_document_definition_async(lsp.DefinitionParams(**at(13, 7)))
        assert places(definition) == [(10, 0)]
        definition = await client.text_document_definition_async(lsp.DefinitionParams(**at(12, 18)))
        assert places(definition) == [(7, 12)]

        context = lsp.ReferenceContext(include_declaration=True)
        uses = await client.text_document_references_async(lsp.ReferenceParams(context, **at(9, 19)))
        assert places(uses) == [(6, 12), (9, 18), (11, 15)], "columns count as the client does, past a Greek letter"

        (entry,) = await client.text_document_document_symbol_async(
            lsp.DocumentSymbolParams(lsp.TextDocumentIdentifier(URI))
        )
        assert entry.name == "k" and entry.range.end.line == 14
        assert [each.name for each in entry.children] == ["out", "%r", "%rd", "LOOP"]

        editor.type(13, 0, "  bar.sy\n", 2)
        offered = await client.text_document_completion_async(lsp.CompletionParams(**at(13, 8)))
        assert [(each.label, each.text_edit.range.start.character) for each in offered.items] == [("sync", 6)]
        found = await editor.problems(lambda found: any(each.range.start.line == 13 for each in found))
        assert [each.severity for each in found] == [lsp.DiagnosticSeverity.Error]

    session(steps)


@pytest.mark.full
@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
def test_what_only_ptxas_knows_follows_when_typing_rests() -> None:
    inlined = ".loc 1 3 0, function_name $name, inlined_at 1 9 0"
    text = TEXT.replace("π", "pi").replace("LOOP:", f"{inlined}\nLOOP:")
    text += '.file 1 "a.cu"\n.section .debug_str\n{\n$name:\n.b8 102, 0\n}\n'

    async def steps(editor: Editor) -> None:
        editor.open(text)
        (problem,) = await editor.problems(lambda found: bool(found))
        assert problem.source == "ptxas" and "inlined_at" in problem.message

    session(steps)
