// 6507: a direct-threaded interpreter. Registers live in locals, flags are kept lazily, and cycles are counted before an
// instruction's memory access, so that a write reaches the TIA at the cycle at which the real instruction makes it.
//
// With RND_TRANSLATED the same function also holds the blocks of one game's program as C++ (translator.py), and interprets
// only what is not among them. With RND_RECORDING it notes which instructions it executes.
#pragma once

#include <iterator>
#include <string_view>

#include "cartridge.hpp"
#include "machine.hpp"
#include "riot.hpp"
#include "tia.hpp"

namespace rnd::atari::RND_TARGET {

// A program that never ends its frame is cut after so many instructions.
constexpr i32 kInstructionLimit = 25'000;

[[gnu::noinline]] inline u8 io_read(Bus& bus, u16 address, u8 data_bus) {
    if (address & 0x80) return riot_read(bus.m, address, bus.m.frame_cycle + bus.m.cycle);
    return tia_read(bus, static_cast<u8>(address), data_bus);
}

[[gnu::noinline]] inline void io_write(Bus& bus, u16 address, u8 value) {
    if (address & 0x80) {
        riot_write(bus.m, address, value, bus.m.frame_cycle + bus.m.cycle);
        return;
    }
    bus.touched = bus.m.cycle;
    bus.touched_register = address & 0x3F;
    if ((address & 0x3F) == WSYNC) {
        if (bus.m.cycle >= kFrameCycles) bus.m.frame_done = 1;
        const i32 rest = bus.m.cycle % kCyclesPerLine;
        if (rest) bus.m.cycle += kCyclesPerLine - rest;
    } else {
        tia_write(bus, static_cast<u8>(address), value, bus.m.cycle);
    }
}

struct Opcode {
    u8 code;
    std::string_view operation, mode;
};
constexpr Opcode kOpcodes[] = {
#define OPCODE(code, operation, mode, ...) {0x##code, #operation, #mode},
#include "opcodes.def"
};
static_assert(std::size(kOpcodes) == 256);
consteval u8 code_of(std::string_view operation, std::string_view mode) {
    for (const Opcode& opcode : kOpcodes)
        if (opcode.operation == operation && opcode.mode == mode) return opcode.code;
    throw "there is no such opcode";
}

// Games wait for the timer by "LDA INTIM, branch back" (or TIMINT). Returns how many whole turns can be skipped, that is
// all turns whose read lies before the value that may end the loop. `cycle` is the absolute cycle at which the loop starts
// again; values in (low, high] go on, whatever the flags were.
inline i32 wait_loop_turns(const Riot& riot, const u8* loop, i64 cycle, u8 low, u8 high, int turn) {
    constexpr u8 kLoads[3] = {code_of("LDA", "ABS"), code_of("LDX", "ABS"), code_of("LDY", "ABS")};
    if ((loop[0] != kLoads[0] && loop[0] != kLoads[1] && loop[0] != kLoads[2]) || (loop[1] & 0x86) != 0x84 || (loop[2] & 0x12) != 0x02)
        return 0;
    const i64 left = riot.timer_zero - (cycle + 4);
    // TIMINT, at the odd address, shows zero until the timer runs out, and only BPL waits for that.
    if (loop[1] & 1) return left >= 0 && low == 0 && high == 0x7F ? static_cast<i32>(left / turn + 1) : 0;
    const i64 slack = left - ((i64{low} + 1) << riot.timer_shift);
    if (slack < 0 || left >> riot.timer_shift > high) return 0;
    return static_cast<i32>(slack / turn + 1);
}

constexpr u8 to_bcd(unsigned n) { return static_cast<u8>(n / 10 % 10 << 4 | n % 10); }
constexpr int from_bcd(u8 b) { return (b >> 4) * 10 + (b & 15); }

// Runs until the frame ends. Returns false when a translated program cannot say where that is: it does not count
// instructions, so a frame that gets too long must be played again by the interpreter.
inline bool run_cpu(Bus& bus, const Rom& rom) {
    Machine& m = bus.m;
    static const u8 nowhere[kImageStride] = {};

    u32 pc = m.cpu.pc;
    u32 nz = m.cpu.nz;
    u8 a = m.cpu.a, x = m.cpu.x, y = m.cpu.y, sp = m.cpu.sp;
    u32 carry = m.cpu.carry;
    u8 overflow = m.cpu.overflow, decimal = m.cpu.decimal, interrupt = m.cpu.interrupt;
    i32 cycle = m.cycle;
    [[maybe_unused]] i32 budget = kInstructionLimit;
    const u8* image = rom.image(m.cartridge.image);
    const u32 hotspot = rom.first_hotspot;
    const u8* code = image;
    u32 code_mask = 0xFFF;
    const u8* p;

    // ---- memory ----
#define INLINE __attribute__((always_inline))
    auto find_code = [&]() INLINE {
        if (pc & 0x1000) {
            code = image;
            code_mask = 0xFFF;
        } else if ((pc & 0x280) == 0x80) {
            code = m.riot.ram;
            code_mask = 0x7F;
        } else {
            code = nowhere;
            code_mask = 0xFFF;
        }
    };
    auto touch = [&](u32 offset) INLINE {
        if (cartridge_access(rom, m.cartridge, offset)) {
            const bool in_rom = code == image;
            image = rom.image(m.cartridge.image);
            if (in_rom) code = image;
        }
    };
    auto read = [&](u32 address, u8 data_bus) INLINE -> u8 {
        if (address & 0x1000) {
            const u32 offset = address & 0xFFF;
            if (offset >= hotspot) [[unlikely]]
                touch(offset);
            return image[offset];
        }
        if ((address & 0x280) == 0x80) return m.riot.ram[address & 0x7F];
        m.cycle = cycle;
        return io_read(bus, static_cast<u16>(address), data_bus);
    };
    auto read_zp = [&](u32 address, u8 data_bus) INLINE -> u8 {
        if (address & 0x80) [[likely]]
            return m.riot.ram[address & 0x7F];
        m.cycle = cycle;
        return io_read(bus, static_cast<u16>(address), data_bus);
    };
    auto wait_for_line = [&]() INLINE {
        cycle = static_cast<i32>((static_cast<u32>(cycle) + kCyclesPerLine - 1) / kCyclesPerLine * kCyclesPerLine);
    };
    // The writes return true when the hardware may have ended the frame.
    auto write = [&](u32 address, u8 value) INLINE -> bool {
        if (address & 0x1000) {
            if ((address & 0xFFF) >= hotspot) touch(address & 0xFFF);
            return false;
        }
        if ((address & 0x280) == 0x80) {
            m.riot.ram[address & 0x7F] = value;
            return false;
        }
        m.cycle = cycle;
        io_write(bus, static_cast<u16>(address), value);
        cycle = m.cycle;
        return m.frame_done;
    };
    auto write_zp = [&](u32 address, u8 value) INLINE -> bool {
        if (address & 0x80) {
            m.riot.ram[address & 0x7F] = value;
            return false;
        }
        bus.touched = cycle;
        bus.touched_register = address & 0x3F;
        if ((address & 0x3F) == WSYNC) {
            const bool too_long = cycle >= kFrameCycles;
            wait_for_line();
            if (too_long) [[unlikely]]
                m.frame_done = 1;
            return too_long;
        }
        if (m.tia.shadow[address & 0x3F] == value && cycle < kFrameCycles) return false;
        tia_write(bus, static_cast<u8>(address), value, cycle);
        return m.frame_done;
    };
    auto push = [&](u8 value) INLINE {
        if (sp & 0x80) [[likely]] {
            m.riot.ram[sp & 0x7F] = value;
        } else {
            m.cycle = cycle;
            io_write(bus, sp, value);
            cycle = m.cycle;
        }
        --sp;
    };
    auto pull = [&]() INLINE -> u8 {
        ++sp;
        if (sp & 0x80) [[likely]]
            return m.riot.ram[sp & 0x7F];
        m.cycle = cycle;
        return io_read(bus, sp, 0);
    };

#include "operations.inc"

    static const void* const kOperations[256] = {
#define ROW(h)                                                                                                                        \
    &&op_##h##0, &&op_##h##1, &&op_##h##2, &&op_##h##3, &&op_##h##4, &&op_##h##5, &&op_##h##6, &&op_##h##7, &&op_##h##8, &&op_##h##9, \
        &&op_##h##A, &&op_##h##B, &&op_##h##C, &&op_##h##D, &&op_##h##E, &&op_##h##F
        ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8),
        ROW(9), ROW(A), ROW(B), ROW(C), ROW(D), ROW(E), ROW(F)
#undef ROW
    };

#if defined(RND_TRANSLATED)
#include "entries.inc"  // kScheme; the label of the block that starts at a place (kEntries), and its address above bit 12 (kMirrors)
#define NEXT goto dispatch
#define COUNT_TURNS(turns)
#else
#define NEXT                                           \
    do {                                               \
        RECORD(kExecuted);                             \
        p = code + (pc & code_mask);                   \
        if (--budget < 0) [[unlikely]] { goto leave; } \
        goto* kOperations[p[0]];                       \
    } while (0)
#define COUNT_TURNS(turns)                      \
    if (2 * turns > budget) turns = budget / 2; \
    budget -= 2 * turns;
#endif
#if defined(RND_RECORDING)
#define RECORD(how)                                                                              \
    do {                                                                                         \
        if (pc & 0x1000) note_reached(bus.reached[place(rom.scheme, m.cartridge, pc)], how, pc); \
    } while (0)
#else
#define RECORD(how)
#endif
#define NEXT_UNLESS_DONE                               \
    do {                                               \
        if (m.frame_done) [[unlikely]] { goto leave; } \
        RECORD(kEntered);                              \
        NEXT;                                          \
    } while (0)

    // clang-format off
    // Modes. AT: the address of an operand (`at`), and what the last fetch left on the data bus (`bus_value`).
#define AT_ZP pc += 2; const u32 at = p[1]; [[maybe_unused]] const u8 bus_value = p[1]
#define AT_ZPX pc += 2; const u32 at = (p[1] + x) & 0xFFu; [[maybe_unused]] const u8 bus_value = p[1]
#define AT_ZPY pc += 2; const u32 at = (p[1] + y) & 0xFFu; [[maybe_unused]] const u8 bus_value = p[1]
#define AT_ABS pc += 3; const u32 at = p[1] | p[2] << 8; [[maybe_unused]] const u8 bus_value = p[2]
#define AT_ABX pc += 3; [[maybe_unused]] const u32 base = p[1] | p[2] << 8; const u32 at = (base + x) & 0xFFFFu; [[maybe_unused]] const u8 bus_value = p[2]
#define AT_ABY pc += 3; [[maybe_unused]] const u32 base = p[1] | p[2] << 8; const u32 at = (base + y) & 0xFFFFu; [[maybe_unused]] const u8 bus_value = p[2]
#define AT_IZX pc += 2; const u32 where = (p[1] + x) & 0xFFu; \
    const u32 at = read_zp(where, p[1]) | read_zp((where + 1) & 0xFFu, p[1]) << 8; [[maybe_unused]] const u8 bus_value = static_cast<u8>(at >> 8)
#define AT_IZY pc += 2; [[maybe_unused]] const u32 base = read_zp(p[1], p[1]) | read_zp((p[1] + 1) & 0xFFu, p[1]) << 8; \
    const u32 at = (base + y) & 0xFFFFu; [[maybe_unused]] const u8 bus_value = static_cast<u8>(base >> 8)
    // FETCH: the operand's `value`, with the cycle of a crossed page.
#define CROSSING cycle += ((base ^ at) >> 8 & 0xFF) != 0
#define FETCH_IMM pc += 2; const u8 value = p[1]
#define FETCH_ZP AT_ZP; const u8 value = read_zp(at, bus_value)
#define FETCH_ZPX AT_ZPX; const u8 value = read_zp(at, bus_value)
#define FETCH_ZPY AT_ZPY; const u8 value = read_zp(at, bus_value)
#define FETCH_ABS AT_ABS; const u8 value = read(at, bus_value)
#define FETCH_ABX AT_ABX; CROSSING; const u8 value = read(at, bus_value)
#define FETCH_ABY AT_ABY; CROSSING; const u8 value = read(at, bus_value)
#define FETCH_IZX AT_IZX; const u8 value = read(at, bus_value)
#define FETCH_IZY AT_IZY; CROSSING; const u8 value = read(at, bus_value)
    // STORE: the function that writes there.
#define STORE_ZP write_zp
#define STORE_ZPX write_zp
#define STORE_ZPY write_zp
#define STORE_ABS write
#define STORE_ABX write
#define STORE_ABY write
#define STORE_IZX write
#define STORE_IZY write
    // TARGET: where a jump goes, if its operand says so.
#define TARGET_ABS p[1] | p[2] << 8
#define TARGET_IND read(p[1] | p[2] << 8, p[2]) | read(((p[1] + 1) & 0xFFu) | p[2] << 8, p[2]) << 8  /* both bytes from the same page */
#define TARGET_VEC read(0xFFFE, 0) | read(0xFFFF, 0) << 8
#define TARGET_IMP 0

    // Kinds: the operation at work on its operand.
#define READ(operation, mode) FETCH_##mode; operation(value); NEXT;
#define WRITE(operation, mode) AT_##mode; if (STORE_##mode(at, operation())) [[unlikely]] { goto leave; } NEXT;
#define WRITE_HIGH(operation, mode) AT_##mode; if (STORE_##mode(at, operation(at))) [[unlikely]] { goto leave; } NEXT;
#define MODIFY(operation, mode) AT_##mode; if (write(at, operation(read(at, bus_value)))) [[unlikely]] { goto leave; } NEXT;
#define ACCUMULATOR(operation, mode) pc += 1; a = operation(a); NEXT;
#define IMPLIED(operation, mode) pc += 1; operation(); NEXT;
#define PUSH(operation, mode) pc += 1; operation(); if (m.frame_done) [[unlikely]] { goto leave; } NEXT;
#define JUMP(operation, mode) operation(TARGET_##mode); pc &= 0xFFFF; find_code(); NEXT_UNLESS_DONE;
#define HALT(operation, mode) goto halt;
#define BRANCH(operation, mode, low, high) pc += 2; \
    if (operation()) { \
        const u32 to = pc + static_cast<u32>(static_cast<i32>(static_cast<i8>(p[1]))); \
        const int turn = 1 + (((pc ^ to) & 0xFF00) != 0); \
        cycle += turn; \
        if (low != high && p[1] == 0xFB) [[unlikely]] { \
            i32 turns = wait_loop_turns(m.riot, code + (to & code_mask), m.frame_cycle + cycle, low, high, 6 + turn); \
            COUNT_TURNS(turns) \
            cycle += turns * (6 + turn); \
        } \
        pc = to & 0xFFFF; \
    } \
    NEXT;
    // clang-format on

    find_code();
    RECORD(kEntered);
    NEXT;

#if defined(RND_TRANSLATED)
dispatch:
    if (cycle >= kFrameCycles) [[unlikely]] { return false; }
    if (pc & 0x1000) {
        const u32 at = place(kScheme, m.cartridge, pc);
        if (kMirrors[at] == pc >> 13) { goto* kEntries[at]; }
    }
interpret:
    find_code();
    p = code + (pc & code_mask);
    goto* kOperations[p[0]];
#include "blocks.inc"
#endif

    // clang-format off
#define OPCODE(code, operation, mode, kind, cycles, ...) op_##code: { cycle += cycles; kind(operation, mode __VA_OPT__(, ) __VA_ARGS__) }
#include "opcodes.def"
    // clang-format on

halt:
#if defined(RND_TRANSLATED)
    return false;
#endif
    cycle += 2 * budget;  // it stands still until the frame is cut

leave:
#if defined(RND_TRANSLATED)
    if (cycle >= kFrameCycles) [[unlikely]] { return false; }
#endif
    m.cpu.pc = static_cast<u16>(pc);
    m.cpu.nz = static_cast<u16>(nz);
    m.cpu.a = a;
    m.cpu.x = x;
    m.cpu.y = y;
    m.cpu.sp = sp;
    m.cpu.carry = static_cast<u8>(carry);
    m.cpu.overflow = overflow;
    m.cpu.decimal = decimal;
    m.cpu.interrupt = interrupt;
    m.cycle = cycle;
    return true;
#undef INLINE
}

}  // namespace rnd::atari::RND_TARGET
