"""Time on a GPU: protocols, power, the SM clock, and `Kernel.time`.

`protocols` defines how samples are taken, `gpu` takes them, `power` and `clock` read the GPU's state meanwhile,
`watchdog` ends a process whose GPU hangs, and `timing` combines them for one kernel. `warploom bench`, `ladder` and
`time` share this code.
"""
