// A heap of nodes, smallest key first, from which any node can be taken.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "arena.hpp"

namespace radixkv {

using OrderKey = std::pair<int64_t, int64_t>;

// Four children a place: half the depth of a binary heap, and siblings share cache lines.
// A node's `place` is its place here.
template <uint32_t Node::* place = &Node::order_prev>
class OrderHeap {
  public:
    explicit OrderHeap(Arena& nodes) : nodes_(nodes) {}

    bool empty() const { return items_.empty(); }
    size_t size() const { return items_.size(); }
    NodeId top() const { return items_[0].node; }
    const OrderKey& top_key() const { return items_[0].key; }

    // Makes sure that nothing fails while there are at most `count` nodes.
    void reserve(size_t count) {
        if (count > items_.capacity()) items_.reserve(std::max(count, 2 * items_.capacity()));
    }

    void add(NodeId node, OrderKey key) noexcept {
        assert(items_.size() < items_.capacity());
        items_.push_back({key, node});
        rise(static_cast<uint32_t>(items_.size() - 1));
    }

    void remove(NodeId node) noexcept {
        uint32_t at = nodes_[node].*place;
        assert(at < items_.size() && items_[at].node == node);
        Item last = items_.back();
        items_.pop_back();
        if (last.node == node) return;
        put(at, last);
        rise(at);
        sink(nodes_[last.node].*place);
    }

    void clear() noexcept { std::vector<Item>().swap(items_); }

    // Whether `node` stands here under `key`, and below nothing larger; for checks.
    bool is_sound(NodeId node, const OrderKey& key) const {
        uint32_t at = nodes_[node].*place;
        return at < items_.size() && items_[at].node == node && items_[at].key == key &&
               (at == 0 || !(key < items_[(at - 1) / 4].key));
    }

  private:
    struct Item {
        OrderKey key;
        NodeId node;
    };

    void put(uint32_t at, const Item& item) {
        items_[at] = item;
        nodes_[item.node].*place = at;
    }

    void rise(uint32_t at) {
        Item item = items_[at];
        while (at > 0 && item.key < items_[(at - 1) / 4].key) {
            put(at, items_[(at - 1) / 4]);
            at = (at - 1) / 4;
        }
        put(at, item);
    }

    void sink(uint32_t at) {
        Item item = items_[at];
        for (uint32_t child; (child = smallest_child(at)) != at; at = child) {
            if (!(items_[child].key < item.key)) break;
            put(at, items_[child]);
        }
        put(at, item);
    }

    // `at` itself where there is no child.
    uint32_t smallest_child(uint32_t at) const {
        size_t first = size_t{4} * at + 1;
        if (first >= items_.size()) return at;
        size_t best = first;
        for (size_t child = first + 1; child < first + 4 && child < items_.size(); ++child) {
            if (items_[child].key < items_[best].key) best = child;
        }
        return static_cast<uint32_t>(best);
    }

    Arena& nodes_;
    std::vector<Item> items_;
};

}  // namespace radixkv
