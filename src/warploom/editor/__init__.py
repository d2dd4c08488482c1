"""Editor support for a PTX text: problems, hovers, names, completions; and a language server (LSP).

`reading` and `names` accept half-typed text; `problems`, `hover` and `completion` do not depend on the protocol,
which only `server` knows.
"""
