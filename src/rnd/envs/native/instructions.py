"""The 6507's instructions: what each of them does, as statements of `run_cpu` (cpu.hpp), and how it lies in a ROM."""

from __future__ import annotations

from dataclasses import dataclass

BRANCHES = {
    0x10: ("!(nz & 0x180)", (0x00, 0x7F)),
    0x30: ("nz & 0x180", (0x7F, 0xFF)),
    0x50: ("!overflow", None),
    0x70: ("overflow", None),
    0x90: ("!carry", None),
    0xB0: ("carry", None),
    0xD0: ("nz & 0xFF", (0x00, 0xFF)),
    0xF0: ("!(nz & 0xFF)", None),
}
"""Condition of a branch, and the values of the timer for which a loop that waits for it continues: (low, high]."""

JMP, JSR, RTS, RTI, JMP_INDIRECT = 0x4C, 0x20, 0x60, 0x40, 0x6C
ENDS = {JMP, RTS, RTI, JMP_INDIRECT, *BRANCHES, JSR}
"""Opcodes after which another block starts."""

PLAIN = {
    0xCA: "nz = --x", 0x88: "nz = --y", 0xE8: "nz = ++x", 0xC8: "nz = ++y", 0xAA: "nz = x = a", 0xA8: "nz = y = a",
    0x8A: "nz = a = x", 0x98: "nz = a = y", 0xBA: "nz = x = sp", 0x9A: "sp = x", 0x18: "carry = 0", 0x38: "carry = 1",
    0x58: "interrupt = 0", 0x78: "interrupt = 1", 0xB8: "overflow = 0", 0xD8: "decimal = 0", 0xF8: "decimal = 1",
    0x0A: "a = asl(a)", 0x2A: "a = rol(a)", 0x4A: "a = lsr(a)", 0x6A: "a = ror(a)",
    0xEA: "", 0x1A: "", 0x3A: "", 0x5A: "", 0x7A: "", 0xDA: "", 0xFA: "",
}  # fmt: skip
"""Opcodes of one byte and two cycles."""

STACK = {
    0x48: "cycle += 3; push(a);",
    0x08: "cycle += 3; push(flags());",
    0x68: "cycle += 4; nz = a = pull();",
    0x28: "cycle += 4; set_flags(pull());",
}

READS = {
    "ora": "a |= value; nz = a;",
    "and": "a &= value; nz = a;",
    "eor": "a ^= value; nz = a;",
    "adc": "adc(value);",
    "lda": "a = value; nz = a;",
    "cmp": "compare(a, value);",
    "sbc": "sbc(value);",
    "ldx": "x = value; nz = x;",
    "ldy": "y = value; nz = y;",
    "cpx": "compare(x, value);",
    "cpy": "compare(y, value);",
    "bit": "nz = (value & a) | (value & 0x80u) << 1; overflow = value >> 6 & 1;",
    "lax": "nz = x = a = value;",
    "nop": "(void)value;",
}
WRITES = {"sta": "a", "stx": "x", "sty": "y", "sax": "a & x"}
MODIFIES = {
    "asl": "result = asl(value);",
    "rol": "result = rol(value);",
    "lsr": "result = lsr(value);",
    "ror": "result = ror(value);",
    "dec": "nz = result = static_cast<u8>(value - 1);",
    "inc": "nz = result = static_cast<u8>(value + 1);",
    "dcp": "result = static_cast<u8>(value - 1); compare(a, result);",
}


def _operations() -> dict[int, tuple[str, str, int]]:
    """Opcode -> operation, addressing mode, cycles without the one of a crossed page."""
    table: dict[int, tuple[str, str, int]] = {}

    def add(name: str, opcodes: str, modes: str, cycles: str) -> None:
        for opcode, mode, count in zip(opcodes.split(), modes.split(), cycles.split(), strict=True):
            table[int(opcode, 16)] = (name, mode, int(count))

    modes, cycles = "inx zp imm abs iny zpx aby abx", "6 3 2 4 5 4 4 4"
    for row, name in zip((0, 2, 4, 6, 0xA, 0xC, 0xE), ("ora", "and", "eor", "adc", "lda", "cmp", "sbc"), strict=True):
        add(name, " ".join(f"{row + high:X}{low}" for high in (0, 1) for low in "159D"), modes, cycles)
    add("ldx", "A2 A6 AE B6 BE", "imm zp abs zpy aby", "2 3 4 4 4")
    add("ldy", "A0 A4 AC B4 BC", "imm zp abs zpx abx", "2 3 4 4 4")
    add("cpx", "E0 E4 EC", "imm zp abs", "2 3 4")
    add("cpy", "C0 C4 CC", "imm zp abs", "2 3 4")
    add("bit", "24 2C", "zp abs", "3 4")
    add("sta", "81 85 8D 91 95 99 9D", "inx zp abs iny zpx aby abx", "6 3 4 6 4 5 5")
    add("stx", "86 8E 96", "zp abs zpy", "3 4 4")
    add("sty", "84 8C 94", "zp abs zpx", "3 4 4")
    add("sax", "83 87 8F 97", "inx zp abs zpy", "6 3 4 4")
    for row, name in zip((0, 2, 4, 6, 0xC, 0xE), ("asl", "rol", "lsr", "ror", "dec", "inc"), strict=True):
        add(name, f"{row:X}6 {row:X}E {row + 1:X}6 {row + 1:X}E", "zp abs zpx abx", "5 6 6 7")
    add("lax", "A3 A7 AF B3 B7 BF", "inx zp abs iny zpy aby", "6 3 4 5 4 4")
    add("dcp", "C7 CF D7 DF", "zp abs zpx abx", "5 6 6 7")
    add("nop", "04 44 64 0C 80", "zp zp zp abs imm", "3 3 3 4 2")
    return table


OPERATIONS = _operations()


def length(opcode: int) -> int:
    """Bytes of an instruction; 0 for one that is not translated."""
    if opcode in OPERATIONS:
        return 3 if OPERATIONS[opcode][1] in ("abs", "abx", "aby") else 2
    if opcode in PLAIN or opcode in STACK or opcode in (RTS, RTI):
        return 1
    return 2 if opcode in BRANCHES else 3 if opcode in (JMP, JSR, JMP_INDIRECT) else 0


@dataclass(frozen=True)
class Instruction:
    """An instruction at its place, with the address at which the processor sees it."""

    place: int
    pc: int
    code: tuple[int, ...]

    @property
    def opcode(self) -> int:
        return self.code[0]

    @property
    def operand(self) -> int:
        return self.code[1] if len(self.code) == 2 else self.code[1] | self.code[2] << 8

    @property
    def next(self) -> int:
        return (self.pc + len(self.code)) & 0xFFFF

    @property
    def target(self) -> int:
        """Of a branch or a jump."""
        if self.opcode in BRANCHES:
            return (self.next + (self.operand ^ 0x80) - 0x80) & 0xFFFF
        return self.operand
