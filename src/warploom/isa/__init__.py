"""The hardware as data: types, arch limits, instructions, swizzles, fragments, descriptors, tensor maps.

The lowest layer. Each fact is here once: `lang` emits by it, `emulator` executes by it, `lab` draws it, and the tests
check it against brute force, ptxas and recorded hardware.
"""
