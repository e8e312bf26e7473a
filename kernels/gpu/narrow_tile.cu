// Attention of up to ROWS query rows (queries x heads that share a KV head) over one run of slots.
//
// One block an item and KV head, a warp for every 16 rows. The block copies K and V rows to shared
// memory STAGES - 1 tiles ahead of the one that it computes with: few rows are bound by memory, and
// what counts is that much of it is on its way at all times.
//
// Compiled by NVRTC for sm_90a, with H, HK, D (64 or 128), ROWS (16, 32 or 64), PAGE, STAGES and,
// for fp16, HALF.

#include "hopper.cuh"

constexpr int G = H / HK;
constexpr int THREADS = 2 * ROWS;
constexpr int TILE = 16;                  // slots a tile
constexpr int TILE_BYTES = TILE * D * 2;  // rows of D elements, swizzled
constexpr int CHUNKS = D / 8;             // 16-byte pieces of a row
constexpr int ROWS_A_PASS = THREADS / CHUNKS;
constexpr int PASSES = TILE / ROWS_A_PASS;
constexpr long long SLOT = (long long)HK * D * 2;  // bytes

struct Item {  // as attend.py says; every query sees all of the run
    int row, start, end, first, queries, limit, step, low;
};

struct Shared {
    alignas(1024) char k[STAGES][TILE_BYTES];
    alignas(1024) char v[STAGES][TILE_BYTES];
};

__device__ __forceinline__ u32 swizzled(int row, int chunk) {
    return row * D * 2 + (chunk ^ (row % 8)) * 16;
}

// A lane looks up one slot of two tiles, two tiles before they are copied; the lanes that copy a
// row get its slot from there.
struct Producer {
    u32 k_to, v_to;
    const char *k, *v;  // this thread's piece of slot 0
    const int* table;
    int start, end, next = 0, slots = 0, ahead;

    __device__ __forceinline__ Producer(Shared& shared, const char* k, const char* v,
                                        const int* table, const Item& item)
        : k(k), v(v), table(table), start(item.start), end(item.end) {
        const u32 to = swizzled(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS);
        k_to = smem_address(shared.k[0]) + to;
        v_to = smem_address(shared.v[0]) + to;
        ahead = look_up(0);
    }

    __device__ __forceinline__ int look_up(int tile) const {
        const int at = start + tile * TILE + threadIdx.x % 32;
        if (at >= end) return 0;
        return PAGE == 1 ? __ldg(table + at) : __ldg(table + at / PAGE) * PAGE + at % PAGE;
    }

    __device__ __forceinline__ void produce() {
        if (start + next * TILE < end) {
            if (next % 2 == 0) slots = ahead, ahead = look_up(next + 2);
            const u32 stage = next % STAGES * TILE_BYTES;
            const u32 k_stage = k_to + stage, v_stage = v_to + stage;
#pragma unroll
            for (int i = 0; i < PASSES; i++) {
                const int row = i * ROWS_A_PASS;
                const long long offset =
                    SLOT * __shfl_sync(~0u, slots, next % 2 * TILE + row + threadIdx.x / CHUNKS);
                // The swizzle of the thread's row, and of what this pass adds to it.
                copy_16((k_stage ^ row % 8 * 16) + row * D * 2, k + offset);
                copy_16((v_stage ^ row % 8 * 16) + row * D * 2, v + offset);
            }
        }
        // Of nothing, too, so that to wait is to count tiles.
        asm volatile("cp.async.commit_group;" ::: "memory");
        next++;
    }
};

struct Consumer {
    u32 q[D / 16][4];
    float o[D / 8][4], s[2][4];
    float top[2], sum[2];
    u32 k, v;  // this lane's rows of stage 0
    float scale;

    __device__ __forceinline__ Consumer(Shared& shared, float scale) : scale(scale) {
        const int lane = threadIdx.x % 32;
        k = smem_address(shared.k[0]) + swizzled(lane / 16 * 8 + lane % 8, lane / 8 % 2);
        v = smem_address(shared.v[0]) + swizzled(lane % 16, lane / 16);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
#pragma unroll
            for (int r = 0; r < 4; r++) o[i][r] = 0;
        top[0] = top[1] = __int_as_float(0xff7fffff);
        sum[0] = sum[1] = 0;
    }

    __device__ __forceinline__ void load_queries(const char* queries, const int2* members,
                                                 const Item& item, int head) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = threadIdx.x / 32 * 16 + lane / 4 + 8 * r;
            const bool there = at / G < item.queries;
            const long long token = there ? __ldg(&members[item.first + at / G].x) : 0;
            const char* row = queries + (token * H + head * G + at % G) * D * 2 + lane % 4 * 4;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                q[i][r] = there ? __ldg((const u32*)(row + i * 32)) : 0;
                q[i][r + 2] = there ? __ldg((const u32*)(row + i * 32 + 16)) : 0;
            }
        }
    }

    __device__ __forceinline__ void scores(u32 stage) {
#pragma unroll
        for (int r = 0; r < 4; r++) s[0][r] = s[1][r] = 0;
        const u32 tile = k + stage;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            u32 b[4];
            load_matrices(b, (tile ^ i % 4 * 32) + i / 4 * 128);
            multiply(s[0], q[i], b[0], b[1]);
            multiply(s[1], q[i], b[2], b[3]);
        }
    }

    __device__ __forceinline__ void mask(int valid) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 >= valid)
                s[i / 4][i % 4] = __int_as_float(0xff800000);
    }

    // s becomes exp2(s * scale - top), and what was summed before shrinks to the new top.
    __device__ __forceinline__ void softmax() {
        float keep[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = fmaxf(top[r], s[0][2 * r]);
            most = fmaxf(fmaxf(most, s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            keep[r] = exp2_fast((top[r] - most) * scale);
            top[r] = most;
            const float shift = most * scale;
            float total = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float& x = s[i / 2][2 * r + i % 2];
                x = exp2_fast(fmaf(x, scale, -shift));
                total += x;
            }
            sum[r] = sum[r] * keep[r] + total;
        }
        // Tops seldom rise after the first tiles.
        if (!__any_sync(~0u, keep[0] != 1.0f || keep[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < D / 8; i++)
#pragma unroll
            for (int r = 0; r < 4; r++) o[i][r] *= keep[r / 2];
    }

    __device__ __forceinline__ void add_values(u32 stage) {
        const u32 p[4] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]), pack(s[1][0], s[1][1]),
                          pack(s[1][2], s[1][3])};
        const u32 tile = v + stage;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            u32 b[4];
            load_transposed(b, (tile ^ i % 4 * 32) + i / 4 * 128);
            multiply(o[2 * i], p, b[0], b[1]);
            multiply(o[2 * i + 1], p, b[2], b[3]);
        }
    }

    __device__ __forceinline__ void store(float* partial, float* lse, const int2* members,
                                          const Item& item, int head) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
            sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
            const int at = threadIdx.x / 32 * 16 + lane / 4 + 8 * r;
            if (at / G >= item.queries) continue;
            const long long out =
                (long long)__ldg(&members[item.first + at / G].y) * H + head * G + at % G;
            const float over = 1.0f / sum[r];
            if (lane % 4 == 0) lse[out] = top[r] * scale + __log2f(sum[r]);
#pragma unroll
            for (int i = 0; i < D / 8; i++)
                *(float2*)(partial + out * D + i * 8 + lane % 4 * 2) =
                    make_float2(o[i][2 * r] * over, o[i][2 * r + 1] * over);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, (ROWS == 16 ? 512 : 384) / THREADS)
    narrow_tile(const char* q, const char* k, const char* v, const int* table,
                long long table_stride, const Item* items, const int* count, const int2* members,
                float* partial, float* lse, float scale) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *(Shared*)memory;
    next_may_start();
    const Item item = items[blockIdx.y];
    if (blockIdx.y >= *count) return;
    const int head = blockIdx.x, piece = head * D * 2 + threadIdx.x % CHUNKS * 16;
    Producer producer(shared, k + piece, v + piece, table + item.row * table_stride, item);
    for (int i = 0; i < STAGES - 1; i++) producer.produce();
    Consumer consumer(shared, scale);
    consumer.load_queries(q, members, item, head);
    u32 stage = 0;
    for (int at = item.start; at < item.end; at += TILE) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        // All copies are there, and all warps are done with the tile that is copied over now.
        if (THREADS == 32)
            __syncwarp();
        else
            __syncthreads();
        producer.produce();
        consumer.scores(stage);
        if (item.end - at < TILE) consumer.mask(item.end - at);
        consumer.softmax();
        consumer.add_values(stage);
        stage = stage + TILE_BYTES == STAGES * TILE_BYTES ? 0 : stage + TILE_BYTES;
    }
    consumer.store(partial, lse, members, item, head);
    // A block stays until the kernel before has ended: what waits for this one waits for both.
    if (blockIdx.x + blockIdx.y == 0) wait_for_last();
}
