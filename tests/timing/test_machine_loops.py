"""Loops of machine code: a branch backward is one only if nothing else enters what it closes."""

from warploom.timing.machine_loops import OUTSIDE, innermost


def loops(*lines):
    """The innermost loop of each instruction; lines that end in a colon are labels."""
    texts, labels = [], {}
    for line in lines:
        if line.endswith(":"):
            labels[line[:-1]] = len(texts)
        else:
            texts.append(line)
    return innermost(texts, labels)


def test_a_loop_is_named_by_its_first_instruction():
    found = loops("MOV R1, RZ", ".L_x_0:", "IADD3 R1, R1, 0x1, RZ", "@P0 BRA `(.L_x_0)", "EXIT")
    assert found == [OUTSIDE, 1, 1, OUTSIDE]


def test_of_nested_loops_the_inner_one_counts():
    found = loops(
        ".L_x_0:", "MOV R1, RZ", ".L_x_1:", "IADD3 R1, R1, 0x1, RZ", "@P0 BRA `(.L_x_1)", "@P1 BRA `(.L_x_0)", "EXIT",
    )  # fmt: skip
    assert found == [0, 1, 1, 0, OUTSIDE]


def test_two_branches_to_one_block_are_one_loop():
    found = loops(".L_x_0:", "MOV R1, RZ", "@P0 BRA `(.L_x_0)", "MOV R2, RZ", "@P1 BRA `(.L_x_0)", "EXIT")
    assert found == [0, 0, 0, 0, OUTSIDE]


def test_a_second_attempt_behind_the_code_that_follows_it_is_a_loop_of_its_own():
    found = loops(
        "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "@!P0 BRA `(.L_x_1)", ".L_x_0:", "STG.E [R2], R3", "EXIT",
        ".L_x_1:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "@!P0 BRA `(.L_x_1)", "BRA `(.L_x_0)",
    )  # fmt: skip
    assert found == [OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, 4, 4, OUTSIDE], "the store between is run once"


def test_a_second_attempt_of_a_wait_in_a_loop_belongs_to_that_loop():
    found = loops(
        ".L_x_0:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "@!P0 BRA `(.L_x_2)", ".L_x_1:", "@P1 BRA `(.L_x_0)",
        "EXIT", ".L_x_2:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "@!P0 BRA `(.L_x_2)", "BRA `(.L_x_1)",
    )  # fmt: skip
    assert found == [0, 0, 0, OUTSIDE, 4, 4, 0]


def test_arms_of_a_branch_inside_a_loop_belong_to_it():
    found = loops(
        ".L_x_0:", "@P0 BRA `(.L_x_1)", "FADD R1, R1, R2", "BRA `(.L_x_2)", ".L_x_1:", "FMUL R1, R1, R2", ".L_x_2:",
        "@P1 BRA `(.L_x_0)", "EXIT",
    )  # fmt: skip
    assert found == [0, 0, 0, 0, 0, OUTSIDE]


def test_where_threads_meet_again_is_no_loop_and_a_loop_over_the_lanes_is_run_once():
    assert loops("BSSY B0, `(.L_x_0)", "@P0 BRA `(.L_x_0)", "MOV R1, RZ", ".L_x_0:", "BSYNC B0", "EXIT") == [-1] * 5
    assert loops(".L_x_0:", "R2UR UR4, R4", "BRA.U.ANY `(.L_x_0)", "EXIT") == [-1] * 3


def test_what_no_path_reaches_is_in_no_loop():
    assert loops("EXIT", ".L_x_0:", "BRA `(.L_x_0)", "NOP", "NOP") == [-1] * 4


def test_no_code_has_no_loop():
    assert loops() == []
