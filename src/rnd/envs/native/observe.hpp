// From two screens to one observation, in one pass. The screens hold colour bytes, or (kGreyed) what is grey already.
#pragma once

#include <cmath>
#include <cstring>

#include "pipeline.hpp"
#if defined(RND_AVX512) || defined(RND_AVX2)
#include <immintrin.h>
#endif

namespace rnd::atari::RND_TARGET {

template <bool kGreyed>
void grey_maximum(const u8* a, const u8* b, u8* out) {
#if defined(RND_AVX512)
    const __m512i low = _mm512_load_si512(kGrey), high = _mm512_load_si512(kGrey + 64);
    auto grey = [&](__m512i colours) {
        if constexpr (kGreyed) return colours;
        const __m512i index = _mm512_and_si512(_mm512_srli_epi16(colours, 1), _mm512_set1_epi8(0x7F));
        return _mm512_permutex2var_epi8(low, index, high);
    };
    for (int x = 0; x < kScreenWidth; x += 64) {
        const __mmask64 in = x + 64 <= kScreenWidth ? ~__mmask64{0} : (__mmask64{1} << (kScreenWidth - x)) - 1;
        const __m512i v = _mm512_max_epu8(grey(_mm512_maskz_loadu_epi8(in, a + x)), grey(_mm512_maskz_loadu_epi8(in, b + x)));
        _mm512_mask_storeu_epi8(out + x, in, v);
    }
#elif defined(RND_AVX2)
    auto grey = [](__m256i colours) {
        if constexpr (kGreyed) return colours;
        const __m256i index = _mm256_and_si256(_mm256_srli_epi16(colours, 1), _mm256_set1_epi8(0x7F));
        __m256i found = _mm256_setzero_si256();
        // Sixteen entries of the table at a time; an index outside them gets its top bit, which selects zero.
        for (int first = 0; first < 128; first += 16) {
            const __m256i entries = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kGrey + first)));
            const __m256i inside =
                _mm256_adds_epu8(_mm256_xor_si256(index, _mm256_set1_epi8(static_cast<char>(first))), _mm256_set1_epi8(0x70));
            found = _mm256_or_si256(found, _mm256_shuffle_epi8(entries, inside));
        }
        return found;
    };
    for (int x = 0; x < kScreenWidth; x += 32) {
        const __m256i one = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + x));
        const __m256i other = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + x));
        const __m256i differ = _mm256_xor_si256(one, other);
        __m256i v = grey(one);
        if (!_mm256_testz_si256(differ, differ)) v = _mm256_max_epu8(v, grey(other));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), v);
    }
#else
    auto grey = [](u8 colour) { return kGreyed ? colour : kGrey[colour >> 1]; };
    if (!kGreyed && std::memcmp(a, b, kScreenWidth) == 0) {
        for (int x = 0; x < kScreenWidth; ++x) out[x] = grey(a[x]);
        return;
    }
    for (int x = 0; x < kScreenWidth; ++x) {
        const u8 ga = grey(a[x]), gb = grey(b[x]);
        out[x] = ga > gb ? ga : gb;
    }
#endif
}

// An exact half is rounded as the usual single-precision implementation happens to: pixels times weights summed along
// each line, then lines times weights, and the sum rounded.
[[gnu::noinline]] inline u8 round_half(const u8 (*lines)[kScreenWidth], bool second, int x) {
    const double scale = static_cast<double>(kScreenWidth) / kObservationSide;
    const double from = x * scale, to = from + scale;
    int first = static_cast<int>(std::ceil(from)), last = static_cast<int>(std::floor(to));
    if (last > kScreenWidth - 1) last = kScreenWidth - 1;
    if (first > last) first = last;
    const float row_weight[2][3] = {{0.4f, 0.4f, 0.2f}, {0.2f, 0.4f, 0.4f}};
    const u8(*line)[kScreenWidth] = lines + (second ? 2 : 0);
    float sum = 0;
    for (int i = 0; i < 3; ++i) {
        float along = 0;
        if (first - from > 1e-3) along += static_cast<float>(line[i][first - 1]) * static_cast<float>((first - from) / scale);
        for (int at = first; at < last; ++at) along += static_cast<float>(line[i][at]) * static_cast<float>(1.0 / scale);
        if (to - last > 1e-3) along += static_cast<float>(line[i][last]) * static_cast<float>((to - last < 1 ? to - last : 1) / scale);
        sum += row_weight[second][i] * along;
    }
    return static_cast<u8>(std::lrintf(sum));
}

// One output line of 84 from 160 column sums. Sets a bit of `halves` for every exact half.
inline void shrink_line(const u16* sums, u8* out, u32 (&halves)[4]) {
#if defined(RND_AVX512)
    const __m512i first = _mm512_load_si512(kHorizontal.first);
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i index[3] = {first, _mm512_add_epi16(first, one), _mm512_add_epi16(first, _mm512_add_epi16(one, one))};
    for (int period = 0; period < 4; ++period) {
        const __m512i low = _mm512_loadu_si512(sums + kPeriodIn * period), high = _mm512_loadu_si512(sums + kPeriodIn * period + 32);
        __m512i sum = _mm512_set1_epi16(kParts / 2);
        for (int i = 0; i < 3; ++i)
            sum = _mm512_add_epi16(
                sum, _mm512_mullo_epi16(_mm512_permutex2var_epi16(low, index[i], high), _mm512_load_si512(kHorizontal.weight[i])));
        // Division by 200: by 8, then by 25.
        const __m512i quotient = _mm512_srli_epi16(_mm512_mulhi_epu16(_mm512_srli_epi16(sum, 3), _mm512_set1_epi16(5243)), 1);
        halves[period] = _mm512_cmpeq_epi16_mask(_mm512_mullo_epi16(quotient, _mm512_set1_epi16(kParts)), sum) & ((1u << kPeriodOut) - 1);
        _mm512_mask_cvtepi16_storeu_epi8(out + kPeriodOut * period, (1u << kPeriodOut) - 1, quotient);
    }
#else
    for (int period = 0; period < 4; ++period) {
        const u16* in = sums + kPeriodIn * period;
        u32 ties = 0;
        for (int i = 0; i < kPeriodOut; ++i) {
            const u16* at = in + kHorizontal.first[i];
            const u32 sum =
                at[0] * kHorizontal.weight[0][i] + at[1] * kHorizontal.weight[1][i] + at[2] * kHorizontal.weight[2][i] + kParts / 2;
            const u32 quotient = sum / kParts;
            ties |= static_cast<u32>(quotient * kParts == sum) << i;
            out[kPeriodOut * period + i] = static_cast<u8>(quotient);
        }
        halves[period] = ties;
    }
#endif
}

template <bool kGreyed>
void observe(const u8* newest, const u8* other, u8* frame, u64 groups) {
    u8 lines[kRowsPerGroup][kScreenWidth];
    u16 sums[2][kScreenWidth + 64] = {};
    for (; groups; groups &= groups - 1) {
        const int group = __builtin_ctzll(groups);
        for (int i = 0; i < kRowsPerGroup; ++i) {
            const int at = (kRowsPerGroup * group + i) * kScreenWidth;
            grey_maximum<kGreyed>(newest + at, other + at, lines[i]);
        }
        for (int x = 0; x < kScreenWidth; ++x) {
            sums[0][x] = static_cast<u16>(2 * (lines[0][x] + lines[1][x]) + lines[2][x]);
            sums[1][x] = static_cast<u16>(lines[2][x] + 2 * (lines[3][x] + lines[4][x]));
        }
        for (int half = 0; half < 2; ++half) {
            u8* out = frame + (2 * group + half) * kObservationSide;
            u32 ties[4];
            shrink_line(sums[half], out, ties);
            for (int period = 0; period < 4; ++period)
                for (u32 left = ties[period]; left; left &= left - 1) {
                    const int x = kPeriodOut * period + __builtin_ctz(left);
                    out[x] = round_half(lines, half != 0, x);
                }
        }
    }
}

}  // namespace rnd::atari::RND_TARGET
