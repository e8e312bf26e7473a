// What both kernels have in common: their items, and Hopper's instructions in C++ words (barriers,
// asynchronous copies, products).
//
// Defined by the file that includes it: HALF for fp16 queries and outputs, bf16 otherwise. FP8 for
// K and V in e4m3: products are of fp16 numbers then, which hold all of e4m3.

#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(HK > 0 && H % HK == 0, "H must be a multiple of HK");
static_assert(D == 64 || D == 128 || D == 192 || D == 256, "D must be 64, 128, 192 or 256");
#ifdef FP8
static_assert(D == 128, "D must be 128 where K and V are e4m3");
constexpr int SIZE = 1;  // bytes of an element of K or V
#else
constexpr int SIZE = 2;
#endif

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
// As above, or zeros.
__device__ __forceinline__ void copy_16_or_zeros(u32 to, const char* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void end_copies_of_a_tile() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until no more than `pending` tiles of this thread are on their way.
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
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

#if defined(HALF) || defined(FP8)
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
// Four e4m3 numbers as fp16.
__device__ __forceinline__ void unpack(u32 four, u32& low, u32& high) {
    asm("{\n.reg .b16 a, b;\nmov.b32 {a, b}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, a;\ncvt.rn.f16x2.e4m3x2 %1, b;\n}"
        : "=r"(low), "=r"(high)
        : "r"(four));
}
// A NaN stays one.
__device__ __forceinline__ float within_half(float x) {
    asm("min.NaN.f32 %0, %0, 0f477fe000;\nmax.NaN.f32 %0, %0, 0fc77fe000;" : "+f"(x));
    return x;
}
// Two numbers of a query as operands of products. Beyond 65,504, fp16 has none.
__device__ __forceinline__ u32 as_operands(u32 two) {
#if defined(FP8) && !defined(HALF)
    return pack(within_half(__uint_as_float(two << 16)),
                within_half(__uint_as_float(two & 0xffff0000)));
#else
    return two;
#endif
}
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ void load_16(u32 (&to)[4], u32 from) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void store_16(u32 to, const u32 (&from)[4]) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(from[0]), "r"(from[1]),
                 "r"(from[2]), "r"(from[3])
                 : "memory");
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

// Registers of a product: n floats from d[i] on, and their places among the operands of the asm.
#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define F32(d, i) F16(d, i), F16(d, i + 16)
#define R8(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7"
#define R10(t) R8(t) ",%" #t "8,%" #t "9"
#define R16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define R30 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," R10(1) "," R10(2)
#define R32 R30 ",%30,%31"
#define R60 R30 "," R10(3) "," R10(4) "," R10(5)
#define R64 R60 ",%60,%61,%62,%63"
#define R90 R60 "," R10(6) "," R10(7) "," R10(8)
#define R96 R90 ",%90,%91,%92,%93,%94,%95"

// s (64 x 2n) = or += q (64 x 16, registers or shared) k^T (16 x 2n, shared).
__device__ __forceinline__ void multiply_qk(float (&s)[32], const u32 (&q)[4], u64 k, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16." OPERANDS
        " {" R32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
        : F32(s, 0)
        : "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]), "l"(k), "r"(add));
}
__device__ __forceinline__ void multiply_qk(float (&s)[16], u64 q, u64 k, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16." OPERANDS
        " {" R16 "}, %16, %17, p, 1, 1, 0, 0;\n}"
        : F16(s, 0)
        : "l"(q), "l"(k), "r"(add));
}

// o (64 x D) += p (64 x 16, registers) v (16 x D, shared).
#define MULTIPLY_PV(n, results, a0, a1, a2, a3, b)                                           \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16." OPERANDS " {" results "}, {%" #a0 ",%" #a1 \
    ",%" #a2 ",%" #a3 "}, %" #b ", 1, 1, 1, 1;"
#define P4(p) "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3])
__device__ __forceinline__ void multiply_pv(float (&o)[32], const u32* p, u64 v) {
    asm volatile(MULTIPLY_PV(64, R32, 32, 33, 34, 35, 36) : F32(o, 0) : P4(p), "l"(v));
}
__device__ __forceinline__ void multiply_pv(float (&o)[64], const u32* p, u64 v) {
    asm volatile(MULTIPLY_PV(128, R64, 64, 65, 66, 67, 68) : F32(o, 0), F32(o, 32) : P4(p), "l"(v));
}
__device__ __forceinline__ void multiply_pv(float (&o)[96], const u32* p, u64 v) {
    asm volatile(MULTIPLY_PV(192, R96, 96, 97, 98, 99, 100)
                 : F32(o, 0), F32(o, 32), F32(o, 64)
                 : P4(p), "l"(v));
}
// As two products, of the first and the last 128 columns: one of 256 takes more registers at once
// than a kernel has at its start.
__device__ __forceinline__ void multiply_pv(float (&o)[128], const u32* p, u64 v, u64 last) {
    asm volatile(MULTIPLY_PV(128, R64, 64, 65, 66, 67, 68) : F32(o, 0), F32(o, 32) : P4(p), "l"(v));
    asm volatile(MULTIPLY_PV(128, R64, 64, 65, 66, 67, 68)
                 : F32(o, 64), F32(o, 96)
                 : P4(p), "l"(last));
}
