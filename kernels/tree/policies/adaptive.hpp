// The adaptive policy, see radixkv/tree/policies/adaptive.py.
#pragma once

#include <memory>

#include "aged_leaves.hpp"
#include "policy.hpp"
#include "use_history.hpp"

namespace radixkv {

// The evictable leaves by kind, each kind from the one used last longest ago to the one used last.
// The victim is one of these two of some kind, whichever is worth least; or the oldest of all,
// where losing that one would cost more than was won over LRU.
class Adaptive final : public Policy {
  public:
    Adaptive(Arena& nodes, uint32_t page_size, uint64_t seed)
        : Policy(nodes),
          own_history_(std::make_unique<UseHistory>(nodes, page_size, seed)),
          history_(*own_history_),
          leaves_(ReuseModel::KINDS, AgedLeaves(nodes, history_)) {}

    // For other leaves of the same tree; `first` outlives it.
    Adaptive(Arena& nodes, Adaptive& first)
        : Policy(nodes),
          history_(first.history_),
          leaves_(ReuseModel::KINDS, AgedLeaves(nodes, history_)) {}

    NodeId victim() override;
    void resized(NodeId) override {}
    Rank rank(NodeId id) const override {
        OrderKey key = history_.order_key(id);
        return {history_.worth(id), key.first, key.second};
    }
    void clear() noexcept override;
    bool is_sound(NodeId id) const override { return leaves_[history_.kind(id)].is_sound(id); }

    // ---- what the history learns ----

    bool reads_prefixes() const override { return true; }
    void reserve(NodeId bound, size_t more) override;
    void add_root(NodeId root, PrefixHash of_space) override { history_.add_root(root, of_space); }
    void use(const std::vector<NodeId>& path) override {
        if (!path.empty()) remove(path.back());  // its place depends on its uses
        history_.use(path);
    }
    void add_leaf(NodeId leaf, bool chunked) override { history_.add(leaf, chunked); }
    void split(NodeId head, NodeId tail) override { history_.split(head, tail); }
    void trim(NodeId id, uint32_t keep) override { history_.trim(id, keep); }
    void advance_clock(uint64_t now) override { history_.advance_clock(now); }
    void begin_eviction(uint64_t size, uint64_t count) override {
        history_.begin_eviction(size, count);
    }
    void end_eviction(uint64_t size) override { history_.end_eviction(size); }

    std::vector<uint64_t> save(const std::vector<NodeId>& nodes) const override {
        return history_.save(nodes);
    }
    void load(const std::vector<uint64_t>& state, const std::vector<NodeId>& nodes) override {
        history_.load(state, nodes);
    }
    void check_node(NodeId id, std::vector<std::string>& lines) const override {
        history_.check_node(id, lines);
    }
    void check_sums(uint64_t size, std::vector<std::string>& lines) const override {
        history_.check_sums(size, lines);
    }

  private:
    void add_to_order(NodeId id) override;
    void remove_from_order(NodeId id) override;
    NodeId least_worth() const;
    NodeId least_recent() const;
    AgedLeaves& leaves_like(NodeId id) { return leaves_[history_.kind(id)]; }

    std::unique_ptr<UseHistory> own_history_;
    UseHistory& history_;
    std::vector<AgedLeaves> leaves_;
    NodeId least_worth_ = NONE;  // known still where nothing happened since `known_uses_`
    uint64_t known_uses_ = 0;
};

}  // namespace radixkv
