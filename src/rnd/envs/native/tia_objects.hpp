// Where the TIA's objects are on the current line: players, missiles, ball and playfield as 160-bit masks, made when they are
// needed from the registers as they are now.
#pragma once

#include "draw.hpp"
#include "machine.hpp"

namespace rnd::atari::RND_TARGET {

inline void mark_stale(Tia& tia, unsigned objects) {
    tia.stale |= static_cast<u8>(objects);
    tia.line_is_collided = 0;
}

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
    u16 twice[256];  // every bit two pixels wide
    u32 four[256];   // every bit four pixels wide
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

}  // namespace rnd::atari::RND_TARGET
