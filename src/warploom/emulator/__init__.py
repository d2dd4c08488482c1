"""The CPU machine: runs any PTX, lanes vectorised with NumPy, asynchronous operations completing later.

`api.run` runs one launch. A kernel's tree becomes `code` (by `flatten`, `decode` and the handlers of `ops`), which the
`scheduler` runs on a `machine`; `engine` holds what is in flight; `observer` is where a checker listens.
"""
