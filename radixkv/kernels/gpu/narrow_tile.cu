// Attention of up to ROWS query rows (queries x heads that share a KV head) over one run of slots.
//
// A block of one warp for every 16 rows computes a unit, an item and a KV head. The grid is as
// large as the card has room for, whatever there is to do: where there are more units, blocks ask
// for the rest, one after another. A block copies K and V rows to shared memory STAGES - 1 tiles
// ahead of the one that it computes with: few rows are bound by memory, and what counts is that
// much of it is on its way at all times. Scores and sums are computed transposed, slots or
// dimensions by query rows, so that 8 rows fill a product of the tensor cores.
//
// K and V of e4m3 become fp16 numbers on the way from shared memory to the tensor cores.
//
// Compiled by NVRTC for sm_90a, with H, HK, D (64, 128, 192 or 256), ROWS (8, 16, 32 or 64), PAGE,
// STAGES, for fp16 queries HALF, and for K and V of e4m3 FP8.

#include "hopper.cuh"

constexpr int G = H / HK;
constexpr int WARPS = ROWS < 16 ? 1 : ROWS / 16;
constexpr int THREADS = 32 * WARPS;
constexpr int GROUPS = ROWS < 16 ? 1 : 2;    // of 8 rows, of a warp
constexpr int TILE = 16;                     // slots a tile
constexpr int TILE_BYTES = TILE * D * SIZE;  // rows of D elements, swizzled
constexpr int CHUNKS = D * SIZE / 16;        // 16-byte pieces of a row
constexpr int LANES = CHUNKS % 16 ? 8 : 16;  // that copy a row
constexpr int PIECES = CHUNKS / LANES;       // of a row, for a lane
constexpr int ROWS_A_PASS = THREADS / LANES;
constexpr int PASSES = TILE / ROWS_A_PASS;
constexpr long long SLOT = (long long)HK * D * SIZE;  // bytes
// A multiprocessor runs as many at once: of 8 rows few registers, of more stages less shared
// memory.
constexpr int BLOCKS = D > 128 ? (ROWS > 8 ? 8 / WARPS : 12)
                               : (ROWS > 8            ? 12 / WARPS
                                  : STAGES * SIZE > 4 ? 16
                                                      : 24);

static_assert(ROWS == 8 || ROWS == 16 || ROWS == 32 || ROWS == 64, "ROWS must be 8, 16, 32 or 64");
static_assert(G <= ROWS, "the heads of a KV head must fit in a tile");
static_assert(PAGE > 0, "PAGE must be positive");
static_assert(STAGES >= 2, "STAGES must be 2 or more: a tile is copied while another is computed");
static_assert(PASSES * ROWS_A_PASS == TILE, "the passes of the copy must fill a tile");
static_assert(2 * STAGES * TILE_BYTES <= 227 * 1024,
              "the stages must fit in a block's shared memory");

struct Shared {
    alignas(1024) char k[STAGES][TILE_BYTES];
    alignas(1024) char v[STAGES][TILE_BYTES];
};

__device__ __forceinline__ u32 swizzled(int row, int chunk) {
    return row * D * SIZE + (chunk ^ (row % 8)) * 16;
}

// A lane looks up one slot of two tiles, two tiles before they are copied; the lanes of its warp
// that copy a row get its slot from there.
struct Producer {
    u32 k_to, v_to;
    const char *k, *v;  // this thread's piece of slot 0
    const int* table;   // from the page on in which the run begins
    int skew, count;    // where in that page, and slots of the run
    int next = 0, slots = 0, ahead;

    __device__ __forceinline__ Producer(Shared& shared, const char* k, const char* v,
                                        const int* table, const Item& item)
        : k(k),
          v(v),
          table(table + item.start / PAGE),
          skew(item.start % PAGE),
          count(item.end - item.start) {
        const u32 to = swizzled(threadIdx.x / LANES, threadIdx.x % LANES);
        k_to = smem_address(shared.k[0]) + to;
        v_to = smem_address(shared.v[0]) + to;
        // A look-up that goes to memory would take longer than two tiles do.
        for (int at = 32 * threadIdx.x; at < count; at += 32 * THREADS)
            prefetch(this->table + (skew + at) / PAGE);
        ahead = look_up(0);
    }

    __device__ __forceinline__ int look_up(int tile) const {
        // What is past the end weighs nothing, but must be a number: it is the last slot of the
        // run, as a slot of another request may hold a NaN.
        const int at = skew + min(tile * TILE + (int)threadIdx.x % 32, count - 1);
        return PAGE == 1 ? __ldg(table + at) : __ldg(table + at / PAGE) * PAGE + at % PAGE;
    }

    __device__ __forceinline__ void produce() {
        if (next * TILE < count) {
            if (next % 2 == 0) slots = ahead, ahead = look_up(next + 2);
            const u32 stage = next % STAGES * TILE_BYTES;
            const u32 k_stage = k_to + stage, v_stage = v_to + stage;
#pragma unroll
            for (int i = 0; i < PASSES; i++) {
                const int row = i * ROWS_A_PASS;
                const long long offset =
                    SLOT * __shfl_sync(~0u, slots, next % 2 * TILE + row + threadIdx.x / LANES);
                // The swizzle of the thread's row, and of what this pass adds to it.
                const u32 swizzle = row % 8 * 16;
#pragma unroll
                for (int j = 0; j < PIECES; j++) {
                    const int piece = j * LANES * 16, to = row * D * SIZE + piece;
                    copy_16((k_stage ^ swizzle) + to, k + offset + piece);
                    copy_16((v_stage ^ swizzle) + to, v + offset + piece);
                }
            }
        }
        // A group even without copies: waiting counts tiles.
        end_copies_of_a_tile();
        next++;
    }
};

// All lanes' copies are there, and all are done with the tile that is copied over next.
__device__ __forceinline__ void meet() {
    if constexpr (WARPS == 1)
        __syncwarp();
    else
        __syncthreads();
}

// A matrix of two-byte numbers gives a lane pairs: of 16 dimensions, 2t and 2t + 1, and those 8
// further, t being its lane % 4. One of e4m3 gives it the four numbers from 4t on, and where it is
// transposed, both of a pair: as the queries and the outputs go by the same order, no number moves.
// FIRST, SECOND: bytes to the queries' pairs. SIDE, OTHER: a lane's output dimensions.
constexpr int FIRST = SIZE == 1 ? 8 : 4, SECOND = SIZE == 1 ? 4 : 16;
constexpr int SIDE = SIZE == 1 ? 2 : 1, OTHER = SIZE == 1 ? 1 : 8;

// A thread has columns 2t and 2t + 1 of every group of 8 query rows, t being its lane % 4.
struct Consumer {
    u32 q[GROUPS][D / 16][2];
    float o[GROUPS][D / 16][4], s[GROUPS][4];
    float row_max[GROUPS][2], row_sum[GROUPS][2];
    u32 k, v;  // this lane's rows of stage 0
    int lane, first_row;
    float scale;

    __device__ __forceinline__ Consumer(Shared& shared, float scale)
        : lane(threadIdx.x % 32), first_row(threadIdx.x / 32 * 16), scale(scale) {
        k = smem_address(shared.k[0]) + swizzled(lane % 16, lane / 16);
        v = smem_address(shared.v[0]) + swizzled(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
#pragma unroll
            for (int i = 0; i < D / 16; i++)
#pragma unroll
                for (int r = 0; r < 4; r++) o[j][i][r] = 0;
            row_max[j][0] = row_max[j][1] = __int_as_float(0xff7fffff);
            row_sum[j][0] = row_sum[j][1] = 0;
        }
    }

    __device__ __forceinline__ void load_queries(const char* queries, const int2* q_indices,
                                                 const Item& item, int head) {
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            const int at = first_row + j * 8 + lane / 4;
            const bool there = at / G < item.queries;
            const long long token = there ? __ldg(&q_indices[item.first + at / G].x) : 0;
            const char* row = queries + (token * H + head * G + at % G) * D * 2 + lane % 4 * FIRST;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                q[j][i][0] = there ? as_operands(__ldg((const u32*)(row + i * 32))) : 0;
                q[j][i][1] = there ? as_operands(__ldg((const u32*)(row + i * 32 + SECOND))) : 0;
            }
        }
    }

    // s = k q^T: slots by query rows.
    __device__ __forceinline__ void scores(u32 stage) {
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
#pragma unroll
            for (int r = 0; r < 4; r++) s[j][r] = 0;
        const u32 tile = k + stage;
#pragma unroll
        for (int i = 0; i < CHUNKS / 2; i++) {
            u32 a[4];
            load_matrices(a, (tile ^ i % 4 * 32) + i / 4 * 128);
            if constexpr (SIZE == 1) {
                u32 first[4], second[4];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    unpack(a[r], first[r], first[r + 2]);
                    unpack(a[r + 2], second[r], second[r + 2]);
                }
                add_scores(first, 2 * i);
                add_scores(second, 2 * i + 1);
            } else {
                add_scores(a, i);
            }
        }
    }

    // a: 16 slots by the i-th 16 dimensions.
    __device__ __forceinline__ void add_scores(const u32 (&a)[4], int i) {
#pragma unroll
        for (int j = 0; j < GROUPS; j++) multiply(s[j], a, q[j][i][0], q[j][i][1]);
    }

    // Of the tile that is `at` slots into the run, the slots that a row's token does not see.
    // `item` is read again: its fields have no registers while the tiles before the last are
    // computed.
    __device__ __forceinline__ void mask(int at, const volatile Item& item) {
        const int start = item.start, limit = item.limit, step = item.step, end = item.end;
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const int query = (first_row + j * 8 + lane % 4 * 2 + r % 2) / G;
                const int seen = min(limit + query * step, end);
                if (start + at + lane / 4 + r / 2 * 8 >= seen) s[j][r] = __int_as_float(0xff800000);
            }
    }

    // s becomes exp2(s * scale - row_max), and what was summed before shrinks to the new row_max.
    __device__ __forceinline__ void softmax() {
        bool rises = false;
        float rescale[GROUPS][2];
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float new_max = fmaxf(s[j][r], s[j][r + 2]);
#pragma unroll
                for (int lanes = 4; lanes < 32; lanes *= 2)
                    new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, lanes));
                new_max = fmaxf(new_max, row_max[j][r]);
                rescale[j][r] = exp2_fast((row_max[j][r] - new_max) * scale);
                rises |= new_max != row_max[j][r];
                row_max[j][r] = new_max;
                s[j][r] = exp2_fast((s[j][r] - new_max) * scale);
                s[j][r + 2] = exp2_fast((s[j][r + 2] - new_max) * scale);
                row_sum[j][r] = row_sum[j][r] * rescale[j][r] + s[j][r] + s[j][r + 2];
            }
        // Row maxima seldom rise after the first tiles.
        if (!__any_sync(~0u, rises)) return;
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
#pragma unroll
            for (int i = 0; i < D / 16; i++)
#pragma unroll
                for (int r = 0; r < 4; r++) o[j][i][r] *= rescale[j][r % 2];
    }

    // o += v^T s: dimensions by query rows.
    __device__ __forceinline__ void add_values(u32 stage) {
        u32 p[GROUPS][2];
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
#pragma unroll
            for (int r = 0; r < 2; r++) p[j][r] = transposed(pack(s[j][2 * r], s[j][2 * r + 1]));
        const u32 tile = v + stage;
#pragma unroll
        for (int i = 0; i < CHUNKS / 2; i++) {
            u32 a[4];
            load_transposed(a, (tile ^ i % 4 * 32) + i / 4 * 128);
            if constexpr (SIZE == 1) {
                // Two dimensions of a slot have come side by side; a product takes two slots of a
                // dimension.
                u32 first[4], second[4];
#pragma unroll
                for (int r = 0; r < 4; r += 2) {
                    unpack(__byte_perm(a[r], 0, 0x3120), first[r], first[r + 1]);
                    unpack(__byte_perm(a[r + 1], 0, 0x3120), second[r], second[r + 1]);
                }
                add_product(2 * i, first, p);
                add_product(2 * i + 1, second, p);
            } else {
                add_product(i, a, p);
            }
        }
    }

    // a: the i-th 16 dimensions by 16 slots.
    __device__ __forceinline__ void add_product(int i, const u32 (&a)[4],
                                                const u32 (&p)[GROUPS][2]) {
#pragma unroll
        for (int j = 0; j < GROUPS; j++) multiply(o[j][i], a, p[j][0], p[j][1]);
    }

    __device__ __forceinline__ void store(float* partial_o, float* partial_lse,
                                          const int2* q_indices, const Item& item, int head,
                                          float v_scale) {
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float total = row_sum[j][r];
#pragma unroll
                for (int lanes = 4; lanes < 32; lanes *= 2)
                    total += __shfl_xor_sync(~0u, total, lanes);
                const int at = first_row + j * 8 + lane % 4 * 2 + r;
                if (at / G >= item.queries) continue;
                const long long out =
                    (long long)__ldg(&q_indices[item.first + at / G].y) * H + head * G + at % G;
                // A token may see nothing of the end of its row.
                const float over = total > 0 ? __fdividef(v_scale, total) : 0;
                if (lane < 4) partial_lse[out] = row_max[j][r] * scale + __log2f(total);
                float* to = partial_o + out * D + lane / 4 * SIDE;
#pragma unroll
                for (int i = 0; i < D / 16; i++) {
                    to[i * 16] = o[j][i][r] * over;
                    to[i * 16 + OTHER] = o[j][i][r + 2] * over;
                }
            }
    }
};

// A block stays until the kernel before has ended: what waits for this one waits for both.
__device__ __forceinline__ void stay() {
    if (blockIdx.x == 0) wait_for_last();
}

// The next unit beyond those that blocks began with, for all of the block. memory: what it is done
// with.
__device__ __forceinline__ int asked_for(int* taken, char* memory) {
    int unit = 0;
    if constexpr (WARPS == 1) {
        if (threadIdx.x == 0) unit = gridDim.x + atomicAdd(taken, 1);
        __syncwarp();
        return __shfl_sync(~0u, unit, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) *(volatile int*)memory = gridDim.x + atomicAdd(taken, 1);
    __syncthreads();
    unit = *(volatile int*)memory;
    __syncthreads();
    return unit;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    narrow_tile(const char* q, const char* k, const char* v, const int* table,
                long long table_stride, const Item* items, const int* count, int* taken,
                const int2* q_indices, float* partial_o, float* partial_lse, float scale,
                float v_scale) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *(Shared*)memory;
    next_may_start();
    int unit = blockIdx.x;
    // There is room for one a block, whether there is one or not: not to wait for the count first.
    Item item = items[unit / HK];
    const int units = *count * HK;
    while (unit < units) {
        const int head = unit % HK, piece = head * D * SIZE + threadIdx.x % LANES * 16;
        Producer producer(shared, k + piece, v + piece, table + item.row * table_stride, item);
        for (int i = 0; i < STAGES - 1; i++) producer.produce();
        Consumer consumer(shared, scale);
        consumer.load_queries(q, q_indices, item, head);
        u32 stage = 0;
        // Up to `full` slots into the run, every token sees every slot.
        const int full = item.limit - item.start;
        for (int at = 0; at < producer.count; at += TILE) {
            wait_for_copies<STAGES - 2>();
            meet();
            producer.produce();
            consumer.scores(stage);
            if (full - at < TILE) consumer.mask(at, items[unit / HK]);
            consumer.softmax();
            consumer.add_values(stage);
            stage = stage + TILE_BYTES == STAGES * TILE_BYTES ? 0 : stage + TILE_BYTES;
        }
        consumer.store(partial_o, partial_lse, q_indices, item, head, v_scale);
        if (units <= gridDim.x) break;
        unit = asked_for(taken, memory);
        if (unit < units) item = items[unit / HK];
    }
    stay();
}
