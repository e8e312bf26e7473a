// When every node was used, and what follows from it: the memory of the adaptive policy, see
// radixkv/tree/policies/adaptive.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "../order_heap.hpp"
#include "ghosts.hpp"
#include "reuse_model.hpp"

namespace radixkv {

class UseHistory {
  public:
    UseHistory(Arena& nodes, uint32_t page_size, uint64_t seed)
        : nodes_(nodes),
          most_ghosts_every_((MOST_GHOSTS_EVERY + page_size - 1) / page_size * page_size),
          ghost_every_(most_ghosts_every_),
          ghosts_(seed) {}

    uint64_t tick() const { return model_.tick(); }

    // The tick of the node's last use.
    uint64_t used(NodeId id) const { return seen_[id].used; }

    // How often the node was used, as far as the model makes a difference.
    uint32_t kind(NodeId id) const { return std::min(seen_[id].uses, ReuseModel::KINDS - 1); }

    // Nodes of a kind.
    size_t count_of(uint32_t kind) const { return count_of_[kind]; }

    // From the leaf used last longest ago to the one used last.
    OrderKey order_key(NodeId id) const {
        return {static_cast<int64_t>(used(id)), static_cast<int64_t>(nodes_[id].recency)};
    }

    uint64_t worth(NodeId id) const { return model_.worth(kind(id), used(id), nodes_[id].start); }

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

    // The nodes of a key that is inserted as a whole: a tick begins. Those that only chunks went
    // through were not there before: that is not a reuse.
    void use(const std::vector<NodeId>& path) {
        model_.next_tick();
        for (NodeId id : path) use(id);
    }

    // A new leaf; chunked: more of its key is coming, and its tick comes then.
    void add(NodeId leaf, bool chunked);

    // The node is about to lose its tokens from `keep` on; 0: to go.
    void trim(NodeId id, uint32_t keep);

    // Of a tree of `size` tokens.
    void begin_eviction(uint64_t size);
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
    static constexpr uint32_t MOST_GHOSTS_EVERY = 128;
    static constexpr uint64_t SIZE_OF_MOST_GHOSTS = 32768;

    struct Seen {
        uint64_t used = 0;
        uint32_t uses = 0;
        PrefixHash hash = 0;  // of the path to its end
    };

    void use(NodeId id);
    void add_ghost(const Ghost& ghost);

    Arena& nodes_;
    const uint32_t most_ghosts_every_;
    uint32_t ghost_every_;  // tokens for which one more ghost stands
    ReuseModel model_;
    Ghosts ghosts_;
    std::vector<Seen> seen_;
    std::array<size_t, ReuseModel::KINDS> count_of_{};  // by kind
};

}  // namespace radixkv
