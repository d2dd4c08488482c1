"""The CPU machine: runs any PTX with lanes vectorised in NumPy; asynchronous operations complete later.

`api.run` runs one launch. The subpackages, bottom up: `numerics` (arithmetic), `machine` (state), `program` (prepares
a text), `engines` (asynchronous operations), `ops` (semantics of each instruction), `diagnosis` (reports), `schedule`
(who runs next). Observers, such as the sanitizer, belong to a higher layer and are passed to `api.run`.
"""
