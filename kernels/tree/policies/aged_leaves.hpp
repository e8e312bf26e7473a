// Leaves from the one used last longest ago to the one used last, with both ends at hand.
#pragma once

#include "../order_heap.hpp"
#include "use_history.hpp"

namespace radixkv {

// A list: a leaf that is added is mostly newer than all that are in it. The others, such as a
// parent whose children were evicted, wait in two heaps next to it.
//
// A node of the list has its neighbours in `order_prev` and `order_next`. One of the heaps, which
// `is_late`, has its places there: among the oldest and among the newest.
class AgedLeaves {
  public:
    AgedLeaves(Arena& nodes, const UseHistory& history)
        : nodes_(nodes), history_(history), oldest_late_(nodes), newest_late_(nodes) {}

    bool empty() const { return first_ == NONE && oldest_late_.empty(); }

    // There must be one.
    NodeId oldest() const {
        assert(!empty());
        if (oldest_late_.empty()) return first_;
        NodeId late = oldest_late_.top();
        return first_ == NONE || key_of(late) < key_of(first_) ? late : first_;
    }
    NodeId newest() const {
        assert(!empty());
        if (newest_late_.empty()) return last_;
        NodeId late = newest_late_.top();
        return last_ == NONE || key_of(last_) < key_of(late) ? late : last_;
    }

    // Makes sure that nothing fails while there are at most `count` leaves.
    void reserve(size_t count) {
        oldest_late_.reserve(count);
        newest_late_.reserve(count);
    }

    void add(NodeId id) noexcept {
        Node& node = nodes_[id];
        OrderKey key = key_of(id);
        node.is_late = last_ != NONE && key < key_of(last_);
        if (node.is_late) {
            oldest_late_.add(id, key);
            newest_late_.add(id, {-key.first, -key.second});
            return;
        }
        node.order_prev = last_;
        node.order_next = NONE;
        after(last_) = id;
        last_ = id;
    }

    void remove(NodeId id) {
        const Node& node = nodes_[id];
        if (node.is_late) {
            oldest_late_.remove(id);
            newest_late_.remove(id);
            return;
        }
        after(node.order_prev) = node.order_next;
        (node.order_next == NONE ? last_ : nodes_[node.order_next].order_prev) = node.order_prev;
    }

    // Whether a node stands where it belongs; for checks.
    bool is_sound(NodeId id) const {
        const Node& node = nodes_[id];
        OrderKey key = key_of(id);
        if (node.is_late) {
            return oldest_late_.is_sound(id, key) &&
                   newest_late_.is_sound(id, {-key.first, -key.second});
        }
        NodeId before = node.order_prev, behind = node.order_next;
        return (before == NONE ? first_ : nodes_[before].order_next) == id &&
               (behind == NONE ? last_ : nodes_[behind].order_prev) == id &&
               (before == NONE || key_of(before) < key);
    }

    void clear() noexcept {
        first_ = last_ = NONE;
        oldest_late_.clear();
        newest_late_.clear();
    }

  private:
    NodeId& after(NodeId id) { return id == NONE ? first_ : nodes_[id].order_next; }

    OrderKey key_of(NodeId id) const { return history_.order_key(id); }

    Arena& nodes_;
    const UseHistory& history_;
    NodeId first_ = NONE, last_ = NONE;
    OrderHeap<&Node::order_prev> oldest_late_;
    OrderHeap<&Node::order_next> newest_late_;
};

}  // namespace radixkv
