// Who is evicted next.
#pragma once

#include <optional>

#include "adaptive_order.hpp"
#include "order_heap.hpp"

namespace radixkv {

// LRU: all unlocked nodes in one list, oldest first. A node is never newer than its parent, so the
// oldest is always a leaf, and evicting costs what it frees. A touched node goes to the end. One
// that is unlocked must go back among its elders without being touched: mostly it is newer than all
// that is in the list and goes to the end too; otherwise it waits in a heap beside the list until
// it is touched or evicted, so that nothing is ever searched through.
//
// ADAPTIVE: see `AdaptiveOrder`. Other policies: a heap of the unlocked leaves.
//
// A node's `order_next` is its successor in the list, IN_HEAP or OUTSIDE.
class EvictionOrder {
  public:
    EvictionOrder(Arena& nodes, Policy policy, uint32_t page_size, uint64_t seed)
        : nodes_(nodes), heap_(nodes), policy_(policy) {
        if (policy == Policy::ADAPTIVE) adaptive_.emplace(nodes, page_size, seed);
        clear();
    }

    // What the adaptive policy is told of uses and evictions; null under the others.
    UseHistory* history() { return adaptive_ ? &adaptive_->history : nullptr; }
    const UseHistory* history() const { return adaptive_ ? &adaptive_->history : nullptr; }

    // A new node has no place yet.
    void init(NodeId node) { nodes_[node].order_next = OUTSIDE; }

    // The node's recency is the newest of all.
    void touch(NodeId node) {
        if (policy_ != Policy::LRU) return place(node);
        remove(node);
        if (!nodes_[node].lock_ref) append(node);
    }

    // The node was locked or unlocked, or what decides about it changed.
    void place(NodeId node) {
        remove(node);
        if (nodes_[node].lock_ref) return;
        if (policy_ == Policy::LRU) return add_by_recency(node);
        if (!nodes_[node].is_leaf()) return;
        if (adaptive_) return adaptive_->add(node);
        add_to_heap(node);
    }

    // The node got its first child or lost its last one.
    void leafness_changed(NodeId node) {
        if (policy_ != Policy::LRU) place(node);
    }

    void remove(NodeId id) {
        Node& node = nodes_[id];
        if (node.order_next == OUTSIDE) return;
        if (adaptive_) {
            adaptive_->remove(id);
        } else if (node.order_next == IN_HEAP) {
            heap_.remove(id);
        } else {
            nodes_[node.order_prev].order_next = node.order_next;
            nodes_[node.order_next].order_prev = node.order_prev;
        }
        node.order_next = OUTSIDE;
    }

    // NONE: nothing is evictable.
    NodeId victim() {
        if (adaptive_) return adaptive_->victim();
        NodeId oldest = nodes_[NONE].order_next;
        if (heap_.empty()) return oldest;
        if (oldest == NONE || heap_.top_key() < key_of(oldest)) return heap_.top();
        return oldest;
    }

    // Whether nodes with children have a place too.
    bool holds_inner_nodes() const { return policy_ == Policy::LRU; }

    bool holds(NodeId node) const { return nodes_[node].order_next != OUTSIDE; }

    // Whether a placed node stands where it belongs; for checks.
    bool is_sound(NodeId id) const {
        const Node& node = nodes_[id];
        if (adaptive_) return adaptive_->is_sound(id);
        if (node.order_next == IN_HEAP) return heap_.is_sound(id, key_of(id));
        const Node& before = nodes_[node.order_prev];
        return before.order_next == id && nodes_[node.order_next].order_prev == id &&
               (node.order_prev == NONE || before.recency < node.recency);
    }

    void clear() {
        heap_.clear();
        if (adaptive_) adaptive_->clear();
        nodes_[NONE].order_prev = nodes_[NONE].order_next = NONE;
    }

  private:
    static constexpr uint32_t OUTSIDE = ~0u;
    static constexpr uint32_t IN_HEAP = ~0u - 1;

    OrderKey key_of(NodeId node) const { return order_key(policy_, nodes_[node]); }

    void append(NodeId id) {
        Node &end = nodes_[NONE], &node = nodes_[id];
        node.order_prev = end.order_prev;
        node.order_next = NONE;
        nodes_[end.order_prev].order_next = id;
        end.order_prev = id;
    }

    void add_by_recency(NodeId id) {
        NodeId newest = nodes_[NONE].order_prev;
        if (newest == NONE || nodes_[newest].recency < nodes_[id].recency) return append(id);
        add_to_heap(id);
    }

    void add_to_heap(NodeId id) {
        nodes_[id].order_next = IN_HEAP;
        heap_.add(id, key_of(id));
    }

    Arena& nodes_;
    OrderHeap<> heap_;
    Policy policy_;
    std::optional<AdaptiveOrder> adaptive_;
};

}  // namespace radixkv
