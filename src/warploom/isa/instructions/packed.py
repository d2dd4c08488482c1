"""Half precision arithmetic, scalar and packed in pairs: PTX ISA 9.7.4."""

from __future__ import annotations

from .schema import Form

_F16 = {"type": "f16 f16x2"}
_BF16 = {"type": "bf16 bf16x2"}
# No constants: ptxas accepts none for half precision operands.
_ONE = ">d:type, a:type!"
_TWO = ">d:type, a:type!, b:type!"
_THREE = ">d:type, a:type!, b:type!, c:type!"


def _arithmetic(name: str, section: str) -> tuple[Form, ...]:
    return (
        Form(f"{name}.f16", f"{name}{{.rn}}{{.ftz}}{{.sat}}.type", _TWO, _F16, "sm_53", (4, 2), section=section),
        Form(f"{name}.bf16", f"{name}{{.rn}}.type", _TWO, _BF16, "sm_90", (7, 8), section=section),
    )


def _minmax(name: str, section: str) -> tuple[Form, ...]:
    rows = []
    for kind, ftz, slots in (("f16", "{.ftz}", _F16), ("bf16", "", _BF16)):
        rows.append(Form(f"{name}.{kind}", f"{name}{ftz}{{.NaN}}.type", _TWO, slots, "sm_80", (7, 0), section=section))
        opcode = f"{name}{ftz}{{.NaN}}.xorsign.abs.type"
        rows.append(Form(f"{name}.xorsign.{kind}", opcode, _TWO, slots, "sm_86", (7, 2), section=section))
    return tuple(rows)


FORMS: tuple[Form, ...] = (
    *_arithmetic("add", "9.7.4.1"),
    *_arithmetic("sub", "9.7.4.2"),
    *_arithmetic("mul", "9.7.4.3"),
    Form("fma.f16", "fma.rn{.ftz}{.sat}.type", _THREE, _F16, "sm_53", (4, 2), section="9.7.4.4"),
    Form("fma.relu.f16", "fma.rn{.ftz}.relu.type", _THREE, _F16, "sm_80", (7, 0), section="9.7.4.4"),
    Form("fma.bf16", "fma.rn{.relu}.type", _THREE, _BF16, "sm_80", (7, 0), section="9.7.4.4"),
    Form(
        "fma.oob",
        "fma.rn.oob{.relu}.type",
        _THREE,
        {"type": "f16 f16x2 bf16 bf16x2"},
        "sm_90",
        (8, 1),
        section="9.7.4.4",
    ),
    Form("neg.f16", "neg{.ftz}.type", _ONE, _F16, "sm_53", (6, 0), section="9.7.4.5"),
    Form("neg.bf16", "neg.type", _ONE, _BF16, "sm_80", (7, 0), section="9.7.4.5"),
    Form("abs.f16", "abs{.ftz}.type", _ONE, _F16, "sm_53", (6, 5), section="9.7.4.6"),
    Form("abs.bf16", "abs.type", _ONE, _BF16, "sm_80", (7, 0), section="9.7.4.6"),
    *_minmax("min", "9.7.4.7"),
    *_minmax("max", "9.7.4.8"),
    Form("tanh.f16", "tanh.approx.type", _ONE, _F16, "sm_75", (7, 0), section="9.7.4.9"),
    Form("tanh.bf16", "tanh.approx.type", _ONE, _BF16, "sm_90", (7, 8), section="9.7.4.9"),
    Form("ex2.f16", "ex2.approx.type", _ONE, _F16, "sm_75", (7, 0), section="9.7.4.10"),
    Form("ex2.bf16", "ex2.approx.ftz.type", _ONE, _BF16, "sm_90", (7, 8), section="9.7.4.10"),
)
