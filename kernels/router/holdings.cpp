#include "holdings.hpp"

#include <stdexcept>

namespace radixkv {

Holdings::~Holdings() {
    for (NodeId id = 1; id < nodes_.bound(); ++id) std::free(nodes_[id].tokens);
}

uint64_t Holdings::num_bytes() const {
    uint64_t bytes = nodes_.num_bytes() + runs_.num_bytes() + full_.num_bytes();
    bytes += edges_.num_bytes() + numbers_.num_bytes() + branches_.num_bytes();
    bytes += holders_.capacity() * sizeof(Holder);
    for (NodeId id = 1; id < nodes_.bound(); ++id) bytes += uint64_t{4} * nodes_[id].capacity;
    return bytes;
}

// ---- holders and roots ----

const Holdings::Holder& Holdings::checked(uint32_t holder) const {
    if (holder >= holders_.size() || holders_[holder].top == NONE) {
        throw std::out_of_range("holder " + std::to_string(holder) + " is not there");
    }
    return holders_[holder];
}

const UnionNode& Holdings::checked_root(NodeId root) const {
    if (root == NONE || root >= nodes_.bound() || !nodes_[root].is_root) {
        throw std::out_of_range("root " + std::to_string(root) + " is not there");
    }
    return nodes_[root];
}

uint32_t Holdings::add_holder(uint32_t page_size) {
    assert(page_size > 0);
    auto unused = std::find_if(holders_.begin(), holders_.end(),
                               [](const Holder& holder) { return holder.top == NONE; });
    auto number = static_cast<uint32_t>(unused - holders_.begin());
    full_.reserve(nodes_.bound(), number + 1);
    runs_.reserve(1);
    if (unused == holders_.end()) holders_.emplace_back();
    RunId top = runs_.add();
    runs_[top].holder = number;
    holders_[number] = {top, page_size, 0};
    return number;
}

void Holdings::remove_holder(uint32_t holder) {
    clear(holder);
    runs_.remove(holders_[holder].top);
    holders_[holder] = {};
    while (!holders_.empty() && holders_.back().top == NONE) holders_.pop_back();
    full_.shrink(holders_.size());
}

NodeId Holdings::add_root() {
    NodeId root = new_node();
    nodes_[root].is_root = true;
    return root;
}

void Holdings::remove_root(NodeId root) {
    if (!is_empty_root(root)) {
        throw std::out_of_range("root " + std::to_string(root) + " is not empty");
    }
    nodes_.remove(root);
}

// ---- runs ----

uint32_t Holdings::run_hash(uint32_t holder, uint64_t number) const {
    auto half = [&](uint32_t i) { return static_cast<uint32_t>(number >> (32 * i)); };
    return numbers_.hash(holder, half, 2);
}

RunId Holdings::find_run(uint32_t holder, uint64_t number) const {
    if (number == 0) return checked(holder).top;
    return numbers_.find(run_hash(holder, number), [&](RunId id) {
        return runs_[id].number == number && runs_[id].holder == holder;
    });
}

RunId Holdings::add_run(RunId parent, uint64_t number, uint32_t offset, uint32_t length) {
    RunId id = runs_.add();
    HeldRun &run = runs_[id], &above = runs_[parent];
    run.number = number;
    run.holder = above.holder;
    run.parent = parent;
    run.offset = offset;
    run.start = above.start + offset;
    run.length = length;
    run.next_sibling = above.first_child;
    if (above.first_child != NONE) runs_[above.first_child].prev_sibling = id;
    above.first_child = id;
    above.most_offset = std::max(above.most_offset, offset);
    numbers_.add(run_hash(run.holder, number), id);
    holders_[run.holder].tokens += length;
    return id;
}

void Holdings::remove_run(RunId id) {
    HeldRun& run = runs_[id];
    assert(run.number != 0 && run.first_child == NONE);
    numbers_.remove(run_hash(run.holder, run.number), id);
    if (run.prev_sibling != NONE) {
        runs_[run.prev_sibling].next_sibling = run.next_sibling;
    } else {
        runs_[run.parent].first_child = run.next_sibling;
    }
    if (run.next_sibling != NONE) runs_[run.next_sibling].prev_sibling = run.prev_sibling;
    runs_.remove(id);
}

// Whether a child of the run continues it beyond its first `keep` tokens.
bool Holdings::continues_beyond(RunId id, uint32_t keep) {
    HeldRun& run = runs_[id];
    if (run.most_offset <= keep) return false;
    run.most_offset = 0;
    for (RunId child = run.first_child; child != NONE; child = runs_[child].next_sibling) {
        run.most_offset = std::max(run.most_offset, runs_[child].offset);
    }
    return run.most_offset > keep;
}

// ---- storing ----

// The node, at or above `id`, that holds the last of the path's first `depth` tokens.
NodeId Holdings::ancestor(NodeId id, uint32_t depth) const {
    while (nodes_[id].start >= depth) id = nodes_[id].parent;
    assert(depth <= nodes_[id].end());
    return id;
}

// Where what the holder has of the node ends; its start: the holder has nothing of it.
uint32_t Holdings::held_end(NodeId id, uint32_t holder) const {
    if (full_.has(id, holder)) return nodes_[id].end();
    RunId end = nodes_[id].partial;
    while (end != NONE && runs_[end].holder != holder) end = runs_[end].next_end;
    return end == NONE ? nodes_[id].start : runs_[end].end();
}

// How many of `codes`, behind the `depth` tokens that end in the node, the holder has already.
uint32_t Holdings::held_length(NodeId id, uint32_t depth, uint32_t holder,
                               const Int32Key& codes) const {
    uint32_t at = 0;
    while (at < codes.size) {
        if (depth + at == nodes_[id].end()) {
            NodeId child = find_child(id, codes, at);
            if (child == NONE) break;
            id = child;
        }
        const UnionNode& node = nodes_[id];
        uint32_t from = depth + at, end = std::max(held_end(id, holder), from);
        at += codes.common(at, node.tokens + (from - node.start),
                           std::min(end - from, codes.size - at));
        if (depth + at < node.end()) break;
    }
    return at;
}

bool Holdings::store(uint32_t holder, uint64_t number, uint64_t parent_number,
                     uint32_t parent_offset, Int32Key codes, NodeId root) {
    uint32_t page = checked(holder).page_size;
    checked_root(root);
    RunId parent = find_run(holder, parent_number);
    if (parent == NONE || number == 0 || !codes.size || codes.size % page) return false;
    if (find_run(holder, number) != NONE) return false;
    if (parent_number == 0) parent_offset = 0;
    const HeldRun& above = runs_[parent];
    if (parent_offset % page) return false;
    if (parent_number != 0 && (parent_offset == 0 || parent_offset > above.length)) return false;
    uint32_t depth = above.start + parent_offset;
    if (codes.size > INT32_MAX - depth) return false;
    HeldRun how;
    codes = hide_content(above, parent_offset, codes, how);
    NodeId top = parent_number ? ancestor(above.node, depth) : root;
    uint32_t shared = held_length(top, depth, holder, {codes.ids, page, true});
    if (shared == page) return false;

    runs_.reserve(1);
    numbers_.reserve(1);
    reserve_nodes();
    if (shared) branches_.reserve();
    NodeId node = hang(descend(top, depth, codes), depth, codes, holder);
    RunId id = add_run(parent, number, parent_offset, codes.size);
    runs_[id].private_from = how.private_from;
    runs_[id].content = how.content;
    if (runs_[parent].is_partial && runs_[parent].end() == depth) {
        NodeId at = runs_[parent].node;
        unlink_end(parent);
        link_end(at, parent, false);
    }
    add_last(node, id);
    if (shared) branches_.add(holder, ancestor(node, depth + shared));
    hold_path(id);
    assert(nodes_[runs_[id].node].start < runs_[id].end());
    assert(runs_[id].end() <= nodes_[runs_[id].node].end());
    return true;
}

Holdings::Found Holdings::descend(NodeId id, uint32_t depth, const Int32Key& codes) const {
    uint32_t at = 0;
    while (at < codes.size) {
        if (depth + at == nodes_[id].end()) {
            NodeId child = find_child(id, codes, at);
            if (child == NONE) break;
            id = child;
        }
        const UnionNode& node = nodes_[id];
        uint32_t from = depth + at - node.start;
        at += codes.common(at, node.tokens + from, std::min(node.length - from, codes.size - at));
        if (depth + at < node.end()) break;
    }
    return {id, at};
}

// The node in which the codes end, made where it was not there.
NodeId Holdings::hang(Found found, uint32_t depth, const Int32Key& codes, uint32_t holder) {
    assert(found.count <= codes.size && depth + found.count >= nodes_[found.node].start);
    uint32_t rest = codes.size - found.count;
    if (!rest) return found.node;
    NodeId parent = found.node;
    uint32_t inside = depth + found.count - nodes_[parent].start;
    bool is_inside = inside < nodes_[parent].length;
    if (!is_inside && !nodes_[parent].children && full_.is_only(parent, holder)) {
        // What it alone holds grows: a node of its own would be joined with that one again.
        append(parent, codes.ids + found.count, rest);
        return parent;
    }
    TokenBlock tokens = copy_tokens(codes.ids + found.count, rest);
    if (is_inside) parent = split(parent, inside);
    return add_leaf(parent, std::move(tokens), rest);
}

// The run's holder holds what it passes, which may be alike with what is above now.
void Holdings::hold_path(RunId run) noexcept {
    NodeId last = runs_[run].node;
    uint32_t holder = runs_[run].holder, start = runs_[run].start;
    for (NodeId id = nodes_[last].parent; nodes_[id].end() > start; id = nodes_[id].parent) {
        full_.add(id, holder);
    }
    for (NodeId id = last; !nodes_[id].is_root && nodes_[id].end() >= start;) {
        NodeId above = nodes_[id].parent;
        merge(above);
        if (nodes_[id].parent == above) id = above;
    }
}

// ---- trimming ----

// After a holder gave up some of the node: drops what no holder has, joins what became alike.
void Holdings::settle(NodeId id) noexcept {
    if (full_.is_empty(id)) {
        shorten(id);
        merge(nodes_[id].parent);
    } else {
        merge(id);
    }
}

// `holder` holds nothing of the node any more; the node above it.
NodeId Holdings::give_up(NodeId id, uint32_t holder) noexcept {
    NodeId parent = nodes_[id].parent;
    full_.remove(id, holder);
    if (full_.is_empty(id) && nodes_[id].partial == NONE) {
        remove_node(id);
    } else {
        settle(id);
    }
    return parent;
}

void Holdings::cut(RunId id, uint32_t keep) noexcept {
    HeldRun& run = runs_[id];
    assert(run.number != 0 && keep < run.length);
    assert(run.length - keep <= holders_[run.holder].tokens);
    uint32_t goal = run.start + keep, holder = run.holder;
    NodeId node = run.node;
    RunId last = keep ? id : run.parent;
    unlink_end(id);
    holders_[holder].tokens -= run.length - keep;
    run.length = keep;
    bool goes_on = false;  // with a run that shares the beginning of a page
    while (nodes_[node].end() > goal && !(goes_on = branches_.leave(holder, node))) {
        if (nodes_[node].start < goal || nodes_[node].is_root) break;
        node = give_up(node, holder);
    }
    if (!keep) remove_run(id);
    if (goes_on) {
        if (keep) link_end(ancestor(node, goal), id, false);
        merge(node);
    } else if (goal < nodes_[node].end()) {
        // What is left ends inside: with this run, or with the one that it continued.
        if (!keep) unlink_end(last);
        add_last(node, last);
        settle(node);
    } else {
        if (keep) add_last(node, id);
        merge(node);
    }
}

bool Holdings::trim(uint32_t holder, uint64_t number, uint32_t keep) {
    checked(holder);
    RunId id = number ? find_run(holder, number) : NONE;
    if (id == NONE || keep > runs_[id].length || keep % checked(holder).page_size) return false;
    if (continues_beyond(id, keep)) return false;
    if (keep < runs_[id].length) cut(id, keep);
    return true;
}

void Holdings::clear(uint32_t holder) {
    RunId top = checked(holder).top, id = top;
    while (true) {
        while (runs_[id].first_child != NONE) id = runs_[id].first_child;
        if (id == top) break;
        RunId parent = runs_[id].parent;
        cut(id, 0);
        id = parent;
    }
    assert(holders_[holder].tokens == 0);
}

}  // namespace radixkv
