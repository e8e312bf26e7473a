// A Python list or tuple of ints as a key.
#pragma once

#include "int_items.hpp"
#include "tree/keys.hpp"

namespace radixkv {

struct ListKey {
    PyObject* const* items;
    uint32_t size;

    int32_t at(uint32_t i) const { return int_at(items[i]); }

    uint32_t common(uint32_t from, const int32_t* run, uint32_t n) const {
        return pass(from, n, eights::Compare{run},
                    [&](uint32_t i) { return at(from + i) == run[i]; });
    }

    bool copy(uint32_t from, uint32_t n, int32_t* out) const {
        return pass(from, n, eights::Copy{out},
                    [&](uint32_t i) { return (out[i] = at(from + i)) >= 0; }) == n;
    }

    bool is_good(uint32_t from) const {
        return pass(from, size - from, eights::Check{},
                    [&](uint32_t i) { return at(from + i) >= 0; }) == size - from;
    }

  private:
    // How many of the `n` items from `from` on there are before the first for which one(i) is
    // false. `eight` is the same as `one`, for eight at a time.
    template <class Eight, class One>
    uint32_t pass(uint32_t from, uint32_t n, const Eight& eight, const One& one) const {
        uint32_t i = 0;
        while (i < n) {
            if (n - i >= 8) i = eights::pass(items + from, i, n, eight);
            for (uint32_t stop = std::min(n, i + 8); i < stop; ++i) {
                if (!one(i)) return i;
            }
        }
        return n;
    }
};

}  // namespace radixkv
