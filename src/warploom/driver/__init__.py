"""The GPU machine: PTX text to cubin, cubin to a loaded kernel, a loaded kernel to a launch."""
