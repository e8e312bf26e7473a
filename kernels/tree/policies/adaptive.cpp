#include "adaptive.hpp"

namespace radixkv {

NodeId Adaptive::victim() {
    if (victim_ == NONE || known_tick_ != history_.tick() ||
        known_start_ != nodes_[victim_].start) {
        victim_ = find_victim();
    }
    known_tick_ = history_.tick();
    assert(victim_ == NONE || is_evictable(victim_));
    known_start_ = nodes_[victim_].start;
    return victim_;
}

NodeId Adaptive::find_victim() const {
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
    return victim;
}

void Adaptive::add_to_order(NodeId id) {
    victim_ = NONE;
    leaves_like(id).add(id);
}

void Adaptive::remove_from_order(NodeId id) {
    victim_ = NONE;
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
    victim_ = NONE;
    for (AgedLeaves& leaves : leaves_) leaves.clear();
}

}  // namespace radixkv
