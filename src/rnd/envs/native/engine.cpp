#include "engine.hpp"

#include <stdexcept>
#include <string>

namespace rnd::atari {

const Engine& choose_engine(std::string_view name) {
    if (name == "portable") return kPortableEngine;
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi");
    if (name == "avx512" || (name == "auto" && avx512)) {
        if (avx512) return kAvx512Engine;
        throw std::invalid_argument("simd=\"avx512\": this processor has no AVX-512 (F, BW, DQ, VL, VBMI)");
    }
    if (name == "avx2" || (name == "auto" && avx2)) {
        if (avx2) return kAvx2Engine;
        throw std::invalid_argument("simd=\"avx2\": this processor has no AVX2");
    }
#else
    if (name == "avx2" || name == "avx512") throw std::invalid_argument("simd: only \"portable\" exists on this processor");
#endif
    if (name == "auto") return kPortableEngine;
    throw std::invalid_argument("simd must be auto, avx512, avx2 or portable, not " + std::string(name));
}

}  // namespace rnd::atari
