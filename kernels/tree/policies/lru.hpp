// Least recently used.
#pragma once

#include "leaf_heap.hpp"

namespace radixkv {

// All unlocked nodes in one list, oldest first. A node is never newer than its parent, so the
// oldest is always a leaf, and evicting costs what it frees. A touched node goes to the end. One
// that is unlocked must go back among its elders without being touched: mostly it is newer than all
// that is in the list and goes to the end too; otherwise it waits in a heap next to the list until
// it is touched or evicted, so that nothing is ever searched through.
//
// A node's `order_next` is its successor in the list or IN_HEAP.
class Lru final : public Policy {
  public:
    Lru(Arena& nodes, uint32_t, uint64_t) : Policy(nodes, true), late_(nodes) { clear(); }

    void touch(NodeId id) override {
        remove(id);
        if (!nodes_[id].lock_ref) append(id);
    }

    void resized(NodeId) override {}

    void reserve_places(size_t more) override { late_.reserve(late_.size() + more); }

    NodeId victim() override {
        NodeId oldest = nodes_[NONE].order_next;
        if (late_.empty()) return oldest;
        if (oldest == NONE || late_.top_key() < key_of(oldest)) return late_.top();
        return oldest;
    }

    Rank rank(NodeId id) const override { return {0, key_of(id).first, 0}; }

    bool is_sound(NodeId id) const override {
        const Node& node = nodes_[id];
        if (node.order_next == IN_HEAP) return late_.is_sound(id, key_of(id));
        const Node& before = nodes_[node.order_prev];
        return before.order_next == id && nodes_[node.order_next].order_prev == id &&
               (node.order_prev == NONE || before.recency < node.recency);
    }

    void clear() noexcept override {
        late_.clear();
        nodes_[NONE].order_prev = nodes_[NONE].order_next = NONE;
    }

  private:
    static constexpr uint32_t IN_HEAP = OUTSIDE - 1;

    OrderKey key_of(NodeId id) const { return {static_cast<int64_t>(nodes_[id].recency), 0}; }

    void add_to_order(NodeId id) override {
        NodeId newest = nodes_[NONE].order_prev;
        if (newest == NONE || nodes_[newest].recency < nodes_[id].recency) return append(id);
        nodes_[id].order_next = IN_HEAP;
        late_.add(id, key_of(id));
    }

    void remove_from_order(NodeId id) override {
        const Node& node = nodes_[id];
        if (node.order_next == IN_HEAP) return late_.remove(id);
        nodes_[node.order_prev].order_next = node.order_next;
        nodes_[node.order_next].order_prev = node.order_prev;
    }

    void append(NodeId id) {
        assert(!nodes_[id].lock_ref);
        Node &end = nodes_[NONE], &node = nodes_[id];
        node.order_prev = end.order_prev;
        node.order_next = NONE;
        nodes_[end.order_prev].order_next = id;
        end.order_prev = id;
    }

    OrderHeap<> late_;
};

// The same by leaves alone: a list has one end, and so a tree has one.
struct LruLeaves final : LeafHeap {
    using LeafHeap::LeafHeap;
    OrderKey order_key(const Node& leaf) const override {
        return {static_cast<int64_t>(leaf.recency), 0};
    }
};

}  // namespace radixkv
