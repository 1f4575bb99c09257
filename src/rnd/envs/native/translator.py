"""From a game's ROM to C++: every instruction that can be reached becomes a few statements of `run_cpu` (cpu.hpp).

The text is compiled inside that function, beside the interpreter. It uses the function's own operations (`read`, `adc`,
`push`) and registers. Operands are constants, and jumps are gotos. What is not translated is left to the interpreter:
instructions that no recording and no static path reached, code in RAM, rare opcodes, and code beside the hot spots.

A place is where an instruction lies among all that a ROM can show (cartridge.hpp): the view, times its size, plus the
offset in it. A view is a bank, or one of E0's slices in one of its windows.
"""

from __future__ import annotations

from functools import cached_property

from rnd.envs.native.instructions import Instruction, length

EXECUTED, ENTERED, MIRROR_SHIFT = 1, 2, 5
"""The bits of a recording, as in cartridge.hpp."""

# TIA registers.
VSYNC, WSYNC, HMP0, HMBL = 0x00, 0x02, 0x20, 0x24
IGNORED = {0x03, *range(0x15, 0x1B), *range(0x2D, 0x40)}
"""RSYNC, sound, and what is no register."""
UNCHANGED_IS_NOTHING = {*range(0x04, 0x0A), *range(0x0B, 0x10), *range(0x1D, 0x2A)}
"""`is_plain` of tia.hpp."""


class Program:
    """The reached instructions of a ROM, and their C++."""

    def __init__(self, rom: bytes, scheme: str, reached: bytes):
        self.rom, self.scheme = rom, scheme
        self.view_bytes = 1024 if scheme == "kE0" else 4096
        self.hotspot = {"k4K": 0x1000, "kF8": 0xFF8, "kF6": 0xFF6, "kE0": 0xFE0}[scheme]
        """The first offset whose access may switch banks."""
        self.entered = {place for place, how in enumerate(reached) if how & ENTERED}
        self.instructions: dict[int, Instruction] = {}
        self._descend({place: how >> MIRROR_SHIFT for place, how in enumerate(reached) if how & EXECUTED})

    # ---- what the ROM holds ----

    def byte(self, place: int, offset: int) -> int | None:
        """The byte at an offset of the 4K that code at `place` sees; None where another slice decides."""
        if self.scheme != "kE0":
            return self.rom[(place // 4096 * 4096 + offset) % len(self.rom)]
        there = self.at(place, 0x1000 | offset)
        return None if there is None else self.rom[there // 1024 % 8 * 1024 + offset % 1024]

    def at(self, place: int, pc: int) -> int | None:
        """The place that code at `place` sees at the address `pc`; None where only the machine can tell."""
        if not pc & 0x1000:
            return None
        if self.scheme != "kE0":
            return place // 4096 * 4096 + (pc & 0xFFF)
        window, view = pc >> 10 & 3, place // 1024
        if window == 3:
            return 31 * 1024 + pc % 1024
        return place // 1024 * 1024 + pc % 1024 if window == view >> 3 else None

    def possible(self, place: int, pc: int) -> list[int]:
        """All places that code at `place` may see at the address `pc`: one, or one in each slice of kE0, or none."""
        there = self.at(place, pc)
        if there is not None:
            return [there]
        return [(8 * (pc >> 10 & 3) + view) * 1024 + pc % 1024 for view in range(8)] if pc & 0x1000 else []

    def decode(self, place: int, pc: int) -> Instruction | None:
        """None for what the interpreter keeps."""
        offset = pc & 0xFFF
        first = self.byte(place, offset)
        count = 0 if first is None else length(first)
        last = offset + count - 1
        if not count or last >= min(self.hotspot, 0xFFA) or last // self.view_bytes != offset // self.view_bytes:
            return None
        code = [self.byte(place, offset + i) for i in range(count)]
        return Instruction(place, pc, tuple(byte for byte in code if byte is not None))

    def _descend(self, mirrors: dict[int, int]) -> None:
        """All instructions on static paths from those that were executed."""
        waiting = []
        for place, mirror in mirrors.items():
            offset = place % 4096 if self.scheme != "kE0" else place // 8192 * 1024 + place % 1024
            waiting.append((place, mirror << 13 | 0x1000 | offset))
        while waiting:
            place, pc = waiting.pop()
            if place in self.instructions:
                continue
            found = self.decode(place, pc)
            if found is None:
                continue
            self.instructions[place] = found
            paths = []
            if found.has_target:
                paths.append(found.target)
            if found.continues:
                paths.append(found.next)
            waiting += [(there, to) for to in paths if (there := self.at(place, to)) is not None]

    # ---- blocks ----

    def may_switch(self, instruction: Instruction) -> bool:
        """Whether the instruction may switch what it lies in itself. Of kE0's slices another one does not matter."""
        if self.scheme == "k4K" or not instruction.uses_memory:
            return False
        mode, at = instruction.opcode.mode, instruction.operand
        if mode == "ABS":
            touched = bool(at & 0x1000) and at & 0xFFF >= self.hotspot
            return touched and (self.scheme != "kE0" or (at & 0xFFF) - self.hotspot >> 3 == instruction.place >> 13)
        if mode in ("ABX", "ABY"):
            return not (at & 0x1000 and (at & 0xFFF) + 255 < self.hotspot)
        return mode in ("IZX", "IZY")

    def follows(self, instruction: Instruction) -> Instruction | None:
        """The instruction behind this one, where it is translated for the same address."""
        place = self.at(instruction.place, instruction.next)
        found = None if place is None else self.instructions.get(place)
        return found if found is not None and found.pc == instruction.next else None

    @cached_property
    def leaders(self) -> set[int]:
        """Places at which blocks start: a label each, where the interpreter can return to translated code."""
        starts = set(self.entered)
        behind: dict[int, int] = {}
        for one in self.instructions.values():
            if one.has_target:
                starts |= set(self.possible(one.place, one.target))
            after = self.follows(one)
            if after is None:
                continue
            may_end_frame = one.opcode.kind == "WRITE" and one.operand & 0xBF == VSYNC
            if one.ends_block or self.may_switch(one) or may_end_frame:
                starts.add(after.place)
            if one.continues:
                behind[after.place] = behind.get(after.place, 0) + 1
        starts |= {place for place in self.instructions if behind.get(place, 0) != 1}
        return starts & self.instructions.keys()

    def goto(self, origin: Instruction, pc: int) -> str:
        possible = self.possible(origin.place, pc)
        known = [place for place in possible if place in self.leaders and self.instructions[place].pc == pc]
        if known and len(possible) == 1:
            return jump(origin, known[0])
        anywhere = f"pc = 0x{pc:04X}; goto dispatch;"
        if not known:
            return anywhere
        # Loops that cross from one slice to the next are common: a test is cheaper than the table of all entries.
        cases = " ".join(f"case {place // 1024 % 8}: {jump(origin, place)}" for place in known)
        return f"switch (m.cartridge.slice[{pc >> 10 & 3}]) {{ {cases} }} {anywhere}"

    def block(self, place: int) -> list[str]:
        """The statements from a leader to the next one."""
        one = self.instructions[place]
        lines = [f"{label(place)}:"]
        while True:
            lines.append(f"    {{ {self.statement(one)} }}")
            after = self.follows(one)
            if one.ends_block:
                return lines
            if after is None or after.place in self.leaders:
                return [*lines, f"    {self.goto(one, one.next)}"]
            one = after

    # ---- statements ----

    def statement(self, one: Instruction) -> str:
        operation, kind, cycles = one.opcode.operation, one.opcode.kind, one.opcode.cycles
        count = f"cycle += {cycles};"
        if kind == "IMPLIED":
            return f"{count} {operation}();"
        if kind == "ACCUMULATOR":
            return f"{count} a = {operation}(a);"
        if kind == "PUSH":
            return f"{count} {operation}(); {leave_if('m.frame_done', one.next)}"
        if kind == "BRANCH":
            return f"{count} {self.branch(one)}"
        if kind == "JUMP":
            return f"{count} {self.jump(one)}"
        text = f"{count} {self.work(one)}"
        if self.may_switch(one):
            switched = f"if (image != before) [[unlikely]] {{ pc = 0x{one.next:04X}; goto dispatch; }}"
            return f"const u8* const before = image; {text} {switched}"
        return text

    def jump(self, one: Instruction) -> str:
        operation, mode = one.opcode[:2]
        if mode == "IND":
            low, last = one.operand, f"0x{one.code[-1]:02X}"
            high = low & 0xFF00 | low + 1 & 0xFF  # from the same page
            return f"{operation}(read(0x{low:04X}, {last}) | read(0x{high:04X}, {last}) << 8); goto dispatch;"
        if mode == "IMP":
            return f"{operation}(); pc &= 0xFFFF; goto dispatch;"
        if operation == "JMP":
            return self.goto(one, one.target)
        call = f"pc = 0x{one.pc:04X}; {operation}(0x{one.target:04X});"
        return f"{call} {leave_if('m.frame_done', one.target)} {self.goto(one, one.target)}"

    def branch(self, one: Instruction) -> str:
        low, high = one.opcode.waits
        cycles = 1 + ((one.next ^ one.target) & 0xFF00 != 0)
        skip = ""
        if low != high and one.operand == 0xFB and one.target & 0x1000:
            loop = f"image + 0x{one.target & 0xFFF:03X}, m.frame_cycle + cycle, 0x{low:02X}, 0x{high:02X}"
            skip = f"cycle += {6 + cycles} * wait_loop_turns(m.riot, {loop}, {6 + cycles}); "
        taken = f"cycle += {cycles}; {skip}{self.goto(one, one.target)}"
        return f"if ({one.opcode.operation}()) {{ {taken} }} {self.goto(one, one.next)}"

    def work(self, one: Instruction) -> str:
        """An operation on memory, or on a constant."""
        operation, mode, kind = one.opcode[:3]
        at, last = one.operand, f"0x{one.code[-1]:02X}"  # the last fetch leaves it on the data bus
        text = ""
        if mode == "IZX":
            text = f"const u32 where = (0x{at:02X} + x) & 0xFFu; "
            text += f"const u32 at = read_zp(where, {last}) | read_zp((where + 1) & 0xFFu, {last}) << 8; "
        if mode == "IZY":
            text = f"const u32 base = {read_zp(at, last)} | {read_zp((at + 1) & 0xFF, last)} << 8; "
            text += "const u32 at = (base + y) & 0xFFFFu; "
        in_ram = (mode == "ZP" and at & 0x80) or (mode == "ABS" and at & 0x1280 == 0x80)
        cell = f"m.riot.ram[0x{at & 0x7F:02X}]" if in_ram else None
        if kind == "READ":
            return f"{text}{crossing(mode, at)}{operation}({cell or self.read(one, last)});"
        if kind == "WRITE":
            return text + (f"{cell} = {operation}();" if cell else write(one, f"{operation}()"))
        if cell:
            return f"{cell} = {operation}({cell});"
        where = address(mode, at)
        if mode in ("ZPX", "ABX", "ABY"):
            text, where = f"const u32 at = {where}; ", "at"
        return text + leave_if(f"write({where}, {operation}(read({where}, {bus_value(mode, last)})))", one.next)

    def read(self, one: Instruction, last: str) -> str:
        """What an instruction reads, other than a fixed byte of RAM."""
        mode, at = one.opcode.mode, one.operand
        offset, in_rom = at & 0xFFF, at & 0x1000
        if mode == "IMM":
            return f"0x{at:02X}"
        if mode in ("ZP", "ZPX", "ZPY"):
            return f"read_zp({address(mode, at)}, {last})"
        if mode == "ABS" and in_rom and offset < self.hotspot:
            fixed = self.byte(one.place, offset)
            return f"image[0x{offset:03X}]" if fixed is None else f"0x{fixed:02X}"
        if mode in ("ABX", "ABY") and in_rom and offset + 255 < self.hotspot:
            return f"image[0x{offset:03X} + {index(mode)}]"
        return f"read({address(mode, at)}, {bus_value(mode, last)})"

    # ---- files ----

    def blocks(self) -> str:
        """The text of blocks.inc."""
        return "\n".join(line for place in sorted(self.leaders) for line in self.block(place)) + "\n"

    def entries(self) -> str:
        """The text of entries.inc."""
        size = 32 * 1024 if self.scheme == "kE0" else max(4096, len(self.rom))
        labels = ["&&interpret"] * size
        mirrors = [8] * size  # no address
        for place in self.leaders:
            labels[place], mirrors[place] = f"&&{label(place)}", self.instructions[place].pc >> 13
        return (
            f"constexpr Scheme kScheme = Scheme::{self.scheme};\n"
            f"static const void* const kEntries[] = {{{', '.join(labels)}}};\n"
            f"static const u8 kMirrors[] = {{{', '.join(map(str, mirrors))}}};\n"
        )


def label(place: int) -> str:
    return f"at_{place:04X}"


def jump(origin: Instruction, place: int) -> str:
    # Every endless loop goes backwards somewhere.
    late = "if (cycle >= kFrameCycles) [[unlikely]] { return false; } " if place <= origin.place else ""
    return f"{late}goto {label(place)};"


def leave_if(condition: str, pc: int) -> str:
    return f"if ({condition}) [[unlikely]] {{ pc = 0x{pc:04X}; goto leave; }}"


def index(mode: str) -> str:
    return mode[-1].lower()


def address(mode: str, at: int) -> str:
    """The address of an operand in memory; the two indirect modes have computed it."""
    if mode in ("ZPX", "ZPY"):
        return f"(0x{at:02X} + {index(mode)}) & 0xFFu"
    if mode in ("ABX", "ABY"):
        return f"(0x{at:04X}u + {index(mode)}) & 0xFFFFu"
    return f"0x{at:04X}" if mode in ("ZP", "ABS") else "at"


def bus_value(mode: str, last: str) -> str:
    """What the last fetch before the operand's own left on the data bus."""
    return {"IZX": "static_cast<u8>(at >> 8)", "IZY": "static_cast<u8>(base >> 8)"}.get(mode, last)


def crossing(mode: str, at: int) -> str:
    """The cycle that a read takes more when the index leads to another page."""
    if mode in ("ABX", "ABY") and at & 0xFF:
        return f"cycle += (0x{at & 0xFF:02X}u + {index(mode)}) >> 8; "
    return "cycle += ((base ^ at) >> 8 & 0xFF) != 0; " if mode == "IZY" else ""


def read_zp(at: int, last: str) -> str:
    return f"m.riot.ram[0x{at & 0x7F:02X}]" if at & 0x80 else f"read_zp(0x{at:02X}, {last})"


def write(one: Instruction, value: str) -> str:
    """A write, other than to a fixed byte of RAM."""
    mode, at = one.opcode.mode, one.operand
    if mode == "ZP" or (mode == "ABS" and not at & 0x1080):
        return tia_write(at & 0x3F, value, one.next)
    function = "write_zp" if mode in ("ZPX", "ZPY") else "write"
    return leave_if(f"{function}({address(mode, at)}, {value})", one.next)


def tia_write(register: int, value: str, pc: int) -> str:
    """A frame that is too long is played again by the interpreter: no write but that of VSYNC ends one."""
    if register in IGNORED:
        return ""
    if register == WSYNC:
        return "wait_for_line();"
    if HMP0 <= register <= HMBL:
        return f"m.tia.HM[{register - HMP0}] = {value} & 0xF0; m.tia.shadow[0x{register:02X}] = {value};"
    write = f"tia_write_at<0x{register:02X}>(bus, value, cycle);"
    if register in UNCHANGED_IS_NOTHING:
        write = f"if (m.tia.shadow[0x{register:02X}] != value) {{ {write} }}"
    end = leave_if("m.frame_done", pc) if register == VSYNC else ""
    return f"const u8 value = {value}; {write} {end}"
