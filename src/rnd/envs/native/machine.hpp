// The state of one Atari 2600 as plain data. Saving a machine is copying it: saving.cpp counts the versions of this layout.
#pragma once

#include <cstdint>
#include <type_traits>

namespace rnd::atari {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

constexpr int kCyclesPerLine = 76;
constexpr int kClocksPerLine = 228;
constexpr int kHblankClocks = 68;
constexpr int kScreenWidth = 160;
constexpr int kScreenHeight = 210;
constexpr int kFirstVisibleLine = 34;
constexpr int kScreenBytes = kScreenWidth * kScreenHeight;
constexpr int kRowsPerGroup = 5;  // of a screen; they make two rows of an observation
// A frame without vertical sync is cut here.
constexpr int kMaxLines = 290;
constexpr int kFrameCycles = (kMaxLines + 1) * kCyclesPerLine;

// The 6507's registers. N and Z are kept lazily in one word: Z is (nz & 0xFF) == 0, N is (nz & 0x180) != 0.
struct Cpu {
    u16 pc;
    u16 nz;
    u8 a, x, y, sp;
    u8 carry, overflow, decimal, interrupt;
};

// 6532: RAM, timer, two ports.
struct Riot {
    u8 ram[128];
    u8 ram_guard[8];   // operand fetches of code that runs at the end of RAM may look past it
    i64 timer_zero;    // the last cycle at which the timer shows zero before it runs out
    i64 timer_offset;  // how late INTIM was first read after it ran out, or -1
    u8 timer_shift;    // log2 of the interval: 0, 3, 6, 10
    u8 swacnt, swbcnt, swcha_out;
};

// The six objects that the TIA draws, in the order of `Tia::mask`.
enum Object : u8 { P0, P1, M0, M1, BL, PF, kObjects };

// 160 pixels as bits, padded so that four words fill one vector register. Bit x of the row is pixel x.
struct alignas(32) Row {
    u64 word[4];
};

struct Tia {
    Row mask[kObjects];  // where each object is on the current line; valid unless its bit in `stale` is set
    u8 VBLANK, CTRLPF;
    u8 NUSIZ[2], COLUP[2], COLUPF, COLUBK;
    u8 REFP[2], GRP[2], old_GRP[2], VDELP[2];
    u8 PF[3];
    u8 ENAM[2], ENABL, old_ENABL, VDELBL, RESMP[2];
    u8 HM[5];             // P0, P1, M0, M1, BL: the upper nibble as written
    u8 position[5];       // leftmost pixel of the first copy
    u8 reflected;         // CTRLPF's D0, as the right half of the line uses it
    u8 suppress[2];       // the player's first copy is hidden until the end of the line
    u8 hmove_blank;       // the comb: the first eight pixels of the line are black
    u8 stale;             // bit per object: mask must be rebuilt before use
    u8 visible;           // bit per object: its mask is not empty
    u8 line_is_collided;  // a whole line with these masks has already been tested for collisions
    u16 collision;
    u16 shadow[64];   // what was last written to a register that ignores a repeated value, else more than a byte
    i32 line;         // of the frame
    i32 clock;        // of the line: everything before it is drawn
    i64 vsync_clock;  // the colour clock at which VSYNC may end, or -1
};

struct Cartridge {
    u16 image;    // which of the 4K images of the ROM is in view
    u8 slice[3];  // of E0, in its three windows; the fourth shows the last one
};

struct Machine {
    Tia tia;
    Riot riot;
    Cpu cpu;
    Cartridge cartridge;
    u8 fire[2];       // pressed: 1
    u8 swcha, swchb;  // the ports' pins: 0 is pressed
    u8 frame_done;
    i32 cycle;        // since the start of the line in which the frame began
    i64 frame_cycle;  // the absolute cycle of that start
};
static_assert(std::is_trivially_copyable_v<Machine>);

// For machines that are loaded: the first field that no frame leaves behind, or null. Every field that is used as an index, a
// shift or a clock is here; `images` is the number of 4K images of the ROM. Registers and memory may hold anything.
inline const char* field_out_of_range(const Machine& m, int images) {
    constexpr i64 kLongest = i64{1} << 56;  // cycles
    const Tia& tia = m.tia;
    const Riot& riot = m.riot;
    auto within = [](i64 value, i64 low, i64 high) { return value >= low && value <= high; };
    if (!within(m.frame_cycle, 0, kLongest)) return "frame_cycle";
    // A frame that was cut continues: it is still counted from its own start (frame.hpp).
    if (m.frame_done > 1) return "frame_done";
    if (!within(m.cycle, 0, (m.frame_done ? 0 : kFrameCycles) + kCyclesPerLine - 1)) return "cycle";
    const i64 now = m.frame_cycle + m.cycle;
    if (!within(m.cartridge.image, 0, images - 1)) return "image";
    for (u8 slice : m.cartridge.slice)
        if (slice > 7) return "slice";
    if (riot.timer_shift != 0 && riot.timer_shift != 3 && riot.timer_shift != 6 && riot.timer_shift != 10) return "timer_shift";
    if (!within(riot.timer_zero, 0, now + (0xFF << 10))) return "timer_zero";
    if (!within(riot.timer_offset, -1, now)) return "timer_offset";
    if (!within(tia.line, 0, kMaxLines + !m.frame_done)) return "line";
    if (!within(tia.clock, 0, kClocksPerLine - 1)) return "clock";
    if (!within(tia.vsync_clock, -1, 3 * now + kClocksPerLine)) return "vsync_clock";
    for (u8 position : tia.position)
        if (position >= kScreenWidth) return "position";
    if (tia.suppress[0] > 1 || tia.suppress[1] > 1) return "suppress";
    if (tia.stale >> kObjects) return "stale";
    if (tia.visible >> kObjects) return "visible";
    const Cpu& cpu = m.cpu;
    if (cpu.nz > 0x1FF) return "nz";
    if (cpu.carry > 1 || cpu.overflow > 1 || cpu.decimal > 1 || cpu.interrupt > 1) return "flags";
    return nullptr;
}

}  // namespace rnd::atari
