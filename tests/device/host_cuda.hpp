// What many_tensors.cu needs of CUDA, on the host: a thread of its own for every thread of a block, blocks in turn.
#pragma once
#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __launch_bounds__(threads)
#define __shared__ static
using std::min, std::pow, std::sqrt;

struct float4 {
    float x, y, z, w;
};
struct Index {
    int x;
};
inline thread_local Index threadIdx, blockIdx;
inline std::barrier<>* block_barrier;
inline float lanes[1024];

inline void __syncthreads() { block_barrier->arrive_and_wait(); }

// All threads of a block must call it, as all threads of norms do.
inline float __shfl_xor_sync(unsigned, float value, int lane) {
    lanes[threadIdx.x] = value;
    __syncthreads();
    const float other = lanes[threadIdx.x ^ lane];
    __syncthreads();
    return other;
}

inline void run(int blocks, int threads, std::function<void()> kernel) {
    std::vector<std::thread> all;
    for (int block = 0; block < blocks; block++) {
        std::barrier barrier(threads);
        block_barrier = &barrier;
        for (int i = 0; i < threads; i++)
            all.emplace_back([=, &kernel, &barrier] {
                threadIdx.x = i, blockIdx.x = block;
                kernel();
                barrier.arrive_and_drop();  // a thread that returned is not waited for
            });
        for (auto& thread : all) thread.join();
        all.clear();
    }
}
