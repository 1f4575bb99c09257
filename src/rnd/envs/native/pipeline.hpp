// From two screens of colour bytes to one observation: grey, maximum of two, area resize to 84 x 84.
#pragma once

#include "machine.hpp"

namespace rnd::atari {

constexpr int kFrameSide = 84;
constexpr int kFrameBytes = kFrameSide * kFrameSide;

}  // namespace rnd::atari
