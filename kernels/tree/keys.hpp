// Keys as the tree reads them, in place: nothing is converted before it is compared.
//
// A key has `size` ids, and
//   at(i)                  id `i`; NO_TOKEN for what is not a token id
//   common(from, run, n)   how many of the `n` ids from `from` on equal those of `run`
//   copy(from, n, out)     writes `n` ids; false if one of them is not a token id
//   is_good(from)          whether all ids from `from` on are token ids
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace radixkv {

// Equal to no stored code; `UNKNOWN` of `radixkv/tree/content.py`.
inline constexpr int32_t NO_TOKEN = INT32_MIN;

// Blocks small enough that the one that differs is looked through again at little cost.
inline constexpr uint32_t COMPARE_BLOCK = 512;

inline bool has_negative(const int32_t* ids, uint32_t n) {
    int32_t all = 0;
    for (uint32_t i = 0; i < n; ++i) all |= ids[i];
    return all < 0;
}

inline uint64_t count_negative(const int32_t* codes, uint32_t n) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; ++i) count += codes[i] < 0;
    return count;
}

// int32 ids. Codes (trusted) may be negative: they stand for content.
struct Int32Key {
    const int32_t* ids;
    uint32_t size;
    bool trusted = false;

    int32_t at(uint32_t i) const { return ids[i]; }

    uint32_t common(uint32_t from, const int32_t* run, uint32_t n) const {
        const int32_t* own = ids + from;
        uint32_t i = 0;
        while (i < n) {
            uint32_t block = std::min(n - i, COMPARE_BLOCK);
            if (std::memcmp(own + i, run + i, size_t{4} * block) != 0) break;
            i += block;
        }
        while (i < n && own[i] == run[i]) ++i;
        return i;
    }

    bool copy(uint32_t from, uint32_t n, int32_t* out) const {
        if (n) std::memcpy(out, ids + from, size_t{4} * n);
        return trusted || !has_negative(out, n);
    }

    bool is_good(uint32_t from) const { return trusted || !has_negative(ids + from, size - from); }
};

struct Int64Key {
    const int64_t* ids;
    uint32_t size;

    int32_t at(uint32_t i) const {
        return is_token(ids[i]) ? static_cast<int32_t>(ids[i]) : NO_TOKEN;
    }

    uint32_t common(uint32_t from, const int32_t* run, uint32_t n) const {
        const int64_t* own = ids + from;
        uint32_t i = 0;
        while (i + WIDE_BLOCK <= n && is_equal_block(own + i, run + i)) i += WIDE_BLOCK;
        while (i < n && own[i] == run[i]) ++i;
        return i;
    }

    bool copy(uint32_t from, uint32_t n, int32_t* out) const {
        int64_t all = 0;
        for (uint32_t i = 0; i < n; ++i) {
            all |= ids[from + i];
            out[i] = static_cast<int32_t>(ids[from + i]);
        }
        return is_token(all);
    }

    bool is_good(uint32_t from) const {
        int64_t all = 0;
        for (uint32_t i = from; i < size; ++i) all |= ids[i];
        return is_token(all);
    }

  private:
    static constexpr uint32_t WIDE_BLOCK = 64;

    // Lower and upper halves apart: compilers make few instructions of it.
    static bool is_equal_block(const int64_t* own, const int32_t* run) {
        int32_t differ = 0, upper = 0;
        for (uint32_t j = 0; j < WIDE_BLOCK; ++j) {
            differ |= static_cast<int32_t>(own[j]) ^ run[j];
            upper |= static_cast<int32_t>(own[j] >> 32);
        }
        return !(differ | upper);
    }

    // Also of many ids joined by `or`: any bit beyond the 31 lowest shows.
    static bool is_token(int64_t id) { return (id & ~int64_t{INT32_MAX}) == 0; }
};

}  // namespace radixkv
