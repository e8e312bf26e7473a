#include "use_history.hpp"

#include <bit>
#include <new>

namespace radixkv {

void UseHistory::use(NodeId id) {
    const Node& node = nodes_[id];
    Seen& seen = seen_[id];
    if (node.hit_count > 0) {
        uint64_t age = model_.now() - seen.used;
        model_.reuse(seen.used, kind(id), node.length, age);
        shadow_.use(seen.used, node.length);
        --count_of_[kind(id)];
        seen.kind = kind_of(std::min(kind(id) / GAPS + 1, MOST_USES), gap_class(age));
        ++count_of_[kind(id)];
    } else {
        model_.remove(seen.used, kind(id), node.length);
        shadow_.take(seen.used, node.length);
    }
    seen.used = model_.now();
    wait(id, false);
}

// Tokens of the request wait from now on.
void UseHistory::wait(NodeId id, bool chunked) {
    uint32_t tokens = nodes_[id].length;
    model_.add(used(id), kind(id), tokens);
    if (chunked) {
        shadow_.add_chunk(tokens);
    } else if (model_.uses() == 1) {
        shadow_.add_first(tokens);
    } else {
        shadow_.add(tokens);
    }
}

void UseHistory::add(NodeId id, bool chunked) {
    const Node& node = nodes_[id];
    PrefixHash hash = seen_[node.parent].hash;
    uint32_t at = node.start, asked = 0, came_back = 0, gap = gap_of(node.parent);
    Ghost ghost;
    while (at < node.end()) {
        uint32_t next = std::min(node.end(), (at / ghost_every_ + 1) * ghost_every_);
        hash = prefix_hash::add(hash, node.tokens() + (at - node.start), next - at);
        at = next;
        if (at % ghost_every_) continue;
        ++asked;
        if (!ghosts_.take(hash, ghost)) continue;
        ++came_back;
        uint64_t age = model_.now() + chunked * ReuseModel::STEP - ghost.used;
        model_.reuse(ghost.used, ghost.kind, ghost.tokens, age);
        shadow_.use_gone(ghost.used, ghost.tokens);
        gap = gap_class(age);
    }
    // A half of it was ghosts: it counts as used once.
    bool was_ghosts = came_back > 0 && 2 * came_back >= asked;
    seen_[id] = {model_.now(), kind_of(was_ghosts, gap), hash};
    ++count_of_[kind(id)];
    wait(id, chunked);
}

void UseHistory::trim(NodeId id, uint32_t keep) {
    const Node& node = nodes_[id];
    Seen& seen = seen_[id];
    uint32_t at = node.end(), to = node.start + keep;
    model_.remove(seen.used, kind(id), at - to);
    shadow_.lose(seen.used, at - to);
    to_evict_ -= at - to;
    if (!keep) --count_of_[kind(id)];
    // Where ghosts end, from the last one back.
    for (uint32_t end = at / ghost_every_ * ghost_every_; end > to; end -= ghost_every_) {
        seen.hash = prefix_hash::take(seen.hash, node.tokens() + (end - node.start), at - end);
        add_ghost({seen.hash, seen.used, kind(id), ghost_every_});
        at = end;
    }
    seen.hash = prefix_hash::take(seen.hash, node.tokens() + keep, at - to);
}

// Without memory it is forgotten: an eviction is not left half done for a ghost.
void UseHistory::add_ghost(const Ghost& ghost) {
    try {
        ghosts_.reserve();
    } catch (const std::bad_alloc&) {
        return;
    }
    Ghost same;
    if (ghosts_.take(ghost.hash, same)) model_.give_up(same.used, same.kind, same.tokens);
    ghosts_.add(ghost);
    model_.add(ghost.used, ghost.kind, ghost.tokens);
}

void UseHistory::begin_eviction(uint64_t size, uint64_t count) {
    model_.refresh(size);
    shadow_.shrink(size - count);
    to_evict_ = count;
    uint64_t fewer = std::bit_floor(std::max<uint64_t>(size / SIZE_OF_MOST_GHOSTS, 1));
    if (size < SIZE_OF_MOST_GHOSTS / 2) fewer = 16;
    ghost_every_ = whole_pages(MOST_GHOSTS_EVERY * static_cast<uint32_t>(fewer));
}

void UseHistory::end_eviction(uint64_t size) {
    while (ghosts_.tokens() > GHOST_TOKENS_PER_TOKEN * size) {
        Ghost oldest = ghosts_.take_oldest();
        model_.give_up(oldest.used, oldest.kind, oldest.tokens);
    }
}

std::vector<uint64_t> UseHistory::save(const std::vector<NodeId>& nodes) const {
    std::vector<uint64_t> out{ghost_every_, clock_};
    for (NodeId id : nodes) out.insert(out.end(), {seen_[id].used, seen_[id].kind});
    model_.save(out);
    shadow_.save(out);
    ghosts_.each([&](const Ghost& ghost) {
        out.insert(out.end(), {ghost.hash, ghost.used, ghost.kind, ghost.tokens});
    });
    return out;
}

void UseHistory::load(const std::vector<uint64_t>& state, const std::vector<NodeId>& nodes) {
    SavedState in(state);
    auto small = [&] { return static_cast<uint32_t>(in.next(uint64_t{1} << 32)); };
    ghost_every_ = std::max(small(), 1u);
    clock_ = in.next();
    for (NodeId id : nodes) {
        const Node& node = nodes_[id];
        PrefixHash hash = prefix_hash::add(seen_[node.parent].hash, node.tokens(), node.length);
        uint64_t used = in.next();
        auto kind = static_cast<uint32_t>(in.next(ReuseModel::KINDS));
        seen_[id] = {used, kind, hash};
        ++count_of_[kind];
    }
    model_.load(in);
    shadow_.load(in);
    for (ghosts_.clear(); !in.is_read();) {
        PrefixHash hash = small();
        uint64_t used = in.next();
        auto kind = static_cast<uint32_t>(in.next(ReuseModel::KINDS));
        ghosts_.add({hash, used, kind, small()});
    }
}

void UseHistory::check_sums(uint64_t size, std::vector<std::string>& lines) const {
    uint64_t there = size + ghosts_.tokens();
    if (model_.waiting_tokens() == there) return;
    lines.push_back("history: " + std::to_string(model_.waiting_tokens()) +
                    " tokens wait by count, " + std::to_string(there) + " are cached or ghosts");
}

void UseHistory::check_node(NodeId id, std::vector<std::string>& lines) const {
    const Node& own = nodes_[id];
    PrefixHash above = seen_[own.parent].hash;
    auto name = [&] { return "history: node " + std::to_string(public_id(own, id)); };
    if (seen_[id].hash != prefix_hash::add(above, own.tokens(), own.length))
        lines.push_back(name() + " has the hash of another prefix");
    if (used(id) > model_.now())
        lines.push_back(name() + " was used at " + std::to_string(used(id)) + ", now is " +
                        std::to_string(model_.now()));
}

void UseHistory::clear() noexcept {
    model_.clear();
    shadow_.clear();
    clock_ = to_evict_ = 0;
    ghosts_.clear();
    ghost_every_ = whole_pages(16 * MOST_GHOSTS_EVERY);
    std::vector<Seen>().swap(seen_);
    count_of_ = {};
}

}  // namespace radixkv
