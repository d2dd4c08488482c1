"""The CPU machine: runs any PTX, lanes vectorised with NumPy, asynchronous operations completing later.

`api.run` runs one launch. The rooms, from the ground up: `numerics` (arithmetic), `machine` (state), `program` (a text
made ready to run), `engines` (what completes later), `ops` (what each instruction does), `diagnosis` (reports),
`schedule` (who runs next). Observers, such as the sanitizer, stand above this floor and are passed to `api.run`.
"""
