// What is evicted first: the same keys as `radixkv/tree/policies/`, the smallest goes first.
#pragma once

#include <cstdint>
#include <utility>

#include "arena.hpp"

namespace radixkv {

enum class Policy { LRU, LFU, FIFO, MRU, FILO, SLRU, PRIORITY, ADAPTIVE };

using OrderKey = std::pair<int64_t, int64_t>;

inline constexpr uint32_t SLRU_PROTECTED_HITS = 2;

inline OrderKey order_key(Policy policy, const Node& node) {
    auto recency = static_cast<int64_t>(node.recency);
    auto created = static_cast<int64_t>(node.run);  // runs are numbered as they are created
    switch (policy) {
        case Policy::LFU:
            return {node.hit_count, recency};
        case Policy::FIFO:
            return {created, 0};
        case Policy::MRU:
            return {-recency, 0};
        case Policy::FILO:
            return {-created, 0};
        case Policy::SLRU:
            return {node.hit_count >= SLRU_PROTECTED_HITS, recency};
        case Policy::PRIORITY:
            return {node.priority, recency};
        case Policy::ADAPTIVE:  // has an order of its own
        case Policy::LRU:
            break;
    }
    return {recency, 0};
}

}  // namespace radixkv
