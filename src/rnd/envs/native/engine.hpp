// The emulator and the image pipeline, compiled once for each instruction set and chosen at run time.
#pragma once

#include <string_view>

#include "pipeline.hpp"
#include "translation.hpp"

namespace rnd::atari {

struct Engine {
    const char* name;
    FrameFunction run_frame;
    // The 84 x 84 grey observation of the pixelwise maximum of two screens. A bit of `groups` for every five rows of them:
    // the others stay as they are in `frame`.
    void (*observe)(const u8* newest, const u8* other, u8* frame, u64 groups);
    // The same of two screens that are grey already.
    void (*shrink)(const u8* newest, const u8* other, u8* frame, u64 groups);
};

extern const Engine kPortableEngine;
#if defined(__x86_64__)
extern const Engine kAvx2Engine;
extern const Engine kAvx512Engine;
#endif

// "auto" is the widest that the machine has. Throws std::invalid_argument for one it has not.
const Engine& choose_engine(std::string_view name);

}  // namespace rnd::atari
