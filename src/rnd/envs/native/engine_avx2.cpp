#define RND_TARGET avx2
#define RND_AVX2
#include "engine_target.hpp"

namespace rnd::atari {
const Engine kAvx2Engine = {"avx2", avx2::run_frame, avx2::observe<false>, avx2::observe<true>};
}
