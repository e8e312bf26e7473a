// Where a prompt costs least; `radixkv/router/cheapest.py` is the contract and has the same in
// NumPy.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <tuple>

namespace radixkv {

// What is known of `count` workers, an item for each, as `PickInput` of
// `radixkv/router/pick_input.py` has it.
template <class Length>
struct Workers {
    const Length* lengths;
    const double* loads;
    const double* pending;
    const double* recent_loads;
    const int64_t* last_picked;
    size_t count;
};

struct Weights {
    double prompt_length, waiting, share, balance;
};

// The worker where it costs least; there is one or more.
template <class Length>
size_t cheapest(const Workers<Length>& of, const Weights& by) {
    assert(of.count > 0);
    double a_load = by.share * by.prompt_length;
    double least = *std::min_element(of.recent_loads, of.recent_loads + of.count);
    auto score = [&](size_t at) {
        double ahead = std::min(by.balance * (of.recent_loads[at] - least), by.prompt_length);
        double queue = by.waiting * of.pending[at] + of.loads[at] * a_load;
        return of.lengths[at] - queue - ahead;
    };
    auto comes_first = [&](size_t at, size_t other) {
        return std::tie(of.loads[at], of.last_picked[at]) <
               std::tie(of.loads[other], of.last_picked[other]);
    };
    size_t best = 0;
    double highest = score(0);
    for (size_t at = 1; at < of.count; ++at) {
        double own = score(at);
        if (own < highest || (own == highest && !comes_first(at, best))) continue;
        best = at;
        highest = own;
    }
    return best;
}

// Why it is that worker: a position in `REASONS`.
template <class Length>
size_t reason(const Workers<Length>& of, size_t at) {
    assert(at < of.count);
    Length own = of.lengths[at], longest = *std::max_element(of.lengths, of.lengths + of.count);
    if (own != 0) return own == longest ? 0 : 1;
    return longest != 0 ? 2 : 3;
}

}  // namespace radixkv
