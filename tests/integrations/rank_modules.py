"""What ranks import, imported once, by the server whose forks they are (`torch_ranks.preloaded`).

Their first collective imports torch._dynamo, and that sympy: for each rank more processor time than its test takes.
"""

import gc

import pytest  # noqa: F401
import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.nn
import torch.distributed.tensor.parallel  # noqa: F401

import warploom.emulator.api
import warploom.integrations.torch.distributed
import warploom.operators.calls
import warploom.runtime.on_cpu
import warploom.sanitizer  # noqa: F401

gc.collect()
gc.freeze()  # a fork that looked through these objects would copy them
