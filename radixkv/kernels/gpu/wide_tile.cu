// Attention of up to ROWS query rows (queries x heads that share a KV head) over one run of slots.
//
// A block computes one unit (an item and a KV head), then what is a whole grid further. Warps 0 to
// 3 fetch: they look slots up in the table and copy K and V rows to shared memory, STAGES tiles
// ahead, without a pause between units. One or two warpgroups compute, 64 rows each; the softmax of
// a tile runs while the tensor cores multiply the tile before it with V. A warpgroup without rows
// sits out.
//
// With heads of more than 128 dimensions the queries, too, are fetched to shared memory, as
// registers have no room for them. K and V of e4m3 are copied as they are; the thread that copied
// them makes fp16 numbers of them when they have arrived.
//
// Compiled by NVRTC for sm_90a, with H, HK, D (64, 128, 192 or 256), ROWS (64 or, up to 128
// dimensions, 128), PAGE, STAGES, SHARED_BYTES, for fp16 queries HALF, and for K and V of e4m3 FP8.

#include "hopper.cuh"

constexpr int G = H / HK;
constexpr int GROUPS = ROWS / 64;         // warpgroups that compute
constexpr bool SHARES_Q = D > 128;        // queries lie in shared memory
constexpr int TILE = SHARES_Q ? 32 : 64;  // slots a tile
constexpr int PANEL = TILE * 128;  // bytes of 64 columns of a tile: rows of 128 bytes, swizzled
constexpr int TILE_BYTES = PANEL * D / 64;
// Threads that fetch K, and V: of bf16 the same, of e4m3 two warps each.
constexpr int FETCHERS = SIZE == 1 ? 64 : 128;
constexpr int CHUNKS = D * SIZE / 16;        // 16-byte pieces of a row of K or V
constexpr int LANES = CHUNKS % 16 ? 8 : 16;  // that copy a row
constexpr int PIECES = CHUNKS / LANES;       // of a row, for a lane
constexpr int ROWS_A_WARP = 32 / LANES;      // in one pass
constexpr int ROWS_A_PASS = FETCHERS / LANES;
constexpr int PASSES = TILE / ROWS_A_PASS;
constexpr int TILES_A_LOOK_UP = 32 / (PASSES * ROWS_A_WARP);
constexpr u32 SLOT = HK * CHUNKS;  // pieces: a card has no room for 2^32 of them in a layer
// Tiles of e4m3 that are on their way, and their room.
constexpr int AHEAD = 3, RAW_STAGES = AHEAD + 1;
constexpr int RAW_BYTES = TILE * D;
// Registers of the threads that fetch, and of those that compute: of 128 each at the start.
constexpr int FETCH_REGISTERS = GROUPS == 2 ? 32 : 72, COMPUTE_REGISTERS = GROUPS == 2 ? 176 : 184;
static_assert(FETCH_REGISTERS + GROUPS * COMPUTE_REGISTERS <= 128 * (1 + GROUPS),
              "no warpgroup must wait for registers that none gives back");

static_assert(ROWS == 64 || ROWS == 128, "ROWS must be 64 or 128: a warpgroup computes 64");
static_assert(!SHARES_Q || ROWS == 64, "ROWS must be 64 with more than 128 dimensions");
static_assert(G <= ROWS, "the heads of a KV head must fit in a tile");
static_assert(PAGE > 0, "PAGE must be positive");
static_assert(STAGES >= 2, "STAGES must be 2 or more: a tile is copied while another is computed");
static_assert(PASSES * ROWS_A_PASS == TILE, "the passes of the copy must fill a tile");
static_assert(TILES_A_LOOK_UP * PASSES * ROWS_A_WARP == 32, "a look-up must use every lane");

// Where the 16-byte piece `chunk` of row `row` lies in a tile of `rows` rows.
template <int rows>
__device__ __forceinline__ u32 swizzled(int row, int chunk) {
    return (chunk / 8) * rows * 128 + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
}

struct Shared {
    alignas(1024) char k[STAGES][TILE_BYTES];
    alignas(1024) char v[STAGES][TILE_BYTES];
    alignas(1024) char q[SHARES_Q ? ROWS * D * 2 : 16];
    alignas(16) char raw[SIZE == 1 ? RAW_STAGES * 2 * RAW_BYTES : 16];
    u64 full_k[STAGES], full_v[STAGES], empty_k[STAGES], empty_v[STAGES];  // see `Barriers`
    u64 full_q, empty_q, done;
};
enum Barriers { FULL_K, FULL_V, EMPTY_K, EMPTY_V };
static_assert(sizeof(Shared) <= SHARED_BYTES, "all of it must fit in what a launch asks for");

// Which stage of the ring a tile is in, and which of the two phases of its barriers it completes.
// The ring goes on from unit to unit.
struct Stage {
    int index = 0;
    u32 phase = 0;
    __device__ __forceinline__ void next() {
        if (++index == STAGES) index = 0, phase ^= 1;
    }
    __device__ __forceinline__ void skip(int tiles) {
        index += tiles;
        phase ^= index / STAGES % 2;
        index %= STAGES;
    }
};

// Tiles go from the last, which may be cut short, to the first. A lane looks up one slot of a few
// tiles while those before them are copied, and the lanes that copy a row get its slot from there.
struct Producer {
    Shared& shared;
    const char *k, *v;
    u32 piece;  // of slot 0, this thread's first
    const int* table;
    int at, last;  // of the slots that this lane looks up: in the first tile, and at most
    int tile, left = 0;
    int ahead;  // looked up for the tiles after these
    u32 pieces = 0;

    __device__ __forceinline__ Producer(Shared& shared, const char* k, const char* v, int head,
                                        const int* table, const Item& item, int tiles)
        : shared(shared),
          k(k),
          v(v),
          piece(head * CHUNKS + chunk()),
          table(table),
          last(item.end - 1),
          tile(tiles - 1) {
        const int row = threadIdx.x % (PASSES * ROWS_A_WARP);
        at = item.start - threadIdx.x % 32 / (PASSES * ROWS_A_WARP) * TILE +
             row / ROWS_A_WARP * ROWS_A_PASS + warp() * ROWS_A_WARP + row % ROWS_A_WARP;
        ahead = look_up(tile);
    }

    // Which of the warps that fetch the same.
    static __device__ __forceinline__ int warp() { return threadIdx.x % FETCHERS / 32; }
    // Which row of its warp's, and which piece of it, a thread copies. Of e4m3, four lanes copy
    // half a row: of the eight that write fp16 numbers at once, no two use the same banks.
    static __device__ __forceinline__ int row() {
        const int lane = threadIdx.x % 32;
        return SIZE == 1 ? lane / 16 * 2 + lane / 4 % 2 : lane / LANES;
    }
    static __device__ __forceinline__ int chunk() {
        const int lane = threadIdx.x % 32;
        return SIZE == 1 ? lane / 8 % 2 * 4 + lane % 4 : lane % LANES;
    }

    // What is past the end weighs nothing, but must be a number: it is the last slot of the run, as
    // a slot of another request may hold a NaN.
    __device__ __forceinline__ int position(int tile) const { return min(at + tile * TILE, last); }

    // The entry of the table as it is: to compute with it would be to wait for it.
    __device__ __forceinline__ int look_up(int tile) const {
        if (tile < (int)(threadIdx.x % 32) / (PASSES * ROWS_A_WARP)) return 0;
        return __ldg(table + position(tile) / PAGE);
    }

    // Before the rows of the next tile are asked for: which lane has the slot of this thread's
    // first.
    __device__ __forceinline__ int next_tile() {
        if (left == 0) {
            left = TILES_A_LOOK_UP;
            pieces = SLOT * (PAGE == 1 ? ahead : ahead * PAGE + position(tile) % PAGE);
            ahead = look_up(tile - TILES_A_LOOK_UP);
        }
        left--, tile--;
        return (TILES_A_LOOK_UP - 1 - left) * PASSES * ROWS_A_WARP + row();
    }

    // The first piece that this thread copies of its i-th row.
    __device__ __forceinline__ u32 piece_of(int first, int i) const {
        return piece + __shfl_sync(~0u, pieces, first + i * ROWS_A_WARP);
    }

    __device__ __forceinline__ void copy(u32 to, const char* from, const u32 (&pieces_of)[PASSES]) {
#pragma unroll
        for (int i = 0; i < PASSES; i++)
#pragma unroll
            for (int j = 0; j < PIECES; j++)
                copy_16(to + i * ROWS_A_PASS * 128 + j * (LANES / 8) * PANEL,
                        from + 16ll * pieces_of[i] + j * LANES * 16);
    }

    __device__ __forceinline__ int row_of_tile() const { return warp() * ROWS_A_WARP + row(); }

    // The item's queries under `head`, and zeros in place of those that are not there.
    __device__ __forceinline__ void fetch_queries(const char* queries, const int2* q_indices,
                                                  const Item& item, int head, u32 phase) {
        const u32 to = smem_address(shared.q) + swizzled<ROWS>(row_of_tile(), chunk());
        barrier_wait(smem_address(&shared.empty_q), phase ^ 1);
#pragma unroll
        for (int i = 0; i < ROWS / ROWS_A_PASS; i++) {
            const int at = row_of_tile() + i * ROWS_A_PASS;
            const bool there = at / G < item.queries;
            const long long token = there ? __ldg(&q_indices[item.first + at / G].x) : 0;
            const char* from = queries + (token * H + head * G + at % G) * D * 2 + chunk() * 16;
#pragma unroll
            for (int j = 0; j < PIECES; j++)
                copy_16_or_zeros(to + i * ROWS_A_PASS * 128 + j * (LANES / 8) * ROWS * 128,
                                 from + j * LANES * 16, there);
        }
        barrier_arrive_after_copies(smem_address(&shared.full_q));
    }

    __device__ __forceinline__ void produce(Stage& stage) {
        const u32 to = swizzled<TILE>(row_of_tile(), chunk());
        const u32 k_to = smem_address(shared.k[0]) + to, v_to = smem_address(shared.v[0]) + to;
        const u32 full_k = smem_address(shared.full_k), full_v = smem_address(shared.full_v);
        const u32 empty_k = smem_address(shared.empty_k), empty_v = smem_address(shared.empty_v);
        for (; tile >= 0; stage.next()) {
            const int first = next_tile();
            u32 pieces_of[PASSES];
#pragma unroll
            for (int i = 0; i < PASSES; i++) pieces_of[i] = piece_of(first, i);
            // A fresh barrier counts as having completed the phase before its first.
            barrier_wait(empty_k + stage.index * 8, stage.phase ^ 1);
            copy(k_to + stage.index * TILE_BYTES, k, pieces_of);
            barrier_arrive_after_copies(full_k + stage.index * 8);
            barrier_wait(empty_v + stage.index * 8, stage.phase ^ 1);
            copy(v_to + stage.index * TILE_BYTES, v, pieces_of);
            barrier_arrive_after_copies(full_v + stage.index * 8);
        }
    }

    // Of e4m3, K (kind 0) or V (1): each thread reads again what it has copied itself, and no
    // other.
    template <int kind>
    __device__ __forceinline__ void produce_fp16(Stage& stage) {
        const u32 raw = smem_address(shared.raw) + threadIdx.x * 16;
        const u32 to =
            smem_address(kind ? shared.v : shared.k) + swizzled<TILE>(row_of_tile(), 2 * chunk());
        const u32 full = smem_address(kind ? shared.full_v : shared.full_k);
        const u32 empty = smem_address(kind ? shared.empty_v : shared.empty_k);
        for (int n = -AHEAD; tile >= -AHEAD; n++) {
            const u32 next = raw + (n + AHEAD) % RAW_STAGES * 2 * RAW_BYTES;
            if (tile >= 0) {
                const int first = next_tile();
#pragma unroll
                for (int i = 0; i < PASSES; i++)
                    copy_16(next + i * 2048, (kind ? v : k) + 16ll * piece_of(first, i));
            } else {
                tile--;
            }
            // Even without copies: waiting counts tiles.
            end_copies_of_a_tile();
            if (n < 0) continue;
            wait_for_copies<AHEAD>();
            barrier_wait(empty + stage.index * 8, stage.phase ^ 1);
            convert(to + stage.index * TILE_BYTES, raw + n % RAW_STAGES * 2 * RAW_BYTES);
            barrier_arrive(full + stage.index * 8);
            stage.next();
        }
    }

    __device__ __forceinline__ void convert(u32 to, u32 from) {
#pragma unroll 2  // All at once would take more registers than there are.
        for (int i = 0; i < PASSES; i++) {
            u32 four[4], low[4], high[4];
            load_16(four, from + i * 2048);
            unpack(four[0], low[0], low[1]);
            unpack(four[1], low[2], low[3]);
            unpack(four[2], high[0], high[1]);
            unpack(four[3], high[2], high[3]);
            store_16(to + i * ROWS_A_PASS * 128, low);
            store_16((to ^ 16) + i * ROWS_A_PASS * 128, high);
        }
    }
};

// Which of the item's rows a thread's r-th is.
__device__ __forceinline__ int row_of(int group, int thread, int r) {
    return group * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * r;
}

// The queries as operands of products: 16 of their dimensions each.
template <bool are_shared>
struct Queries;

template <>
struct Queries<false> {
    u32 operands[D / 16][4];

    __device__ __forceinline__ Queries(Shared&) {}
    __device__ __forceinline__ const u32 (&operator[](int i) const)[4] { return operands[i]; }

    __device__ __forceinline__ void load(const char* queries, const int2* q_indices,
                                         const Item& item, int head, int group, int thread) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = row_of(group, thread, r);
            const bool there = at / G < item.queries;
            const long long token = there ? __ldg(&q_indices[item.first + at / G].x) : 0;
            const char* from = queries + (token * H + head * G + at % G) * D * 2 + thread % 4 * 4;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                operands[i][r] = there ? as_operands(__ldg((const u32*)(from + i * 32))) : 0;
                operands[i][r + 2] =
                    there ? as_operands(__ldg((const u32*)(from + i * 32 + 16))) : 0;
            }
        }
    }
};

template <>
struct Queries<true> {
    u64 operand;

    __device__ __forceinline__ Queries(Shared& shared)
        : operand(descriptor(smem_address(shared.q), 16)) {}
    __device__ __forceinline__ u64 operator[](int i) const {
        return moved(operand, i / 4 * ROWS * 128 + i % 4 * 32);
    }
};

template <int n>
__device__ __forceinline__ void add_values(float (&o)[n], const u32* p, u64 v) {
    if constexpr (n == 128)
        multiply_pv(o, p, v, moved(v, 2 * PANEL));
    else
        multiply_pv(o, p, v);
}

struct Consumer {
    Queries<SHARES_Q> q;
    u64 k, v;      // operands of stage 0
    u32 barriers;  // the first
    int thread;
    float scale;
    bool is_alone;  // it arrives for the warpgroup that sits out, too
    float o[D / 2], s[TILE / 2];
    u32 p[TILE / 4];
    float row_max[2], row_sum[2], rescale[2];

    __device__ __forceinline__ Consumer(Shared& shared, int thread, float scale, bool is_alone)
        : q(shared),
          k(descriptor(smem_address(shared.k[0]), 16)),
          v(descriptor(smem_address(shared.v[0]), PANEL)),
          barriers(smem_address(shared.full_k)),
          thread(thread),
          scale(scale),
          is_alone(is_alone) {}

    __device__ __forceinline__ void await(int kind, Stage stage) {
        barrier_wait(barriers + (kind * STAGES + stage.index) * 8, stage.phase);
        shared_writes_to_wgmma();
    }

    __device__ __forceinline__ void begin_scores(Stage stage) {
        await(FULL_K, stage);
        const u64 tile = moved(k, stage.index * TILE_BYTES);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            multiply_qk(s, q[i], moved(tile, i / 4 * PANEL + i % 4 * 32), i);
        wgmma_commit();
    }

    __device__ __forceinline__ void begin_values(Stage stage) {
        await(FULL_V, stage);
        const u64 tile = moved(v, stage.index * TILE_BYTES);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < TILE / 16; i++) add_values(o, p + 4 * i, moved(tile, i * 2048));
        wgmma_commit();
    }

    __device__ __forceinline__ void release(int kind, Stage stage) {
        const u32 barrier = barriers + (kind * STAGES + stage.index) * 8;
        if (thread == 0) barrier_arrive(barrier);
        if (GROUPS == 2 && thread == 0 && is_alone) barrier_arrive(barrier);
    }

    __device__ __forceinline__ void mask(int valid) {
#pragma unroll
        for (int i = 0; i < TILE / 2; i++)
            if ((i / 4) * 8 + (thread % 4) * 2 + i % 2 >= valid) s[i] = __int_as_float(0xff800000);
    }

    // s becomes exp2(s * scale - row_max); `rescale` is what earlier sums shrink by.
    __device__ __forceinline__ void softmax() {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float new_max = row_max[r];
#pragma unroll
            for (int i = 0; i < TILE / 2; i += 4)
                new_max = fmaxf(new_max, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
            new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 1));
            new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 2));
            rescale[r] = exp2_fast((row_max[r] - new_max) * scale);
            float shift = new_max * scale, total = 0;
#pragma unroll
            for (int i = 0; i < TILE / 2; i += 4) {
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
        for (int i = 0; i < TILE / 4; i++) p[i] = pack(s[2 * i], s[2 * i + 1]);
    }

    // Row maxima seldom rise after the first tiles.
    __device__ __forceinline__ void shrink() {
        if (!__any_sync(~0u, rescale[0] != 1.0f || rescale[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= rescale[(i / 2) % 2];
    }

    // Leaves `stage` behind the last tile.
    __device__ __forceinline__ void consume(int count, int valid, Stage& stage) {
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] = 0;
        row_max[0] = row_max[1] = __int_as_float(0xff7fffff);
        row_sum[0] = row_sum[1] = 0;
        // Known to be the same in all lanes.
        stage.index = __shfl_sync(~0u, stage.index, 0);
        begin_scores(stage);
        wgmma_wait<0>();
        in_registers(s);
        release(EMPTY_K, stage);
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
            release(EMPTY_K, stage);
            softmax();
            wgmma_wait<0>();
            in_registers(o);
            release(EMPTY_V, before);
            pack_weights();
            shrink();
        }
        begin_values(stage);
        wgmma_wait<0>();
        in_registers(o);
        release(EMPTY_V, stage);
        stage.next();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            row_sum[r] += __shfl_xor_sync(~0u, row_sum[r], 1);
            row_sum[r] += __shfl_xor_sync(~0u, row_sum[r], 2);
        }
    }
};

__device__ __forceinline__ void load_queries(Queries<false>& operands, Shared&, u32, const char* q,
                                             const int2* q_indices, const Item& item, int head,
                                             int group, int thread) {
    operands.load(q, q_indices, item, head, group, thread);
}
__device__ __forceinline__ void load_queries(Queries<true>&, Shared& shared, u32 phase, const char*,
                                             const int2*, const Item&, int, int, int) {
    barrier_wait(smem_address(&shared.full_q), phase);
    shared_writes_to_wgmma();
}

__device__ __forceinline__ int tiles_of(const Item& item) {
    return (item.end - item.start + TILE - 1) / TILE;
}

__device__ __forceinline__ bool sits_out(const Item& item, int group) {
    return GROUPS == 2 && group == 1 && item.queries * G <= 64;
}

__device__ __forceinline__ void begin(Shared& shared) {
    for (int i = 0; i < STAGES; i++) {
        barrier_init(smem_address(&shared.full_k[i]), FETCHERS);
        barrier_init(smem_address(&shared.full_v[i]), FETCHERS);
        barrier_init(smem_address(&shared.empty_k[i]), GROUPS);
        barrier_init(smem_address(&shared.empty_v[i]), GROUPS);
    }
    barrier_init(smem_address(&shared.full_q), 128);
    barrier_init(smem_address(&shared.empty_q), 1);
    barrier_init(smem_address(&shared.done), GROUPS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void store(const Consumer& consumer, const Item& item, int head,
                                      int group, const int2* q_indices, float* partial_o,
                                      float* partial_lse, float v_scale) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int at = row_of(group, consumer.thread, r);
        if (at / G >= item.queries) continue;
        const long long out =
            (long long)__ldg(&q_indices[item.first + at / G].y) * H + head * G + at % G;
        const float over = __fdividef(v_scale, consumer.row_sum[r]);
        if (consumer.thread % 4 == 0)
            partial_lse[out] = consumer.row_max[r] * consumer.scale + __log2f(consumer.row_sum[r]);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            *(float2*)(partial_o + out * D + i * 8 + consumer.thread % 4 * 2) =
                make_float2(consumer.o[4 * i + 2 * r] * over, consumer.o[4 * i + 2 * r + 1] * over);
    }
}

extern "C" __global__ void __launch_bounds__(512, 1)
    wide_tile(const char* q, const char* k, const char* v, const int* table, long long table_stride,
              const Item* items, const int* count, const int2* q_indices, float* partial_o,
              float* partial_lse, float scale, float v_scale) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *(Shared*)memory;
    // What reads the rest of the batch runs beside this, and must not start before.
    next_may_start();
    int unit = blockIdx.x;
    // There is room for one a block, whether there is one or not: not to wait for the count first.
    Item item = items[unit / HK];
    const int units = *count * HK;
    if (unit >= units) return;
    if (threadIdx.x == 0) begin(shared);
    __syncthreads();
    // Warp-uniform for the compiler, too: descriptors are made from it.
    const int thread = threadIdx.x % 128, warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    Stage stage;
    u32 phase = 0;  // of what happens once a unit
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FETCH_REGISTERS));
        while (true) {
            const int head = unit % HK;
            Producer producer(shared, k, v, head, table + item.row * table_stride, item,
                              tiles_of(item));
            if constexpr (SHARES_Q) producer.fetch_queries(q, q_indices, item, head, phase);
            if constexpr (SIZE == 2)
                producer.produce(stage);
            else if (threadIdx.x < FETCHERS)
                producer.produce_fp16<0>(stage);
            else
                producer.produce_fp16<1>(stage);
            unit += gridDim.x, phase ^= 1;
            if (unit >= units) break;
            item = items[unit / HK];
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COMPUTE_REGISTERS));
        const int group = warpgroup - 1;
        while (true) {
            const int head = unit % HK, tiles = tiles_of(item);
            if (sits_out(item, group)) {
                stage.skip(tiles);
            } else {
                Consumer consumer(shared, thread, scale, sits_out(item, 1));
                load_queries(consumer.q, shared, phase, q, q_indices, item, head, group, thread);
                consumer.consume(tiles, item.end - item.start - (tiles - 1) * TILE, stage);
                if (SHARES_Q && thread == 0) barrier_arrive(smem_address(&shared.empty_q));
                // Read again: it has no registers meanwhile.
                item = items[unit / HK];
                store(consumer, item, head, group, q_indices, partial_o, partial_lse, v_scale);
            }
            unit += gridDim.x;
            if (unit >= units) break;
            if constexpr (GROUPS == 2) {
                // A warpgroup that sat out must not be ahead of the barriers' phases.
                const u32 done = smem_address(&shared.done);
                if (thread == 0) barrier_arrive(done);
                barrier_wait(done, phase);
            }
            phase ^= 1;
            item = items[unit / HK];
        }
    }
}
