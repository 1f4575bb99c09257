// Many tensors of floats at once: Adam's step, and the norms of the parts of a gradient.
//
// PyTorch's kernels of this kind give 65,536 values to a block, so that the networks here keep 52 of 132 multiprocessors
// busy. Here a block takes CHUNK values. What differs from list to list is written before this file
// (many_tensors.py): LISTS, the parameters of a kernel, and FIND, which finds the tensor of a block.

constexpr int THREADS = 256, EACH = 4;     // EACH: vectors of four floats per thread
constexpr int CHUNK = THREADS * EACH * 4;  // values per block

#ifdef ADAM
__device__ void update(float rate, float root, float g, float& p, float& m, float& v) {
    m = BETA1 * m + (1 - BETA1) * g;  // in double, as in PyTorch
    v = BETA2 * v + (1 - BETA2) * g * g;
    p -= rate * m / (float)(sqrtf(v) / root + EPS);
}

__device__ void update(float rate, float root, float4 g, float4& p, float4& m, float4& v) {
    update(rate, root, g.x, p.x, m.x, v.x);
    update(rate, root, g.y, p.y, m.y, v.y);
    update(rate, root, g.z, p.z, m.z, v.z);
    update(rate, root, g.w, p.w, m.w, v.w);
}

// Counts a step of every tensor, unless it is skipped.
extern "C" __global__ void count(LISTS, const float* skip) {
    float* const all[] = {ALL_STEPS};
    if (*skip == 0) *all[threadIdx.x] += 1;
}

// Takes the step that was counted, with gradients times `scale`.
extern "C" __global__ void __launch_bounds__(THREADS) take(LISTS, const float* skip, const float* scale) {
    if (*skip != 0) return;
    FIND;
    __shared__ float shared[2];
    if (threadIdx.x == 0) {
        shared[0] = LR / (1 - pow(BETA1, (double)*steps));
        shared[1] = sqrt(1 - pow(BETA2, (double)*steps));
    }
    const float factor = *scale;
    if (whole) {  // every load of a thread is in flight before it computes
        float4 p[EACH], g[EACH], m[EACH], v[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = start / 4 + i * THREADS + threadIdx.x;
            p[i] = ((float4*)parameters)[at], g[i] = ((const float4*)gradients)[at];
            m[i] = ((float4*)averages)[at], v[i] = ((float4*)squares)[at];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = start / 4 + i * THREADS + threadIdx.x;
            const float4 scaled = {g[i].x * factor, g[i].y * factor, g[i].z * factor, g[i].w * factor};
            update(shared[0], shared[1], scaled, p[i], m[i], v[i]);
            ((float4*)parameters)[at] = p[i], ((float4*)averages)[at] = m[i], ((float4*)squares)[at] = v[i];
        }
        return;
    }
    __syncthreads();
    for (int i = start + threadIdx.x; i < min(start + CHUNK, size); i += THREADS)
        update(shared[0], shared[1], gradients[i] * factor, parameters[i], averages[i], squares[i]);
}
#else
// The norm of every chunk.
extern "C" __global__ void __launch_bounds__(THREADS) norms(LISTS, float* results) {
    FIND;
    float sum = 0;
    if (whole) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float4 x = ((const float4*)values)[start / 4 + i * THREADS + threadIdx.x];
            sum += x.x * x.x + x.y * x.y + (x.z * x.z + x.w * x.w);
        }
    } else {
        for (int i = start + threadIdx.x; i < min(start + CHUNK, size); i += THREADS) sum += values[i] * values[i];
    }
    __shared__ float sums[THREADS / 32];
    for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    sum = 0;
    for (float part : sums) sum += part;
    results[blockIdx.x] = sqrtf(sum);
}
#endif
