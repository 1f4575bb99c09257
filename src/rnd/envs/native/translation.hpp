// What a translated game exports. Shared by the core and by the unit that is compiled on the user's machine.
#pragma once

#include "cartridge.hpp"
#include "machine.hpp"

namespace rnd::atari {

// Runs one frame; draws it when `screen` (210 x 160 colour bytes) is given, and sets a bit of `changed_rows` for every five
// rows of which a pixel changed. Returns false, with the machine as it was, when the interpreter must play this frame.
using FrameFunction = bool (*)(Machine&, const Rom&, u8* screen, u64* changed_rows);

struct Translation {
    char sources[65];  // SHA-256 of the sources that both sides were compiled from
    u32 machine_bytes, rom_bytes;
    FrameFunction run_frame;
};
constexpr const char* kTranslationSymbol = "rnd_translation";

}  // namespace rnd::atari
