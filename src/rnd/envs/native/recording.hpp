// Which instructions of a game's ROM are executed when it is played at random.
#pragma once

#include <vector>

#include "games.hpp"

namespace rnd::atari {

// `Reached` of every place of the ROM after `frames` raw frames.
std::vector<u8> record_reached(const u8* rom, std::size_t rom_size, const Game& game, int frames, u64 seed);

}  // namespace rnd::atari
