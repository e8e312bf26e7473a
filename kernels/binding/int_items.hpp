// The ints of a Python list or tuple, read where they are.
#pragma once

#include <Python.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__) && defined(__GNUC__)
#define RADIXKV_HAS_AVX2
#include <immintrin.h>
#endif

#include "tree/keys.hpp"

namespace radixkv {

// How this version of CPython lays out an int: what kind it is in 8 bytes, then digits of 30 bits.
#if PY_VERSION_HEX >= 0x030C0000
inline constexpr uint64_t ONE_DIGIT = 8, ZERO = 1, IGNORED = 4;
inline constexpr size_t KIND_AT = offsetof(PyLongObject, long_value.lv_tag);
inline constexpr size_t DIGIT_AT = offsetof(PyLongObject, long_value.ob_digit);
#else
inline constexpr uint64_t ONE_DIGIT = 1, ZERO = 0, IGNORED = 0;
inline constexpr size_t KIND_AT = offsetof(PyLongObject, ob_base.ob_size);
inline constexpr size_t DIGIT_AT = offsetof(PyLongObject, ob_digit);
#endif
static_assert(DIGIT_AT == KIND_AT + 8 && sizeof(digit) == 4);

// Ints of more than one digit, from 2**30 on; NO_TOKEN for all that are not token ids.
inline int32_t large_int_at(PyObject* item) {
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(item, &overflow);
    bool is_token = !overflow && value >= 0 && value <= INT32_MAX;
    return is_token ? static_cast<int32_t>(value) : NO_TOKEN;
}

inline int32_t int_at(PyObject* item) {
    if (!PyLong_CheckExact(item)) return NO_TOKEN;
    const char* at = reinterpret_cast<const char*>(item);
    uint64_t kind;
    std::memcpy(&kind, at + KIND_AT, sizeof kind);
    kind &= ~IGNORED;
    if (kind == ZERO) return 0;
    if (kind != ONE_DIGIT) [[unlikely]]
        return large_int_at(item);
    digit value;
    std::memcpy(&value, at + DIGIT_AT, sizeof value);
    return static_cast<int32_t>(value);
}

// Eight ints of one digit at a time, where the processor can.
//
// pass(items, i, n, use) goes from item `i` towards item `n` and stops before eight that are not
// all such ints, or of which use(ids, i) says bits that are not 0. It answers where it stopped.
namespace eights {

#ifdef RADIXKV_HAS_AVX2

// An int has its memory in pieces of 16 bytes, so the 4 behind its digit are there, but a sanitizer
// can't know that.
#define RADIXKV_EIGHTS __attribute__((target("avx2"), no_sanitize("address")))
#define RADIXKV_EIGHTS_INLINE RADIXKV_EIGHTS __attribute__((always_inline)) inline

inline bool is_available() {
    static const bool is_available = __builtin_cpu_supports("avx2");
    return is_available;
}

// (kind, id) of the items 0 1 4 5 and 2 3 6 7.
struct Eight {
    __m256i low, high;
};

// Kind, id and what follows of two ints.
RADIXKV_EIGHTS_INLINE __m256i load_two(PyObject* one, PyObject* other) {
    auto* a = reinterpret_cast<const char*>(one) + KIND_AT;
    auto* b = reinterpret_cast<const char*>(other) + KIND_AT;
    __m128i lower = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
    __m128i upper = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(lower), upper, 1);
}

// The items `A`, `B` of both halves of `one`, then of `other`.
template <int A, int B>
RADIXKV_EIGHTS_INLINE __m256i pick(__m256i one, __m256i other) {
    return _mm256_castps_si256(_mm256_shuffle_ps(
        _mm256_castsi256_ps(one), _mm256_castsi256_ps(other), A | B << 2 | A << 4 | B << 6));
}

// 0 where all are of one digit, as far as the lower half of the kind says that.
RADIXKV_EIGHTS_INLINE __m256i check_kinds(const Eight& ids) {
    return _mm256_xor_si256(pick<0, 2>(ids.low, ids.high), _mm256_set1_epi32(ONE_DIGIT));
}

struct Check {
    RADIXKV_EIGHTS_INLINE __m256i operator()(const Eight& ids, uint32_t) const {
        return check_kinds(ids);
    }
};

struct Copy {
    int32_t* out;

    RADIXKV_EIGHTS_INLINE __m256i operator()(const Eight& ids, uint32_t i) const {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), pick<1, 3>(ids.low, ids.high));
        return check_kinds(ids);
    }
};

struct Compare {
    const int32_t* run;

    RADIXKV_EIGHTS_INLINE __m256i operator()(const Eight& ids, uint32_t i) const {
        __m256i kind = _mm256_set1_epi32(ONE_DIGIT);
        __m256i own = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(run + i));
        return _mm256_or_si256(_mm256_xor_si256(ids.low, _mm256_unpacklo_epi32(kind, own)),
                               _mm256_xor_si256(ids.high, _mm256_unpackhi_epi32(kind, own)));
    }
};

// Nothing else of an item is read before this is known: it may be smaller than an int.
RADIXKV_EIGHTS_INLINE bool are_ints(PyObject* const* items) {
    for (int j = 0; j < 8; ++j) {
        if (!PyLong_CheckExact(items[j])) return false;
    }
    return true;
}

template <class Use>
RADIXKV_EIGHTS uint32_t pass(PyObject* const* items, uint32_t i, uint32_t n, Use use) {
    if (!is_available()) return i;
    const __m256i upper_kind = _mm256_setr_epi32(0, ~0, 0, 0, 0, ~0, 0, 0);
    const __m256i known = _mm256_set1_epi64x(~static_cast<int64_t>(IGNORED));
    for (; n - i >= 8 && are_ints(items + i); i += 8) {
        PyObject* const* p = items + i;
        __m256i a = load_two(p[0], p[4]), b = load_two(p[1], p[5]);
        __m256i c = load_two(p[2], p[6]), d = load_two(p[3], p[7]);
        Eight ids{pick<0, 2>(a, b), pick<0, 2>(c, d)};
        if (IGNORED) ids = {_mm256_and_si256(ids.low, known), _mm256_and_si256(ids.high, known)};
        __m256i any = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
        __m256i bits = _mm256_or_si256(_mm256_and_si256(any, upper_kind), use(ids, i));
        if (!_mm256_testz_si256(bits, bits)) break;
    }
    return i;
}

#else

struct Check {};
struct Copy {
    int32_t* out;
};
struct Compare {
    const int32_t* run;
};

template <class Use>
uint32_t pass(PyObject* const*, uint32_t i, uint32_t, const Use&) {
    return i;
}

#endif

}  // namespace eights

}  // namespace radixkv
