// Attention of up to ROWS query rows (queries x heads that share a KV head) over one run of slots.
//
// A block computes one unit (an item and a KV head), then what is a whole grid further. Warps 0 to
// 3 fetch: they look slots up in the table and copy K and V rows to shared memory, STAGES tiles
// ahead. One or two warpgroups compute, 64 rows each; the softmax of a tile runs while the tensor
// cores multiply the tile before it with V. A warpgroup without rows sits out.
//
// Compiled by NVRTC for sm_90a, with H, HK, D (64 or 128), ROWS (64 or 128), PAGE, STAGES and, for
// fp16, HALF.

#include "hopper.cuh"

constexpr int G = H / HK;
constexpr int GROUPS = ROWS / 64;  // warpgroups that compute
constexpr int TILE = 64;           // slots a tile
constexpr int PANEL = TILE * 128;  // bytes of 64 columns of a tile: rows of 128 bytes, swizzled
constexpr int TILE_BYTES = PANEL * D / 64;
constexpr int CHUNKS = D / 8;  // 16-byte pieces of a row
constexpr int ROWS_A_PASS = 128 / CHUNKS;
constexpr int PASSES = TILE / ROWS_A_PASS;
constexpr int ROWS_A_WARP = 32 / CHUNKS;  // in one pass
constexpr int TILES_A_LOOK_UP = 32 / (PASSES * ROWS_A_WARP);
constexpr long long SLOT = (long long)HK * D * 2;  // bytes

static_assert(ROWS == 64 || ROWS == 128, "ROWS must be 64 or 128: a warpgroup computes 64");
static_assert(G <= ROWS, "the heads of a KV head must fit in a tile");
static_assert(PAGE > 0, "PAGE must be positive");
static_assert(STAGES >= 2, "STAGES must be 2 or more: a tile is copied while another is computed");
static_assert(PASSES * ROWS_A_PASS == TILE, "the passes of the copy must fill a tile");
static_assert(TILES_A_LOOK_UP * PASSES * ROWS_A_WARP == 32, "a look-up must use every lane");
static_assert(2 * STAGES * TILE_BYTES + 32 * STAGES <= 227 * 1024,
              "the stages must fit in a block's shared memory");

// Where the 16-byte piece `chunk` of row `row` lies in a tile of `rows` rows.
template <int rows>
__device__ __forceinline__ u32 swizzled(int row, int chunk) {
    return (chunk / 8) * rows * 128 + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
}

struct Shared {
    alignas(1024) char k[STAGES][TILE_BYTES];
    alignas(1024) char v[STAGES][TILE_BYTES];
    u64 full_k[STAGES], full_v[STAGES], empty_k[STAGES], empty_v[STAGES];
};

// Which stage of the ring a tile is in, and which of the two phases of its barriers it completes.
struct Stage {
    int index = 0;
    u32 phase = 0;
    __device__ __forceinline__ void next() {
        if (++index == STAGES) index = 0, phase ^= 1;
    }
};

// Tiles go from the last, which may be cut short, to the first, two at a time: a lane looks up one
// slot of the next two while the present two are copied, and the lanes that copy a row get its slot
// from there.
struct Producer {
    Shared& shared;
    const char *k, *v;  // this thread's piece of slot 0
    const int* table;
    int start, end, thread;

    __device__ __forceinline__ int look_up(int tile) const {
        const int lane = thread % 32, row = lane % (PASSES * ROWS_A_WARP);
        tile -= lane / (PASSES * ROWS_A_WARP);
        if (tile < 0) return 0;
        // What is past the end weighs nothing, but must be a number: it is the last slot of the
        // run, as a slot of another request may hold a NaN.
        const int at = min(start + tile * TILE + row / ROWS_A_WARP * ROWS_A_PASS +
                               thread / 32 * ROWS_A_WARP + row % ROWS_A_WARP,
                           end - 1);
        return PAGE == 1 ? __ldg(table + at) : __ldg(table + at / PAGE) * PAGE + at % PAGE;
    }

    __device__ __forceinline__ void produce(int tile) {
        const u32 to = swizzled<TILE>(thread / CHUNKS, thread % CHUNKS);
        const u32 k_to = smem_address(shared.k[0]) + to, v_to = smem_address(shared.v[0]) + to;
        const u32 full_k = smem_address(shared.full_k), full_v = smem_address(shared.full_v);
        const u32 empty_k = smem_address(shared.empty_k), empty_v = smem_address(shared.empty_v);
        Stage stage;
        for (int slots = look_up(tile); tile >= 0;) {
            const int ahead = look_up(tile - TILES_A_LOOK_UP);
#pragma unroll
            for (int t = 0; t < TILES_A_LOOK_UP; t++, tile--, stage.next()) {
                if (tile < 0) break;
                long long offset[PASSES];
#pragma unroll
                for (int i = 0; i < PASSES; i++)
                    offset[i] =
                        SLOT * __shfl_sync(~0u, slots,
                                           (t * PASSES + i) * ROWS_A_WARP + thread % 32 / CHUNKS);
                // A fresh barrier counts as having completed the phase before its first.
                barrier_wait(empty_k + stage.index * 8, stage.phase ^ 1);
#pragma unroll
                for (int i = 0; i < PASSES; i++)
                    copy_16(k_to + stage.index * TILE_BYTES + i * ROWS_A_PASS * 128, k + offset[i]);
                barrier_arrive_after_copies(full_k + stage.index * 8);
                barrier_wait(empty_v + stage.index * 8, stage.phase ^ 1);
#pragma unroll
                for (int i = 0; i < PASSES; i++)
                    copy_16(v_to + stage.index * TILE_BYTES + i * ROWS_A_PASS * 128, v + offset[i]);
                barrier_arrive_after_copies(full_v + stage.index * 8);
            }
            slots = ahead;
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    }
};

static_assert(sizeof(Shared) <= 2 * STAGES * TILE_BYTES + 1024, "barriers must follow the tiles");

struct Consumer {
    u32 q[D / 16][4];
    u64 k, v;  // operands of stage 0
    u32 full_k, full_v, empty_k, empty_v;
    int thread;
    float scale;
    float o[D / 2], s[32];
    u32 p[16];
    float row_max[2], row_sum[2], rescale[2];

    __device__ __forceinline__ Consumer(Shared& shared, int thread, float scale)
        : k(descriptor(smem_address(shared.k[0]), 16)),
          v(descriptor(smem_address(shared.v[0]), PANEL)),
          full_k(smem_address(shared.full_k)),
          full_v(smem_address(shared.full_v)),
          empty_k(smem_address(shared.empty_k)),
          empty_v(smem_address(shared.empty_v)),
          thread(thread),
          scale(scale) {}

    __device__ __forceinline__ void load_queries(const char* queries, const int2* q_indices,
                                                 const Item& item, int head, int group) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = row(group, r);
            const bool there = at / G < item.queries;
            const long long token = there ? __ldg(&q_indices[item.first + at / G].x) : 0;
            const char* from = queries + (token * H + head * G + at % G) * D * 2 + thread % 4 * 4;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                q[i][r] = there ? __ldg((const u32*)(from + i * 32)) : 0;
                q[i][r + 2] = there ? __ldg((const u32*)(from + i * 32 + 16)) : 0;
            }
        }
    }

    // Which of the item's rows this thread's r-th is.
    __device__ __forceinline__ int row(int group, int r) const {
        return group * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * r;
    }

    __device__ __forceinline__ void begin_scores(Stage stage) {
        barrier_wait(full_k + stage.index * 8, stage.phase);
        shared_writes_to_wgmma();
        const u64 tile = moved(k, stage.index * TILE_BYTES);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            multiply_qk(s, q[i], moved(tile, i / 4 * PANEL + i % 4 * 32), i);
        wgmma_commit();
    }

    __device__ __forceinline__ void begin_values(Stage stage) {
        barrier_wait(full_v + stage.index * 8, stage.phase);
        shared_writes_to_wgmma();
        const u64 tile = moved(v, stage.index * TILE_BYTES);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < TILE / 16; i++) multiply_pv(o, p + 4 * i, moved(tile, i * 2048));
        wgmma_commit();
    }

    __device__ __forceinline__ void release(u32 empty, Stage stage) {
        if (thread == 0) barrier_arrive(empty + stage.index * 8);
    }

    __device__ __forceinline__ void mask(int valid) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            if ((i / 4) * 8 + (thread % 4) * 2 + i % 2 >= valid) s[i] = __int_as_float(0xff800000);
    }

    // s becomes exp2(s * scale - row_max); `rescale` is what earlier sums shrink by.
    __device__ __forceinline__ void softmax() {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float new_max = row_max[r];
#pragma unroll
            for (int i = 0; i < 32; i += 4)
                new_max = fmaxf(new_max, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
            new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 1));
            new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 2));
            rescale[r] = exp2_fast((row_max[r] - new_max) * scale);
            float shift = new_max * scale, total = 0;
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                s[i + 2 * r] = exp2_fast(fmaf(s[i + 2 * r], scale, -shift));
                s[i + 2 * r + 1] = exp2_fast(fmaf(s[i + 2 * r + 1], scale, -shift));
                total += s[i + 2 * r] + s[i + 2 * r + 1];
            }
            row_sum[r] = row_sum[r] * rescale[r] + total;
            row_max[r] = new_max;
        }
    }

    __device__ __forceinline__ void pack_weights() {
#pragma unroll
        for (int i = 0; i < 16; i++) p[i] = pack(s[2 * i], s[2 * i + 1]);
    }

    // Row maxima seldom rise after the first tiles.
    __device__ __forceinline__ void shrink() {
        if (!__any_sync(~0u, rescale[0] != 1.0f || rescale[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= rescale[(i / 2) % 2];
    }

    __device__ __forceinline__ void consume(int count, int valid) {
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] = 0;
        row_max[0] = row_max[1] = __int_as_float(0xff7fffff);
        row_sum[0] = row_sum[1] = 0;
        Stage stage;
        begin_scores(stage);
        wgmma_wait<0>();
        in_registers(s);
        release(empty_k, stage);
        if (valid < TILE) mask(valid);
        softmax();
        pack_weights();
        for (int n = 1; n < count; n++) {
            const Stage before = stage;
            stage.next();
            begin_scores(stage);
            begin_values(before);
            wgmma_wait<1>();
            in_registers(s);
            release(empty_k, stage);
            softmax();
            wgmma_wait<0>();
            in_registers(o);
            release(empty_v, before);
            pack_weights();
            shrink();
        }
        begin_values(stage);
        wgmma_wait<0>();
        in_registers(o);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            row_sum[r] += __shfl_xor_sync(~0u, row_sum[r], 1);
            row_sum[r] += __shfl_xor_sync(~0u, row_sum[r], 2);
        }
    }
};

// All threads of the block are here. Not __syncthreads(): the roles come here by ways of their own.
__device__ __forceinline__ void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(128 + 2 * ROWS) : "memory");
}

// Before a unit that so many consumers compute: barriers as new.
__device__ __forceinline__ void begin(Shared& shared, int consumers, bool is_first) {
    if (!is_first) meet();
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            if (!is_first) {
                barrier_end(smem_address(&shared.full_k[i]));
                barrier_end(smem_address(&shared.full_v[i]));
                barrier_end(smem_address(&shared.empty_k[i]));
                barrier_end(smem_address(&shared.empty_v[i]));
            }
            barrier_init(smem_address(&shared.full_k[i]), 128);
            barrier_init(smem_address(&shared.full_v[i]), 128);
            barrier_init(smem_address(&shared.empty_k[i]), consumers);
            barrier_init(smem_address(&shared.empty_v[i]), consumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet();
}

__device__ __forceinline__ int consumers_of(const Item& item) {
    return GROUPS == 2 && item.queries * G > 64 ? 2 : 1;
}

__device__ __forceinline__ int tiles_of(const Item& item) {
    return (item.end - item.start + TILE - 1) / TILE;
}

__device__ __forceinline__ void consume(Shared& shared, const char* q, const int2* q_indices,
                                        const Item& item, int head, int group, int thread,
                                        float scale, float* partial_o, float* partial_lse) {
    const int tiles = tiles_of(item);
    Consumer consumer(shared, thread, scale);
    consumer.load_queries(q, q_indices, item, head, group);
    consumer.consume(tiles, item.end - item.start - (tiles - 1) * TILE);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int at = consumer.row(group, r);
        if (at / G >= item.queries) continue;
        const long long out =
            (long long)__ldg(&q_indices[item.first + at / G].y) * H + head * G + at % G;
        const float over = 1.0f / consumer.row_sum[r];
        if (thread % 4 == 0)
            partial_lse[out] = consumer.row_max[r] * scale + __log2f(consumer.row_sum[r]);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            *(float2*)(partial_o + out * D + i * 8 + thread % 4 * 2) =
                make_float2(consumer.o[4 * i + 2 * r] * over, consumer.o[4 * i + 2 * r + 1] * over);
    }
}

extern "C" __global__ void __launch_bounds__(512, 1)
    wide_tile(const char* q, const char* k, const char* v, const int* table, long long table_stride,
              const Item* items, const int* count, const int2* q_indices, float* partial_o,
              float* partial_lse, float scale) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *(Shared*)memory;
    // What reads the rest of the batch runs beside this, and must not start before.
    next_may_start();
    const int first = blockIdx.x;
    // There is room for one a block, whether there is one or not: it is not to wait for the count.
    prefetch(items + first / HK);
    const int units = *count * HK;
    // Warp-uniform for the compiler, too: descriptors are made from it.
    const int thread = threadIdx.x % 128, warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (first >= units) return;
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        for (int unit = first; unit < units; unit += gridDim.x) {
            const Item item = items[unit / HK];
            begin(shared, consumers_of(item), unit == first);
            const int piece = unit % HK * D * 2 + thread % CHUNKS * 16;
            Producer producer{shared,     k + piece, v + piece, table + item.row * table_stride,
                              item.start, item.end,  thread};
            producer.produce(tiles_of(item) - 1);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 176;");
        const int group = warpgroup - 1;
        for (int unit = first; unit < units; unit += gridDim.x) {
            const Item item = items[unit / HK];
            begin(shared, consumers_of(item), unit == first);
            if (group < consumers_of(item))
                consume(shared, q, q_indices, item, unit % HK, group, thread, scale, partial_o,
                        partial_lse);
        }
    }
}
