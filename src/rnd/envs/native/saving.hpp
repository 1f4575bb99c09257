// Saved environments: a header, then the environment's bytes.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "environment.hpp"

namespace rnd::atari {

std::vector<u8> save_environment(const Environment& env, std::string_view game);

// Throws std::invalid_argument, in one line, for bytes that are no environment of the game. States of version 1 are loaded too.
std::unique_ptr<Environment> load_environment(const u8* data, std::size_t size, const Game& game, const Rom& rom);

}  // namespace rnd::atari
