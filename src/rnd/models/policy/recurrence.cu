// The release's recurrent cell over T steps, forwards and backwards, each as one kernel.
//
//     [m, r] = sigmoid(Vx x + V h),  c = tanh(Wx x + W (r h)),  h' = m h + (1 - m) c
//
// The inputs' parts (Vx x, Wx x, biases) are computed before, for all steps at once. What is left is a chain of 2 T small
// products that cannot run side by side. A cluster of 8 blocks handles E environments. Each block holds the weights of 32
// hidden units in registers for the whole call, and after every product sends its results into the shared memory of all 8.
// Clusters need compute capability 9.0.
//
// Arrays are contiguous: [T][N][H] (gates [T][N][2H], first m and then r); `keep` [T][N] is 0 where an episode starts.

constexpr int H = 256;
constexpr int CLUSTER = 8;
constexpr int OWN = H / CLUSTER;  // hidden units per block
constexpr int E = 4;              // environments per cluster
constexpr int THREADS = 256;
constexpr int PAD = 4;  // shifts the parts of a row to different banks

// Place of element k in a row whose parts of PART elements are read side by side.
template <int PART>
__device__ constexpr int place(int k) {
    return k / PART * (PART + PAD) + k % PART;
}

template <int PART, int LANES>
constexpr int ROW = LANES * (PART + PAD);

__device__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of the cluster: what any of them wrote before is visible to all after it.
__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Write `value` to the same place in the shared memory of every block of the cluster.
__device__ void send(float* place, float value) {
    const unsigned local = static_cast<unsigned>(__cvta_generic_to_shared(place));
#pragma unroll
    for (unsigned rank = 0; rank < CLUSTER; ++rank) {
        unsigned remote;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
    }
}

// The product of one output's weights, PART of them per lane, with the rows of E environments; every lane gets the sum of
// environment lane % E.
template <int PART, int LANES>
__device__ float product(const float (&weight)[PART], const float* rows, int lane) {
    float sum[E] = {};
#pragma unroll
    for (int i = 0; i < PART; i += 4) {
#pragma unroll
        for (int e = 0; e < E; ++e) {
            const float4 x = *reinterpret_cast<const float4*>(rows + e * ROW<PART, LANES> + lane * (PART + PAD) + i);
            sum[e] += weight[i] * x.x + weight[i + 1] * x.y + weight[i + 2] * x.z + weight[i + 3] * x.w;
        }
    }
#pragma unroll
    for (int e = 0; e < E; ++e) {
#pragma unroll
        for (int distance = 1; distance < LANES; distance *= 2) sum[e] += __shfl_xor_sync(~0u, sum[e], distance);
    }
    float own = sum[0];
#pragma unroll
    for (int e = 1; e < E; ++e) own = lane % E == e ? sum[e] : own;
    return own;
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
    recurrence_forward(const float* gates_x, const float* candidate_x, const float* hidden, const float* keep,
                       const float* gate_weight, const float* candidate_weight, float* states, float* mix, float* reset,
                       float* candidate, int steps, int envs) {
    __shared__ __align__(16) float state_s[E * ROW<64, 4>], reset_state_s[E * ROW<32, 8>];
    __shared__ float mix_s[E][OWN];
    const int first_env = blockIdx.x / CLUSTER * E, first_unit = cluster_rank() * OWN;
    // A gate has four lanes, a candidate eight; the lanes of a gate, and the first four of a candidate, each finish one
    // environment.
    const int gate_lane = threadIdx.x % 4, gate_unit = first_unit + threadIdx.x / 4 % OWN;
    const bool is_reset = threadIdx.x / 4 >= OWN;
    const int gate_row = is_reset ? H + gate_unit : gate_unit, gate_env = first_env + gate_lane;
    const int lane = threadIdx.x % 8, unit = first_unit + threadIdx.x / 8, env = first_env + lane;
    const bool gate_valid = gate_env < envs, valid = lane < E && env < envs;
    float* const own_state = state_s + lane % E * ROW<64, 4> + place<64>(unit);

    float gate_w[64], candidate_w[32];
#pragma unroll
    for (int i = 0; i < 64; ++i) gate_w[i] = gate_weight[gate_row * H + gate_lane * 64 + i];
#pragma unroll
    for (int i = 0; i < 32; ++i) candidate_w[i] = candidate_weight[unit * H + lane * 32 + i];
    for (int i = threadIdx.x; i < E * H; i += THREADS) {
        const int n = first_env + i / H;
        state_s[i / H * ROW<64, 4> + place<64>(i % H)] = n < envs ? hidden[n * H + i % H] * keep[n] : 0.0f;
    }
    cluster_sync();

    // The next step's inputs are loaded one step ahead, while the blocks wait for each other.
    float next_gate = gate_valid ? gates_x[gate_env * 2 * H + gate_row] : 0.0f;
    float next_candidate = valid ? candidate_x[env * H + unit] : 0.0f;
    for (int t = 0; t < steps; ++t) {
        const float gate_x = next_gate, x = next_candidate;
        float next_keep = 0.0f;
        if (t + 1 < steps) {
            if (gate_valid) next_gate = gates_x[((t + 1) * envs + gate_env) * 2 * H + gate_row];
            if (valid) next_candidate = candidate_x[((t + 1) * envs + env) * H + unit];
            if (valid) next_keep = keep[(t + 1) * envs + env];
        }
        const float gate = sigmoid(product<64, 4>(gate_w, state_s, gate_lane) + gate_x);
        const int gate_place = (t * envs + gate_env) * H + gate_unit;
        if (is_reset) {
            const float state = state_s[gate_lane * ROW<64, 4> + place<64>(gate_unit)];
            send(reset_state_s + gate_lane * ROW<32, 8> + place<32>(gate_unit), gate * state);
            if (gate_valid) reset[gate_place] = gate;
        } else {
            mix_s[gate_lane][gate_unit - first_unit] = gate;
            if (gate_valid) mix[gate_place] = gate;
        }
        cluster_sync();  // r h is complete, and nobody reads the state of this step any more
        const float c = tanhf(product<32, 8>(candidate_w, reset_state_s, lane) + x);
        if (lane < E) {
            const float m = mix_s[lane][unit - first_unit], state = m * *own_state + (1.0f - m) * c;
            if (valid) {
                states[(t * envs + env) * H + unit] = state;
                candidate[(t * envs + env) * H + unit] = c;
            }
            send(own_state, state * next_keep);
        }
        cluster_sync();  // the next state is complete, and nobody reads r h any more
    }
}

// What one thread needs of a step to go back through it.
struct Step {
    float grad_state, m, r, c, before, keep;
};

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)
    recurrence_backward(const float* grad_states, const float* states, const float* hidden, const float* keep,
                        const float* mix, const float* reset, const float* candidate, const float* gate_weight,
                        const float* candidate_weight, float* grad_gates, float* grad_candidate, int steps, int envs) {
    // The gates' gradients alternate between two buffers: a fast block writes those of m before a slow one has read the last.
    __shared__ __align__(16) float grad_candidate_s[E * ROW<32, 8>], grad_gates_s[2][E * ROW<64, 8>];
    const int first_env = blockIdx.x / CLUSTER * E, first_unit = cluster_rank() * OWN;
    const int lane = threadIdx.x % 8, unit = first_unit + threadIdx.x / 8, env = first_env + lane;
    const bool finishes = lane < E, valid = finishes && env < envs;

    float gate_w[64], candidate_w[32];  // columns of the weights: gradients flow from outputs to inputs
#pragma unroll
    for (int i = 0; i < 64; ++i) gate_w[i] = gate_weight[(lane * 64 + i) * H + unit];
#pragma unroll
    for (int i = 0; i < 32; ++i) candidate_w[i] = candidate_weight[(lane * 32 + i) * H + unit];
    cluster_sync();  // all blocks have started: their shared memory can be written

    const auto load = [&](int t) -> Step {
        if (!valid || t < 0) return {};
        const int at = (t * envs + env) * H + unit;
        const float before = t > 0 ? states[at - envs * H] : hidden[env * H + unit];
        return {grad_states[at], mix[at], reset[at], candidate[at], before, keep[t * envs + env]};
    };
    float carry = 0.0f;
    Step next = load(steps - 1);
    for (int t = steps - 1; t >= 0; --t) {
        const Step now = next;
        next = load(t - 1);
        float* const gates_s = grad_gates_s[t & 1];
        const float grad = now.grad_state + carry, before = now.before * now.keep;
        const float grad_c = grad * (1.0f - now.m) * (1.0f - now.c * now.c);
        const float grad_m = grad * (before - now.c) * now.m * (1.0f - now.m);
        if (finishes) {
            send(grad_candidate_s + lane * ROW<32, 8> + place<32>(unit), grad_c);
            send(gates_s + lane * ROW<64, 8> + place<64>(unit), grad_m);
        }
        cluster_sync();
        const float grad_reset_state = product<32, 8>(candidate_w, grad_candidate_s, lane);
        const float grad_r = grad_reset_state * before * now.r * (1.0f - now.r);
        if (finishes) send(gates_s + lane * ROW<64, 8> + place<64>(H + unit), grad_r);
        if (valid) {
            const int at = t * envs + env;
            grad_candidate[at * H + unit] = grad_c;
            grad_gates[at * 2 * H + unit] = grad_m;
            grad_gates[at * 2 * H + H + unit] = grad_r;
        }
        cluster_sync();
        const float grad_before = product<64, 8>(gate_w, gates_s, lane) + grad * now.m + grad_reset_state * now.r;
        carry = grad_before * now.keep;
    }
    cluster_sync();  // no block ends while another may still write to its shared memory
}
