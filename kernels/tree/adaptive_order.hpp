// Who is evicted next under the adaptive policy.
#pragma once

#include <vector>

#include "aged_leaves.hpp"

namespace radixkv {

// The evictable leaves by kind, each kind from the one used last longest ago to the one used last.
// The victim is one of these two of some kind, whichever is worth least.
class AdaptiveOrder {
  public:
    AdaptiveOrder(Arena& nodes, uint32_t page_size, uint64_t seed)
        : history(nodes, page_size, seed),
          nodes_(nodes),
          leaves_(ReuseModel::KINDS, AgedLeaves(nodes, history)) {}

    UseHistory history;

    void add(NodeId id) {
        victim_ = NONE;
        leaves_like(id).add(id);
    }

    void remove(NodeId id) {
        victim_ = NONE;
        leaves_like(id).remove(id);
    }

    // NONE: nothing is evictable. Known still where nothing happened since; a split makes the rest
    // of a leaf deeper, which is worth more.
    NodeId victim() {
        if (victim_ == NONE || known_turn_ != history.turn() ||
            known_start_ != nodes_[victim_].start) {
            victim_ = find_victim();
        }
        known_turn_ = history.turn();
        known_start_ = nodes_[victim_].start;
        return victim_;
    }

    // Whether a placed node stands where it belongs; for checks.
    bool is_sound(NodeId id) const { return leaves_[history.kind(id)].is_sound(id); }

    void clear() {
        history.clear();
        victim_ = NONE;
        for (AgedLeaves& leaves : leaves_) leaves.clear();
    }

  private:
    NodeId find_victim() const {
        NodeId victim = NONE;
        uint64_t least = 0;
        auto consider = [&](NodeId id) {
            uint64_t worth = history.worth(id);
            bool is_less = worth < least ||
                           (worth == least && history.order_key(id) < history.order_key(victim));
            if (victim != NONE && !is_less) return;
            victim = id;
            least = worth;
        };
        for (const AgedLeaves& leaves : leaves_) {
            if (leaves.empty()) continue;
            consider(leaves.oldest());
            consider(leaves.newest());
        }
        return victim;
    }

    AgedLeaves& leaves_like(NodeId id) { return leaves_[history.kind(id)]; }

    Arena& nodes_;
    std::vector<AgedLeaves> leaves_;
    NodeId victim_ = NONE;
    uint64_t known_turn_ = 0;
    uint32_t known_start_ = 0;
};

}  // namespace radixkv
