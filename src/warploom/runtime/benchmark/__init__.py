"""Time on a GPU: protocols, power, the SM clock, and `Kernel.time`.

`protocols` says how samples are taken, `gpu` takes them, `power` and `clock` read what the GPU does meanwhile,
`watchdog` ends a process whose GPU hangs, `timing` puts them together for one kernel. `warploom bench`, `ladder` and
`time` share this code.
"""
