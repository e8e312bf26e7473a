// The evictable leaves by a key: what all policies share that are no more than that.
#pragma once

#include "policy.hpp"

namespace radixkv {

// The leaf with the smallest key goes first. A key may read anything of its node: it is computed
// again when the leaf is used, split or trimmed. Numbered from 0, recency and runs fit in int64.
class LeafHeap : public Policy {
  public:
    LeafHeap(Arena& nodes, uint32_t /* page_size */, uint64_t /* seed */)
        : Policy(nodes), leaves_(nodes) {}

    virtual OrderKey order_key(const Node& leaf) const = 0;

    NodeId victim() final { return leaves_.empty() ? NONE : leaves_.top(); }
    Rank rank(NodeId id) const final {
        OrderKey key = order_key(nodes_[id]);
        return {0, key.first, key.second};
    }
    void reserve_places(size_t more) final { leaves_.reserve(leaves_.size() + more); }
    bool is_sound(NodeId id) const final { return leaves_.is_sound(id, order_key(nodes_[id])); }
    void clear() noexcept final { leaves_.clear(); }

  private:
    void add_to_order(NodeId id) final {
        nodes_[id].order_next = NONE;
        leaves_.add(id, order_key(nodes_[id]));
    }
    void remove_from_order(NodeId id) final { leaves_.remove(id); }

    OrderHeap<> leaves_;
};

}  // namespace radixkv
