// Attention over latents (MLA) of up to 64 query rows (queries x heads) over one run of slots.
//
// A block computes one unit (an item and a part of the heads), then what is a whole grid further.
// Warps 0 to 3 fetch: they look slots up in the table and copy their rows to shared memory, a tile
// ahead. Two warpgroups compute: each multiplies all queries with half of a tile's slots, both meet
// to agree on the rows' maxima and to swap weights, and each multiplies the weights with half of
// the latent. A row is read once, as key and as value.
//
// Compiled by NVRTC for sm_90a, with H, HK (1), D (64: of the rotary key), RANK (512), SPLIT (parts
// of the heads), PAGE and, for fp16, HALF.

#include "hopper.cuh"

constexpr int G = H / SPLIT;
constexpr int ROWS = 64, TILE = 64, STAGES = 2;
constexpr int DIM = RANK + D;     // numbers of a row
constexpr int PANEL = 64 * 128;   // bytes of 64 columns of 64 rows, swizzled
constexpr int PANELS = DIM / 64;  // of which the last is the rotary key
constexpr int TILE_BYTES = PANELS * PANEL;
constexpr long long SLOT = DIM * 2;             // bytes
constexpr int HALF_RANK = RANK / 2;             // columns of the latent that a warpgroup sums up
constexpr int FETCHING = 128, COMPUTING = 256;  // threads

static_assert(HK == 1 && D == 64 && RANK == 512, "the layout of registers is for 512 + 64");
static_assert(H % SPLIT == 0 && G <= ROWS, "a part of the heads must fit in a tile");
static_assert(PAGE > 0, "PAGE must be positive");

// 16 bytes, or zeros.
__device__ __forceinline__ void copy_16_or_zeros(u32 to, const char* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

struct Shared {
    alignas(1024) char q[TILE_BYTES];
    alignas(1024) char k[STAGES][TILE_BYTES];
    alignas(1024) char weights[PANEL];
    float row_max[2][ROWS];
    u64 full[STAGES], empty[STAGES], full_q, empty_q;
};

// Where the 16-byte piece `chunk` of row `row` lies.
__device__ __forceinline__ u32 swizzled(int row, int chunk) {
    return chunk / 8 * PANEL + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
}

// Which stage of the ring a tile is in, and which of the two phases of its barriers it completes.
struct Stage {
    int index = 0;
    u32 phase = 0;
    __device__ __forceinline__ void next() {
        if (++index == STAGES) index = 0, phase ^= 1;
    }
};

__device__ __forceinline__ int tiles_of(const Item& item) {
    return (item.end - item.start + TILE - 1) / TILE;
}

// A warp copies 16 rows of each tile and of the queries, its lanes a row's pieces.
struct Producer {
    Shared& shared;
    const char *q, *k;
    const int2* q_indices;
    int thread, row;  // row: that this lane looks up
    Stage stage;
    u32 phase;  // of the queries' barriers

    // Rows whose numbers the first 16 lanes have; zeros where that is negative.
    __device__ __forceinline__ void copy_rows(u32 to, const char* from, int number) const {
        const int lane = thread % 32, first = thread / 32 * 16;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int of_row = __shfl_sync(~0u, number, i);
            const char* piece = from + SLOT * max(of_row, 0) + lane * 16;
#pragma unroll
            for (int half = 0; half < 2; half++)
                copy_16_or_zeros(to + swizzled(first + i, half * 32 + lane), piece + half * 512,
                                 of_row >= 0);
        }
        const int chunk = RANK / 8 + lane % 8;
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            const int of_row = __shfl_sync(~0u, number, i + lane / 8);
            copy_16_or_zeros(to + swizzled(first + i + lane / 8, chunk),
                             from + SLOT * max(of_row, 0) + chunk * 16, of_row >= 0);
        }
    }

    __device__ __forceinline__ int look_up(const int* table, const Item& item, int tile) const {
        if (tile == tiles_of(item)) return 0;
        // What is past the end weighs nothing, but must be a number: it is the last slot of the
        // run, as a slot of another request may hold a NaN.
        const int at = min(item.start + tile * TILE + row, item.end - 1);
        return PAGE == 1 ? __ldg(table + at) : __ldg(table + at / PAGE) * PAGE + at % PAGE;
    }

    __device__ __forceinline__ void produce_queries(const Item& item, int first_head) {
        const bool there = row / G < item.queries;
        const int token = there ? __ldg(&q_indices[item.first + row / G].x) : 0;
        // A fresh barrier counts as having completed the phase before its first.
        barrier_wait(smem_address(&shared.empty_q), phase ^ 1);
        copy_rows(smem_address(shared.q), q, there ? token * H + first_head + row % G : -1);
        barrier_arrive_after_copies(smem_address(&shared.full_q));
        phase ^= 1;
    }

    __device__ __forceinline__ void produce(const int* table, const Item& item, int first_head) {
        const int tiles = tiles_of(item);
        for (int tile = 0, slots = look_up(table, item, 0); tile < tiles; tile++, stage.next()) {
            const int ahead = look_up(table, item, tile + 1);
            barrier_wait(smem_address(&shared.empty[stage.index]), stage.phase ^ 1);
            copy_rows(smem_address(shared.k[stage.index]), k, slots);
            barrier_arrive_after_copies(smem_address(&shared.full[stage.index]));
            // While the last tile of the item before is computed, the first tile finds room, and
            // then the queries.
            if (tile == 0) produce_queries(item, first_head);
            slots = ahead;
        }
    }
};

// s (64 x 32) = or += q (64 x 16, shared) k^T (16 x 32, shared).
__device__ __forceinline__ void multiply_qk(float (&s)[16], u64 q, u64 k, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16." OPERANDS
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;\n}"
        : F16(s, 0)
        : "l"(q), "l"(k), "r"(add));
}
// o (64 x 128) += p (64 x 16, shared) v (16 x 128, shared).
__device__ __forceinline__ void multiply_pv(float (&o)[64], u64 p, u64 v) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16." OPERANDS " {" R64
                 "}, %64, %65, 1, 1, 1, 0, 1;"
                 : F32(o, 0), F32(o, 32)
                 : "l"(p), "l"(v));
}

// The threads that compute are here.
__device__ __forceinline__ void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(COMPUTING) : "memory");
}

// Of four lanes, each gets what the others have for it: a 4 x 4 matrix is transposed.
__device__ __forceinline__ void swap_among_four(u32 (&v)[4], int lane) {
    const bool odd = lane & 1, high = lane & 2;
    u32 one = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 1);
    u32 two = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 1);
    (odd ? v[0] : v[1]) = one, (odd ? v[2] : v[3]) = two;
    one = __shfl_xor_sync(~0u, high ? v[0] : v[2], 2);
    two = __shfl_xor_sync(~0u, high ? v[1] : v[3], 2);
    (high ? v[0] : v[2]) = one, (high ? v[1] : v[3]) = two;
}

struct Consumer {
    Shared& shared;
    int thread, group;  // of 128 threads; which warpgroup
    float scale;
    Stage stage;
    u32 phase;  // of the queries' barriers
    float o[2][64], s[16];
    float row_max[2], row_sum[2], rescale[2];
    int limit[2];  // positions that the thread's two rows see

    // Which of the item's rows this thread's r-th is.
    __device__ __forceinline__ int row(int r) const {
        return thread / 32 * 16 + thread % 32 / 4 + 8 * r;
    }

    __device__ __forceinline__ void multiply_keys() {
        const u64 q = descriptor(smem_address(shared.q), 16);
        const u64 k = descriptor(smem_address(shared.k[stage.index]) + group * 32 * 128, 16);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < DIM / 16; i++) {
            const u32 at = i / 4 * PANEL + i % 4 * 32;
            multiply_qk(s, moved(q, at), moved(k, at), i);
        }
        wgmma_commit();
        wgmma_wait<0>();
        in_registers(s);
    }

    __device__ __forceinline__ void release(u64& empty) const {
        if (thread == 0) barrier_arrive(smem_address(&empty));
    }

    // Positions from `start` on.
    __device__ __forceinline__ void mask(int start) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int at = start + group * 32 + i / 4 * 8 + thread % 4 * 2 + i % 2;
            if (at >= limit[i / 2 % 2]) s[i] = __int_as_float(0xff800000);
        }
    }

    // The maxima of both halves of the tile.
    __device__ __forceinline__ void agree() {
        float own[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            own[r] = fmaxf(fmaxf(s[2 * r], s[2 * r + 1]), row_max[r]);
#pragma unroll
            for (int i = 4; i < 16; i += 4)
                own[r] = fmaxf(own[r], fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
            own[r] = fmaxf(own[r], __shfl_xor_sync(~0u, own[r], 1));
            own[r] = fmaxf(own[r], __shfl_xor_sync(~0u, own[r], 2));
            if (thread % 4 == 0) shared.row_max[group][row(r)] = own[r];
        }
        meet();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float both = fmaxf(own[r], shared.row_max[group ^ 1][row(r)]);
            rescale[r] = exp2_fast((row_max[r] - both) * scale);
            row_max[r] = both;
        }
    }

    // s becomes exp2(s * scale - row_max), which goes to where both warpgroups read it.
    __device__ __forceinline__ void weigh() {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float shift = row_max[r] * scale;
            float total = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float one = exp2_fast(fmaf(s[4 * i + 2 * r], scale, -shift));
                const float two = exp2_fast(fmaf(s[4 * i + 2 * r + 1], scale, -shift));
                total += one + two;
                *(u32*)(shared.weights + swizzled(row(r), group * 4 + i) + thread % 4 * 4) =
                    pack(one, two);
            }
            row_sum[r] = row_sum[r] * rescale[r] + total;
        }
        shared_writes_to_wgmma();
    }

    // Row maxima seldom rise after the first tiles.
    __device__ __forceinline__ void shrink() {
        if (!__any_sync(~0u, rescale[0] != 1.0f || rescale[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < 64; i++) o[0][i] *= rescale[i / 2 % 2], o[1][i] *= rescale[i / 2 % 2];
    }

    __device__ __forceinline__ void multiply_values() {
        const u64 p = descriptor(smem_address(shared.weights), 16);
        const u32 columns = group * (HALF_RANK / 64) * PANEL;
        const u64 v = descriptor(smem_address(shared.k[stage.index]) + columns, PANEL);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < TILE / 16; i++)
#pragma unroll
            for (int n = 0; n < 2; n++)
                multiply_pv(o[n], moved(p, i * 32), moved(v, i * 2048 + n * 2 * PANEL));
        wgmma_commit();
        wgmma_wait<0>();
        in_registers(o[0]);
        in_registers(o[1]);
    }

    __device__ __forceinline__ void consume(const Item& item) {
#pragma unroll
        for (int i = 0; i < 64; i++) o[0][i] = o[1][i] = 0;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            limit[r] = min(item.limit + row(r) / G * item.step, item.end);
            // Less than any score, and finite: the difference of two is a number.
            row_max[r] = -1e30f, row_sum[r] = 0;
        }
        const int all_see = min(item.limit, item.end);
        barrier_wait(smem_address(&shared.full_q), phase);
        phase ^= 1;
        for (int start = item.start; start < item.end; start += TILE, stage.next()) {
            barrier_wait(smem_address(&shared.full[stage.index]), stage.phase);
            shared_writes_to_wgmma();
            multiply_keys();
            if (start + TILE >= item.end) release(shared.empty_q);
            if (start + TILE > all_see) mask(start);
            agree();
            weigh();
            shrink();
            meet();
            multiply_values();
            release(shared.empty[stage.index]);
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            row_sum[r] += __shfl_xor_sync(~0u, row_sum[r], 1);
            row_sum[r] += __shfl_xor_sync(~0u, row_sum[r], 2);
            if (thread % 4 == 0) shared.row_max[group][row(r)] = row_sum[r];
        }
        meet();
#pragma unroll
        for (int r = 0; r < 2; r++) row_sum[r] += shared.row_max[group ^ 1][row(r)];
    }

    __device__ __forceinline__ void store(const int2* q_indices, const Item& item, int first_head,
                                          char* partial_o, float* partial_lse) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = row(r);
            const bool there = at / G < item.queries;
            const long long part = there ? __ldg(&q_indices[item.first + at / G].y) : 0;
            const long long out = part * H + first_head + at % G;
            // A row may see nothing of a piece: a sum of 0, which is -inf in base 2.
            const float over = row_sum[r] > 0 ? 1.0f / row_sum[r] : 0;
            if (there && group == 0 && thread % 4 == 0)
                partial_lse[out] = row_max[r] * scale + __log2f(row_sum[r]);
            char* to = partial_o + (out * RANK + group * HALF_RANK) * 2 + thread % 4 * 16;
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int i = 0; i < 16; i += 4) {
                    u32 four[4];
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        four[j] = pack(o[n][4 * (i + j) + 2 * r] * over,
                                       o[n][4 * (i + j) + 2 * r + 1] * over);
                    swap_among_four(four, thread % 4);
                    if (there)
                        *(uint4*)(to + (n * 128 + i * 8) * 2) =
                            make_uint4(four[0], four[1], four[2], four[3]);
                }
        }
    }
};

extern "C" __global__ void __launch_bounds__(COMPUTING + FETCHING, 1)
    latent_tile(const char* q, const char* k, const int* table, long long table_stride,
                const Item* items, const int* count, const int2* q_indices, char* partial_o,
                float* partial_lse, float scale) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *(Shared*)memory;
    // Warp-uniform for the compiler, too: descriptors are made from it.
    const int thread = threadIdx.x % 128, warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(smem_address(&shared.full[i]), FETCHING);
            barrier_init(smem_address(&shared.empty[i]), 2);
        }
        barrier_init(smem_address(&shared.full_q), FETCHING);
        barrier_init(smem_address(&shared.empty_q), 2);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    // There is room for one a block, whether there is one or not: it is not to wait for the count.
    prefetch(items + blockIdx.x / SPLIT);
    const int units = *count * SPLIT;
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        Producer producer{shared, q, k, q_indices, thread, thread / 32 * 16 + thread % 16};
        for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
            const Item item = items[unit / SPLIT];
            producer.produce(table + item.row * table_stride, item, unit % SPLIT * G);
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        Consumer consumer{shared, thread, warpgroup - 1, scale};
        for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
            const Item item = items[unit / SPLIT];
            const int first_head = unit % SPLIT * G;
            consumer.consume(item);
            consumer.store(q_indices, item, first_head, partial_o, partial_lse);
        }
    }
}
