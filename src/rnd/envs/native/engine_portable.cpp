#define RND_TARGET portable
#include "engine_target.hpp"

namespace rnd::atari {
const Engine kPortableEngine = {"portable", portable::run_frame, portable::observe<false>, portable::observe<true>};
}
