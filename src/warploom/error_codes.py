"""What each error code means, why the error comes about, and what to do: the pages of `warploom rules CODE`.

A code is the default of an error class (`WarploomError.code`) or is passed where the error is raised. Codes of findings
are the sanitizer's rule ids, with pages of their own (`sanitizer.rules`). Codes are stable: wordings may change.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One code.

    Attributes:
        id: the code.
        error: name of the error class that carries it; "finding" for a finding that no sanitizer rule makes.
        title: one line.
        why: how it comes about.
        fix: what to do.
    """

    id: str
    error: str
    title: str
    why: str
    fix: str


def _code(id: str, error: str, title: str, why: str, fix: str) -> tuple[str, Code]:
    return id, Code(id, error, title, why, fix)


CODES: dict[str, Code] = dict([
    # -- writing a kernel --------------------------------------------------------------------------------------------
    _code("trace", "TraceError", "the Python text of a kernel asks for something that cannot become PTX",
          "A kernel's function runs once, while it is traced; what it calls must have a meaning in PTX.",
          "see the line that the error names; docs/writing-kernels.md lists what a kernel may use"),
    _code("register-rebound", "TraceError", "a register is rebound inside of a traced block and read after it",
          "`s = s + x` makes a new register and lets the name `s` mean it. A block of ptx.range or ptx.if_ is traced "
          "once, so the name means the new register from then on, whether or not the block ran, and each round of a "
          "loop reads the old one.",
          "write to the register in place: `s += x`, or `s.set(value)`"),
    _code("block-without-with", "TraceError", "a construct of control flow was called and its block never entered",
          "ptx.if_(p) gives a context manager; without `with` it guards nothing. ptx.range(n) gives an iterator.",
          "write `with ptx.if_(p):`, `for i in ptx.range(n):`"),
    _code("block-without-call", "TraceError", "a construct of control flow is not called after `with`",
          "`with ptx.else_:` names the function and does not call it.", "write `with ptx.else_():`"),
    _code("value-returned", "TraceError", "a kernel's function returns a value",
          "A kernel has no result on the GPU: what it computes goes to memory. The value would be lost.",
          "store it to an output: `ptx.store(ptx.addr(c + offset), value)`"),
    _code("array-indexed", "TraceError", "an array argument of a kernel is indexed",
          "A, B, C stand for arrays in global memory that are reached by loads and stores of addresses.",
          "`(p,) = ptx.global_ptrs(Y)`, then `ptx.store(ptx.addr(p + offset), value)`; tiles are copied by TMA"),
    _code("host-function", "TraceError", "a function of the host is applied to a register",
          "NumPy and math compute at once, on numbers that exist; a register has its value when the kernel runs.",
          "use the instruction: ptx.inst.lg2.approx.f32, ex2, sqrt, sin, …"),
    _code("python-jump", "TraceError", "Python's break, continue or return leaves a traced block",
          "The block is traced once; Python would drop what follows from the PTX, for all threads.",
          "ptx.break_(p) and ptx.continue_(p) in loops; return after the block; ptx.inst.exit() ends threads"),
    _code("no-value-yet", "TraceError", "Python needs the value of a register while the kernel is traced",
          "`if`, `while`, `bool`, an index or a conversion to a number would decide once, for all threads.",
          "ptx.if_, ptx.while_, ptx.range, ptx.select; `&`, `|`, `~` for `and`, `or`, `not`"),
    _code("outside-kernel", "TraceError", "a register or an instruction is used outside of its kernel",
          "Registers belong to the kernel that is traced when they are made.",
          "make them inside the function; pass data through the kernel's arguments"),
    _code("kernel-declaration", "TraceError", "a kernel or a Tile is declared with what cannot be",
          "The specs, the grid, the block or the limits do not fit the function or the target.",
          "compare `expected` with `got`"),
    _code("shared-memory-full", "TraceError", "a CTA of the target has less shared memory than is asked for",
          "Arrays, tiles and barriers are laid out one after the other.", "use fewer stages or a smaller tile"),
    _code("tensor-memory-full", "TraceError", "an SM has less tensor memory than is asked for",
          "It has 512 columns, allocated in powers of two from 32 on; tiles stand one after the other.",
          "use fewer buffers, a smaller tile or a larger allocation"),
    _code("matrix-shape", "TraceError", "a product has a shape, types or operands that its kind does not have",
          "The instruction descriptor holds them in a register, so ptxas cannot see them; PTX ISA 9.7.16.2 lists them.",
          "see what the error expects; docs/blackwell.md has the table"),
    _code("output-not-written", "TraceError", "a kernel never writes one of its outputs",
          "The call would return memory that nothing wrote.", "store to it, or leave it out of out_specs"),
    _code("no-dependency-wait", "TraceError", "a kernel with pdl=True never waits for the kernel before it",
          "It may read memory that the other has not written yet.", "call ptx.griddepcontrol.wait() first"),
    _code("no-python-form", "VerificationError", "a PTX text cannot be written as a kernel in Python",
          "`warploom python` writes instructions, control flow, variables and calls of functions by name. Textures, "
          "calls through pointers and addresses of functions have no form in the language.",
          "the text itself runs: warploom.emulate(text, ...), warploom check FILE.ptx"),
    # -- texts -------------------------------------------------------------------------------------------------------
    _code("ptx-syntax", "PtxSyntaxError", "a PTX text cannot be parsed",
          "The text breaks the grammar of PTX at the line and column that the error names.",
          "see what is expected there; a text cut short ends in the middle of a statement"),
    _code("verification", "VerificationError", "an instruction, declaration or kernel breaks a rule of the PTX ISA",
          "ptxas would refuse the text, or the target lacks what it asks for.", "see the error: it names the rule"),
    _code("unknown-instruction", "VerificationError", "an opcode is not in the instruction table",
          "The word, one of its modifiers, or their order is unknown.",
          "see the nearest spelling in the hint; CONTRIBUTING.md says how an instruction is added"),
    _code("wrong-operands", "VerificationError", "no form of the instruction takes these operands",
          "Their number, kind, register class or width fits no row of the instruction table.",
          "compare them with what the error expects"),
    _code("immediate-range", "VerificationError", "a constant operand is out of its range",
          "Barriers are numbered 0 to 15, setmaxnreg takes multiples of 8, copies have fixed sizes.",
          "take a value that the error expects"),
    _code("undeclared-name", "VerificationError", "a register, label or variable is used and not declared",
          "Names are looked up in the block and in those around it.", "declare it, or correct the spelling"),
    _code("target-lacks-it", "VerificationError", "the text's .target or .version lacks what it uses",
          "Each instruction begins with some architecture and PTX version.", "raise .target or .version"),
    # -- calls -------------------------------------------------------------------------------------------------------
    _code("argument", "ArgumentError", "an argument of a call has the wrong shape, stride, alignment, device or value",
          "Arguments are checked before anything is launched.", "compare `expected` with `got`"),
    _code("argument-type", "ArgumentTypeError", "an argument of a call has the wrong type or dtype",
          "Arguments are checked before anything is launched.", "compare `expected` with `got`"),
    _code("wrong-arguments", "ArgumentTypeError", "a kernel gets other arguments than it takes",
          "Positional arguments are inputs, then perhaps outputs, then scalars.", "see the signature in the error"),
    _code("wrong-type", "ArgumentTypeError", "an argument is of another type than the kernel's parameter",
          "Element types are part of a kernel's text.", "convert the array, or build the kernel for its type"),
    _code("wrong-shape", "ArgumentError", "an array has another shape than the kernel takes",
          "Sizes of one name must agree, and some are multiples of a tile.", "pad the array, or pass the right one"),
    _code("wrong-layout", "ArgumentError", "an array's strides or address are not what the kernel can address",
          "TMA and vector accesses need alignment and a contiguous dimension.", "pass array.contiguous(), or a copy"),
    _code("wrong-device", "ArgumentError", "an array is on another device than the call",
          "All arrays of a call are on one GPU, or all in CPU memory.", "move it: .to(device), cupy.asarray, .cpu()"),
    _code("overlap", "ArgumentError", "an output overlaps another argument in memory",
          "The kernel would read what it has already written.", "pass another output, or a kernel that allows it"),
    _code("not-writable", "ArgumentError", "an array that the kernel writes cannot be written",
          "It is read-only, a broadcast view, or wants a gradient.", "pass a copy"),
    _code("launch-shape", "ArgumentError", "the grid, block, cluster or shared memory is beyond the target's limits",
          "Each target has its limits (CUDA C++ Programming Guide, technical specifications).", "see `expected`"),
    _code("launch-description", "ArgumentError", "a launch description is not what the text's kernel needs",
          "Names, kinds, types and sizes must fit the parameters of the entry.",
          "`warploom check FILE.ptx --init` writes one to start from"),
    _code("not-this-text", "ArgumentError", "a file is not PTX text, or lacks the kernel that is named",
          "A cubin or an executable is not text; a text may have several kernels.",
          "cuobjdump -ptx prints the text; FILE.ptx:KERNEL names one of several"),
    _code("unknown-name", "ArgumentError", "nothing has the name that was given",
          "Names of protocols, contenders, rungs, rules, settings and kernels are looked up in a list.",
          "take one that the error lists"),
    _code("renamed", "ArgumentError", "a command, option or name has a new name", "Old names raise for one release.",
          "use the name that the error expects"),
    _code("file", "ArgumentError", "a file cannot be read or written", "The system refused it; the error says why.",
          "see that the folder exists and may be written"),
    # -- the GPU -----------------------------------------------------------------------------------------------------
    _code("toolchain", "ToolchainError", "a tool is missing or failed",
          "ptxas builds kernels; nvdisasm or cuobjdump prints SASS.", "`warploom info` says which tools are here"),
    _code("compilation", "CompilationError", "ptxas refused a text",
          "What the verifier lets pass, ptxas may still refuse.", "see its message; the line is the text's"),
    _code("spills", "CompilationError", "the build spills registers to local memory",
          "More values are alive than the kernel may have registers; each spill is a slow store and load.",
          "use smaller tiles or more warps, raise registers=, or allow_spills=True"),
    _code("serialised-wgmma", "CompilationError", "ptxas serialised the asynchronous MMAs",
          "Something touches the accumulators or the control flow between them (notes C7510 to C7519), so each MMA "
          "waits for the one before.", "keep accumulators in registers and untouched until the wait for their group"),
    _code("driver", "DriverError", "the CUDA driver refused a call", "The error has CUDA's own name for it.",
          "an illegal address or a hang earlier in the process shows up here: check the kernel with `warploom check`"),
    _code("no-gpu", "NoGpuError", "there is no GPU, no driver or no cuda-bindings here",
          "The call asks for a GPU.", "emulate: pass NumPy arrays or CPU tensors; or pip install 'warploom[gpu]'"),
    _code("gpu-hang", "DriverError", "a launch did not end in time",
          "A kernel that waits for something that never comes runs for ever; the GPU is lost to this process.",
          "check it with `warploom check`: a deadlock is reported by source line"),
    _code("chart", "ChartError", "a picture cannot be drawn", "matplotlib draws it and is optional.",
          "pip install 'warploom[lab]'"),
    # -- the emulator ------------------------------------------------------------------------------------------------
    _code("emulation", "EmulationError", "the emulated program did something that hardware calls an error",
          "The emulation ends at the first such thing.", "see the line and the values in the error"),
    _code("out-of-bounds", "OutOfBoundsError", "an access outside of every buffer it could mean",
          "An index is too large, or a size of the launch is not the kernel's.",
          "guard the access with the size; see that shapes and scalars of the launch belong together"),
    _code("misaligned", "MisalignedError", "an address is not a multiple of the size of the access",
          "A vector access of 16 bytes needs an address divisible by 16.", "align the base, or load in smaller pieces"),
    _code("invalid-operand", "InvalidOperandError", "an operand has a value that the instruction does not take",
          "A descriptor, a barrier, a tensor map, a mask or a rank is out of its range.", "see the value in the error"),
    _code("unsupported-instruction", "UnsupportedInstructionError", "the emulator does not run this instruction",
          "It does not guess what an instruction does; `warploom info --unsupported` lists those it lacks.",
          "use another instruction, or check the rest of the kernel without it"),
    _code("deadlock", "DeadlockError", "all threads that are left wait, and nothing under way will wake them",
          "An arrival, bytes or a parity is missing.",
          "compare what each thread waits for with what has come so far"),
    _code("step-limit", "StepLimitError", "the kernel had not ended after max_steps instructions",
          "A loop never ends, or the kernel is long. The error names the loop and the warps that run in it; warps that "
          "only wait end in a deadlock instead.",
          "see what ends the loop; else check with --max-steps N, or config.emulator.max_steps"),
    _code("cost-limit", "CostLimitError", "the emulation would take longer than config.emulator.limit_s",
          "One cluster was run as a sample, and the whole grid would take too long.",
          "use smaller arrays or a smaller grid, or raise config.emulator.limit_s"),
    # -- findings that no rule of the sanitizer makes ----------------------------------------------------------------
    _code("wrong-result", "finding", "the outputs are not what the example or the launch description expects",
          "The kernel ran without an error and its check failed. The report counts wrong elements, shows the first, "
          "says where they are, and what a comparison by tile suggests.",
          "whole tiles wrong: look at coordinates and at the guard of the store; right values in wrong places inside "
          "a tile: swizzle, fragment layout or a transposed operand; a factor of 2 or 1/2: the k loop's bounds; zeros: "
          "a store that never ran; NaN: memory that was read before it was written"),
])  # fmt: skip
"""All codes by id."""
