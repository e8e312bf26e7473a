// The tree itself: no Python in here.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "edge_table.hpp"
#include "keys.hpp"
#include "policies/share_orders.hpp"

namespace radixkv {

// A place in the tree: the first `length` tokens of the path to a node (NONE: of no path, length
// 0).
//
// Splits only ever put heads above a node, so climbing finds the node that ends there now. Once the
// node itself is gone, its head may still hold the place: the head is known by the run that both
// come from.
struct Place {
    NodeId node = NONE;
    uint32_t generation = 0;
    uint32_t length = 0;
    uint64_t run = 0;
};

// Nodes from below a root down, each the parent of the next. Callers keep one from call to call, so
// that none is allocated.
using Path = std::vector<NodeId>;

// How far a key is cached.
struct Descent {
    NodeId partial = NONE;  // the node matched in part
    uint32_t length = 0;
};

// What `Tree::extend` is about to add, with the memory that takes.
struct Growth {
    Descent found;
    TokenRun head, tail;  // of the node matched in part
    TokenRun leaf;
};

// What `Tree::evict` is about to drop: the tokens of `node` from `keep` on.
struct Trim {
    const Node& node;
    uint32_t keep;
};

// Gets what each node holds before that changes, and after: for a check that goes on meanwhile. It
// changes nothing of the tree.
class NodeWatcher {
  public:
    virtual ~NodeWatcher() = default;

    // The node is about to change; its tokens from `keep` on are about to go, all of them with the
    // node or to another.
    virtual void leaves(NodeId id, uint32_t keep) noexcept = 0;

    // It has changed, or is new; its tokens from `known` on came meanwhile.
    virtual void enters(NodeId id, uint32_t known) noexcept = 0;

    // All nodes are gone. It watches no longer.
    virtual void forgets_all() noexcept = 0;
};

//     root of a namespace
//       └─ [1 2 3]          head: new after a split, takes the first tokens
//            ├─ [4 5 6]     tail: keeps the identity of the node that was split
//            └─ [7 8]
//
// Recency is a counter: a touched path is numbered from its leaf up, so a node is never newer than
// its parent.
//
// Every change asks for its memory before it begins, and for what its undoing will take: what is
// `noexcept` here needs none.
class Tree {
  public:
    // `new_policy` is to be one that makes orders by share where `shares` are set.
    Tree(uint32_t page_size, NewPolicy new_policy, uint64_t seed, Shares shares = Shares())
        : page_size(page_size), shares_(std::move(shares)), edges_(seed), cut_runs_(seed) {
        assert(page_size > 0);
        if (shares_.is_set()) {
            auto orders = std::make_unique<ShareOrders>(nodes_, shares_, spaces_, new_policy,
                                                        page_size, seed);
            by_share_ = orders.get();
            policy_ = std::move(orders);
        } else {
            policy_ = new_policy(nodes_, page_size, seed, nullptr);
        }
    }

    const uint32_t page_size;

    uint64_t evictable_size() const { return evictable_; }
    uint64_t protected_size() const { return protected_; }
    const Shares& shares() const { return shares_; }
    const SpaceSize& size_of(NodeId root) const { return spaces_[nodes_[root].space]; }
    uint64_t room_for(ShareId whom) const { return shares_.room_for(whom, evictable_); }
    uint64_t num_nodes() const { return edges_.size(); }
    uint64_t ticks() const { return ticks_; }
    uint64_t runs() const { return runs_; }
    Policy& policy() { return *policy_; }
    const Policy& policy() const { return *policy_; }
    const Node& node(NodeId id) const { return nodes_[id]; }
    bool is_alive(NodeId id, uint32_t generation) const { return nodes_.is_alive(id, generation); }
    Place place(NodeId id, uint32_t length) const {
        assert(id == NONE ? !length : nodes_[id].start < length && length <= nodes_[id].end());
        return {id, nodes_[id].generation, length, nodes_[id].run};
    }

    // `hash`: where the hashes of its prefixes begin, for policies that read prefixes.
    NodeId add_root(PrefixHash hash = 0, ShareId share = 0);
    void remove_root(NodeId root) noexcept {
        assert(nodes_[root].parent == NONE && nodes_[root].is_leaf());
        spaces_.remove(nodes_[root].space);
        nodes_.remove(root);
    }

    // ---- looking ----

    // Tokens cached of `key`, in whole pages. Calls visit(node) for each node matched whole.
    //
    // `from` is a root, or the node at which a beginning of the key ends: that is not looked at.
    template <class Key, class Visit>
    Descent descend(NodeId from, const Key& key, const Visit& visit) const;

    // The same; `path` then has the nodes matched whole, from the root on.
    template <class Key>
    Descent descend(NodeId from, const Key& key, Path& path) const;

    NodeId root_of(NodeId node) const;

    // The nodes from below the root down to `node`.
    void find_path(NodeId node, Path& path) const;

    // The slots of the tokens `from` to `to` on a path; the last of them may be in `partial`.
    template <class Int>
    void copy_slots(const Path& path, NodeId partial, uint32_t from, uint32_t to, Int* out) const;

    // A path becomes the newest there is.
    void touch(const Path& path) noexcept;

    // ---- locks ----

    // The node that holds the place's last token, or NONE; false if its tokens were evicted.
    bool resolve(const Place& place, NodeId& node) const;

    // A head of its own for the place where it ends inside `node`; `place` then names the head.
    NodeId split_for_lock(NodeId node, Place& place);

    void lock(NodeId node);
    void unlock(NodeId node) noexcept;

    // ---- changing ----

    // After a descent to `path`: the memory to `extend` it by the tokens of `run`, and to lock all
    // of it then. Nothing changes.
    Growth prepare(Path& path, const Descent& found, TokenRun run);

    // With nothing changed since `prepare`: cuts the node matched in part, hangs a leaf under it
    // (if there are tokens for one), and touches the path, which then has the nodes of the whole
    // key. Returns the leaf.
    NodeId extend(Path& path, Growth&& growth, NodeId root, int64_t priority, bool is_hit) noexcept;

    // Frees `count` tokens (whole pages, at most `room_for` whom they are) and writes their slots.
    // Calls on_trim(Trim) before tokens go and on_empty(root) when a root lost its last child;
    // neither may throw.
    template <class OnTrim, class OnEmpty>
    void evict(uint64_t count, int32_t* out, const OnTrim& on_trim, const OnEmpty& on_empty,
               Claim claim = {}) noexcept;

    // What is below a node and under no lock, children before their parents.
    void unlocked_below(NodeId node, std::vector<NodeId>& out) const;

    // Frees the tokens of a leaf under no lock from `keep` on, as `evict` does; returns where in
    // `out` the next slots go.
    template <class OnTrim, class OnEmpty>
    int32_t* drop_tail(NodeId leaf, uint32_t keep, int32_t* out, const OnTrim& on_trim,
                       const OnEmpty& on_empty) noexcept;

    void clear() noexcept;

    // ---- walking, pickling, checking ----

    // All nodes under `root`, depth first, children in the order they came.
    void walk(NodeId root, std::vector<NodeId>& out) const;

    // Where each resident run ends now. Cost: O(nodes), whatever they hold.
    std::vector<Place> run_ends() const;

    // The nodes that a run has now, by where it ended before, from its first token on; none: it is
    // gone.
    void run_path(const Place& end, Path& path) const;

    // A node as `walk` showed it, under a parent that was restored before it; with `run` for its
    // own.
    NodeId restore(NodeId parent, const Node& like, TokenRun run);

    // After all nodes: the order of eviction and the counters. What the policy learnt comes before.
    void restore_order(uint64_t ticks, uint64_t runs);

    // From now until `unwatch`, or until the tree is cleared.
    void watch(NodeWatcher& watcher) const { watchers_.push_back(&watcher); }
    void unwatch(NodeWatcher& watcher) const noexcept { std::erase(watchers_, &watcher); }

    friend class TreeCheck;

  private:
    template <class Key, class IsIt>
    NodeId find_child(NodeId parent, const Key& key, uint32_t at, const IsIt& is_it) const;
    template <class Key>
    NodeId child(NodeId parent, const Key& key, uint32_t at) const;
    template <class Key>
    NodeId ask_for_child(NodeId parent, const Key& key, uint32_t at) const;

    uint32_t edge_hash(NodeId parent, const int32_t* tokens) const;
    uint32_t run_hash(uint64_t run) const;
    NodeId cut_end(uint64_t run) const;
    void reserve(NodeId fresh, size_t used);
    void tell_leaves(NodeId node, uint32_t keep) noexcept {
        for (NodeWatcher* watcher : watchers_) watcher->leaves(node, keep);
    }
    void tell_enters(NodeId node, uint32_t known) noexcept {
        for (NodeWatcher* watcher : watchers_) watcher->enters(node, known);
    }
    void add_lock(NodeId node, int step) noexcept;
    void count_in(const Node& node) noexcept;
    void add_child(NodeId parent, NodeId child) noexcept;
    void remove_child(NodeId parent, NodeId child) noexcept;
    void replace_child(NodeId parent, NodeId child, NodeId by) noexcept;
    NodeId split(NodeId node, TokenRun&& head, TokenRun&& tail) noexcept;
    NodeId add_leaf(NodeId parent, TokenRun&& run, int64_t priority) noexcept;
    void touch(NodeId node) noexcept;
    NodeId remove_leaf(NodeId leaf) noexcept;
    NodeId victim(const Claim& claim, uint64_t& most);
    void note_end_of_run(NodeId leaf) noexcept;
    bool is_path(const Path& path) const;

    Shares shares_;
    SpaceSizes spaces_;
    Arena nodes_;
    EdgeTable edges_;
    std::unique_ptr<Policy> policy_;
    ShareOrders* by_share_ = nullptr;  // what `policy_` is where shares are set
    uint64_t evictable_ = 0, protected_ = 0;
    uint64_t ticks_ = 0, runs_ = 0;
    size_t num_locked_ = 0;  // nodes
    size_t num_tails_ = 0;   // nodes with more of their run above them
    // The last node of each run that was split and then lost what came after that node, by the run.
    // There is room for as many more as there are tails.
    EdgeTable cut_runs_;
    mutable std::vector<NodeWatcher*> watchers_;  // no part of the tree
};

template <class Key, class IsIt>
NodeId Tree::find_child(NodeId parent, const Key& key, uint32_t at, const IsIt& is_it) const {
    // An only child needs no look-up: most nodes of a long chat have one.
    NodeId first = nodes_[parent].first_child;
    if (first == NONE) return NONE;
    if (nodes_[first].next_sibling == NONE) return is_it(nodes_[first]) ? first : NONE;
    uint32_t hash = edges_.hash(parent, [&](uint32_t i) { return key.at(at + i); }, page_size);
    return edges_.find(hash,
                       [&](NodeId id) { return nodes_[id].parent == parent && is_it(nodes_[id]); });
}

template <class Key>
NodeId Tree::child(NodeId parent, const Key& key, uint32_t at) const {
    return find_child(parent, key, at, [&](const Node& node) {
        return key.common(at, node.tokens(), page_size) == page_size;
    });
}

// The likely child, prefetched: it is compared only after all that comes before it.
template <class Key>
NodeId Tree::ask_for_child(NodeId parent, const Key& key, uint32_t at) const {
    if (key.size - at < page_size) return NONE;
    NodeId id = find_child(parent, key, at, [](const Node&) { return true; });
    if (id == NONE) return NONE;
    const Node& node = nodes_[id];
    node.ask_for_all();
    ask_for(&nodes_[node.first_child], 1);
    return id;
}

template <class Key, class Visit>
Descent Tree::descend(NodeId from, const Key& key, const Visit& visit) const {
    uint32_t at = nodes_[from].end();
    assert(at <= key.size);
    NodeId parent = from, id = ask_for_child(from, key, at);
    while (id != NONE) {
        const Node* node = &nodes_[id];
        uint32_t most = std::min(node->length, key.size - at);
        NodeId next = ask_for_child(id, key, at + most);
        uint32_t same = key.common(at, node->tokens(), most);
        if (same < page_size) {  // another child with the same hash may be the one
            NodeId other = child(parent, key, at);
            if (other == NONE) break;
            id = other;
            node = &nodes_[id];
            most = std::min(node->length, key.size - at);
            next = ask_for_child(id, key, at + most);
            same = key.common(at, node->tokens(), most);
        }
        if (same < node->length) return {id, at + same - same % page_size};
        visit(id);
        assert(nodes_[id].parent == parent && nodes_[id].start == at && same % page_size == 0);
        at += same;
        parent = id;
        id = next;
    }
    return {NONE, at};
}

template <class Key>
Descent Tree::descend(NodeId from, const Key& key, Path& path) const {
    find_path(from, path);
    return descend(from, key, [&](NodeId id) { path.push_back(id); });
}

// What to evict next, and how many of its tokens at most.
inline NodeId Tree::victim(const Claim& claim, uint64_t& most) {
    return by_share_ ? by_share_->victim(claim, most) : policy_->victim();
}

template <class Int>
void Tree::copy_slots(const Path& path, NodeId partial, uint32_t from, uint32_t to,
                      Int* out) const {
    assert(from <= to);
    auto copy = [&](const Node& node) {
        uint32_t end = std::min(node.end(), to);
        if (end <= from) return;
        node.copy_slots(from - node.start, end - from, out);
        out += end - from;
        from = end;
    };
    for (NodeId id : path) copy(nodes_[id]);
    if (partial != NONE) copy(nodes_[partial]);
    assert(from == to);
}

template <class OnTrim, class OnEmpty>
void Tree::evict(uint64_t count, int32_t* out, const OnTrim& on_trim, const OnEmpty& on_empty,
                 Claim claim) noexcept {
    assert(count % page_size == 0 && count <= room_for(claim.share) && claim.own <= count);
    policy_->begin_eviction(evictable_ + protected_, count);
    while (count > 0) {
        uint64_t most = count;
        NodeId victim = this->victim(claim, most);
        assert(victim != NONE);
        uint32_t length = nodes_[victim].length;
        uint32_t going = static_cast<uint32_t>(std::min<uint64_t>({count, most, length}));
        out = drop_tail(victim, length - going, out, on_trim, on_empty);
        count -= going;
        claim.own -= std::min<uint64_t>(claim.own, going);
    }
    assert(count == 0);
    policy_->end_eviction(evictable_ + protected_);
}

template <class OnTrim, class OnEmpty>
int32_t* Tree::drop_tail(NodeId leaf, uint32_t keep, int32_t* out, const OnTrim& on_trim,
                         const OnEmpty& on_empty) noexcept {
    Node& node = nodes_[leaf];
    assert(node.is_leaf() && !node.lock_ref && keep < node.length);
    uint32_t going = node.length - keep;
    tell_leaves(leaf, keep);
    on_trim(Trim{node, keep});
    policy_->trim(leaf, keep);
    node.copy_slots(keep, going, out);
    evictable_ -= going;
    spaces_[node.space].evictable -= going;
    shares_.evict(spaces_[node.space].share, going);
    if (keep > 0) {
        node.shorten(keep);
        policy_->resized(leaf);
        tell_enters(leaf, keep);
    } else if (NodeId empty_root = remove_leaf(leaf)) {
        on_empty(empty_root);
    }
    return out + going;
}

}  // namespace radixkv
