// When every node was used, and what follows from it: the memory of the adaptive policy, see
// radixkv/tree/policies/adaptive.py.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "../order_heap.hpp"
#include "ghosts.hpp"
#include "lru_shadow.hpp"
#include "reuse_model.hpp"

namespace radixkv {

class UseHistory {
  public:
    UseHistory(Arena& nodes, uint32_t page_size, uint64_t seed)
        : nodes_(nodes),
          page_size_(page_size),
          ghost_every_(whole_pages(16 * MOST_GHOSTS_EVERY)),
          ghosts_(seed) {}

    uint64_t uses() const { return model_.uses(); }

    // The time of the node's last use.
    uint64_t used(NodeId id) const { return seen_[id].used; }

    // How often the node was used and at what gap, as far as the model makes a difference.
    uint32_t kind(NodeId id) const { return seen_[id].kind; }

    // Nodes of a kind.
    size_t count_of(uint32_t kind) const { return count_of_[kind]; }

    // From the leaf used last longest ago to the one used last.
    OrderKey order_key(NodeId id) const {
        return {static_cast<int64_t>(used(id)), static_cast<int64_t>(nodes_[id].recency)};
    }

    uint64_t worth(NodeId id) const { return model_.worth(kind(id), used(id)); }

    // Whether to evict the node is covered by what was won over LRU.
    bool may_lose(NodeId id) const {
        uint64_t going = std::min<uint64_t>(to_evict_, nodes_[id].length);
        return !shadow_.holds(used(id)) || shadow_.may_lose(going);
    }

    void advance_clock(uint64_t milliseconds) {
        clock_ = std::max(clock_, std::min(milliseconds, LATEST));
    }

    // Makes room for nodes numbered below `bound`.
    void reserve(NodeId bound) {
        if (seen_.size() < bound) seen_.resize(bound + bound / 2);
    }

    void add_root(NodeId root, PrefixHash of_space) { seen_[root] = {0, 0, of_space}; }

    void split(NodeId head, NodeId tail) {
        const Node& node = nodes_[head];
        PrefixHash above = seen_[node.parent].hash;
        seen_[head] = seen_[tail];
        seen_[head].hash = prefix_hash::add(above, node.tokens(), node.length);
        ++count_of_[kind(head)];
    }

    // The nodes of a key that is inserted as a whole: a request begins. Those that only chunks went
    // through were not there before: that is not a reuse.
    void use(const std::vector<NodeId>& path) {
        uint64_t before = model_.now();
        uint64_t now = clock_ ? std::max(clock_, before + 1) : before + ReuseModel::STEP;
        model_.begin(now);
        shadow_.begin(now);
        for (NodeId id : path) use(id);
    }

    // A new leaf; chunked: more of its key is coming, and its request comes then.
    void add(NodeId leaf, bool chunked);

    // The node is about to lose its tokens from `keep` on; 0: to go.
    void trim(NodeId id, uint32_t keep);

    // `count` tokens of a tree of `size` tokens are about to go; then `size` are left.
    void begin_eviction(uint64_t size, uint64_t count);
    void end_eviction(uint64_t size);

    // The state as numbers, and back; `nodes` are all there are, parents before children.
    std::vector<uint64_t> save(const std::vector<NodeId>& nodes) const;
    void load(const std::vector<uint64_t>& state, const std::vector<NodeId>& nodes);

    void clear() noexcept;

    // See `Policy`.
    void check_node(NodeId id, std::vector<std::string>& lines) const;
    void check_sums(uint64_t size, std::vector<std::string>& lines) const;

  private:
    static constexpr uint64_t GHOST_TOKENS_PER_TOKEN = 4;
    static constexpr uint32_t MOST_GHOSTS_EVERY = 8;
    static constexpr uint64_t SIZE_OF_MOST_GHOSTS = 2048;
    static constexpr uint64_t LATEST = uint64_t{1} << 53;
    static constexpr uint32_t MOST_USES = 2, GAPS = 6;
    static_assert((MOST_USES + 1) * GAPS == ReuseModel::KINDS);

    // The class of a gap between two uses: up to a step, 8, 64, 512 or more. 0: none yet.
    static uint32_t gap_class(uint64_t age) {
        uint64_t steps = (age + ReuseModel::STEP - 1) / ReuseModel::STEP;
        int eights = (std::bit_width(steps > 1 ? steps - 1 : 0) + 2) / 3;
        return std::min(1 + static_cast<uint32_t>(eights), GAPS - 1);
    }
    static uint32_t kind_of(uint32_t uses, uint32_t gap) { return uses * GAPS + gap; }
    uint32_t gap_of(NodeId id) const { return kind(id) % GAPS; }

    struct Seen {
        uint64_t used = 0;
        uint32_t kind = 0;
        PrefixHash hash = 0;  // of the path to its end
    };

    uint32_t whole_pages(uint32_t tokens) const {
        return (tokens + page_size_ - 1) / page_size_ * page_size_;
    }
    void use(NodeId id);
    void wait(NodeId id, bool chunked);
    void add_ghost(const Ghost& ghost);

    Arena& nodes_;
    const uint32_t page_size_;
    uint32_t ghost_every_;  // tokens for which one more ghost stands
    uint64_t clock_ = 0;    // the latest time that was given
    uint64_t to_evict_ = 0;
    ReuseModel model_;
    LruShadow shadow_;
    Ghosts ghosts_;
    std::vector<Seen> seen_;
    std::array<size_t, ReuseModel::KINDS> count_of_{};  // by kind
};

}  // namespace radixkv
