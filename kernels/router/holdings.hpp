// Which holder has which prefixes: one radix tree over the union of what all holders hold. No
// Python in here; `radixkv/router/holdings.py` is the contract, `python_holdings.py` the same in
// Python.
#pragma once

#include <cassert>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>

#include "branches.hpp"
#include "holder_sets.hpp"
#include "pool.hpp"
#include "tree/edge_table.hpp"
#include "tree/keys.hpp"

namespace radixkv {

using RunId = uint32_t;

// Tokens that some holders hold, `start` tokens below the root; a root has no parent and no tokens.
//
// `Holdings::full_` has a bit for each holder of all of it, and so of all above it. Of the holders
// of a beginning, `partial` lists the run that ends where that ends; `ends` lists all other runs
// that end inside or at the end.
struct UnionNode {
    int32_t* tokens = nullptr;
    uint32_t length = 0;
    uint32_t capacity = 0;
    uint32_t start = 0;
    NodeId parent = NONE;
    uint32_t children = 0;
    NodeId child_xor = NONE;  // all children's numbers: of an only child, its own
    RunId partial = NONE;
    RunId ends = NONE;
    bool is_root = false;

    uint32_t end() const { return start + length; }
};

// A run of one holder, found by the node that holds its last token. Number 0 stands for a holder's
// roots: what starts there has it as its parent.
struct HeldRun {
    uint64_t number = 0;
    uint32_t holder = 0;
    RunId parent = NONE;
    uint32_t offset = 0;  // tokens of the parent run before this one
    uint32_t start = 0;   // tokens of the path before it
    uint32_t length = 0;
    NodeId node = NONE;
    RunId prev_end = NONE, next_end = NONE;  // in its node's `partial` or `ends`
    RunId first_child = NONE, prev_sibling = NONE, next_sibling = NONE;
    uint32_t most_offset = 0;           // at least the largest `offset` of its children
    uint32_t private_from = INT32_MAX;  // what follows is its holder's alone: it names content
    int32_t content = 0;                // the code there, which the tree has under another number
    bool is_partial = false;

    uint32_t end() const { return start + length; }
};

// A pool gives out fresh records by assignment; tokens are freed by what removes their node.
static_assert(std::is_trivially_copyable_v<UnionNode> && std::is_trivially_copyable_v<HeldRun>);

struct FreeTokens {
    void operator()(int32_t* tokens) const { std::free(tokens); }
};
using TokenBlock = std::unique_ptr<int32_t, FreeTokens>;
TokenBlock copy_tokens(const int32_t* tokens, uint32_t length);

// A call happens whole or, where memory runs out, throws std::bad_alloc and changes nothing that
// can be seen.
class Holdings {
  public:
    explicit Holdings(uint64_t seed) : edges_(seed), numbers_(seed * 3) {}
    ~Holdings();
    Holdings(const Holdings&) = delete;
    Holdings& operator=(const Holdings&) = delete;

    // ---- holders and roots; unknown ones throw std::out_of_range ----

    uint32_t add_holder(uint32_t page_size);
    void remove_holder(uint32_t holder);
    NodeId add_root();
    void remove_root(NodeId root);
    bool is_empty_root(NodeId root) const { return checked_root(root).children == 0; }
    uint32_t num_holders() const { return static_cast<uint32_t>(holders_.size()); }

    // ---- changing; false, and nothing changed, where it cannot be true ----

    bool store(uint32_t holder, uint64_t number, uint64_t parent_number, uint32_t parent_offset,
               Int32Key codes, NodeId root);
    bool trim(uint32_t holder, uint64_t number, uint32_t keep);
    void clear(uint32_t holder);

    // ---- looking ----

    // Writes how much of `key` each holder holds; `out` has `num_holders` items, all 0. Returns how
    // much anyone holds.
    template <class Key>
    uint32_t lengths(const Key& key, NodeId root, int32_t* out) const;

    // Calls visit(run) for each run of a holder, parents first.
    template <class Visit>
    void each_run(uint32_t holder, const Visit& visit) const;

    const HeldRun& run(RunId id) const { return runs_[id]; }
    NodeId root_of(const HeldRun& run) const;
    void copy_codes(const HeldRun& run, int32_t* out) const;

    uint64_t num_tokens(uint32_t holder) const { return checked(holder).tokens; }
    uint64_t num_nodes() const { return num_nodes_; }
    uint64_t total_size() const { return total_size_; }
    uint64_t num_bytes() const;
    bool has_content() const { return has_content_; }
    std::vector<std::string> check() const;

  private:
    struct Holder {
        RunId top = NONE;  // NONE: the number is unused
        uint32_t page_size = 1;
        uint64_t tokens = 0;
    };
    struct Found {
        NodeId node;     // where the codes end, or part from what is there
        uint32_t count;  // codes that are there
    };

    const Holder& checked(uint32_t holder) const;
    const UnionNode& checked_root(NodeId root) const;

    uint32_t run_hash(uint32_t holder, uint64_t number) const;
    RunId find_run(uint32_t holder, uint64_t number) const;
    RunId add_run(RunId parent, uint64_t number, uint32_t offset, uint32_t length);
    void remove_run(RunId id);
    bool continues_beyond(RunId id, uint32_t keep);

    template <class Key>
    NodeId find_child(NodeId parent, const Key& key, uint32_t at) const;
    uint32_t edge_hash(NodeId parent, int32_t token) const;
    NodeId ancestor(NodeId node, uint32_t depth) const;
    uint32_t held_end(NodeId node, uint32_t holder) const;
    uint32_t held_length(NodeId node, uint32_t depth, uint32_t holder, const Int32Key& codes) const;
    Int32Key hide_content(const HeldRun& parent, uint32_t offset, Int32Key codes, HeldRun& run);
    Found descend(NodeId node, uint32_t depth, const Int32Key& codes) const;
    NodeId hang(Found found, uint32_t depth, const Int32Key& codes, uint32_t holder);
    void hold_path(RunId id) noexcept;

    NodeId new_node();
    void reserve_nodes();
    NodeId add_leaf(NodeId parent, TokenBlock tokens, uint32_t count) noexcept;
    void append(NodeId leaf, const int32_t* tokens, uint32_t count);
    void add_child(NodeId parent, NodeId child);
    void remove_node(NodeId node);
    NodeId split(NodeId node, uint32_t at);
    void merge(NodeId node) noexcept;
    void shorten(NodeId node) noexcept;
    void settle(NodeId node) noexcept;
    NodeId give_up(NodeId node, uint32_t holder) noexcept;
    void cut(RunId id, uint32_t keep) noexcept;

    void link_end(NodeId node, RunId id, bool is_partial);
    void unlink_end(RunId id);
    void add_last(NodeId node, RunId id);
    void take_ends(NodeId node, NodeId from);

    void check_branches(std::vector<std::string>& wrong) const;
    void check_node(NodeId id, std::vector<std::string>& wrong) const;

    Pool<UnionNode> nodes_;
    Pool<HeldRun> runs_;
    HolderSets full_;
    Branches branches_;
    EdgeTable edges_;    // children by their first token
    EdgeTable numbers_;  // runs by holder and number
    std::vector<Holder> holders_;
    uint64_t num_nodes_ = 0, total_size_ = 0;
    int32_t next_content_ = -1;
    bool has_content_ = false;  // negative codes, now or once
    bool is_joined_ = true;     // whether there was memory for every `merge`
    std::vector<int32_t> hidden_;
    mutable std::vector<HolderSets::Word> seen_;
};

template <class Key>
NodeId Holdings::find_child(NodeId parent, const Key& key, uint32_t at) const {
    const UnionNode& above = nodes_[parent];
    if (above.children == 0) return NONE;
    if (above.children == 1) {
        return nodes_[above.child_xor].tokens[0] == key.at(at) ? above.child_xor : NONE;
    }
    return edges_.find(edge_hash(parent, key.at(at)), [&](NodeId id) {
        return nodes_[id].parent == parent && nodes_[id].tokens[0] == key.at(at);
    });
}

template <class Key>
uint32_t Holdings::lengths(const Key& key, NodeId root, int32_t* out) const {
    checked_root(root);
    uint32_t at = 0;
    NodeId id = root;
    while (at == nodes_[id].end() && at < key.size) {
        NodeId child = find_child(id, key, at);
        if (child == NONE) break;
        id = child;
        const UnionNode& node = nodes_[id];
        at += key.common(at, node.tokens, std::min(node.length, key.size - at));
    }
    seen_.assign(full_.width(), 0);
    for (; !nodes_[id].is_root; id = nodes_[id].parent) {
        const UnionNode& node = nodes_[id];
        auto most = static_cast<int32_t>(std::min(node.end(), at));
        for (size_t i = 0; i < seen_.size(); ++i) {
            HolderSets::Word full = full_[id][i];
            each_holder(full & ~seen_[i], 64 * i, [&](uint32_t holder) { out[holder] = most; });
            seen_[i] |= full;
        }
        for (RunId end = node.partial; end != NONE; end = runs_[end].next_end) {
            const HeldRun& last = runs_[end];
            out[last.holder] = static_cast<int32_t>(std::min(last.end(), at));
            seen_[last.holder / 64] |= HolderSets::bit(last.holder);
        }
    }
    return at;
}

template <class Visit>
void Holdings::each_run(uint32_t holder, const Visit& visit) const {
    RunId top = checked(holder).top, id = runs_[top].first_child;
    while (id != NONE && id != top) {
        visit(runs_[id]);
        if (runs_[id].first_child != NONE) {
            id = runs_[id].first_child;
            continue;
        }
        while (id != top && runs_[id].next_sibling == NONE) id = runs_[id].parent;
        if (id != top) id = runs_[id].next_sibling;
    }
}

}  // namespace radixkv
