// Policies that are a key of a leaf's own: the same keys as in `radixkv/tree/policies/keys.py`, the
// smallest goes first.
#pragma once

#include "policy.hpp"

namespace radixkv {

// What a key reads must change only with a touch; see hits_per_token.hpp for one that reads more.
template <OrderKey (*key)(const Node&)>
class KeyPolicy final : public Policy {
  public:
    KeyPolicy(Arena& nodes, uint32_t, uint64_t) : Policy(nodes), leaves_(nodes) {}

    NodeId victim() override { return leaves_.empty() ? NONE : leaves_.top(); }
    bool is_sound(NodeId id) const override { return leaves_.is_sound(id, key(nodes_[id])); }
    void clear() override { leaves_.clear(); }

  private:
    void add_to_order(NodeId id) override {
        nodes_[id].order_next = NONE;
        leaves_.add(id, key(nodes_[id]));
    }
    void remove_from_order(NodeId id) override { leaves_.remove(id); }

    OrderHeap<> leaves_;
};

namespace keys {

inline constexpr uint32_t SLRU_PROTECTED_HITS = 2;

inline int64_t recency(const Node& node) { return static_cast<int64_t>(node.recency); }
// Runs are numbered as they are created.
inline int64_t created(const Node& node) { return static_cast<int64_t>(node.run); }

inline OrderKey lfu(const Node& node) { return {node.hit_count, recency(node)}; }
inline OrderKey fifo(const Node& node) { return {created(node), 0}; }
inline OrderKey mru(const Node& node) { return {-recency(node), 0}; }
inline OrderKey filo(const Node& node) { return {-created(node), 0}; }
inline OrderKey slru(const Node& node) {
    return {node.hit_count >= SLRU_PROTECTED_HITS, recency(node)};
}
inline OrderKey priority(const Node& node) { return {node.priority, recency(node)}; }

}  // namespace keys

}  // namespace radixkv
