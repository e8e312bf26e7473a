// Who is evicted next under the adaptive policy.
#pragma once

#include <vector>

#include "order_heap.hpp"
#include "use_history.hpp"

namespace radixkv {

// The evictable leaves by kind, each kind from the one used last longest ago to the one used last.
// The victim is one of these two of some kind, whichever is worth least.
//
// A node has two places: `order_prev` among the oldest, `order_next` among the newest.
class AdaptiveOrder {
  public:
    AdaptiveOrder(Arena& nodes, uint32_t page_size, uint64_t seed)
        : history(nodes, page_size, seed), nodes_(nodes), ends_(ReuseModel::KINDS, Ends(nodes)) {}

    UseHistory history;

    void add(NodeId id) {
        victim_ = NONE;
        auto [used, recency] = key_of(id);
        Ends& ends = ends_of(id);
        ends.oldest.add(id, {used, recency});
        ends.newest.add(id, {-used, -recency});
    }

    void remove(NodeId id) {
        victim_ = NONE;
        Ends& ends = ends_of(id);
        ends.oldest.remove(id);
        ends.newest.remove(id);
    }

    // NONE: nothing is evictable. Known still where nothing happened since.
    NodeId victim() {
        if (victim_ == NONE || known_at_ != history.turn()) victim_ = find_victim();
        known_at_ = history.turn();
        return victim_;
    }

    // Whether a placed node stands where it belongs; for checks.
    bool is_sound(NodeId id) const {
        auto [used, recency] = key_of(id);
        const Ends& ends = ends_[history.kind(id)];
        return ends.oldest.is_sound(id, {used, recency}) &&
               ends.newest.is_sound(id, {-used, -recency});
    }

    void clear() {
        history.clear();
        victim_ = NONE;
        for (Ends& ends : ends_) {
            ends.oldest.clear();
            ends.newest.clear();
        }
    }

  private:
    struct Ends {
        explicit Ends(Arena& nodes) : oldest(nodes), newest(nodes) {}
        OrderHeap<&Node::order_prev> oldest;
        OrderHeap<&Node::order_next> newest;
    };

    NodeId find_victim() const {
        NodeId victim = NONE;
        uint64_t least = 0;
        auto consider = [&](NodeId id) {
            uint64_t worth = history.worth(id);
            bool is_less = worth < least || (worth == least && key_of(id) < key_of(victim));
            if (victim != NONE && !is_less) return;
            victim = id;
            least = worth;
        };
        for (const Ends& ends : ends_) {
            if (ends.oldest.empty()) continue;
            consider(ends.oldest.top());
            consider(ends.newest.top());
        }
        return victim;
    }

    Ends& ends_of(NodeId id) { return ends_[history.kind(id)]; }

    OrderKey key_of(NodeId id) const {
        return {static_cast<int64_t>(history.used(id)), static_cast<int64_t>(nodes_[id].recency)};
    }

    Arena& nodes_;
    std::vector<Ends> ends_;
    NodeId victim_ = NONE;
    uint64_t known_at_ = 0;
};

}  // namespace radixkv
