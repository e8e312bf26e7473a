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
    double prompt_length, balance, most_delayed;
};

// All items joined, in four lanes: one after the other each would wait for the one before.
template <class Item, class Join>
Item joined(const Item* items, size_t count, Item start, const Join& join) {
    Item lanes[] = {start, start, start, start};
    size_t at = 0;
    for (; at + 4 <= count; at += 4) {
        for (size_t lane = 0; lane < 4; ++lane) lanes[lane] = join(lanes[lane], items[at + lane]);
    }
    for (; at < count; ++at) lanes[0] = join(lanes[0], items[at]);
    return join(join(lanes[0], lanes[1]), join(lanes[2], lanes[3]));
}

// The worker where it costs least; there is one or more.
template <class Length>
size_t cheapest(const Workers<Length>& of, const Weights& by) {
    assert(of.count > 0);
    auto smaller = [](auto one, auto other) { return std::min(one, other); };
    auto plus = [](double one, double other) { return one + other; };
    double least = joined(of.recent_loads, of.count, of.recent_loads[0], smaller);
    double held_by_all = joined(of.lengths, of.count, of.lengths[0], smaller);
    double mean_load = joined(of.loads, of.count, 0.0, plus) / double(of.count);
    double delayed = 1 + std::min(mean_load, by.most_delayed);
    auto cost = [&](size_t at) {
        double held = of.lengths[at] - by.balance * (of.recent_loads[at] - least);
        return of.pending[at] + (by.prompt_length - std::max(held, held_by_all)) * delayed;
    };
    auto comes_first = [&](size_t at, size_t other) {
        return std::tie(of.recent_loads[at], of.last_picked[at]) <
               std::tie(of.recent_loads[other], of.last_picked[other]);
    };
    size_t best = 0;
    double lowest = cost(0);
    for (size_t at = 1; at < of.count; ++at) {
        double own = cost(at);
        if (own > lowest || (own == lowest && !comes_first(at, best))) continue;
        best = at;
        lowest = own;
    }
    return best;
}

// Why it is that worker: a position in `REASONS`.
template <class Length>
size_t reason(const Workers<Length>& of, size_t at) {
    assert(at < of.count);
    auto larger = [](Length one, Length other) { return std::max(one, other); };
    Length own = of.lengths[at], longest = joined(of.lengths, of.count, own, larger);
    if (own != 0) return own == longest ? 0 : 1;
    return longest != 0 ? 2 : 3;
}

}  // namespace radixkv
