#include "tree.hpp"

#include <algorithm>
#include <memory>

namespace radixkv {

NodeId Tree::add_root(PrefixHash hash, ShareId share) {
    NodeId root = nodes_.add();
    nodes_[root].share = share;
    policy_->init(root);
    policy_->reserve(nodes_.bound());
    policy_->add_root(root, hash);
    return root;
}

void Tree::clear() {
    nodes_.clear();
    edges_.clear();
    policy_->clear();
    cut_runs_.clear();
    shares_.clear();
    evictable_ = protected_ = 0;
    ticks_ = runs_ = 0;
}

// ---- looking ----

// Whether it goes down from below a root; for assertions.
bool Tree::is_path(const Path& path) const {
    NodeId above = path.empty() ? NONE : nodes_[path[0]].parent;
    for (NodeId id : path) {
        if (!nodes_[id].is_alive() || nodes_[id].parent != above) return false;
        above = id;
    }
    return path.empty() || nodes_[nodes_[path[0]].parent].parent == NONE;
}

NodeId Tree::root_of(NodeId id) const {
    while (nodes_[id].parent != NONE) id = nodes_[id].parent;
    return id;
}

void Tree::find_path(NodeId id, Path& path) const {
    path.clear();
    for (; nodes_[id].parent != NONE; id = nodes_[id].parent) path.push_back(id);
    std::reverse(path.begin(), path.end());
    assert(is_path(path));
}

void Tree::touch(NodeId id) {
    nodes_[id].recency = ++ticks_;
    policy_->touch(id);
}

void Tree::touch(const Path& path) {
    assert(is_path(path));
    for (size_t i = path.size(); i-- > 0;) touch(path[i]);
}

// ---- locks ----

bool Tree::resolve(const Place& place, NodeId& id) const {
    id = place.node;
    if (id == NONE) return true;
    if (!nodes_.is_alive(id, place.generation)) {
        auto cut = cut_runs_.find(place.run);
        if (cut == cut_runs_.end()) return false;
        id = cut->second;
    }
    if (nodes_[id].end() < place.length) return false;
    while (nodes_[id].start >= place.length) id = nodes_[id].parent;
    assert(nodes_[id].is_alive() && nodes_[id].start < place.length);
    return true;
}

NodeId Tree::split_for_lock(NodeId id, Place& place) {
    if (id != NONE && place.length < nodes_[id].end()) {
        id = split(id, place.length - nodes_[id].start);
        for (NodeId above = id; nodes_[above].parent != NONE; above = nodes_[above].parent)
            touch(above);
    }
    place = this->place(id, place.length);
    assert(id == NONE || nodes_[id].end() == place.length);
    return id;
}

void Tree::lock(NodeId id) { add_lock(id, 1); }

void Tree::unlock(NodeId id) { add_lock(id, -1); }

void Tree::add_lock(NodeId id, int step) {
    while (id != NONE && nodes_[id].parent != NONE) {
        Node& node = nodes_[id];
        bool was_free = node.lock_ref == 0;
        assert(step > 0 || !was_free);
        node.lock_ref += step;
        if (was_free || node.lock_ref == 0) {
            int64_t moved = was_free ? int64_t{node.length} : -int64_t{node.length};
            assert((was_free ? evictable_ : protected_) >= node.length);
            protected_ += moved;
            evictable_ -= moved;
            shares_.lock(node.share, moved);
            policy_->place(id);
        }
        id = node.parent;
    }
}

// ---- shape ----

uint32_t Tree::edge_hash(NodeId parent, const int32_t* tokens) const {
    return edges_.hash(parent, [&](uint32_t i) { return tokens[i]; }, page_size);
}

void Tree::add_child(NodeId parent, NodeId id) {
    Node &above = nodes_[parent], &child = nodes_[id];
    child.parent = parent;
    child.share = above.share;
    child.next_sibling = NONE;
    if (above.first_child == NONE) {
        above.first_child = child.prev_sibling = id;
    } else {
        Node& first = nodes_[above.first_child];
        child.prev_sibling = first.prev_sibling;
        nodes_[first.prev_sibling].next_sibling = id;
        first.prev_sibling = id;
    }
    edges_.add(edge_hash(parent, child.tokens()), id);
}

void Tree::remove_child(NodeId parent, NodeId id) {
    Node &above = nodes_[parent], &child = nodes_[id];
    edges_.remove(edge_hash(parent, child.tokens()), id);
    NodeId first = above.first_child, next = child.next_sibling;
    if (first == id) {
        above.first_child = next;
    } else {
        nodes_[child.prev_sibling].next_sibling = next;
    }
    if (next != NONE) {
        nodes_[next].prev_sibling = child.prev_sibling;
    } else if (first != id) {
        nodes_[first].prev_sibling = child.prev_sibling;
    }
}

void Tree::replace_child(NodeId parent, NodeId id, NodeId by) {
    Node &above = nodes_[parent], &old = nodes_[id], &fresh = nodes_[by];
    edges_.replace(edge_hash(parent, fresh.tokens()), id, by);
    fresh.parent = parent;
    fresh.share = above.share;
    fresh.next_sibling = old.next_sibling;
    fresh.prev_sibling = old.prev_sibling == id ? by : old.prev_sibling;
    if (above.first_child == id) {
        above.first_child = by;
    } else {
        nodes_[old.prev_sibling].next_sibling = by;
    }
    NodeId after = old.next_sibling != NONE ? old.next_sibling : above.first_child;
    nodes_[after].prev_sibling = by;
}

NodeId Tree::split(NodeId id, uint32_t at) {
    assert(0 < at && at < nodes_[id].length && at % page_size == 0);
    TokenRun head_run = nodes_[id].cut(0, at),
             tail_run = nodes_[id].cut(at, nodes_[id].length - at);
    edges_.reserve(1);
    policy_->reserve(nodes_.bound() + 1);
    NodeId head_id = nodes_.add();
    Node &node = nodes_[id], &head = nodes_[head_id];
    head.start = node.start;
    head.lock_ref = node.lock_ref;
    head.copy_facts(node);
    policy_->init(head_id);
    head.hold(std::move(head_run));
    replace_child(node.parent, id, head_id);
    node.hold(std::move(tail_run));
    node.start += at;
    node.run_offset += at;
    add_child(head_id, id);
    policy_->split(head_id, id);
    policy_->resized(id);
    assert(node.parent == head_id && head.end() == node.start && !head.is_leaf());
    return head_id;
}

NodeId Tree::add_leaf(NodeId parent, TokenRun run, int64_t priority) {
    assert(run.length > 0 && run.length % page_size == 0);
    NodeId id = nodes_.add();
    Node& leaf = nodes_[id];
    leaf.hold(std::move(run));
    leaf.start = nodes_[parent].end();
    leaf.run = ++runs_;
    leaf.priority = priority;
    policy_->init(id);
    add_child(parent, id);
    evictable_ += leaf.length;
    shares_.add(leaf.share, leaf.length);
    policy_->leafness_changed(parent);
    return id;
}

NodeId Tree::extend(Path& path, const Descent& found, NodeId root, TokenRun run, int64_t priority,
                    bool is_hit) {
    assert(nodes_[root].parent == NONE && is_path(path));
    assert(path.empty() || root_of(path[0]) == root);
    // Whatever can fail comes first.
    nodes_.reserve(2);
    edges_.reserve(2);
    path.reserve(path.size() + 2);
    policy_->reserve(nodes_.bound() + 2);
    if (found.partial != NONE) {
        path.push_back(split(found.partial, found.length - nodes_[found.partial].start));
    }
    if (is_hit) policy_->use(path);
    NodeId leaf = NONE;
    if (run.length > 0) {
        leaf = add_leaf(path.empty() ? root : path.back(), std::move(run), priority);
        path.push_back(leaf);
        policy_->add_leaf(leaf, !is_hit);
    }
    for (NodeId id : path) {
        nodes_[id].priority = std::max(nodes_[id].priority, priority);
        nodes_[id].hit_count += is_hit;
    }
    touch(path);
    assert(leaf == NONE || (path.back() == leaf && nodes_[leaf].is_leaf()));
    return leaf;
}

// ---- evicting ----

void Tree::note_end_of_run(const Node& leaf) {
    if (leaf.run_offset > 0) {
        cut_runs_[leaf.run] = leaf.parent;
    } else if (!cut_runs_.empty()) {
        cut_runs_.erase(leaf.run);
    }
}

void Tree::unlocked_below(NodeId top, std::vector<NodeId>& out) const {
    walk(top, out);
    auto is_locked = [&](NodeId id) { return nodes_[id].lock_ref > 0; };
    out.erase(std::remove_if(out.begin(), out.end(), is_locked), out.end());
    std::reverse(out.begin(), out.end());
}

NodeId Tree::remove_leaf(NodeId id) {
    NodeId parent = nodes_[id].parent;
    assert(nodes_[id].is_leaf() && !nodes_[id].lock_ref && parent != NONE);
    note_end_of_run(nodes_[id]);
    policy_->remove(id);
    remove_child(parent, id);
    nodes_.remove(id);
    if (!nodes_[parent].is_leaf()) return NONE;
    if (nodes_[parent].parent == NONE) return parent;
    policy_->leafness_changed(parent);
    return NONE;
}

// ---- walking and pickling ----

void Tree::walk(NodeId root, std::vector<NodeId>& out) const {
    NodeId id = nodes_[root].first_child;
    while (id != NONE) {
        out.push_back(id);
        if (nodes_[id].first_child != NONE) {
            id = nodes_[id].first_child;
            continue;
        }
        while (id != root && nodes_[id].next_sibling == NONE) id = nodes_[id].parent;
        id = id == root ? NONE : nodes_[id].next_sibling;
    }
}

NodeId Tree::restore(NodeId parent, const Node& like, TokenRun run) {
    assert(nodes_[parent].is_alive() && run.length > 0 && run.length % page_size == 0);
    edges_.reserve(1);
    NodeId id = nodes_.add();
    policy_->reserve(nodes_.bound());
    Node& node = nodes_[id];
    node.start = nodes_[parent].end();
    node.copy_facts(like);
    policy_->init(id);
    node.hold(std::move(run));
    add_child(parent, id);
    evictable_ += node.length;
    shares_.add(node.share, node.length);
    return id;
}

void Tree::restore_order(uint64_t ticks, uint64_t runs) {
    ticks_ = ticks;
    runs_ = runs;
    std::vector<NodeId> all;
    for (NodeId id = 1; id < nodes_.bound(); ++id) {
        if (nodes_[id].is_alive() && nodes_[id].parent != NONE) all.push_back(id);
    }
    std::sort(all.begin(), all.end(),
              [&](NodeId a, NodeId b) { return nodes_[a].recency < nodes_[b].recency; });
    for (NodeId id : all) policy_->place(id);
}

}  // namespace radixkv
