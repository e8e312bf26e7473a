// What is evicted first, and what a policy learns meanwhile.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "../arena.hpp"
#include "../order_heap.hpp"
#include "../prefix_hash.hpp"

namespace radixkv {

// Of two victims, that with the smaller one goes first.
using Rank = std::tuple<uint64_t, int64_t, int64_t>;

// The order of the evictable nodes, and hooks that the tree calls as it changes: a policy overrides
// those it needs; `Policy` in `radixkv/tree/nodes.py` has the same hooks. What a node is ordered by
// may change only while it has no place, or right before `place`, `touch` or `resized` gives it
// another.
//
// A node's `order_next` is OUTSIDE while it has no place. Otherwise it is the policy's, as
// `order_prev` is.
class Policy {
  public:
    virtual ~Policy() = default;
    Policy(const Policy&) = delete;
    Policy& operator=(const Policy&) = delete;

    // ---- the order ----

    // Whether nodes with children have a place too.
    const bool holds_inner_nodes;

    // A new node has no place yet.
    void init(NodeId id) { nodes_[id].order_next = OUTSIDE; }

    bool has_place(NodeId id) const { return nodes_[id].order_next != OUTSIDE; }

    // Whether it is to have one.
    bool is_evictable(NodeId id) const {
        return !nodes_[id].lock_ref && (holds_inner_nodes || nodes_[id].is_leaf());
    }

    // The node was locked or unlocked, or what it is ordered by changed.
    void place(NodeId id) {
        remove(id);
        if (!is_evictable(id)) return;
        add_to_order(id);
        assert(has_place(id));
    }

    void remove(NodeId id) {
        if (!has_place(id)) return;
        remove_from_order(id);
        nodes_[id].order_next = OUTSIDE;
    }

    // The node got its first child or lost its last one.
    void leafness_changed(NodeId id) {
        if (!holds_inner_nodes) place(id);
    }

    // The node's recency is the newest of all.
    virtual void touch(NodeId id) { place(id); }

    // A split or a trim changed the node's length. Only a policy whose order does not read that
    // has nothing to do.
    virtual void resized(NodeId id) { place(id); }

    // NONE: nothing is evictable.
    virtual NodeId victim() = 0;

    // Where a victim stands among those of other shares: see `ShareOrders`.
    virtual Rank rank(NodeId victim) const = 0;

    // ---- memory: it is asked for here, and nothing else may fail ----

    // Nodes numbered below `bound` may come, and `more` come or are used.
    virtual void reserve(NodeId /* bound */, size_t /* more */) {}

    // `more` nodes that have no place may get one: those that are locked or come.
    virtual void reserve_places(size_t /* more */) {}

    // ---- hooks: what happens to the tree ----

    // Whether `add_root` needs the hash of the namespace.
    virtual bool reads_prefixes() const { return false; }
    virtual void add_root(NodeId, PrefixHash) {}

    // A key is inserted as a whole: these nodes of it were there. Their hits are not counted yet.
    virtual void use(const std::vector<NodeId>&) {}

    // A new leaf; chunked: more of its key is coming.
    virtual void add_leaf(NodeId, bool /* chunked */) {}

    // `head` was cut off the front of `tail` and is its parent now.
    virtual void split(NodeId /* head */, NodeId /* tail */) {}

    // A leaf is about to lose its tokens from `keep` on.
    virtual void trim(NodeId, uint32_t /* keep */) {}

    // The time of what comes next, in milliseconds; one that goes back counts as no time passed.
    virtual void advance_clock(uint64_t) {}

    // `count` tokens of a tree of `size` tokens are about to go; then so many are left.
    virtual void begin_eviction(uint64_t /* size */, uint64_t /* count */) {}
    virtual void end_eviction(uint64_t /* size */) {}

    virtual void clear() noexcept = 0;

    // ---- pickling and checking ----

    // What was learnt, as numbers, and back; `nodes` are all there are, parents before children.
    // std::out_of_range where that was never saved.
    virtual std::vector<uint64_t> save(const std::vector<NodeId>&) const { return {}; }
    virtual void load(const std::vector<uint64_t>&, const std::vector<NodeId>&) {}

    // Whether a node with a place stands where it belongs.
    virtual bool is_sound(NodeId) const = 0;

    // Adds a line for each broken invariant of what was learnt: of one node, and of all together,
    // in a tree of `size` tokens.
    virtual void check_node(NodeId, std::vector<std::string>&) const {}
    virtual void check_sums(uint64_t /* size */, std::vector<std::string>&) const {}

  protected:
    static constexpr uint32_t OUTSIDE = ~0u;

    explicit Policy(Arena& nodes, bool holds_inner_nodes = false)
        : holds_inner_nodes(holds_inner_nodes), nodes_(nodes) {}

    virtual void add_to_order(NodeId) = 0;
    virtual void remove_from_order(NodeId) = 0;

    Arena& nodes_;
};

// Makes a policy for the nodes of one tree. `seed`: for hashes that clients must not guess.
// `first`: another one of its kind for the same tree, whose memory it uses; nullptr: it has its
// own.
using NewPolicy = std::unique_ptr<Policy> (*)(Arena& nodes, uint32_t page_size, uint64_t seed,
                                              Policy* first);

}  // namespace radixkv
