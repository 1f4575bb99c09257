// One line of the screen: collisions and pixels from the objects' masks. The three targets give equal bytes.
#pragma once

#include <cstring>
#include <type_traits>

#include "machine.hpp"
#if defined(RND_AVX512) || defined(RND_AVX2)
#include <immintrin.h>
#endif

namespace rnd::atari::RND_TARGET {

constexpr unsigned kAllObjects = (1u << kObjects) - 1;

// Row x has the bits below x set.
struct BelowTable {
    Row row[kScreenWidth + 1];
};
constexpr BelowTable make_below() {
    BelowTable t{};
    for (int x = 0; x <= kScreenWidth; ++x)
        for (int i = 0; i < x; ++i) t.row[x].word[i >> 6] |= u64{1} << (i & 63);
    return t;
}
constexpr BelowTable kBelow = make_below();

// The collision latches: two bits a read register, D6 then D7, in the order of the registers' addresses.
struct Pair {
    u8 a, b, bit;
};
constexpr Pair kPairs[15] = {
    {M0, P0, 0}, {M0, P1, 1}, {M1, P1, 2},  {M1, P0, 3},  {P0, BL, 4},  {P0, PF, 5},  {P1, BL, 6},  {P1, PF, 7},
    {M0, BL, 8}, {M0, PF, 9}, {M1, BL, 10}, {M1, PF, 11}, {BL, PF, 13}, {M0, M1, 14}, {P0, P1, 15},
};
constexpr u16 kAllLatches = 0xFFFF;
// Which latches a set of visible objects can set.
struct PossibleTable {
    u16 latches[1 << kObjects];
};
constexpr PossibleTable make_possible() {
    PossibleTable t{};
    for (unsigned visible = 0; visible < 1u << kObjects; ++visible)
        for (const Pair& pair : kPairs)
            if (visible >> pair.a & visible >> pair.b & 1) t.latches[visible] = static_cast<u16>(t.latches[visible] | 1u << pair.bit);
    return t;
}
constexpr PossibleTable kPossible = make_possible();

// The objects of each latch, and the latches of each object.
struct PairOf {
    u8 object[16][2];
    u16 latches[kObjects];
};
constexpr PairOf make_pair_of() {
    PairOf t{};
    for (const Pair& pair : kPairs) {
        t.object[pair.bit][0] = pair.a;
        t.object[pair.bit][1] = pair.b;
        t.latches[pair.a] = static_cast<u16>(t.latches[pair.a] | 1u << pair.bit);
        t.latches[pair.b] = static_cast<u16>(t.latches[pair.b] | 1u << pair.bit);
    }
    return t;
}
constexpr PairOf kPairOf = make_pair_of();

// The latches among `wanted` that pixels [x0, x1) set. The masks of their objects must be fresh.
inline u16 collisions(const Row* mask, unsigned wanted, int x0, int x1) {
    unsigned bits = 0;
    // Word by word: the masks were just written so, and a wide load would wait for them.
    for (int w = x0 >> 6; w <= (x1 - 1) >> 6; ++w) {
        u64 seen = mask[P0].word[w], twice = 0;
#pragma GCC unroll 5
        for (int object = P1; object < kObjects; ++object) {
            twice |= seen & mask[object].word[w];
            seen |= mask[object].word[w];
        }
        twice &= kBelow.row[x1].word[w] & ~kBelow.row[x0].word[w];
        if (!twice) continue;
        for (unsigned left = wanted; left; left &= left - 1) {
            const int bit = __builtin_ctz(left);
            const u64 both = mask[kPairOf.object[bit][0]].word[w] & mask[kPairOf.object[bit][1]].word[w] & twice;
            bits |= static_cast<unsigned>(both != 0) << bit;
        }
    }
    return static_cast<u16>(bits);
}

// Which of `objects` are shown by their registers, wherever that is.
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

// Each half of the playfield has the colour and the priority of its player. With the playfield's own priority, in ale-py, only
// while nothing else is shown.
inline bool score_depends_on_objects(const Tia& tia) { return (tia.CTRLPF & 6) == 6; }
inline bool shows_score(const Tia& tia) {
    return (tia.CTRLPF & 6) == 2 || (score_depends_on_objects(tia) && live_objects(tia, kAllObjects) == 1u << PF);
}

// Which of 64 pixels have the colours of the playfield and the players; the later ones cover the earlier.
struct Paint {
    u64 pf, p1, p0;
};
inline Paint paint(const Tia& tia, int w) {
    Paint p = {tia.mask[PF].word[w] | tia.mask[BL].word[w], tia.mask[P1].word[w] | tia.mask[M1].word[w],
               tia.mask[P0].word[w] | tia.mask[M0].word[w]};
    if (shows_score(tia)) {
        const u64 left = kBelow.row[80].word[w];
        p.p0 |= tia.mask[PF].word[w] & left;
        p.p1 |= tia.mask[PF].word[w] & ~left;
        p.pf = tia.mask[BL].word[w];
    }
    if (tia.CTRLPF & 4) {
        p.p0 &= ~p.pf;
        p.p1 &= ~p.pf;
    }
    return p;
}

inline bool has_player_colours(const Tia& tia) {
    constexpr unsigned kPlayersAndMissiles = 1u << P0 | 1u << P1 | 1u << M0 | 1u << M1;
    return (tia.visible & kPlayersAndMissiles) || shows_score(tia);
}

// Both return whether a pixel changed: `blank` makes pixels [x0, x1) of a row black, `draw` paints what the TIA shows there.
inline bool blank(u8* pixels, int x0, int x1) {
    u8 changed = 0;
    for (int x = x0; x < x1; ++x) {
        changed |= pixels[x];
        pixels[x] = 0;
    }
    return changed != 0;
}

inline bool draw(const Tia& tia, u8* pixels, int x0, int x1) {
#if defined(RND_AVX512)
    auto all = [](u8 colour) { return _mm512_set1_epi8(static_cast<char>(colour)); };
    const __m512i background = all(tia.COLUBK), playfield = all(tia.COLUPF), player0 = all(tia.COLUP[0]), player1 = all(tia.COLUP[1]);
    u64 changed = 0;
    for (int w = x0 >> 6; w <= (x1 - 1) >> 6; ++w) {
        const Paint p = paint(tia, w);
        __m512i v = _mm512_mask_mov_epi8(background, p.pf, playfield);
        v = _mm512_mask_mov_epi8(v, p.p1, player1);
        v = _mm512_mask_mov_epi8(v, p.p0, player0);
        const __mmask64 in = kBelow.row[x1].word[w] & ~kBelow.row[x0].word[w];
        changed |= _mm512_mask_cmpneq_epi8_mask(in, v, _mm512_maskz_loadu_epi8(in, pixels + 64 * w));
        _mm512_mask_storeu_epi8(pixels + 64 * w, in, v);
    }
    return changed != 0;
#elif defined(RND_AVX2)
    // Thirty-two pixels at a time: bit i of the mask selects byte i.
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
    auto bytes = [&](u64 bits) {
        const __m256i v = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), spread), bit);
        return _mm256_cmpeq_epi8(v, bit);
    };
    auto all = [](u8 colour) { return _mm256_set1_epi8(static_cast<char>(colour)); };
    const __m256i background = all(tia.COLUBK), playfield = all(tia.COLUPF), player0 = all(tia.COLUP[0]), player1 = all(tia.COLUP[1]);
    __m256i changed = _mm256_setzero_si256();
    auto paint_line = [&](auto players) {
        for (int part = x0 >> 5; part <= (x1 - 1) >> 5; ++part) {
            const Paint p = paint(tia, part >> 1);
            const int shift = (part & 1) * 32;
            __m256i v = _mm256_blendv_epi8(background, playfield, bytes(p.pf >> shift));
            if constexpr (players) {
                v = _mm256_blendv_epi8(v, player1, bytes(p.p1 >> shift));
                v = _mm256_blendv_epi8(v, player0, bytes(p.p0 >> shift));
            }
            __m256i* at = reinterpret_cast<__m256i*>(pixels + 32 * part);
            const __m256i before = _mm256_loadu_si256(at);
            if (32 * part < x0 || 32 * part + 32 > x1)
                v = _mm256_blendv_epi8(before, v, bytes((kBelow.row[x1].word[part >> 1] & ~kBelow.row[x0].word[part >> 1]) >> shift));
            changed = _mm256_or_si256(changed, _mm256_xor_si256(before, v));
            _mm256_storeu_si256(at, v);
        }
    };
    // Most lines have no player or missile: two blends less.
    if (has_player_colours(tia))
        paint_line(std::true_type{});
    else
        paint_line(std::false_type{});
    return !_mm256_testz_si256(changed, changed);
#else
    // Eight pixels at a time: bit i of the mask becomes byte i of a word, all ones or zero.
    auto spread = [](u64 bits) {
        bits = ((bits & 0xFF) * 0x0101010101010101u) & 0x8040201008040201u;
        return (((bits + 0x7F7F7F7F7F7F7F7Fu) | bits) >> 7 & 0x0101010101010101u) * 0xFF;
    };
    constexpr u64 kEach = 0x0101010101010101u;
    u64 changed = 0;
    for (int part = x0 >> 3; part <= (x1 - 1) >> 3; ++part) {
        const int word = part >> 3, shift = (part & 7) * 8;
        const Paint p = paint(tia, word);
        u64 v = tia.COLUBK * kEach;
        auto cover = [&](u64 mask, u8 colour) {
            const u64 select = spread(mask >> shift);
            v = (v & ~select) | (colour * kEach & select);
        };
        cover(p.pf, tia.COLUPF);
        cover(p.p1, tia.COLUP[1]);
        cover(p.p0, tia.COLUP[0]);
        u64 before;
        std::memcpy(&before, pixels + 8 * part, 8);
        const u64 in = spread((kBelow.row[x1].word[word] & ~kBelow.row[x0].word[word]) >> shift);
        v = (before & ~in) | (v & in);
        changed |= before ^ v;
        std::memcpy(pixels + 8 * part, &v, 8);
    }
    return changed != 0;
#endif
}

}  // namespace rnd::atari::RND_TARGET
