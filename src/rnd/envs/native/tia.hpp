// TIA: television interface adaptor. Its registers: what a write changes and when, what a read returns.
#pragma once

#include <cstring>

#include "tia_time.hpp"

namespace rnd::atari::RND_TARGET {

// clang-format off
enum Register : u8 {
    VSYNC, VBLANK, WSYNC, RSYNC, NUSIZ0, NUSIZ1, COLUP0, COLUP1, COLUPF, COLUBK, CTRLPF, REFP0, REFP1, PF0, PF1, PF2,
    RESP0, RESP1, RESM0, RESM1, RESBL, AUDC0, AUDC1, AUDF0, AUDF1, AUDV0, AUDV1, GRP0, GRP1, ENAM0, ENAM1, ENABL,
    HMP0, HMP1, HMM0, HMM1, HMBL, VDELP0, VDELP1, VDELBL, RESMP0, RESMP1, HMOVE, HMCLR, CXCLR,
};
// clang-format on

// Registers whose write does nothing when the value is what was last written.
constexpr bool is_plain(unsigned reg) {
    return (reg >= NUSIZ0 && reg <= COLUBK) || (reg >= REFP0 && reg <= PF2) || (reg >= ENAM0 && reg <= VDELBL) || reg == RESMP0 ||
           reg == RESMP1;
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
// the blank also delays the screen by eight pixels; one near the line's end does not.
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
    auto effect = [&] { return clock + write_delay(reg, cycle); };
    // `shown`: the object looks different afterwards; false where a vertical delay holds the value back.
    auto set = [&](u8& field, u8 to, Object object, bool shown = true) __attribute__((always_inline)) {
        if (field == to) return;
        if (shown) advance_where(bus, effect(), [&](int x0, int x1) { return reaches(tia, object, x0, x1); });
        field = to;
        if (shown) changed(bus, 1u << object);
    };
    // `objects`: those that have this colour. While none of them is shown, the screen stays the same.
    auto colour = [&](u8& field, unsigned objects) __attribute__((always_inline)) {
        if (field == (value & 0xFE)) return;
        if (bus.screen && (live_objects(tia, objects) || shows_score(tia))) advance(bus, clock);
        field = value & 0xFE;
    };
    auto reset_position = [&](int object, int in_hblank, int delay) {
        const int hpos = line_clock();
        const int at = hpos < kHblankClocks ? in_hblank : (hpos - kHblankClocks + delay) % kScreenWidth;
        tia.position[object] = static_cast<u8>(at);
        changed(bus, 1u << object);
    };
    if (cycle >= kFrameCycles) [[unlikely]]
        m.frame_done = 1;
    switch (reg) {
        case VSYNC: {
            const i64 now = m.frame_cycle * 3 + clock;
            if (value & 2) {
                tia.vsync_clock = now + kClocksPerLine;
            } else if (tia.vsync_clock >= 0 && now >= tia.vsync_clock) {
                tia.vsync_clock = -1;
                m.frame_done = 1;
            }
            break;
        }
        case VBLANK:
            if ((value ^ tia.VBLANK) & 2) advance(bus, effect());
            tia.VBLANK = value;
            if (!bus.screen) look_ahead(bus);
            break;
        case NUSIZ0:
        case NUSIZ1: {
            const int n = static_cast<int>(reg) - NUSIZ0;
            if (tia.NUSIZ[n] == value && !tia.suppress[n]) break;
            advance(bus, effect());
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
            if (tia.CTRLPF != value) {
                advance(bus, clock);
                tia.CTRLPF = value;
                changed(bus, 1u << BL);
            }
            // The right half's direction is fixed when it starts.
            if (line_clock() < kHblankClocks + 79 && tia.reflected != (value & 1)) {
                advance(bus, clock);
                set_reflection(tia);
            }
            if (!bus.screen) look_ahead(bus);
            break;
        case REFP0: set(tia.REFP[0], value >> 3 & 1, P0); break;
        case REFP1: set(tia.REFP[1], value >> 3 & 1, P1); break;
        case PF0:
        case PF1:
        case PF2: {
            const int n = static_cast<int>(reg) - PF0;
            const u8 to = n == 0 ? value & 0xF0 : value;
            if (tia.PF[n] == to) break;
            advance_where(bus, effect(), [&](int x0, int x1) { return playfield_reaches(tia, n, x0, x1); });
            tia.PF[n] = to;
            changed(bus, 1u << PF);
            break;
        }
        case RESP0:
        case RESP1: {
            const int n = static_cast<int>(reg) - RESP0;
            const int hpos = line_clock();
            const int to = hpos < kHblankClocks ? 3 : (hpos - kHblankClocks + 5) % kScreenWidth;
            const PlayerPhase phase = player_phase(tia, n, to);
            advance(bus, phase == PlayerPhase::kDrawing ? clock + 11 : clock);
            tia.position[P0 + n] = static_cast<u8>(to);
            // At clock 0 the end of the last line is still to come, where it has one, and lifts the suppression.
            tia.suppress[n] =
                phase == PlayerPhase::kDrawing || (phase == PlayerPhase::kElsewhere && (hpos != 0 || !has_end(cycle / kCyclesPerLine - 1)));
            if (tia.suppress[n]) tia.shadow[NUSIZ0 + n] = kNeverEqual;
            changed(bus, 1u << (P0 + n));
            break;
        }
        case RESM0:
        case RESM1:
            advance(bus, effect());
            reset_position(M0 + static_cast<int>(reg) - RESM0, 2, 4);
            break;
        case RESBL:
            advance(bus, clock);
            reset_position(BL, 2, 4);
            break;
        case GRP0:
            set(tia.GRP[0], value, P0, !tia.VDELP[0]);
            set(tia.old_GRP[1], tia.GRP[1], P1, tia.VDELP[1]);
            break;
        case GRP1:
            set(tia.GRP[1], value, P1, !tia.VDELP[1]);
            set(tia.old_GRP[0], tia.GRP[0], P0, tia.VDELP[0]);
            set(tia.old_ENABL, tia.ENABL, BL, tia.VDELBL);
            break;
        case ENAM0: set(tia.ENAM[0], value >> 1 & 1, M0); break;
        case ENAM1: set(tia.ENAM[1], value >> 1 & 1, M1); break;
        case ENABL: set(tia.ENABL, value >> 1 & 1, BL, !tia.VDELBL); break;
        case HMP0:
        case HMP1:
        case HMM0:
        case HMM1:
        case HMBL: tia.HM[static_cast<int>(reg) - HMP0] = value & 0xF0; break;
        case VDELP0: set(tia.VDELP[0], value & 1, P0); break;
        case VDELP1: set(tia.VDELP[1], value & 1, P1); break;
        case VDELBL: set(tia.VDELBL, value & 1, BL); break;
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
            const int strobe = line_cycle();
            // Most programs strobe HMOVE on every line, and move objects on few. The comb alone does not matter to collisions.
            const bool moves = tia.HM[0] | tia.HM[1] | tia.HM[2] | tia.HM[3] | tia.HM[4] || kHmove.distance[strobe][0] != 0;
            const bool comb_alone = !moves && !(tia.suppress[0] | tia.suppress[1]);
            if (bus.screen || !comb_alone) advance(bus, clock);
            update_comb(bus, clock > bus.at ? clock : bus.at);
            if (strobe <= 20) tia.hmove_blank = kBlankThisLine;
            if (strobe == 75) tia.hmove_blank = kBlankNextLine;
            if (comb_alone) break;
            lift_suppression(tia);
            for (int object = 0; moves && object < 5; ++object) {
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
            tia.collision = kAllLatches;  // nothing is looked for that is forgotten at once
            if (!bus.screen) look_ahead(bus);
            advance_collisions(bus, clock);
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
[[gnu::noinline]] void tia_write_at(Bus& bus, u8 value, i32 cycle) {
    write_register(bus, kRegister, value, cycle);
}

// Undriven bits keep what was last on the data bus.
inline u8 tia_read(Bus& bus, u8 address, u8 data_bus) {
    Machine& m = bus.m;
    const u8 noise = data_bus & 0x3F;
    const unsigned reg = address & 15;
    bus.touched = m.cycle;
    bus.touched_register = WSYNC;
    if (reg < 8) {
        advance_collisions(bus, m.cycle * 3);
        return static_cast<u8>((m.tia.collision >> 2 * reg & 3) << 6 | noise);
    }
    switch (reg) {
        case 12:
        case 13: return static_cast<u8>((m.fire[reg - 12] ? 0 : 0x80) | noise);  // the latch that VBLANK's D6 turns on is not there
        default: return noise;
    }
}

}  // namespace rnd::atari::RND_TARGET
