// From two screens of colour bytes to one observation: grey, maximum of two, area resize to 84 x 84. The tables.
#pragma once

#include "machine.hpp"

namespace rnd::atari {

constexpr int kObservationSide = 84;
constexpr int kObservationBytes = kObservationSide * kObservationSide;
constexpr u64 kAllGroups = (u64{1} << kScreenHeight / kRowsPerGroup) - 1;

// Luminance of the 128 NTSC colours, by the upper seven bits of a colour byte.
// clang-format off
alignas(64) constexpr u8 kGrey[128] = {
    0,  74, 111, 142, 170, 192, 214, 236, 64, 95, 122, 148, 172, 193, 214, 233, 63, 87, 110, 131, 150, 167, 184, 199, 59, 85, 107, 129, 148, 167, 183, 199,
    44, 68, 90,  110, 128, 146, 161, 176, 51, 74, 95,  115, 132, 149, 164, 178, 39, 63, 85,  107, 125, 143, 159, 174, 22, 49, 73,  96,  116, 136, 153, 169,
    17, 41, 64,  85,  104, 121, 137, 153, 32, 60, 85,  109, 130, 150, 168, 186, 40, 69, 95,  120, 141, 162, 182, 200, 43, 74, 101, 127, 151, 173, 193, 212,
    40, 71, 98,  124, 147, 169, 189, 207, 41, 74, 104, 132, 157, 181, 203, 223, 47, 79, 107, 133, 157, 179, 200, 220, 47, 79, 107, 133, 157, 179, 200, 220,
};
// clang-format on

// The area resize is exact in integers. Vertically five lines make two, with weights 2 2 1 and 1 2 2. Horizontally forty
// pixels make twenty-one; a weight is counted in 1/21 of a pixel, so that an output is a sum of 5 * 40 = 200 parts.
constexpr int kParts = 200;
constexpr int kPeriodIn = 40;
constexpr int kPeriodOut = 21;

struct Horizontal {
    u16 first[32];      // leftmost source pixel of each output of a period
    u16 weight[3][32];  // of it and its two right neighbours
};
constexpr Horizontal make_horizontal() {
    Horizontal h{};
    for (int i = 0; i < kPeriodOut; ++i) {
        const int start = kPeriodIn * i;
        const int first = start / kPeriodOut;
        const int w0 = kPeriodOut * (first + 1) - start;
        const int rest = kPeriodIn - w0;
        const int w1 = rest < kPeriodOut ? rest : kPeriodOut;
        h.first[i] = static_cast<u16>(first);
        h.weight[0][i] = static_cast<u16>(w0);
        h.weight[1][i] = static_cast<u16>(w1);
        h.weight[2][i] = static_cast<u16>(rest - w1);
    }
    return h;
}
alignas(64) constexpr Horizontal kHorizontal = make_horizontal();

}  // namespace rnd::atari
