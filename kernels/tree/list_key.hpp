// A Python list or tuple of ints as a key: the ints are read where they are.
#pragma once

#include <Python.h>

#include <cstddef>
#ifdef __SSE4_1__
#include <smmintrin.h>
#endif

#include "keys.hpp"

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

using Four = uint32_t __attribute__((vector_size(16)));
using TwoKinds = uint64_t __attribute__((vector_size(16)));

inline Four load_four(const void* from) {
    Four four;
    std::memcpy(&four, from, sizeof four);
    return four;
}

// Kind and first digit of an int, and 4 bytes that count for nothing: an int has its memory in
// pieces of 16 bytes, so they are there, but a sanitizer can't know that.
__attribute__((no_sanitize("address"))) inline Four load_int(PyObject* item) {
    return load_four(reinterpret_cast<const char*>(item) + KIND_AT);
}

inline bool is_zero(TwoKinds bits) {
#ifdef __SSE4_1__
    return _mm_testz_si128(__m128i(bits), __m128i(bits));
#else
    return (bits[0] | bits[1]) == 0;
#endif
}

struct ListKey {
    PyObject* const* items;
    uint32_t size;

    int32_t at(uint32_t i) const {
        PyObject* item = items[i];
        if (!PyLong_CheckExact(item)) return NO_TOKEN;
        Four value = load_int(item);
        uint64_t kind = (uint64_t{value[1]} << 32 | value[0]) & ~IGNORED;
        if (kind == ONE_DIGIT) return static_cast<int32_t>(value[2]);
        return kind == ZERO ? 0 : large_int(item);
    }

    uint32_t common(uint32_t from, const int32_t* run, uint32_t n) const {
        PyObject* const* own = items + from;
        uint32_t i = 0;
        for (Four ids{}; n - i >= 4; i += 4) {
            TwoKinds odd = read_four(own + i, ids);
            if (is_zero(odd | TwoKinds(ids ^ load_four(run + i)))) [[likely]] {
                continue;
            }
            for (uint32_t j = i; j < i + 4; ++j) {
                if (at(from + j) != run[j]) return j;
            }
        }
        while (i < n && at(from + i) == run[i]) ++i;
        return i;
    }

    bool copy(uint32_t from, uint32_t n, int32_t* out) const {
        uint32_t i = 0;
        for (Four ids{}; n - i >= 4; i += 4) {
            if (is_zero(read_four(items + from + i, ids))) [[likely]] {
                std::memcpy(out + i, &ids, sizeof ids);
            } else if (!copy_slowly(from + i, 4, out + i)) {
                return false;
            }
        }
        return copy_slowly(from + i, n - i, out + i);
    }

    bool is_good(uint32_t from) const {
        int32_t unused[4];
        for (Four ids{}; size - from >= 4; from += 4) {
            if (!is_zero(read_four(items + from, ids)) && !copy_slowly(from, 4, unused))
                return false;
        }
        return copy_slowly(from, size - from, unused);
    }

  private:
    // Ints come one after the other in memory only where they were made together: asking for them
    // early is worth a quarter where they are not in the cache. Two of them share a line.
    static constexpr uint32_t AHEAD = 256;

    // Four ids. The answer is not 0 where one of them is no int of one digit and takes a closer
    // look.
    TwoKinds read_four(PyObject* const* at, Four& ids) const {
        if (at + AHEAD + 2 < items + size) [[likely]] {
            __builtin_prefetch(at[AHEAD]);
            __builtin_prefetch(at[AHEAD + 2]);
        }
        PyObject *p = at[0], *q = at[1], *r = at[2], *s = at[3];
        // Nothing else of an item is read before this is known: it may be smaller than an int.
        if (other_type(p) | other_type(q) | other_type(r) | other_type(s)) [[unlikely]] {
            return TwoKinds{1, 1};
        }
        Four a = load_int(p), b = load_int(q), c = load_int(r), d = load_int(s);
        ids = __builtin_shufflevector(__builtin_shufflevector(a, b, 2, 6, 3, 7),
                                      __builtin_shufflevector(c, d, 2, 6, 3, 7), 0, 1, 4, 5);
        TwoKinds ab = TwoKinds(__builtin_shufflevector(a, b, 0, 1, 4, 5));
        TwoKinds cd = TwoKinds(__builtin_shufflevector(c, d, 0, 1, 4, 5));
        return ((ab & ~IGNORED) ^ ONE_DIGIT) | ((cd & ~IGNORED) ^ ONE_DIGIT);
    }

    static uintptr_t other_type(PyObject* item) {
        return reinterpret_cast<uintptr_t>(Py_TYPE(item)) ^
               reinterpret_cast<uintptr_t>(&PyLong_Type);
    }

    // Ints of more than one digit, from 2**30 on; NO_TOKEN for all that is no token id.
    static int32_t large_int(PyObject* item) {
        int overflow = 0;
        long long value = PyLong_AsLongLongAndOverflow(item, &overflow);
        bool is_token = !overflow && value >= 0 && value <= INT32_MAX;
        return is_token ? static_cast<int32_t>(value) : NO_TOKEN;
    }

    bool copy_slowly(uint32_t from, uint32_t n, int32_t* out) const {
        for (uint32_t i = 0; i < n; ++i) {
            if ((out[i] = at(from + i)) < 0) return false;
        }
        return true;
    }
};

}  // namespace radixkv
