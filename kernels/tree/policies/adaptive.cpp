#include "adaptive.hpp"

namespace radixkv {

NodeId Adaptive::victim() {
    if (least_worth_ == NONE || known_uses_ != history_.uses()) least_worth_ = least_worth();
    known_uses_ = history_.uses();
    if (least_worth_ == NONE || history_.may_lose(least_worth_)) return least_worth_;
    return least_recent();
}

NodeId Adaptive::least_worth() const {
    NodeId victim = NONE;
    uint64_t least = 0;
    auto consider = [&](NodeId id) {
        uint64_t worth = history_.worth(id);
        bool is_less = worth < least ||
                       (worth == least && history_.order_key(id) < history_.order_key(victim));
        if (victim != NONE && !is_less) return;
        victim = id;
        least = worth;
    };
    for (const AgedLeaves& leaves : leaves_) {
        if (leaves.empty()) continue;
        consider(leaves.oldest());
        consider(leaves.newest());
    }
    assert(victim == NONE || is_evictable(victim));
    return victim;
}

// What LRU would evict; there must be a leaf.
NodeId Adaptive::least_recent() const {
    NodeId victim = NONE;
    for (const AgedLeaves& leaves : leaves_) {
        if (leaves.empty()) continue;
        NodeId id = leaves.oldest();
        if (victim == NONE || history_.order_key(id) < history_.order_key(victim)) victim = id;
    }
    assert(is_evictable(victim));
    return victim;
}

void Adaptive::add_to_order(NodeId id) {
    least_worth_ = NONE;
    leaves_like(id).add(id);
}

void Adaptive::remove_from_order(NodeId id) {
    least_worth_ = NONE;
    leaves_like(id).remove(id);
}

// Any node of a kind may become a leaf of that kind, and a late one.
void Adaptive::reserve(NodeId bound, size_t more) {
    history_.reserve(bound);
    for (uint32_t kind = 0; kind < ReuseModel::KINDS; ++kind)
        leaves_[kind].reserve(history_.count_of(kind) + more);
}

void Adaptive::clear() noexcept {
    history_.clear();
    least_worth_ = NONE;
    for (AgedLeaves& leaves : leaves_) leaves.clear();
}

}  // namespace radixkv
