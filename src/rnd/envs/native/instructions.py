"""The 6507's instructions: the table of opcodes (opcodes.def), and how an instruction lies in a ROM."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Opcode(NamedTuple):
    """A row of opcodes.def, which explains the columns."""

    operation: str
    mode: str
    kind: str
    cycles: int
    waits: tuple[int, int]
    """Values of the timer, (low, high], for which a loop that waits for it continues: a branch has them."""


def _read_opcodes() -> dict[int, Opcode]:
    text = (Path(__file__).parent / "opcodes.def").read_text()
    rows = re.findall(r"OPCODE\((\w\w), (\w+), (\w+), (\w+), (\d)(?:, (\w+), (\w+))?\)", text)
    return {
        int(code, 16): Opcode(operation, mode, kind, int(cycles), (int(low or "0", 16), int(high or "0", 16)))
        for code, operation, mode, kind, cycles, low, high in rows
    }


OPCODES = _read_opcodes()
BYTES = {"IMP": 1, "ACC": 1, "ABS": 3, "ABX": 3, "ABY": 3, "IND": 3}
"""Length of an instruction by its mode; two in the others."""


def length(code: int) -> int:
    """Bytes of an instruction; 0 for one that is not translated."""
    opcode = OPCODES[code]
    rare = opcode.kind in ("HALT", "WRITE_HIGH") or opcode.operation == "BRK"
    return 0 if rare else BYTES.get(opcode.mode, 2)


@dataclass(frozen=True)
class Instruction:
    """An instruction at its place, with the address at which the processor sees it."""

    place: int
    pc: int
    code: tuple[int, ...]

    @property
    def opcode(self) -> Opcode:
        return OPCODES[self.code[0]]

    @property
    def operand(self) -> int:
        return self.code[1] if len(self.code) == 2 else self.code[1] | self.code[2] << 8

    @property
    def next(self) -> int:
        return (self.pc + len(self.code)) & 0xFFFF

    @property
    def target(self) -> int:
        """Target of a branch or a jump."""
        if self.opcode.kind == "BRANCH":
            return (self.next + (self.operand ^ 0x80) - 0x80) & 0xFFFF
        return self.operand

    @property
    def ends_block(self) -> bool:
        """Whether another block starts behind it."""
        return self.opcode.kind in ("BRANCH", "JUMP")

    @property
    def has_target(self) -> bool:
        """Whether it goes to an address that it names."""
        return self.ends_block and self.opcode.mode in ("REL", "ABS")

    @property
    def continues(self) -> bool:
        """Whether the instruction behind it may be next, at once or after a return."""
        return self.opcode.kind != "JUMP" or self.opcode.operation == "JSR"

    @property
    def uses_memory(self) -> bool:
        """Whether it works on an operand in memory, or on a constant."""
        return self.opcode.kind in ("READ", "WRITE", "MODIFY")
