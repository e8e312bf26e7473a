// Hits per token: what brings the fewest hits for the room that it takes goes first.
#pragma once

#include <bit>
#include <limits>

#include "policy.hpp"

namespace radixkv {

// A leaf's key reads its length too, which changes as it is split or trimmed: it gets another place
// then.
class HitsPerToken final : public Policy {
  public:
    HitsPerToken(Arena& nodes, uint32_t, uint64_t) : Policy(nodes), leaves_(nodes) {}

    void split(NodeId, NodeId tail) override { place(tail); }
    void trimmed(NodeId id) override { place(id); }

    NodeId victim() override { return leaves_.empty() ? NONE : leaves_.top(); }
    bool is_sound(NodeId id) const override { return leaves_.is_sound(id, key_of(id)); }
    void clear() override { leaves_.clear(); }

  private:
    // Numbers of at least 0 compare as their bits do. A new leaf is worth one hit.
    OrderKey key_of(NodeId id) const {
        static_assert(std::numeric_limits<double>::is_iec559);
        const Node& node = nodes_[id];
        double worth = (node.hit_count + 1.0) / node.length;
        return {std::bit_cast<int64_t>(worth), static_cast<int64_t>(node.recency)};
    }

    void add_to_order(NodeId id) override {
        nodes_[id].order_next = NONE;
        leaves_.add(id, key_of(id));
    }
    void remove_from_order(NodeId id) override { leaves_.remove(id); }

    OrderHeap<> leaves_;
};

}  // namespace radixkv
