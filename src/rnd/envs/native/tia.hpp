// TIA: television interface adaptor. Objects are 160-bit masks of the current line; a line is advanced lazily, up to the
// colour clock of the write or read that needs it. Collisions are ANDs of masks, pixels are blends by mask. On a frame that
// nobody will see, time is one number, and lines are looked at only while a new collision is possible.
#pragma once

#include <cstring>

#include "draw.hpp"
#include "machine.hpp"

namespace rnd::atari::RND_TARGET {

// What an instruction sees beside the machine itself. Not part of the state.
struct Bus {
    Machine& m;
    u8* screen;        // 210 x 160 colour bytes, or null when this frame will not be seen
    u64* changed_rows;  // a bit is set for every five rows of `screen` of which a pixel changes
    u8* reached = nullptr;  // with RND_RECORDING: `Reached` of every place
    i32 touched = -1;       // the cycle of the frame at which the program last wrote or read a register of the TIA,
    u8 touched_register = 0;  // and which one it wrote
    // Of a frame that is not seen:
    i32 at = 0;         // colour clocks that are done, counted as in `advance`
    i32 comb_line = 0;  // the line at which `hmove_blank` is up to date
    unsigned live = 0;  // bit per object: its registers show it somewhere
    unsigned open = 0;  // not zero: passing time can change something
};

inline void mark_stale(Tia& tia, unsigned objects) {
    tia.stale |= static_cast<u8>(objects);
    tia.line_is_collided = 0;
}

constexpr unsigned kAllObjects = (1u << kObjects) - 1;

// ---- masks ----

// The copies that NUSIZ asks for. Multiplying an object's bits by `near` and `far` repeats them at 0, 16 and 32 pixels and
// at 64; the second entry leaves out the first copy.
struct Copies {
    u8 count;
    u8 offset[3];
    u8 scale;  // log2 of a player's pixel width
    u64 near[2];
    u64 far;
};
constexpr u64 kAt16 = u64{1} << 16, kAt32 = u64{1} << 32;
constexpr Copies kCopies[8] = {
    {1, {0, 0, 0}, 0, {1, 0}, 0},
    {2, {0, 16, 0}, 0, {1 | kAt16, kAt16}, 0},
    {2, {0, 32, 0}, 0, {1 | kAt32, kAt32}, 0},
    {3, {0, 16, 32}, 0, {1 | kAt16 | kAt32, kAt16 | kAt32}, 0},
    {2, {0, 64, 0}, 0, {1, 0}, 1},
    {1, {0, 0, 0}, 1, {1, 0}, 0},
    {3, {0, 32, 64}, 0, {1 | kAt32, kAt32}, 1},
    {1, {0, 0, 0}, 2, {1, 0}, 0},
};

inline void place_copies(Row& row, u64 bits, const Copies& copies, unsigned suppressed, unsigned position) {
    const u64 near = bits * copies.near[suppressed], far = bits * copies.far;
    const unsigned shift = position & 63;
    const u64 a = near << shift;
    const u64 b = near >> 1 >> (63 - shift) | far << shift;
    const u64 c = far >> 1 >> (63 - shift);
    constexpr u64 kLow = 0xFFFFFFFFu;
    // What leaves on the right comes in on the left. (Branches, because the words must not go through memory.)
    if (position < 64) {
        row.word[0] = a;
        row.word[1] = b;
        row.word[2] = c;
    } else if (position < 128) {
        row.word[0] = b >> 32 | c << 32;
        row.word[1] = a | c >> 32;
        row.word[2] = b & kLow;
    } else {
        row.word[0] = a >> 32 | b << 32;
        row.word[1] = b >> 32 | c << 32;
        row.word[2] = a & kLow;
    }
    row.word[3] = 0;
}

constexpr u8 reversed(u8 b) {
    b = static_cast<u8>((b & 0xF0) >> 4 | (b & 0x0F) << 4);
    b = static_cast<u8>((b & 0xCC) >> 2 | (b & 0x33) << 2);
    return static_cast<u8>((b & 0xAA) >> 1 | (b & 0x55) << 1);
}

struct PixelTables {
    u8 reverse[256];
    u16 twice[256];   // every bit two pixels wide
    u32 four[256];    // every bit four pixels wide
};
constexpr PixelTables make_pixel_tables() {
    PixelTables t{};
    for (unsigned b = 0; b < 256; ++b) {
        t.reverse[b] = reversed(static_cast<u8>(b));
        for (unsigned i = 0; i < 8; ++i) {
            if (b >> i & 1) {
                t.twice[b] = static_cast<u16>(t.twice[b] | 3u << 2 * i);
                t.four[b] |= 15u << 4 * i;
            }
        }
    }
    return t;
}
constexpr PixelTables kPixels = make_pixel_tables();

inline void build_player(Tia& tia, int n) {
    u8 graphics = tia.VDELP[n] ? tia.old_GRP[n] : tia.GRP[n];
    Row& row = tia.mask[P0 + n];
    if (graphics == 0) {
        row = Row{};
        return;
    }
    if (!tia.REFP[n]) graphics = kPixels.reverse[graphics];
    const Copies& copies = kCopies[tia.NUSIZ[n] & 7];
    u64 bits = graphics;
    // Wide players start one clock later.
    if (copies.scale == 1) bits = u64{kPixels.twice[graphics]} << 1;
    if (copies.scale == 2) bits = u64{kPixels.four[graphics]} << 1;
    place_copies(row, bits, copies, tia.suppress[n], tia.position[P0 + n]);
}

inline void build_missile(Tia& tia, int n) {
    Row& row = tia.mask[M0 + n];
    if (!tia.ENAM[n] || tia.RESMP[n]) {
        row = Row{};
        return;
    }
    const u64 bits = (1u << (1u << (tia.NUSIZ[n] >> 4 & 3))) - 1;
    place_copies(row, bits, kCopies[tia.NUSIZ[n] & 7], 0, tia.position[M0 + n]);
}

inline void build_ball(Tia& tia) {
    if (!(tia.VDELBL ? tia.old_ENABL : tia.ENABL)) {
        tia.mask[BL] = Row{};
        return;
    }
    const u64 bits = (1u << (1u << (tia.CTRLPF >> 4 & 3))) - 1;
    place_copies(tia.mask[BL], bits, kCopies[0], 0, tia.position[BL]);
}

inline void build_playfield(Tia& tia) {
    // PF0 shows D4 first, PF1 D7 first, PF2 D0 first; four pixels per bit.
    const u64 pf0 = kPixels.four[tia.PF[0] >> 4];
    const u64 pf1 = kPixels.four[kPixels.reverse[tia.PF[1]]];
    const u64 pf2 = kPixels.four[tia.PF[2]];
    u64* w = tia.mask[PF].word;
    const u64 low = pf0 | pf1 << 16 | pf2 << 48;  // pixels 0 to 63 of the left half
    const u64 high = pf2 >> 16;                   // pixels 64 to 79
    w[3] = 0;
    w[0] = low;
    if (tia.reflected) {
        const u64 rf2 = kPixels.four[kPixels.reverse[tia.PF[2]]];
        const u64 rf1 = kPixels.four[tia.PF[1]];
        const u64 rf0 = kPixels.four[kPixels.reverse[tia.PF[0]] & 15];
        // Right half: rf2 at 80, rf1 at 112, rf0 at 144.
        w[1] = high | rf2 << 16 | rf1 << 48;
        w[2] = rf1 >> 16 | rf0 << 16;
    } else {
        w[1] = high | low << 16;
        w[2] = low >> 48 | high << 16;
    }
}

inline bool is_visible(const Row& row) { return (row.word[0] | row.word[1] | row.word[2]) != 0; }

inline void refresh_masks(Tia& tia, unsigned objects = kAllObjects) {
    objects &= tia.stale;
    if (!objects) return;
    unsigned visible = tia.visible & ~objects;
    auto build = [&](Object object, auto&& builder) {
        if (!(objects >> object & 1)) return;
        builder();
        visible |= static_cast<unsigned>(is_visible(tia.mask[object])) << object;
    };
    build(P0, [&] { build_player(tia, 0); });
    build(P1, [&] { build_player(tia, 1); });
    build(M0, [&] { build_missile(tia, 0); });
    build(M1, [&] { build_missile(tia, 1); });
    build(BL, [&] { build_ball(tia); });
    build(PF, [&] { build_playfield(tia); });
    tia.visible = static_cast<u8>(visible);
    tia.stale = static_cast<u8>(tia.stale & ~objects);
}

// ---- time ----

enum : u8 { kBlankThisLine = 1, kBlankNextLine = 2 };

// Nothing outside these lines is drawn or collides.
inline bool is_visible_line(i32 line) { return static_cast<u32>(line - kFirstVisibleLine) < kScreenHeight; }

inline void collide(Tia& tia, unsigned visible, int x0, int x1) {
    const bool whole = x0 == 0 && x1 == kScreenWidth;
    if (whole && tia.line_is_collided) return;
    tia.line_is_collided = whole;
    const unsigned wanted = kPossible.latches[visible] & ~unsigned{tia.collision};
    if (!wanted) return;
    if (tia.stale & visible) {
        unsigned needed = 0;
        for (int object = 0; object < kObjects; ++object) needed |= static_cast<unsigned>((kPairOf.latches[object] & wanted) != 0) << object;
        refresh_masks(tia, needed);
    }
    tia.collision |= collisions(tia.mask, wanted, x0, x1);
}

// Draws and collides clocks [from, to) of the current line.
[[gnu::noinline]] inline void segment(Bus& bus, int from, int to) {
    Tia& tia = bus.m.tia;
    if (!is_visible_line(tia.line)) return;
    int x0 = from > kHblankClocks ? from - kHblankClocks : 0;
    const int x1 = to - kHblankClocks;
    const int row = tia.line - kFirstVisibleLine;
    u8* pixels = bus.screen + row * kScreenWidth;
    auto note = [&](bool changed) { *bus.changed_rows |= static_cast<u64>(changed) << row / kRowsPerGroup; };
    if (tia.VBLANK & 2) return note(blank(pixels, x0, x1));
    refresh_masks(tia);
    collide(tia, tia.visible, x0, x1);
    // Objects collide under the comb too, but are not seen there.
    if (tia.hmove_blank == kBlankThisLine && x0 < 8) {
        const int end = x1 < 8 ? x1 : 8;
        note(blank(pixels, x0, end));
        x0 = end;
        if (x0 == x1) return;
    }
    note(draw(tia, pixels, x0, x1));
}

inline void set_reflection(Tia& tia) {
    if (tia.reflected == (tia.CTRLPF & 1)) return;
    tia.reflected = tia.CTRLPF & 1;
    mark_stale(tia, 1u << PF);
}

inline void lift_suppression(Tia& tia) {
    if (!(tia.suppress[0] | tia.suppress[1])) return;
    tia.suppress[0] = tia.suppress[1] = 0;
    mark_stale(tia, 1u << P0 | 1u << P1);
}

// In ale-py a line outside the picture has no end: what lasts until the end of a line then lasts until that of the first row.
inline void end_line(Tia& tia, i32 line) {
    if (!is_visible_line(line)) return;
    set_reflection(tia);
    lift_suppression(tia);
}

// The comb at the start of line `to`, when it was `blank` in line `from`.
constexpr u8 comb_after(u8 blank, i32 from, i32 to) {
    if (blank == kBlankNextLine && from < to) {
        blank = kBlankThisLine;
        ++from;
    }
    const i32 first = from > kFirstVisibleLine ? from : kFirstVisibleLine;
    const bool passed = first < to && first < kFirstVisibleLine + kScreenHeight;
    return blank == kBlankThisLine && passed ? 0 : blank;
}

// What time can still change on a frame that is not seen: a latch, or how an object looks from the next line on.
inline void look_ahead(Bus& bus) {
    const Tia& tia = bus.m.tia;
    const unsigned latches = tia.VBLANK & 2 ? 0u : kPossible.latches[bus.live] & ~unsigned{tia.collision};
    bus.open = latches | unsigned{tia.suppress[0]} | tia.suppress[1] | ((tia.reflected ^ tia.CTRLPF) & 1u);
}

[[gnu::noinline]] inline void advance_unseen(Bus& bus, i32 clock) {
    Tia& tia = bus.m.tia;
    i32 line = bus.at / kClocksPerLine;
    i32 from = bus.at - line * kClocksPerLine, target = clock - line * kClocksPerLine;
    auto segment = [&](int end) {
        if (end <= from || end <= kHblankClocks || tia.VBLANK & 2 || !is_visible_line(line)) return;
        collide(tia, bus.live, from > kHblankClocks ? from - kHblankClocks : 0, end - kHblankClocks);
    };
    for (; target >= kClocksPerLine; target -= kClocksPerLine, ++line, from = 0) {
        segment(kClocksPerLine);
        end_line(tia, line);
    }
    segment(target);
    bus.at = clock;
    look_ahead(bus);
}

// Brings the picture up to `clock`, counted from the start of the frame.
inline void advance(Bus& bus, i32 clock) {
    Tia& tia = bus.m.tia;
    if (!bus.screen) {
        if (clock <= bus.at) return;
        if (bus.open) advance_unseen(bus, clock);
        bus.at = clock;
        return;
    }
    i32 target = clock - tia.line * kClocksPerLine;
    while (target >= kClocksPerLine) {
        segment(bus, tia.clock, kClocksPerLine);
        end_line(tia, tia.line);
        tia.hmove_blank = comb_after(tia.hmove_blank, tia.line, tia.line + 1);
        ++tia.line;
        tia.clock = 0;
        target -= kClocksPerLine;
    }
    if (target > tia.clock) {
        if (target > kHblankClocks) segment(bus, tia.clock, target);
        tia.clock = target;
    }
}

// ---- frames that are not seen: from line and clock to one number, and back ----

inline unsigned live_objects(const Tia& tia, unsigned objects) {
    unsigned live = 0;
    auto test = [&](Object object, auto&& shown) {
        if (objects >> object & 1) live |= static_cast<unsigned>(shown() != 0) << object;
    };
    test(P0, [&] { return tia.VDELP[0] ? tia.old_GRP[0] : tia.GRP[0]; });
    test(P1, [&] { return tia.VDELP[1] ? tia.old_GRP[1] : tia.GRP[1]; });
    test(M0, [&] { return tia.ENAM[0] && !tia.RESMP[0]; });
    test(M1, [&] { return tia.ENAM[1] && !tia.RESMP[1]; });
    test(BL, [&] { return tia.VDELBL ? tia.old_ENABL : tia.ENABL; });
    test(PF, [&] { return tia.PF[0] | tia.PF[1] | tia.PF[2]; });
    return live;
}

inline void begin_unseen(Bus& bus) {
    const Tia& tia = bus.m.tia;
    bus.at = tia.line * kClocksPerLine + tia.clock;
    bus.comb_line = tia.line;
    bus.live = live_objects(tia, kAllObjects);
    look_ahead(bus);
}

inline void update_comb(Bus& bus) {
    if (bus.screen) return;
    const i32 line = bus.at / kClocksPerLine;
    bus.m.tia.hmove_blank = comb_after(bus.m.tia.hmove_blank, bus.comb_line, line);
    bus.comb_line = line;
}

inline void end_unseen(Bus& bus) {
    update_comb(bus);
    bus.m.tia.line = bus.at / kClocksPerLine;
    bus.m.tia.clock = bus.at % kClocksPerLine;
}

// After registers of `objects` changed.
[[gnu::always_inline]] inline void changed(Bus& bus, unsigned objects) {
    mark_stale(bus.m.tia, objects);
    if (bus.screen) return;
    bus.live = (bus.live & ~objects) | live_objects(bus.m.tia, objects);
    look_ahead(bus);
}

// ---- registers ----

enum Register : u8 {
    VSYNC, VBLANK, WSYNC, RSYNC, NUSIZ0, NUSIZ1, COLUP0, COLUP1, COLUPF, COLUBK, CTRLPF, REFP0, REFP1, PF0, PF1, PF2,
    RESP0, RESP1, RESM0, RESM1, RESBL, AUDC0, AUDC1, AUDF0, AUDF1, AUDV0, AUDV1, GRP0, GRP1, ENAM0, ENAM1, ENABL,
    HMP0, HMP1, HMM0, HMM1, HMBL, VDELP0, VDELP1, VDELBL, RESMP0, RESMP1, HMOVE, HMCLR, CXCLR,
};

// Registers whose write does nothing when the value is what was last written.
constexpr bool is_plain(unsigned reg) {
    return (reg >= NUSIZ0 && reg <= COLUBK) || (reg >= REFP0 && reg <= PF2) || (reg >= ENAM0 && reg <= VDELBL) || reg == RESMP0 || reg == RESMP1;
}
constexpr u16 kNeverEqual = 0x100;

inline void move(Tia& tia, int object, int pixels_left) {
    int at = tia.position[object] - pixels_left;
    if (at < 0) at += kScreenWidth;
    if (at >= kScreenWidth) at -= kScreenWidth;
    tia.position[object] = static_cast<u8>(at);
}

// How far left HMOVE moves an object, by the cycle of the line at which it is strobed. The TIA gives the object up to
// fifteen extra clocks, one every four colour clocks, of which only those in the horizontal blank count. An HMOVE in
// the blank also delays the picture by eight pixels; one near the line's end does not.
constexpr int hmove_distance(int cycle, int hm) {
    const int wanted = hm ^ 8;
    if (cycle <= 20 || cycle == 75) {
        const int fitting = cycle == 75 ? 15 : (70 - 3 * cycle) / 4;
        return (wanted < fitting ? wanted : fitting) - 8;
    }
    if (cycle < 54) return 0;
    const int lost = cycle >= 73 ? 0 : (3 * (73 - cycle) + 3) / 4;
    return wanted > lost ? wanted - lost : 0;
}

struct HmoveTable {
    i8 distance[kCyclesPerLine][16];  // by the cycle and the upper nibble of HMxx
};
constexpr HmoveTable make_hmove() {
    HmoveTable t{};
    for (int cycle = 0; cycle < kCyclesPerLine; ++cycle)
        for (int hm = 0; hm < 16; ++hm) t.distance[cycle][hm] = static_cast<i8>(hmove_distance(cycle, hm));
    return t;
}
constexpr HmoveTable kHmove = make_hmove();

// What a player does when its position is reset to `to`. A copy that is being drawn is finished, one that is about to
// start is drawn at the new position, and otherwise nothing appears at the new position before the next line.
enum class PlayerPhase { kElsewhere, kStarting, kDrawing };
inline PlayerPhase player_phase(const Tia& tia, int n, int to) {
    const Copies& copies = kCopies[tia.NUSIZ[n] & 7];
    for (int i = 0; i < copies.count; ++i) {
        const int since = (to - tia.position[P0 + n] - copies.offset[i] + 2 * kScreenWidth) % kScreenWidth;
        if (since < 4) return PlayerPhase::kStarting;
        if (since < 4 + (8 << copies.scale)) return PlayerPhase::kDrawing;
    }
    return PlayerPhase::kElsewhere;
}

// Colour clocks from a write to its effect.
constexpr int write_delay(unsigned reg, i32 cycle) {
    constexpr int kPlayfield[4] = {4, 5, 2, 3};
    switch (reg) {
        case VBLANK:
        case REFP0:
        case REFP1:
        case GRP0:
        case GRP1: return 1;
        case NUSIZ0:
        case NUSIZ1:
        case RESM0:
        case RESM1: return 8;
        case PF0:
        case PF1:
        case PF2: return kPlayfield[static_cast<u32>(cycle) % kCyclesPerLine & 3];
        default: return 0;
    }
}

[[gnu::always_inline]] inline void write_register(Bus& bus, unsigned reg, u8 value, i32 cycle) {
    Machine& m = bus.m;
    Tia& tia = m.tia;
    const i32 clock = cycle * 3;
    auto line_cycle = [cycle] { return static_cast<int>(static_cast<u32>(cycle) % kCyclesPerLine); };
    auto line_clock = [&] { return line_cycle() * 3; };
    if (is_plain(reg)) tia.shadow[reg] = value;
    auto advance_to_effect = [&] { advance(bus, clock + write_delay(reg, cycle)); };
    // `objects`: those that look different afterwards; none where a vertical delay holds the value back.
    auto set = [&](u8& value, u8 to, unsigned objects) __attribute__((always_inline)) {
        if (value == to) return;
        if (objects) advance_to_effect();
        value = to;
        if (objects) changed(bus, objects);
    };
    // `objects`: those that have this colour. While none of them is shown, the picture stays the same.
    auto colour = [&](u8& reg, unsigned objects) __attribute__((always_inline)) {
        if (reg == (value & 0xFE)) return;
        if (bus.screen && (live_objects(tia, objects) || shows_score(tia))) advance(bus, clock);
        reg = value & 0xFE;
    };
    auto reset_position = [&](int object, int in_hblank, int delay) {
        const int hpos = line_clock();
        const int at = hpos < kHblankClocks ? in_hblank : (hpos - kHblankClocks + delay) % kScreenWidth;
        tia.position[object] = static_cast<u8>(at);
        changed(bus, 1u << object);
    };
    if (cycle >= kFrameCycles) [[unlikely]] m.frame_done = 1;
    switch (reg) {
        case VSYNC: {
            const i64 now = m.frame_cycle * 3 + clock;
            tia.VSYNC = value;
            if (value & 2) {
                tia.vsync_clock = now + kClocksPerLine;
            } else if (tia.vsync_clock >= 0 && now >= tia.vsync_clock) {
                tia.vsync_clock = -1;
                m.frame_done = 1;
            }
            break;
        }
        case VBLANK:
            if ((value ^ tia.VBLANK) & 2) advance_to_effect();
            tia.VBLANK = value;
            if (!bus.screen) look_ahead(bus);
            break;
        case NUSIZ0:
        case NUSIZ1: {
            const int n = static_cast<int>(reg) - NUSIZ0;
            if (tia.NUSIZ[n] == value && !tia.suppress[n]) break;
            advance_to_effect();
            tia.NUSIZ[n] = value;
            tia.suppress[n] = 0;
            changed(bus, 1u << (P0 + n) | 1u << (M0 + n));
            break;
        }
        case COLUP0: colour(tia.COLUP[0], 1u << P0 | 1u << M0); break;
        case COLUP1: colour(tia.COLUP[1], 1u << P1 | 1u << M1); break;
        case COLUPF: colour(tia.COLUPF, 1u << PF | 1u << BL); break;
        case COLUBK:
            if (bus.screen && tia.COLUBK != (value & 0xFE)) advance(bus, clock);
            tia.COLUBK = value & 0xFE;
            break;
        case CTRLPF:
            set(tia.CTRLPF, value, 1u << BL);
            // The right half's direction is fixed when it starts.
            if (line_clock() < kHblankClocks + 79 && tia.reflected != (value & 1)) {
                advance(bus, clock);
                set_reflection(tia);
            }
            if (!bus.screen) look_ahead(bus);
            break;
        case REFP0: set(tia.REFP[0], value >> 3 & 1, 1u << P0); break;
        case REFP1: set(tia.REFP[1], value >> 3 & 1, 1u << P1); break;
        case PF0:
        case PF1:
        case PF2: set(tia.PF[reg - PF0], reg == PF0 ? value & 0xF0 : value, 1u << PF); break;
        case RESP0:
        case RESP1: {
            const int n = static_cast<int>(reg) - RESP0;
            const int hpos = line_clock();
            const int to = hpos < kHblankClocks ? 3 : (hpos - kHblankClocks + 5) % kScreenWidth;
            const PlayerPhase phase = player_phase(tia, n, to);
            advance(bus, phase == PlayerPhase::kDrawing ? clock + 11 : clock);
            tia.position[P0 + n] = static_cast<u8>(to);
            // At clock 0 the end of the last line is still to come, and lifts the suppression.
            tia.suppress[n] = phase == PlayerPhase::kDrawing || (phase == PlayerPhase::kElsewhere && hpos != 0);
            if (tia.suppress[n]) tia.shadow[NUSIZ0 + n] = kNeverEqual;
            changed(bus, 1u << (P0 + n));
            break;
        }
        case RESM0:
        case RESM1:
            advance_to_effect();
            reset_position(M0 + static_cast<int>(reg) - RESM0, 2, 4);
            break;
        case RESBL:
            advance(bus, clock);
            reset_position(BL, 2, 4);
            break;
        case GRP0:
            set(tia.GRP[0], value, tia.VDELP[0] ? 0 : 1u << P0);
            set(tia.old_GRP[1], tia.GRP[1], tia.VDELP[1] ? 1u << P1 : 0);
            break;
        case GRP1:
            set(tia.GRP[1], value, tia.VDELP[1] ? 0 : 1u << P1);
            set(tia.old_GRP[0], tia.GRP[0], tia.VDELP[0] ? 1u << P0 : 0);
            set(tia.old_ENABL, tia.ENABL, tia.VDELBL ? 1u << BL : 0);
            break;
        case ENAM0: set(tia.ENAM[0], value >> 1 & 1, 1u << M0); break;
        case ENAM1: set(tia.ENAM[1], value >> 1 & 1, 1u << M1); break;
        case ENABL: set(tia.ENABL, value >> 1 & 1, tia.VDELBL ? 0 : 1u << BL); break;
        case HMP0:
        case HMP1:
        case HMM0:
        case HMM1:
        case HMBL: tia.HM[static_cast<int>(reg) - HMP0] = value & 0xF0; break;
        case VDELP0: set(tia.VDELP[0], value & 1, 1u << P0); break;
        case VDELP1: set(tia.VDELP[1], value & 1, 1u << P1); break;
        case VDELBL: set(tia.VDELBL, value & 1, 1u << BL); break;
        case RESMP0:
        case RESMP1: {
            const int n = static_cast<int>(reg) - RESMP0;
            if (tia.RESMP[n] == (value >> 1 & 1)) break;
            advance(bus, clock);
            if (tia.RESMP[n]) {
                // Released: the missile stands at the player's middle.
                const int middle = (tia.NUSIZ[n] & 7) == 5 ? 8 : (tia.NUSIZ[n] & 7) == 7 ? 16 : 4;
                tia.position[M0 + n] = static_cast<u8>((tia.position[P0 + n] + middle) % kScreenWidth);
            }
            tia.RESMP[n] = value >> 1 & 1;
            changed(bus, 1u << (M0 + n));
            break;
        }
        case HMOVE: {
            advance(bus, clock);
            update_comb(bus);
            const int strobe = line_cycle();
            if (strobe <= 20) tia.hmove_blank = kBlankThisLine;
            if (strobe == 75) tia.hmove_blank = kBlankNextLine;
            lift_suppression(tia);
            // Most programs strobe HMOVE on every line, and move objects on few.
            const bool all_rest = !(tia.HM[0] | tia.HM[1] | tia.HM[2] | tia.HM[3] | tia.HM[4]) && kHmove.distance[strobe][0] == 0;
            for (int object = 0; !all_rest && object < 5; ++object) {
                const int distance = kHmove.distance[strobe][tia.HM[object] >> 4];
                if (distance == 0) continue;
                move(tia, object, distance);
                mark_stale(tia, 1u << object);
            }
            if (!bus.screen) look_ahead(bus);
            break;
        }
        case HMCLR:
            std::memset(tia.HM, 0, sizeof tia.HM);
            std::memset(tia.shadow + HMP0, 0, 5 * sizeof tia.shadow[0]);
            break;
        case CXCLR:
            advance(bus, clock);
            tia.collision = 0;
            tia.line_is_collided = 0;
            if (!bus.screen) look_ahead(bus);
            break;
        default: break;
    }
}

[[gnu::noinline]] inline void tia_write(Bus& bus, u8 address, u8 value, i32 cycle) { write_register(bus, address & 0x3F, value, cycle); }

// A write of a program that names its register.
template <u8 kRegister>
[[gnu::noinline]] void tia_write_at(Bus& bus, u8 value, i32 cycle) { write_register(bus, kRegister, value, cycle); }

// Undriven bits keep what was last on the data bus.
inline u8 tia_read(Bus& bus, u8 address, u8 data_bus) {
    Machine& m = bus.m;
    const u8 noise = data_bus & 0x3F;
    const unsigned reg = address & 15;
    bus.touched = m.cycle;
    bus.touched_register = WSYNC;
    if (reg < 8) {
        advance(bus, m.cycle * 3);
        return static_cast<u8>((m.tia.collision >> 2 * reg & 3) << 6 | noise);
    }
    switch (reg) {
        case 12:
        case 13:
            return static_cast<u8>((m.fire[reg - 12] ? 0 : 0x80) | noise);  // the latch that VBLANK's D6 turns on is not there
        default: return noise;
    }
}

}  // namespace rnd::atari::RND_TARGET
