// 6507: a direct-threaded interpreter. Registers live in locals, flags are kept lazily, and cycles are counted before an
// instruction's memory access, so that a write reaches the TIA at the cycle at which the real instruction makes it.
//
// With RND_TRANSLATED the same function also holds the blocks of one game's program as C++ (translator.py), and interprets
// only what is not among them. With RND_RECORDING it notes which instructions it executes.
#pragma once

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

// Games wait for the timer by "LDA INTIM, branch back" (or TIMINT). Returns how many whole turns can be skipped, that is
// all turns whose read lies before the value that may end the loop. `cycle` is the absolute cycle at which the loop starts
// again; values in (low, high] go on, whatever the flags were.
inline i32 wait_loop_turns(const Riot& riot, const u8* loop, i64 cycle, u8 low, u8 high, int turn) {
    const bool loads = loop[0] == 0xAD || loop[0] == 0xAE || loop[0] == 0xAC;
    if (!loads || (loop[1] & 0x86) != 0x84 || (loop[2] & 0x12) != 0x02) return 0;
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
            if (offset >= hotspot) [[unlikely]] touch(offset);
            return image[offset];
        }
        if ((address & 0x280) == 0x80) return m.riot.ram[address & 0x7F];
        m.cycle = cycle;
        return io_read(bus, static_cast<u16>(address), data_bus);
    };
    auto read_zp = [&](u32 address, u8 data_bus) INLINE -> u8 {
        if (address & 0x80) [[likely]] return m.riot.ram[address & 0x7F];
        m.cycle = cycle;
        return io_read(bus, static_cast<u16>(address), data_bus);
    };
    auto wait_for_line = [&]() INLINE { cycle = static_cast<i32>((static_cast<u32>(cycle) + kCyclesPerLine - 1) / kCyclesPerLine * kCyclesPerLine); };
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
            if (too_long) [[unlikely]] m.frame_done = 1;
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
        return read_zp(sp, 0);
    };
    auto flags = [&]() INLINE -> u8 {
        return static_cast<u8>((nz & 0x180 ? 0x80 : 0) | (overflow ? 0x40 : 0) | 0x20 | 0x10 | (decimal ? 8 : 0) |
                               (interrupt ? 4 : 0) | (nz & 0xFF ? 0 : 2) | carry);
    };
    auto set_flags = [&](u8 value) INLINE {
        nz = (value & 0x80u) << 1 | (value & 2 ? 0u : 1u);
        overflow = value >> 6 & 1;
        decimal = value >> 3 & 1;
        interrupt = value >> 2 & 1;
        carry = value & 1;
    };

    // ---- operations ----
    auto adc = [&](u8 value) INLINE {
        if (decimal) [[unlikely]] {
            const int sum = from_bcd(a) + from_bcd(value) + static_cast<int>(carry);
            const u8 result = to_bcd(static_cast<unsigned>(sum));
            overflow = (~(a ^ value) & (a ^ result) & 0x80) != 0;
            carry = sum > 99;
            a = result;
            nz = a;
            return;
        }
        const u32 sum = a + value + carry;
        overflow = (~(a ^ value) & (a ^ sum) & 0x80) != 0;
        carry = sum >> 8;
        a = static_cast<u8>(sum);
        nz = a;
    };
    auto sbc = [&](u8 value) INLINE {
        if (decimal) [[unlikely]] {
            const int difference = from_bcd(a) - from_bcd(value) - (carry ? 0 : 1);
            const u8 result = to_bcd(static_cast<unsigned>(difference < 0 ? difference + 200 : difference));
            overflow = ((a ^ value) & (a ^ result) & 0x80) != 0;
            carry = difference >= 0;
            a = result;
            nz = a;
            return;
        }
        const u32 sum = a + (value ^ 0xFFu) + carry;
        overflow = ((a ^ value) & (a ^ sum) & 0x80) != 0;
        carry = sum >> 8;
        a = static_cast<u8>(sum);
        nz = a;
    };
    auto compare = [&](u8 reg, u8 value) INLINE {
        carry = reg >= value;
        nz = static_cast<u8>(reg - value);
    };
    auto asl = [&](u8 value) INLINE -> u8 {
        carry = value >> 7;
        nz = static_cast<u8>(value << 1);
        return static_cast<u8>(nz);
    };
    auto lsr = [&](u8 value) INLINE -> u8 {
        carry = value & 1;
        nz = value >> 1;
        return static_cast<u8>(nz);
    };
    auto rol = [&](u8 value) INLINE -> u8 {
        nz = static_cast<u8>(value << 1 | carry);
        carry = value >> 7;
        return static_cast<u8>(nz);
    };
    auto ror = [&](u8 value) INLINE -> u8 {
        nz = static_cast<u8>(value >> 1 | carry << 7);
        carry = value & 1;
        return static_cast<u8>(nz);
    };

    static const void* const kOperations[256] = {
#define ROW(h)                                                                                                     \
    &&op_##h##0, &&op_##h##1, &&op_##h##2, &&op_##h##3, &&op_##h##4, &&op_##h##5, &&op_##h##6, &&op_##h##7,        \
        &&op_##h##8, &&op_##h##9, &&op_##h##A, &&op_##h##B, &&op_##h##C, &&op_##h##D, &&op_##h##E, &&op_##h##F
        ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7),
        ROW(8), ROW(9), ROW(A), ROW(B), ROW(C), ROW(D), ROW(E), ROW(F)
#undef ROW
    };

#if defined(RND_TRANSLATED)
#include "entries.inc"  // kScheme; the label of the block that starts at a place (kEntries), and its address above bit 12 (kMirrors)
#define NEXT goto dispatch
#define COUNT_TURNS(turns)
#else
#define NEXT                         \
    do {                             \
        RECORD(kExecuted);           \
        p = code + (pc & code_mask); \
        if (--budget < 0) [[unlikely]] { goto leave; } \
        goto* kOperations[p[0]];     \
    } while (0)
#define COUNT_TURNS(turns) \
    if (2 * turns > budget) turns = budget / 2; \
    budget -= 2 * turns;
#endif
#if defined(RND_RECORDING)
#define RECORD(how) \
    do { \
        if (pc & 0x1000) note_reached(bus.reached[place(rom.scheme, m.cartridge, pc)], how, pc); \
    } while (0)
#else
#define RECORD(how)
#endif
#define NEXT_UNLESS_DONE                        \
    do {                                        \
        if (m.frame_done) [[unlikely]] { goto leave; } \
        RECORD(kEntered);                       \
        NEXT;                                   \
    } while (0)

    // Effective addresses. `at` is the address, `bus_value` what the last fetch left on the data bus.
#define AT_ZP  pc += 2; const u32 at = p[1]; const u8 bus_value = p[1]
#define AT_ZPX pc += 2; const u32 at = (p[1] + x) & 0xFFu; const u8 bus_value = p[1]
#define AT_ZPY pc += 2; const u32 at = (p[1] + y) & 0xFFu; const u8 bus_value = p[1]
#define AT_ABS pc += 3; const u32 at = p[1] | p[2] << 8; const u8 bus_value = p[2]
#define AT_ABX pc += 3; const u32 base = p[1] | p[2] << 8; const u32 at = (base + x) & 0xFFFFu; const u8 bus_value = p[2]; (void)base
#define AT_ABY pc += 3; const u32 base = p[1] | p[2] << 8; const u32 at = (base + y) & 0xFFFFu; const u8 bus_value = p[2]; (void)base
#define AT_INX pc += 2; const u32 where = (p[1] + x) & 0xFFu; \
    const u32 at = read_zp(where, p[1]) | read_zp((where + 1) & 0xFFu, p[1]) << 8; const u8 bus_value = static_cast<u8>(at >> 8)
#define AT_INY pc += 2; const u32 base = read_zp(p[1], p[1]) | read_zp((p[1] + 1) & 0xFFu, p[1]) << 8; \
    const u32 at = (base + y) & 0xFFFFu; const u8 bus_value = static_cast<u8>(base >> 8)
#define CROSSING cycle += ((base ^ at) >> 8 & 0xFF) != 0

    // Families: opcodes by addressing mode around one operation on `value`.
#define READ_IMM(op, ...) op_##op: { cycle += 2; pc += 2; const u8 value = p[1]; __VA_ARGS__; NEXT; }
#define READ_ZP(op, ...)  op_##op: { cycle += 3; AT_ZP;  const u8 value = read_zp(at, bus_value); __VA_ARGS__; NEXT; }
#define READ_ZPX(op, ...) op_##op: { cycle += 4; AT_ZPX; const u8 value = read_zp(at, bus_value); __VA_ARGS__; NEXT; }
#define READ_ZPY(op, ...) op_##op: { cycle += 4; AT_ZPY; const u8 value = read_zp(at, bus_value); __VA_ARGS__; NEXT; }
#define READ_ABS(op, ...) op_##op: { cycle += 4; AT_ABS; const u8 value = read(at, bus_value); __VA_ARGS__; NEXT; }
#define READ_ABX(op, ...) op_##op: { cycle += 4; AT_ABX; CROSSING; const u8 value = read(at, bus_value); __VA_ARGS__; NEXT; }
#define READ_ABY(op, ...) op_##op: { cycle += 4; AT_ABY; CROSSING; const u8 value = read(at, bus_value); __VA_ARGS__; NEXT; }
#define READ_INX(op, ...) op_##op: { cycle += 6; AT_INX; const u8 value = read(at, bus_value); __VA_ARGS__; NEXT; }
#define READ_INY(op, ...) op_##op: { cycle += 5; AT_INY; CROSSING; const u8 value = read(at, bus_value); __VA_ARGS__; NEXT; }
#define STORE_ZP(op, ...)  op_##op: { cycle += 3; AT_ZP;  (void)bus_value; if (write_zp(at, static_cast<u8>(__VA_ARGS__))) [[unlikely]] { goto leave; } NEXT; }
#define STORE_ZPX(op, ...) op_##op: { cycle += 4; AT_ZPX; (void)bus_value; if (write_zp(at, static_cast<u8>(__VA_ARGS__))) [[unlikely]] { goto leave; } NEXT; }
#define STORE_ZPY(op, ...) op_##op: { cycle += 4; AT_ZPY; (void)bus_value; if (write_zp(at, static_cast<u8>(__VA_ARGS__))) [[unlikely]] { goto leave; } NEXT; }
#define STORE_ABS(op, ...) op_##op: { cycle += 4; AT_ABS; (void)bus_value; if (write(at, static_cast<u8>(__VA_ARGS__))) [[unlikely]] { goto leave; } NEXT; }
#define STORE_ABX(op, ...) op_##op: { cycle += 5; AT_ABX; (void)bus_value; if (write(at, static_cast<u8>(__VA_ARGS__))) [[unlikely]] { goto leave; } NEXT; }
#define STORE_ABY(op, ...) op_##op: { cycle += 5; AT_ABY; (void)bus_value; if (write(at, static_cast<u8>(__VA_ARGS__))) [[unlikely]] { goto leave; } NEXT; }
#define STORE_INX(op, ...) op_##op: { cycle += 6; AT_INX; (void)bus_value; if (write(at, static_cast<u8>(__VA_ARGS__))) [[unlikely]] { goto leave; } NEXT; }
#define STORE_INY(op, ...) op_##op: { cycle += 6; AT_INY; (void)bus_value; if (write(at, static_cast<u8>(__VA_ARGS__))) [[unlikely]] { goto leave; } NEXT; }
    // Read, modify, write: the operation turns `value` into `result`, and may do more with it.
#define MODIFY(op, cycles, AT, ...) op_##op: { cycle += cycles; AT; const u8 value = read(at, bus_value); \
        u8 result; __VA_ARGS__; if (write(at, result)) [[unlikely]] { goto leave; } NEXT; }
#define MODIFY_ZP(op, ...)  MODIFY(op, 5, AT_ZP, __VA_ARGS__)
#define MODIFY_ZPX(op, ...) MODIFY(op, 6, AT_ZPX, __VA_ARGS__)
#define MODIFY_ABS(op, ...) MODIFY(op, 6, AT_ABS, __VA_ARGS__)
#define MODIFY_ABX(op, ...) MODIFY(op, 7, AT_ABX, __VA_ARGS__)
#define MODIFY_ABY(op, ...) MODIFY(op, 7, AT_ABY, __VA_ARGS__)
#define MODIFY_INX(op, ...) MODIFY(op, 8, AT_INX, __VA_ARGS__)
#define MODIFY_INY(op, ...) MODIFY(op, 8, AT_INY, __VA_ARGS__)
#define IMPLIED(op, cycles, ...) op_##op: { cycle += cycles; pc += 1; __VA_ARGS__; NEXT; }
#define JUMP(op, cycles, ...) op_##op: { cycle += cycles; __VA_ARGS__; pc &= 0xFFFF; find_code(); \
        NEXT_UNLESS_DONE; }
#define BRANCH(op, condition, ...) op_##op: { cycle += 2; pc += 2; \
        if (condition) { \
            const u32 to = pc + static_cast<u32>(static_cast<i32>(static_cast<i8>(p[1]))); \
            const int turn = 1 + (((pc ^ to) & 0xFF00) != 0); \
            cycle += turn; \
            __VA_ARGS__; \
            pc = to & 0xFFFF; \
        } \
        NEXT; }
#define WAIT_FOR_TIMER(low, high) \
    if (p[1] == 0xFB) [[unlikely]] { \
        i32 turns = wait_loop_turns(m.riot, code + (to & code_mask), m.frame_cycle + cycle, low, high, 6 + turn); \
        COUNT_TURNS(turns) \
        cycle += turns * (6 + turn); \
    }

    // Opcodes of the eight modes of the accumulator group share their low digit's pattern.
#define ALL_READS(h, g, ...) /* h: row of (zp,x); g: row of (zp),y */ \
    READ_INX(h##1, __VA_ARGS__) READ_ZP(h##5, __VA_ARGS__) READ_IMM(h##9, __VA_ARGS__) READ_ABS(h##D, __VA_ARGS__) \
    READ_INY(g##1, __VA_ARGS__) READ_ZPX(g##5, __VA_ARGS__) READ_ABY(g##9, __VA_ARGS__) READ_ABX(g##D, __VA_ARGS__)
#define ALL_SHIFTS(h, g, name) \
    MODIFY_ZP(h##6, result = name(value)) MODIFY_ABS(h##E, result = name(value)) \
    MODIFY_ZPX(g##6, result = name(value)) MODIFY_ABX(g##E, result = name(value)) IMPLIED(h##A, 2, a = name(a))
#define ALL_COMBINED(h, g, ...) /* undocumented: modify, then use the result on the accumulator */ \
    MODIFY_INX(h##3, __VA_ARGS__) MODIFY_ZP(h##7, __VA_ARGS__) MODIFY_ABS(h##F, __VA_ARGS__) MODIFY_INY(g##3, __VA_ARGS__) \
    MODIFY_ZPX(g##7, __VA_ARGS__) MODIFY_ABY(g##B, __VA_ARGS__) MODIFY_ABX(g##F, __VA_ARGS__)

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

    ALL_READS(0, 1, a |= value; nz = a)
    ALL_READS(2, 3, a &= value; nz = a)
    ALL_READS(4, 5, a ^= value; nz = a)
    ALL_READS(6, 7, adc(value))
    ALL_READS(A, B, a = value; nz = a)
    ALL_READS(C, D, compare(a, value))
    ALL_READS(E, F, sbc(value))
    READ_IMM(EB, sbc(value))

    READ_IMM(A2, x = value; nz = x) READ_ZP(A6, x = value; nz = x) READ_ABS(AE, x = value; nz = x)
    READ_ZPY(B6, x = value; nz = x) READ_ABY(BE, x = value; nz = x)
    READ_IMM(A0, y = value; nz = y) READ_ZP(A4, y = value; nz = y) READ_ABS(AC, y = value; nz = y)
    READ_ZPX(B4, y = value; nz = y) READ_ABX(BC, y = value; nz = y)
    READ_IMM(E0, compare(x, value)) READ_ZP(E4, compare(x, value)) READ_ABS(EC, compare(x, value))
    READ_IMM(C0, compare(y, value)) READ_ZP(C4, compare(y, value)) READ_ABS(CC, compare(y, value))
    READ_ZP(24, nz = (value & a) | (value & 0x80u) << 1; overflow = value >> 6 & 1)
    READ_ABS(2C, nz = (value & a) | (value & 0x80u) << 1; overflow = value >> 6 & 1)

    STORE_INX(81, a) STORE_ZP(85, a) STORE_ABS(8D, a) STORE_INY(91, a) STORE_ZPX(95, a) STORE_ABY(99, a) STORE_ABX(9D, a)
    STORE_ZP(86, x) STORE_ABS(8E, x) STORE_ZPY(96, x)
    STORE_ZP(84, y) STORE_ABS(8C, y) STORE_ZPX(94, y)
    STORE_INX(83, a & x) STORE_ZP(87, a & x) STORE_ABS(8F, a & x) STORE_ZPY(97, a & x)

    ALL_SHIFTS(0, 1, asl)
    ALL_SHIFTS(2, 3, rol)
    ALL_SHIFTS(4, 5, lsr)
    ALL_SHIFTS(6, 7, ror)
    MODIFY_ZP(C6, nz = result = static_cast<u8>(value - 1)) MODIFY_ABS(CE, nz = result = static_cast<u8>(value - 1))
    MODIFY_ZPX(D6, nz = result = static_cast<u8>(value - 1)) MODIFY_ABX(DE, nz = result = static_cast<u8>(value - 1))
    MODIFY_ZP(E6, nz = result = static_cast<u8>(value + 1)) MODIFY_ABS(EE, nz = result = static_cast<u8>(value + 1))
    MODIFY_ZPX(F6, nz = result = static_cast<u8>(value + 1)) MODIFY_ABX(FE, nz = result = static_cast<u8>(value + 1))

    IMPLIED(CA, 2, nz = --x)
    IMPLIED(88, 2, nz = --y)
    IMPLIED(E8, 2, nz = ++x)
    IMPLIED(C8, 2, nz = ++y)
    IMPLIED(AA, 2, nz = x = a)
    IMPLIED(A8, 2, nz = y = a)
    IMPLIED(8A, 2, nz = a = x)
    IMPLIED(98, 2, nz = a = y)
    IMPLIED(BA, 2, nz = x = sp)
    IMPLIED(9A, 2, sp = x)
    IMPLIED(18, 2, carry = 0)
    IMPLIED(38, 2, carry = 1)
    IMPLIED(58, 2, interrupt = 0)
    IMPLIED(78, 2, interrupt = 1)
    IMPLIED(B8, 2, overflow = 0)
    IMPLIED(D8, 2, decimal = 0)
    IMPLIED(F8, 2, decimal = 1)
    IMPLIED(48, 3, push(a); if (m.frame_done) { goto leave; })
    IMPLIED(08, 3, push(flags()); if (m.frame_done) { goto leave; })
    IMPLIED(68, 4, nz = a = pull())
    IMPLIED(28, 4, set_flags(pull()))

    BRANCH(10, !(nz & 0x180), WAIT_FOR_TIMER(0, 0x7F))
    BRANCH(30, nz & 0x180, WAIT_FOR_TIMER(0x7F, 0xFF))
    BRANCH(50, !overflow)
    BRANCH(70, overflow)
    BRANCH(90, !carry)
    BRANCH(B0, carry)
    BRANCH(D0, nz & 0xFF, WAIT_FOR_TIMER(0, 0xFF))
    BRANCH(F0, !(nz & 0xFF))

    JUMP(4C, 3, pc = p[1] | p[2] << 8)
    // The pointer's high byte comes from the same page.
    JUMP(6C, 5, const u32 at = p[1] | p[2] << 8; const u32 high = (at & 0xFF00u) | ((at + 1) & 0xFFu);
         pc = read(at, p[2]) | read(high, p[2]) << 8)
    JUMP(20, 6, const u32 back = pc + 2; const u32 to = p[1] | p[2] << 8; push(static_cast<u8>(back >> 8));
         push(static_cast<u8>(back)); pc = to)
    JUMP(60, 6, pc = pull(); pc = (pc | pull() << 8) + 1)
    JUMP(40, 6, set_flags(pull()); pc = pull(); pc |= pull() << 8)
    JUMP(00, 7, const u32 back = pc + 2; push(static_cast<u8>(back >> 8)); push(static_cast<u8>(back)); push(flags());
         interrupt = 1; pc = read(0xFFFE, 0) | read(0xFFFF, 0) << 8)

    // ---- undocumented opcodes ----
    ALL_COMBINED(0, 1, result = asl(value); a |= result; nz = a)
    ALL_COMBINED(2, 3, result = rol(value); a &= result; nz = a)
    ALL_COMBINED(4, 5, result = lsr(value); a ^= result; nz = a)
    ALL_COMBINED(6, 7, result = ror(value); adc(result))
    ALL_COMBINED(C, D, result = static_cast<u8>(value - 1); compare(a, result))
    ALL_COMBINED(E, F, result = static_cast<u8>(value + 1); sbc(result))
    READ_INX(A3, nz = x = a = value) READ_ZP(A7, nz = x = a = value) READ_ABS(AF, nz = x = a = value)
    READ_INY(B3, nz = x = a = value) READ_ZPY(B7, nz = x = a = value) READ_ABY(BF, nz = x = a = value)
    READ_ABY(BB, nz = a = x = sp = value & sp)
    READ_IMM(0B, nz = a = a & value; carry = a >> 7)
    READ_IMM(2B, nz = a = a & value; carry = a >> 7)
    READ_IMM(4B, a = lsr(a & value))
    READ_IMM(6B, a &= value; a = static_cast<u8>(a >> 1 | carry << 7); nz = a; carry = a >> 6 & 1; overflow = (a >> 6 ^ a >> 5) & 1)
    READ_IMM(8B, nz = a = static_cast<u8>((a | 0xEE) & x & value))
    READ_IMM(AB, nz = x = a = static_cast<u8>((a | 0xEE) & value))
    READ_IMM(CB, const u32 both = a & x; carry = both >= value; nz = x = static_cast<u8>(both - value))
    STORE_INY(93, a & x & ((at >> 8) + 1))
    STORE_ABY(9F, a & x & ((at >> 8) + 1))
    STORE_ABY(9E, x & ((at >> 8) + 1))
    STORE_ABX(9C, y & ((at >> 8) + 1))
    STORE_ABY(9B, (sp = a & x) & ((at >> 8) + 1))

    IMPLIED(EA, 2, ) IMPLIED(1A, 2, ) IMPLIED(3A, 2, ) IMPLIED(5A, 2, ) IMPLIED(7A, 2, ) IMPLIED(DA, 2, ) IMPLIED(FA, 2, )
    READ_IMM(80, (void)value) READ_IMM(82, (void)value) READ_IMM(89, (void)value) READ_IMM(C2, (void)value) READ_IMM(E2, (void)value)
    READ_ZP(04, (void)value) READ_ZP(44, (void)value) READ_ZP(64, (void)value)
    READ_ZPX(14, (void)value) READ_ZPX(34, (void)value) READ_ZPX(54, (void)value) READ_ZPX(74, (void)value)
    READ_ZPX(D4, (void)value) READ_ZPX(F4, (void)value)
    READ_ABS(0C, (void)value)
    READ_ABX(1C, (void)value) READ_ABX(3C, (void)value) READ_ABX(5C, (void)value) READ_ABX(7C, (void)value)
    READ_ABX(DC, (void)value) READ_ABX(FC, (void)value)

    // These stop the processor until it is reset.
op_02: op_12: op_22: op_32: op_42: op_52: op_62: op_72: op_92: op_B2: op_D2: op_F2:
#if defined(RND_TRANSLATED)
    return false;
#endif
    cycle += 2 * (budget + 1);

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
