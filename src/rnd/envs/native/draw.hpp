// One line of the picture: collisions and pixels from the objects' masks. The three targets give equal bytes.
#pragma once

#include <cstring>

#include "machine.hpp"
#if defined(RND_AVX512) || defined(RND_AVX2)
#include <immintrin.h>
#endif

namespace rnd::atari::RND_TARGET {

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
    const u64* below = kBelow.row[x1].word;
    const u64* above = kBelow.row[x0].word;
    const u64 in[3] = {below[0] & ~above[0], below[1] & ~above[1], below[2] & ~above[2]};
    unsigned bits = 0;
    for (unsigned left = wanted; left; left &= left - 1) {
        const int bit = __builtin_ctz(left);
        // Word by word: the masks were just written so, and a wide load would wait for them.
        const u64* a = mask[kPairOf.object[bit][0]].word;
        const u64* b = mask[kPairOf.object[bit][1]].word;
        const u64 both = (a[0] & b[0] & in[0]) | (a[1] & b[1] & in[1]) | (a[2] & b[2] & in[2]);
        bits |= static_cast<unsigned>(both != 0) << bit;
    }
    return static_cast<u16>(bits);
}

// Colours and masks in the order of painting, so that later layers cover earlier ones.
struct Layer {
    Row row;
    u8 colour;
};

inline int layers_of(const Tia& tia, Layer* layer) {
    int count = 0;
    auto add = [&](const Row& a, const Row& b, u8 colour) {
        u64 some = 0;
        for (int i = 0; i < 3; ++i) some |= layer[count].row.word[i] = a.word[i] | b.word[i];
        layer[count].colour = colour;
        count += some != 0;
    };
    const bool over = tia.CTRLPF & 4;
    if ((tia.CTRLPF & 6) == 2) {
        // Score: each half of the playfield has the colour and the priority of its player.
        Row left = tia.mask[P0], right = tia.mask[P1];
        for (int i = 0; i < 3; ++i) {
            left.word[i] |= tia.mask[PF].word[i] & kBelow.row[80].word[i];
            right.word[i] |= tia.mask[PF].word[i] & ~kBelow.row[80].word[i];
        }
        add(tia.mask[BL], tia.mask[BL], tia.COLUPF);
        add(right, tia.mask[M1], tia.COLUP[1]);
        add(left, tia.mask[M0], tia.COLUP[0]);
        return count;
    }
    if (!over) add(tia.mask[PF], tia.mask[BL], tia.COLUPF);
    add(tia.mask[P1], tia.mask[M1], tia.COLUP[1]);
    add(tia.mask[P0], tia.mask[M0], tia.COLUP[0]);
    if (over) add(tia.mask[PF], tia.mask[BL], tia.COLUPF);
    return count;
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

#if defined(RND_AVX512)
inline bool draw(const Tia& tia, u8* pixels, int x0, int x1) {
    u64 changed = 0;
    auto all = [](u8 colour) { return _mm512_set1_epi8(static_cast<char>(colour)); };
    const __m512i background = all(tia.COLUBK), playfield = all(tia.COLUPF), player0 = all(tia.COLUP[0]), player1 = all(tia.COLUP[1]);
    const bool over = tia.CTRLPF & 4;
    const bool score = (tia.CTRLPF & 6) == 2;
    for (int w = x0 >> 6; w <= (x1 - 1) >> 6; ++w) {
        u64 p0 = tia.mask[P0].word[w] | tia.mask[M0].word[w];
        u64 p1 = tia.mask[P1].word[w] | tia.mask[M1].word[w];
        u64 pf = tia.mask[PF].word[w] | tia.mask[BL].word[w];
        if (score) {
            // Each half of the playfield has the colour and the priority of its player.
            const u64 left = kBelow.row[80].word[w];
            p0 |= tia.mask[PF].word[w] & left;
            p1 |= tia.mask[PF].word[w] & ~left;
            pf = tia.mask[BL].word[w];
        }
        if (over) {
            p0 &= ~pf;
            p1 &= ~pf;
        }
        __m512i v = _mm512_mask_mov_epi8(background, pf, playfield);
        v = _mm512_mask_mov_epi8(v, p1, player1);
        v = _mm512_mask_mov_epi8(v, p0, player0);
        const __mmask64 in = kBelow.row[x1].word[w] & ~kBelow.row[x0].word[w];
        changed |= _mm512_mask_cmpneq_epi8_mask(in, v, _mm512_maskz_loadu_epi8(in, pixels + 64 * w));
        _mm512_mask_storeu_epi8(pixels + 64 * w, in, v);
    }
    return changed != 0;
}
#else
inline bool draw(const Tia& tia, u8* pixels, int x0, int x1) {
    Layer layer[6];
    const int count = layers_of(tia, layer);
#if defined(RND_AVX2)
    // Thirty-two pixels at a time: bit i of the mask selects byte i.
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
    auto bytes = [&](const Row& row, int part) {
        const int bits = static_cast<int>(row.word[part >> 1] >> (part & 1) * 32);
        const __m256i v = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread), bit);
        return _mm256_cmpeq_epi8(v, bit);
    };
    __m256i changed = _mm256_setzero_si256();
    for (int part = x0 >> 5; part <= (x1 - 1) >> 5; ++part) {
        __m256i v = _mm256_set1_epi8(static_cast<char>(tia.COLUBK));
        for (int i = 0; i < count; ++i)
            v = _mm256_blendv_epi8(v, _mm256_set1_epi8(static_cast<char>(layer[i].colour)), bytes(layer[i].row, part));
        __m256i* at = reinterpret_cast<__m256i*>(pixels + 32 * part);
        const __m256i before = _mm256_loadu_si256(at);
        if (32 * part < x0 || 32 * part + 32 > x1) {
            Row in;
            for (int i = 0; i < 3; ++i) in.word[i] = kBelow.row[x1].word[i] & ~kBelow.row[x0].word[i];
            v = _mm256_blendv_epi8(before, v, bytes(in, part));
        }
        changed = _mm256_or_si256(changed, _mm256_xor_si256(before, v));
        _mm256_storeu_si256(at, v);
    }
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
        u64 v = tia.COLUBK * kEach;
        for (int i = 0; i < count; ++i) {
            const u64 select = spread(layer[i].row.word[word] >> shift);
            v = (v & ~select) | (layer[i].colour * kEach & select);
        }
        u64 before;
        std::memcpy(&before, pixels + 8 * part, 8);
        if (8 * part < x0 || 8 * part + 8 > x1) {
            const u64 in = spread((kBelow.row[x1].word[word] & ~kBelow.row[x0].word[word]) >> shift);
            v = (before & ~in) | (v & in);
        }
        changed |= before ^ v;
        std::memcpy(pixels + 8 * part, &v, 8);
    }
    return changed != 0;
#endif
}
#endif

}  // namespace rnd::atari::RND_TARGET
