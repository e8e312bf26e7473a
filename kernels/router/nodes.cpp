// The union tree's nodes and the ends of runs in them: split, join, shorten; the codes of runs.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "holdings.hpp"

namespace radixkv {

// ---- ends of runs ----

void Holdings::link_end(NodeId node, RunId id, bool is_partial) {
    HeldRun& run = runs_[id];
    RunId& first = is_partial ? nodes_[node].partial : nodes_[node].ends;
    run.node = node;
    run.is_partial = is_partial;
    run.prev_end = NONE;
    run.next_end = first;
    if (first != NONE) runs_[first].prev_end = id;
    first = id;
}

void Holdings::unlink_end(RunId id) {
    HeldRun& run = runs_[id];
    UnionNode& node = nodes_[run.node];
    assert(run.prev_end != NONE || (run.is_partial ? node.partial : node.ends) == id);
    if (run.prev_end != NONE) {
        runs_[run.prev_end].next_end = run.next_end;
    } else {
        (run.is_partial ? node.partial : node.ends) = run.next_end;
    }
    if (run.next_end != NONE) runs_[run.next_end].prev_end = run.prev_end;
}

// The run is the last of its holder here: what that holds ends where the run ends.
void Holdings::add_last(NodeId node, RunId id) {
    const HeldRun& run = runs_[id];
    assert(nodes_[node].start < run.end() && run.end() <= nodes_[node].end());
    bool is_whole = run.end() == nodes_[node].end();
    if (is_whole) {
        full_.add(node, run.holder);
    } else {
        full_.remove(node, run.holder);
    }
    link_end(node, id, !is_whole);
}

// The ends in `from` up to the end of `node` become those of `node`.
void Holdings::take_ends(NodeId node, NodeId from) {
    uint32_t most = nodes_[node].end();
    for (RunId id = nodes_[from].ends, next; id != NONE; id = next) {
        next = runs_[id].next_end;
        if (runs_[id].end() > most) continue;
        unlink_end(id);
        link_end(node, id, false);
    }
    for (RunId id = nodes_[from].partial, next; id != NONE; id = next) {
        next = runs_[id].next_end;
        if (runs_[id].end() > most) continue;
        unlink_end(id);
        add_last(node, id);
    }
}

// ---- nodes ----

uint32_t Holdings::edge_hash(NodeId parent, int32_t token) const {
    return edges_.hash(parent, [&](uint32_t) { return token; }, 1);
}

NodeId Holdings::new_node() {
    nodes_.reserve(1);
    full_.reserve(nodes_.bound() + 1, holders_.size());
    NodeId id = nodes_.add();
    full_.clear(id);
    return id;
}

void Holdings::add_child(NodeId parent, NodeId child) {
    nodes_[child].parent = parent;
    nodes_[parent].children += 1;
    nodes_[parent].child_xor ^= child;
    edges_.add(edge_hash(parent, nodes_[child].tokens[0]), child);
}

void Holdings::remove_node(NodeId id) {
    UnionNode& node = nodes_[id];
    assert(!node.is_root && !node.children && node.partial == NONE && node.ends == NONE);
    nodes_[node.parent].children -= 1;
    nodes_[node.parent].child_xor ^= id;
    edges_.remove(edge_hash(node.parent, node.tokens[0]), id);
    total_size_ -= node.length;
    num_nodes_ -= 1;
    std::free(node.tokens);
    nodes_.remove(id);
}

namespace {

// Null where there is no memory.
TokenBlock new_tokens(uint32_t length) {
    return TokenBlock(static_cast<int32_t*>(std::malloc(size_t{4} * length)));
}

void give_tokens(UnionNode& node, TokenBlock tokens, uint32_t length) {
    std::free(node.tokens);
    node.tokens = tokens.release();
    node.length = node.capacity = length;
}

}  // namespace

TokenBlock copy_tokens(const int32_t* tokens, uint32_t length) {
    TokenBlock block = new_tokens(length);
    if (!block) throw std::bad_alloc();
    std::memcpy(block.get(), tokens, size_t{4} * length);
    return block;
}

NodeId Holdings::add_leaf(NodeId parent, TokenBlock tokens, uint32_t count) noexcept {
    NodeId leaf = new_node();
    nodes_[leaf].start = nodes_[parent].end();
    give_tokens(nodes_[leaf], std::move(tokens), count);
    add_child(parent, leaf);
    num_nodes_ += 1;
    total_size_ += count;
    return leaf;
}

// Makes room in steps, so that a run that comes token by token is not copied each time.
void Holdings::append(NodeId leaf, const int32_t* tokens, uint32_t count) {
    UnionNode& node = nodes_[leaf];
    assert(!node.is_root && !node.children);
    uint32_t length = node.length + count;
    if (length > node.capacity) {
        uint32_t room = std::max(length, node.length + node.length / 4);
        void* larger = std::realloc(node.tokens, size_t{4} * room);
        if (!larger) throw std::bad_alloc();
        node.tokens = static_cast<int32_t*>(larger);
        node.capacity = room;
    }
    std::memcpy(node.tokens + node.length, tokens, size_t{4} * count);
    node.length = length;
    total_size_ += count;
}

// Makes sure that `hang` cannot fail half way: it may split a node and add a leaf.
void Holdings::reserve_nodes() {
    nodes_.reserve(2);
    full_.reserve(nodes_.bound() + 2, holders_.size());
    edges_.reserve(2);
}

// A head of its own for the first `at` tokens; the node keeps the rest and its identity. Fails
// before it changes anything.
NodeId Holdings::split(NodeId id, uint32_t at) {
    assert(0 < at && at < nodes_[id].length);
    uint32_t rest = nodes_[id].length - at;
    TokenBlock head_tokens = copy_tokens(nodes_[id].tokens, at);
    TokenBlock rest_tokens = copy_tokens(nodes_[id].tokens + at, rest);
    NodeId head_id = new_node();
    UnionNode &node = nodes_[id], &head = nodes_[head_id], &above = nodes_[node.parent];
    edges_.replace(edge_hash(node.parent, node.tokens[0]), id, head_id);
    above.child_xor ^= id ^ head_id;
    head.parent = node.parent;
    head.start = node.start;
    give_tokens(head, std::move(head_tokens), at);
    give_tokens(node, std::move(rest_tokens), rest);
    node.start += at;
    add_child(head_id, id);
    full_.copy(head_id, id);
    for (RunId end = node.partial; end != NONE; end = runs_[end].next_end) {
        if (runs_[end].end() >= head.end()) full_.add(head_id, runs_[end].holder);
    }
    take_ends(head_id, id);
    num_nodes_ += 1;
    assert(nodes_[id].parent == head_id && head.end() == node.start);
    return head_id;
}

// Joins a node with its only child where the same holders hold both whole. Without memory for it
// they stay apart, which costs a look-up a node.
void Holdings::merge(NodeId id) noexcept {
    UnionNode& node = nodes_[id];
    if (node.is_root || node.children != 1 || !full_.is_equal(id, node.child_xor)) return;
    NodeId child_id = node.child_xor;
    UnionNode& child = nodes_[child_id];
    TokenBlock both = new_tokens(node.length + child.length);
    is_joined_ &= both != nullptr;
    if (!both) return;
    std::memcpy(both.get(), node.tokens, size_t{4} * node.length);
    std::memcpy(both.get() + node.length, child.tokens, size_t{4} * child.length);
    edges_.remove(edge_hash(id, child.tokens[0]), child_id);
    edges_.replace(edge_hash(node.parent, node.tokens[0]), id, child_id);
    nodes_[node.parent].child_xor ^= id ^ child_id;
    child.parent = node.parent;
    child.start = node.start;
    give_tokens(child, std::move(both), node.length + child.length);
    take_ends(child_id, id);
    assert(node.partial == NONE && node.ends == NONE);
    std::free(node.tokens);
    nodes_.remove(id);
    num_nodes_ -= 1;
}

// Drops the tokens that no holder has any more; the holders of what is left hold it whole.
void Holdings::shorten(NodeId id) noexcept {
    UnionNode& node = nodes_[id];
    uint32_t end = 0;
    for (RunId run = node.partial; run != NONE; run = runs_[run].next_end) {
        end = std::max(end, runs_[run].end());
    }
    assert(node.start < end && end < node.end() && !node.children);
    total_size_ -= node.end() - end;
    node.length = end - node.start;
    if (node.length * 2 <= node.capacity) {
        void* smaller = std::realloc(node.tokens, size_t{4} * node.length);
        if (smaller) node.tokens = static_cast<int32_t*>(smaller);
        if (smaller) node.capacity = node.length;
    }
    for (RunId run = node.partial, next; run != NONE; run = next) {
        next = runs_[run].next_end;
        if (runs_[run].end() < end) continue;
        unlink_end(run);
        add_last(id, run);
    }
}

// ---- content ----

// The codes, the first of them that names content under a number that no other run has: the same
// number from another holder means something else. Below it nothing is shared either.
Int32Key Holdings::hide_content(const HeldRun& parent, uint32_t offset, Int32Key codes,
                                HeldRun& run) {
    if (parent.private_from < offset) {
        run.private_from = 0;
    } else if (has_negative(codes.ids, codes.size)) {
        has_content_ = true;
        hidden_.assign(codes.ids, codes.ids + codes.size);
        auto first =
            std::find_if(hidden_.begin(), hidden_.end(), [](int32_t id) { return id < 0; });
        run.private_from = static_cast<uint32_t>(first - hidden_.begin());
        run.content = *first;
        *first = next_content_;
        next_content_ = next_content_ > -INT32_MAX ? next_content_ - 1 : -1;
        codes.ids = hidden_.data();
    }
    return codes;
}

// ---- looking ----

NodeId Holdings::root_of(const HeldRun& run) const {
    NodeId id = run.node;
    while (!nodes_[id].is_root) id = nodes_[id].parent;
    return id;
}

void Holdings::copy_codes(const HeldRun& run, int32_t* out) const {
    uint32_t end = run.end();
    for (NodeId id = run.node; end > run.start; id = nodes_[id].parent) {
        const UnionNode& node = nodes_[id];
        uint32_t from = std::max(run.start, node.start);
        std::memcpy(out + (from - run.start), node.tokens + (from - node.start),
                    size_t{4} * (end - from));
        end = from;
    }
    if (run.content && run.private_from < run.length) out[run.private_from] = run.content;
}

}  // namespace radixkv
