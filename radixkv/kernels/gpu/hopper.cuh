// What both kernels have in common: their items, and Hopper's instructions in C++ words (barriers,
// asynchronous copies, products).
//
// Defined by the file that includes it: HALF for fp16 operands, bf16 otherwise.

#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(HK > 0 && H % HK == 0, "H must be a multiple of HK");
static_assert(D == 64 || D == 128, "D must be 64 or 128");

// As attend.py says.
struct Item {
    int row, start, end, first, queries, limit, step, unused;
};
static_assert(sizeof(Item) == 8 * sizeof(int), "an item must be a row of the array of items");

__device__ __forceinline__ u32 smem_address(const void* p) {
    return (u32)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void barrier_init(u32 bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
__device__ __forceinline__ void barrier_end(u32 bar) {
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_arrive_after_copies(u32 bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n.reg .pred p;\nagain:\n"
        "mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
        "@p bra done;\nbra again;\ndone:\n}" ::"r"(bar),
        "r"(parity)
        : "memory");
}
__device__ __forceinline__ void prefetch(const void* p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
__device__ __forceinline__ void copy_16(u32 to, const char* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The kernel that is launched next may start beside this one, once all blocks have come here.
__device__ __forceinline__ void next_may_start() {
    asm volatile("griddepcontrol.launch_dependents;");
}
// Until the kernel that was launched before, and may still run beside this one, has ended.
__device__ __forceinline__ void wait_for_last() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void shared_writes_to_wgmma() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A shared operand in 128-byte swizzle, 8 rows every 1024 bytes, 64 columns every `leading` bytes.
__device__ __forceinline__ u64 descriptor(u32 address, u32 leading) {
    return (u64)(address >> 4) | (u64)(leading >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// The same operand `bytes` further on: an add, where making it again would cost more than the
// product.
__device__ __forceinline__ u64 moved(u64 descriptor, u32 bytes) {
    return descriptor + (bytes >> 4);
}

__device__ __forceinline__ void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// To the compiler a product is done when it is issued: what reads its result must come after this,
// and this after the wait.
template <int n>
__device__ __forceinline__ void in_registers(float (&results)[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+f"(results[i])::"memory");
}

#ifdef HALF
#define WARP_OPERANDS "f32.f16.f16.f32"
#define OPERANDS "f32.f16.f16"
#define PACK "cvt.rn.f16x2.f32"
#else
#define WARP_OPERANDS "f32.bf16.bf16.f32"
#define OPERANDS "f32.bf16.bf16"
#define PACK "cvt.rn.bf16x2.f32"
#endif

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 packed;
    asm(PACK " %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Four 8 x 8 matrices, each lane giving the address of a row: as they lie, or transposed.
__device__ __forceinline__ void load_matrices(u32 (&b)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void load_transposed(u32 (&b)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(row)
                 : "memory");
}
// The 8 x 8 matrix of which each lane has two elements of a row, transposed.
__device__ __forceinline__ u32 transposed(u32 two) {
    u32 result;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(two));
    return result;
}
// d (16 x 8) += a (16 x 16) b (16 x 8), by one warp.
__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col." WARP_OPERANDS
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define F32(d, i) F16(d, i), F16(d, i + 16)
#define R32                                                                                       \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%" \
    "25,%26,%27,%28,%29,%30,%31"
#define R64                                                                                      \
    R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%" \
        "53,%54,%55,%56,%57,%58,"                                                                \
        "%59,%60,%61,%62,%63"

// s (64 x 64) = or += q (64 x 16, registers) k^T (16 x 64, shared).
__device__ __forceinline__ void multiply_qk(float (&s)[32], const u32 (&q)[4], u64 k, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16." OPERANDS
        " {" R32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
        : F32(s, 0)
        : "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]), "l"(k), "r"(add));
}

// o (64 x D) += p (64 x 16, registers) v (16 x D, shared).
__device__ __forceinline__ void multiply_pv(float (&o)[32], const u32* p, u64 v) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16." OPERANDS " {" R32
                 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : F32(o, 0)
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v));
}
__device__ __forceinline__ void multiply_pv(float (&o)[64], const u32* p, u64 v) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16." OPERANDS " {" R64
                 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : F32(o, 0), F32(o, 32)
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v));
}
