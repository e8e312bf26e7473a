// Merges the partial results of each row (a token and a head) into its output: `split` warps a row,
// a power of two up to WARPS, so that many parts are on their way together.
//
// The grid is what the card has room for: blocks merge one row, or as many as they have warps for,
// after another. It starts while the kernel before still runs, and waits for its end. Sums go in
// the same order every time, whatever ran first.
//
// Compiled by NVRTC for sm_90a, with H, HK, D (64, 128, 192 or 256), WARPS (of a block) and, for
// fp16, HALF.

#include "hopper.cuh"

constexpr int N = D / 32;   // dimensions of a lane
constexpr int AT_ONCE = 4;  // parts that a warp has on their way
constexpr float LOG2E = 1.4426950408889634f;

struct Accumulator {
    float row_max, row_sum, acc[N];

    // n parts from `part` on, AT_ONCE at most.
    __device__ __forceinline__ void add(const float* partial_o, const float* partial_lse,
                                        long long part, int n, int lane) {
        float lse[AT_ONCE], o[AT_ONCE][N];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const bool there = i < n;
            const long long at = part + (long long)i * H;
            lse[i] = there ? partial_lse[at] : __int_as_float(0xff800000);
            const float* from = partial_o + at * D + lane * N;
            if constexpr (N % 4 == 0) {
#pragma unroll
                for (int d = 0; d < N; d += 4) {
                    const float4 four =
                        there ? *(const float4*)(from + d) : make_float4(0, 0, 0, 0);
                    o[i][d] = four.x, o[i][d + 1] = four.y;
                    o[i][d + 2] = four.z, o[i][d + 3] = four.w;
                }
            } else {
#pragma unroll
                for (int d = 0; d < N; d += 2) {
                    const float2 two = there ? *(const float2*)(from + d) : make_float2(0, 0);
                    o[i][d] = two.x, o[i][d + 1] = two.y;
                }
            }
        }
        float new_max = row_max;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) new_max = fmaxf(new_max, lse[i]);
        const float rescale = exp2_fast(row_max - new_max);
        row_max = new_max;
        row_sum *= rescale;
#pragma unroll
        for (int d = 0; d < N; d++) acc[d] *= rescale;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const float weight = exp2_fast(lse[i] - new_max);
            row_sum += weight;
#pragma unroll
            for (int d = 0; d < N; d++) acc[d] += weight * o[i][d];
        }
    }

    // What another warp has merged.
    __device__ __forceinline__ void add(const Accumulator& other) {
        const float new_max = fmaxf(row_max, other.row_max);
        const float rescale = exp2_fast(row_max - new_max);
        const float weight = exp2_fast(other.row_max - new_max);
        row_max = new_max;
        row_sum = row_sum * rescale + other.row_sum * weight;
#pragma unroll
        for (int d = 0; d < N; d++) acc[d] = acc[d] * rescale + other.acc[d] * weight;
    }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, D > 128 ? 3 : 6)
    merge(const float* partial_o, const float* partial_lse, const int* merge_indptr,
          const float* sinks, u32* out, long long rows, const int* splits, int* taken) {
    __shared__ Accumulator shared[WARPS][32];
    const int split = *splits, warp = threadIdx.x / 32, lane = threadIdx.x % 32,
              share = warp % split;
    const int rows_at_once = WARPS / split;  // of a block
    bool is_first = true;
    for (long long base = (long long)blockIdx.x * rows_at_once; base < rows;
         base += (long long)gridDim.x * rows_at_once) {
        const long long row = base + warp / split;
        const bool is_there = row < rows;
        const int token = is_there ? row / H : 0, head = row % H;
        const int first = __ldg(merge_indptr + token);
        const int count = is_there ? __ldg(merge_indptr + token + 1) - first : 0;
        // Less than any score, and finite: the difference of two is a number.
        Accumulator all = {__int_as_float(0xff7fffff), 0, {}};
        if (sinks && share == 0) all.row_max = __ldg(sinks + head) * LOG2E, all.row_sum = 1;
        if (is_first) wait_for_last();
        is_first = false;
        for (int begin = share * AT_ONCE; begin < count; begin += split * AT_ONCE)
            all.add(partial_o, partial_lse, (long long)(first + begin) * H + head, count - begin,
                    lane);
        if (split > 1) {
            shared[warp][lane] = all;
            __syncthreads();
            if (share == 0)
                for (int i = 1; i < split; i++) all.add(shared[warp + i][lane]);
            __syncthreads();
        }
        if (share || !is_there) continue;
        // Padding has no parts; what it gets must be a number, because its K and V are stored.
        const float over = all.row_sum > 0 ? 1.0f / all.row_sum : 0;
        u32* to = out + (row * D + lane * N) / 2;
#pragma unroll
        for (int i = 0; i < N; i += 2) to[i / 2] = pack(all.acc[i] * over, all.acc[i + 1] * over);
    }
    // For the narrow blocks of the next layer; no block waits for the last kernel if it has no row.
    if (blockIdx.x == 0 && threadIdx.x == 0) *taken = 0;
}
