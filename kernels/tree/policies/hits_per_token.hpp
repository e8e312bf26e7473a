// The policy `hits_per_token`; radixkv/tree/policies/hits_per_token.py says why.
#pragma once

#include <bit>
#include <limits>

#include "leaf_heap.hpp"

namespace radixkv {

// Fewest hits a token first.
class HitsPerToken final : public LeafHeap {
  public:
    using LeafHeap::LeafHeap;

    // Numbers of at least 0 compare as their bits do.
    OrderKey order_key(const Node& leaf) const override {
        static_assert(std::numeric_limits<double>::is_iec559);
        double worth = (leaf.hit_count + 1.0) / leaf.length;
        return {std::bit_cast<int64_t>(worth), leaf.recency};
    }
};

}  // namespace radixkv
