#define RND_TARGET avx512
#define RND_AVX512
#include "engine_target.hpp"

namespace rnd::atari {
const Engine kAvx512Engine = {"avx512", avx512::run_frame, avx512::observe<false>, avx512::observe<true>};
}
