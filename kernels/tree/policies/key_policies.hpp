// Policies that are no more than a key, as in `radixkv/tree/policies/key_policies.py`.
#pragma once

#include "leaf_heap.hpp"

namespace radixkv {

// Least often used first.
struct Lfu final : LeafHeap {
    using LeafHeap::LeafHeap;
    OrderKey order_key(const Node& leaf) const override { return {leaf.hit_count, leaf.recency}; }
};

// Oldest first: runs are numbered as they are created.
struct Fifo final : LeafHeap {
    using LeafHeap::LeafHeap;
    OrderKey order_key(const Node& leaf) const override { return {leaf.run, 0}; }
};

// Most recently used first.
struct Mru final : LeafHeap {
    using LeafHeap::LeafHeap;
    OrderKey order_key(const Node& leaf) const override {
        return {-static_cast<int64_t>(leaf.recency), 0};
    }
};

// Newest first.
struct Filo final : LeafHeap {
    using LeafHeap::LeafHeap;
    OrderKey order_key(const Node& leaf) const override {
        return {-static_cast<int64_t>(leaf.run), 0};
    }
};

inline constexpr uint32_t SLRU_PROTECTED_HITS = 2;

// As LRU, but what was inserted through twice goes after all else.
struct Slru final : LeafHeap {
    using LeafHeap::LeafHeap;
    OrderKey order_key(const Node& leaf) const override {
        return {leaf.hit_count >= SLRU_PROTECTED_HITS, leaf.recency};
    }
};

// Lowest priority first.
struct Priority final : LeafHeap {
    using LeafHeap::LeafHeap;
    OrderKey order_key(const Node& leaf) const override { return {leaf.priority, leaf.recency}; }
};

}  // namespace radixkv
