"""What an editor asks of a PTX text: problems, meanings, names, completions; and the server that answers (LSP).

`reading` and `names` take half-typed text; `problems`, `hover` and `completion` know nothing of the protocol, which is
`server`'s alone.
"""
