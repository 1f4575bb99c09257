// One game as machine code. translation.py compiles this file on the user's machine, beside the two files that translator.py
// makes from the game's ROM; RND_TARGET and RND_SOURCES come from the command line.
#define RND_TRANSLATED
#include "frame.hpp"
#include "translation.hpp"

using namespace rnd::atari;

extern "C" __attribute__((visibility("default")))
const Translation rnd_translation = {RND_SOURCES, sizeof(Machine), sizeof(Rom), RND_TARGET::run_frame};
